package main

import (
	"slices"
	"strings"
	"testing"
)

// An image is listed under a name that deletes it and no other.
func TestImagesOfTenants(t *testing.T) {
	ofAll := `{"items":[{"name":"debian","kind":"disk","file":"/a"},{"name":"debian","tenant":"film","kind":"disk","file":"/b"}]}`
	for _, c := range []struct {
		images, line, asked string
		says, not           string
	}{
		{ofAll, "image list", "GET /v1/images", "film/debian   disk", ""},
		{ofAll, "image list --tenant *", "GET /v1/images?tenant=%2A", "film/debian   disk", ""},
		{ofAll, "image list --tenant acme", "GET /v1/images?tenant=acme", "film/debian   disk", ""},
		{ofAll, "image list --tenant film", "GET /v1/images?tenant=film", "debian", "film/debian"},
		{strings.ReplaceAll(strings.ReplaceAll(ofAll, "/a", ""), "/b", ""), "image list", "GET /v1/images", "debian", "film/debian"},
		{ofAll, "image delete film/debian", "DELETE /v1/images/debian?tenant=film", "film/debian is out of", ""},
		{ofAll, "image delete debian", "DELETE /v1/images/debian", "debian is out of", "film"},
	} {
		atHome(t, "")
		r := newRecorder(t, map[string]string{"GET /v1/images": c.images, "DELETE /v1/images/debian": "204"})
		status, asked, out, errs := r.vcctl(strings.Split(c.line, " ")...)
		if status != 0 || !slices.Equal(asked, []string{c.asked}) || !strings.Contains(out, c.says) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: status %d; asked %q, want %q; printed %s%s", c.line, status, asked, c.asked, out, errs)
		}
	}
}
