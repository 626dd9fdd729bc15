package browser

import (
	"fmt"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// TestUpdatesKeepPlace: an update of a page leaves the focus where it is, and what is scrolled, both ways.
func TestUpdatesKeepPlace(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	small := func(name string, count int) v1.VirtualClusterSpec {
		return v1.VirtualClusterSpec{Name: name, Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.05, Count: count, Memory: 128 << 20, Image: "tiny"}}}
	}
	c.runs(small("web", 40))
	tab := c.login(b, "h1", "/ui/vms", site.Token)
	tab.Width(375)
	tab.has("the last row", "web-vm-39")
	Eval[bool](tab, `{
  window.row = [...document.querySelectorAll("main tbody tr")].find((r) => r.innerText.includes("web-vm-20"));
  row.querySelector("a").focus();
  row.querySelector("a").scrollIntoView({ block: "center" });
  document.querySelector(".scroll").scrollLeft = 60;
} true`)
	place := func() string {
		return Eval[string](tab, `[document.activeElement.innerText, row.contains(document.activeElement), Math.round(scrollY), document.querySelector(".scroll").scrollLeft].join(" ")`)
	}
	before := place()
	if !strings.HasPrefix(before, "web-vm-20 true ") || strings.HasSuffix(before, " 0") {
		t.Fatalf("the place is %q", before)
	}
	c.runs(small("late", 2))
	tab.has("what is new", "late-vm-1")
	tab.Rests()
	if after := place(); after != before {
		t.Errorf("an update moved %q to %q", before, after)
	}
	tab.Clean()
}

// TestDrainOverReload: the page of a host that is drained shows how far that is after a reload, and where another tab opens it.
func TestDrainOverReload(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 3)
	c.runs(v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.2, Count: 6, Memory: 512 << 20, Image: "tiny"}}})
	vms, err := c.api.VMs(t.Context(), "web", "")
	must(t, err)
	full := vms[0].Host
	path := "/ui/hosts/" + full
	tab := c.login(b, "h1", path, site.Token)
	tab.Press("Drain")
	drain := func() bool { return tab.Is(`document.getElementById("drain") !== null`) }
	tab.Until("the drain", drain)
	for i := range 3 {
		Eval[bool](tab, `window.before = true; location.reload(); true`)
		tab.Until(fmt.Sprintf("the drain, after reload %d", i), func() bool { return tab.Is(`window.before !== true`) && drain() })
	}
	other := b.Open(t, c.page("h1", path))
	for _, tab := range []*Tab{tab, other} {
		tab.Until("the host is empty", func() bool { return strings.Contains(tab.Text(), "drained") })
		tab.Clean()
	}
}

// TestOneVM: an operator checks what is asked for one VM, stops it, starts it, and moves it.
func TestOneVM(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	c.runs(v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.5, Memory: 256 << 20, Image: "tiny"}}})
	tab := c.login(b, "h1", "/ui/vms", site.Token)
	tab.has("the VM", "web-vm-0")
	Eval[bool](tab, `[...document.querySelectorAll("main a")].find((a) => a.innerText === "web-vm-0").click() || true`)
	tab.Until("its page", func() bool { return tab.At() == "/ui/vms/web-vm-0" && strings.Contains(tab.Text(), "running") })
	accessible(tab, "a VM")
	of := func(verb string) string { return `form:has(input[value=` + verb + `]) ` }
	press := func(verb string, dry bool) {
		t.Helper()
		button := of(verb) + `button:not([name=dry])`
		if dry {
			button = of(verb) + `button[name=dry]`
		}
		tab.Until("press "+button, func() bool {
			return tab.Is(fmt.Sprintf(`{ const b = document.querySelector(%q); if (b) b.click(); b !== null; }`, button))
		})
	}
	press("stop", true)
	tab.has("what a stop would do", "Nothing was changed")
	if vm, err := c.api.VM(t.Context(), "web-vm-0"); err != nil || vm.State != "running" {
		t.Fatalf("a check stopped it: %+v %v", vm, err)
	}
	is := func(state string) bool {
		return tab.Is(fmt.Sprintf(`document.querySelector("main > p .state")?.innerText === %q`, state))
	}
	press("stop", false)
	tab.Until("it is stopped, without a reload", func() bool { return is("stopped") })
	press("start", false)
	tab.Until("it runs", func() bool { return is("running") })
	vm, err := c.api.VM(t.Context(), "web-vm-0")
	must(t, err)
	other := map[string]string{"h1": "h2", "h2": "h1"}[vm.Host]
	tab.Fill(of("migrate")+`input[name=to]`, other)
	press("migrate", true)
	tab.has("what a migration would do", "from "+vm.Host+" to "+other)
	press("migrate", false)
	tab.Until("it is on the other host", func() bool { return strings.Contains(tab.Text(), "on "+other) })
	tab.Clean()
}
