package ui_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"evenkeel/test/site"
)

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// TestImagesOfTenants: a row has the image's full name, and its form deletes that image alone.
func TestImagesOfTenants(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.post("/ui/login", url.Values{"token": {site.Token}})
	for _, c := range []struct{ path, body string }{
		{"/v1/tenants", `{"name":"film"}`},
		{"/v1/images", `{"name":"debian","kind":"initrd","file":"/images/debian"}`},
		{"/v1/images?tenant=film", `{"name":"debian","kind":"initrd","file":"/images/debian"}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.base+c.path, strings.NewReader(c.body))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+site.Token)
		r.Header.Set("Content-Type", "application/json")
		if resp, text := v.do(r, nil); resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s: %s", c.path, resp.Status, text)
		}
	}
	// names that the page shows of those two.
	names := func() string {
		_, text := v.get("/ui/images")
		var out []string
		for _, name := range []string{"debian", "film/debian"} {
			if strings.Contains(text, `aria-label="Delete `+name+`"`) {
				out = append(out, name)
			}
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "debian film/debian" {
		t.Fatalf("the page has %q", got)
	}
	_, text := v.get("/ui/images")
	_, row, _ := strings.Cut(text, `<th scope="row">film/debian</th>`)
	row, _, _ = strings.Cut(row, "</form>")
	form := url.Values{"do": {"delete"}}
	for _, field := range hiddenField.FindAllStringSubmatch(row, -1) {
		form.Set(field[1], field[2])
	}
	if resp, text := v.post("/ui/images", form); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	if got := names(); got != "debian" {
		t.Errorf("after film/debian was deleted the page has %q", got)
	}
}
