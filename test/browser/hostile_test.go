package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// hostileForms are texts that would be markup or code in some place of a page; %d makes them differ.
var hostileForms = []string{
	`<script>document.title="taken"</script>%d`,
	`"><img src=x onerror=document.title="taken">%d`,
	`' onfocus='document.title="taken"' autofocus x='%d`,
	`</td></tr></table><script>document.title="taken"</script>%d`,
	`</textarea><script>document.title="taken"</script>%d`,
	`</title><script>document.title="taken"</script>%d`,
	`</option></select><svg onload=document.title="taken">%d`,
	`--><script>document.title="taken"</script><!--%d`,
	`javascript:document.title="taken"//%d`,
	`{{.Form}}{{printf "%%s" .}}%d`,
	`&lt;script&gt;document.title="taken"&lt;/script&gt;%d`,
	`<a href="javascript:document.title='taken'">%d</a>`,
	`<style>*{display:none}</style>%d`,
	`<base href="https://elsewhere.example/">%d`,
	`<meta http-equiv="refresh" content="0;url=https://elsewhere.example/">%d`,
	`<form action="https://elsewhere.example/"><button>%d`,
}

// hostileText is the i-th text.
func hostileText(i int) string { return fmt.Sprintf(hostileForms[i%len(hostileForms)], i) }

// hostileFile is the path of an image with the i-th text in it.
func hostileFile(i int) string {
	return "/images/" + rightToLeft + strings.ReplaceAll(hostileText(i), "/", "_")
}

// rightToLeft has marks that turn the order of what follows, which JSON and YAML may hold.
const rightToLeft = "\u202e\u2066\u200f"

// TestHostileNames: 200 texts of others, and one of 64 KiB, are text on every page that shows them, in the address and in forms: no
// element comes of them, no script runs, and the policy has nothing to refuse.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 1)
	const tenants, images = 99, 99 // as many as a list has rows at first
	for i := range tenants {
		_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: fmt.Sprintf("t%03d", i), DisplayName: hostileText(i)})
		must(t, err)
	}
	for i := range images {
		_, err := c.api.AddImage(t.Context(), v1.ImageSpec{Name: fmt.Sprintf("i%03d", i), Kind: "initrd", File: hostileFile(i)})
		must(t, err)
	}
	// The largest text that the API takes: cloud-init data of 64 KiB, which the page with the file of a virtual cluster shows.
	data := "#cloud-config\n"
	for i := 0; len(data) < 64<<10; i++ {
		data += "# " + rightToLeft + hostileText(i) + "\n"
	}
	data = strings.ToValidUTF8(data[:64<<10], "")
	spec := v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.1, Memory: 256 << 20, Image: "tiny", CloudInit: &v1.CloudInit{UserData: data}}}}
	r, err := c.api.Create(t.Context(), spec)
	must(t, err)
	_, err = c.api.Wait(t.Context(), *r.Operation, nil)
	must(t, err)
	_, err = c.api.Cordon(t.Context(), "h1", rightToLeft+hostileText(0)+hostileText(3))
	must(t, err)
	made, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: hostileText(1), Role: "admin"})
	must(t, err)

	tab := c.login(b, "h1", "/ui/", made.Token)
	paths := []string{"/ui/", "/ui/hosts", "/ui/hosts/h1", "/ui/virtual-clusters", "/ui/virtual-clusters/web", "/ui/file/web", "/ui/vms", "/ui/new", "/ui/plans", "/ui/periodic", "/ui/events", "/ui/tenants", "/ui/tenants/t000", "/ui/settings",
		"/ui/images", "/ui/operations", "/ui/migrations", "/ui/rightsizing", "/ui/tokens", "/ui/roles", "/ui/audit", "/ui/simulate", "/ui/forecast/web-vm-0", "/ui/login"}
	for i, query := range []string{"/ui/hosts?q=", "/ui/virtual-clusters?q=", "/ui/vms?q=", "/ui/tenants?q=", "/ui/images?q=", "/ui/operations?vc=", "/ui/migrations?vm=", "/ui/tokens?q=", "/ui/roles?q=", "/ui/periodic?q=", "/ui/events?name=", "/ui/events?kind=", "/ui/audit?actor=", "/ui/login?next=", "/ui/virtual-clusters/web?operation=", "/ui/forecast/web-vm-0?resource="} {
		paths = append(paths, query+url.QueryEscape(rightToLeft+hostileText(i)))
	}
	for i, folder := range []string{"/ui/hosts/", "/ui/virtual-clusters/", "/ui/file/", "/ui/periodic/", "/ui/console/", "/ui/forecast/", "/ui/plans/", "/ui/"} {
		paths = append(paths, folder+url.PathEscape(rightToLeft+strings.ReplaceAll(hostileText(i), "/", "_")))
	}
	shown := 0
	for _, path := range paths {
		tab.Go(c.page("h1", path))
		inert(tab, path)
		text := tab.Text()
		for i := range tenants {
			if path == "/ui/tenants" && strings.Contains(text, hostileText(i)) || path == "/ui/images" && strings.Contains(text, hostileFile(i)) {
				shown++
			}
		}
	}
	if shown != tenants+images {
		t.Errorf("%d texts were seen: the pages do not show what the test is about", shown)
	}

	tab.Go(c.page("h1", "/ui/new"))
	tab.Fill(`textarea`, "name: web\n"+rightToLeft+hostileText(4)+"\n"+strings.Repeat(hostileText(0)+"\n", 1500))
	tab.Until("the text is refused, while it is written", func() bool { return tab.Is(`document.querySelector("[data-answer] .problem") !== null`) })
	inert(tab, "a file that is written")
	tab.Press("Create")
	tab.Until("the text is refused", func() bool {
		return tab.Is(`document.querySelector("main > .problem") !== null`)
	})
	inert(tab, "a file that was refused")
	guest := c.login(Start(t, required), "h1", "/ui/", site.Token)
	guest.Go(c.page("h1", "/ui/audit"))
	guest.Until("the audit log has the name", func() bool { return strings.Contains(guest.Text(), "onerror") })
	inert(guest, "the audit log")
}

// inert checks that no text of others became a part of the page.
func inert(tab *Tab, what string) {
	tab.t.Helper()
	title := Eval[string](tab, `document.title`)
	const foreign = `base, style, iframe, object, embed, main script, main img, main svg:not(.bar, .curve), body [onload], body [onerror], body [onfocus], meta[http-equiv], a[href^="javascript:"], form[action^="https://elsewhere"]`
	if inside := Eval[[]string](tab, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.outerHTML.slice(0, 200))`, foreign)); len(inside) > 0 || !strings.HasSuffix(title, "· Evenkeel") {
		tab.t.Errorf("%s: title %q, elements of others %q", what, title, inside)
	}
	tab.Clean()
}
