package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// reach moves the focus by the tabulator to an element whose text or label is this, and checks that the focus can be seen.
func (tab *Tab) reach(label string) {
	tab.t.Helper()
	at := func() bool {
		return tab.Is(fmt.Sprintf(`{ const at = document.activeElement; const text = at.matches("button, a, summary") ? at.innerText.trim() : (at.labels?.[0]?.innerText ?? "").trim(); text === %q; }`, label))
	}
	for range 150 {
		tab.Type("\t")
		if at() {
			if style := Eval[string](tab, `getComputedStyle(document.activeElement).outlineStyle`); style == "none" {
				tab.t.Errorf("%s: the focus on %s cannot be seen", tab.At(), label)
			}
			return
		}
	}
	tab.t.Fatalf("%s: the keyboard does not reach %s; the page:\n%s", tab.At(), label, tab.Text())
}

// TestKeyboard creates a virtual cluster and drains a host, from the log-in on, with keys alone.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	tab := b.Open(t, c.page("h1", "/ui/"))
	tab.Until("the field has the focus", func() bool { return tab.Is(`document.activeElement.name === "token"`) })
	tab.Type(site.Token + "\r")
	tab.Until("the overview", func() bool { return tab.At() == "/ui/" && strings.Contains(tab.Text(), "Minimum yield") })
	tab.Type("\t")
	if text := Eval[string](tab, `document.activeElement.innerText`); text != "Skip to the content" {
		t.Errorf("the first stop is %q", text)
	}
	tab.reach("Virtual clusters")
	tab.Type("\r")
	tab.Until("virtual clusters", func() bool { return tab.At() == "/ui/virtual-clusters" })
	tab.reach("New virtual cluster")
	tab.Type("\r")
	tab.Until("the form", func() bool { return tab.At() == "/ui/new" })
	tab.reach("Check")
	tab.Type("\r")
	tab.has("what it would do", "Nothing was changed")
	tab.reach("Create")
	tab.Type("\r")
	tab.Until("the page of web", func() bool { return tab.At() == "/ui/virtual-clusters/web" })
	tab.has("web runs", "2 of 2 VMs running")
	vms, err := c.api.VMs(t.Context(), "web", "")
	must(t, err)
	full := vms[0].Host
	tab.reach("Hosts")
	tab.Type("\r")
	tab.Until("hosts", func() bool { return tab.At() == "/ui/hosts" })
	tab.reach(full)
	tab.Type("\r")
	tab.Until("the host", func() bool { return tab.At() == "/ui/hosts/"+full })
	tab.reach("Reason")
	tab.Type("new disks")
	tab.reach("Check the drain")
	tab.Type("\r")
	tab.has("what the drain would do", "The host can be emptied")
	tab.reach("Drain")
	tab.Type("\r")
	tab.has("the host is empty", "drained", "new disks")
	tab.Clean()
}

// TestLeaderKilled: a page on a server that does not lead goes on without a reload when another leads; it says when none can, and is
// back when one does.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 3)
	here := c.Follower()
	tab := c.login(b, here, "/ui/virtual-clusters", site.Token)
	tab.has("the page", "New virtual cluster")
	tab.Inject(`window.same = true;`)
	killed := c.Leader()
	gone := time.Now()
	must(t, c.Stop(killed))
	tab.Until("another leads", func() bool { return c.Leader() != "" })
	shows := func(name string) {
		_, err := c.api.Create(t.Context(), v1.VirtualClusterSpec{Name: name, Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.1, Memory: 256 << 20, Image: "tiny"}}})
		must(t, err)
		tab.Until("the page shows what happened since, without a reload", func() bool { return strings.Contains(tab.Text(), name) && tab.Is(`window.same === true`) })
	}
	shows("late")
	t.Logf("the page shows a change made %s after the leader went", time.Since(gone).Round(time.Millisecond))

	third := c.Up()[slices.IndexFunc(c.Up(), func(name string) bool { return name != here && name != killed })]
	must(t, c.Stop(third))
	tab.Until("the page says that the server has no leader", func() bool { return tab.Is(`!lost.hidden`) })
	must(t, c.Start(third))
	tab.Until("the page is back", func() bool { return tab.Is(`lost.hidden && window.same === true`) })
	shows("later")
}
