package browser

import (
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// TestConsole: what is typed on the page of a VM's console comes back from the guest, on a server that does not lead. A guest's colours,
// links and titles do nothing that the policy of the page refuses. Another reader takes the console over, and the page says so.
func TestConsole(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 3)
	spec := v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", CPU: 1, Memory: 256 << 20, Image: "tiny"}}}
	r, err := c.api.Create(t.Context(), spec)
	must(t, err)
	_, err = c.api.Wait(t.Context(), *r.Operation, nil)
	must(t, err)
	tab := c.login(b, c.Follower(), "/ui/console/web-vm-0", site.Token)
	tab.Until("the console is connected", func() bool { return strings.Contains(tab.Text(), "Connected.") && strings.Contains(tab.Text(), "BEAT") })
	tab.Inject(`window.seen = new Set();
window.coloured = false;
new MutationObserver(() => { coloured ||= Boolean(document.querySelector("#console span[style*='10, 200, 30']")); for (const word of ["Z", "echo-of-this", "coloured", "link"]) if (document.getElementById("console").innerText.includes(word)) seen.add(word); })
  .observe(document.getElementById("console"), { subtree: true, childList: true, characterData: true });`)
	tab.Type("Z") // a beat of the guest may come between any two keys
	tab.Until("the echo of a key", func() bool { return Eval[bool](tab, `seen.has("Z")`) })
	tab.Paste(" echo-of-this ")
	tab.Until("the echo", func() bool { return Eval[bool](tab, `seen.has("echo-of-this")`) })
	// The guest of these tests echoes what it gets: so these are sequences that a guest writes.
	tab.Paste("\x1b[38;2;10;200;30mcoloured\x1b[0m \x1b]0;taken\x07")
	tab.Until("colours", func() bool { return Eval[bool](tab, `seen.has("coloured")`) })
	tab.Paste("\x1b]8;;javascript:document.title='taken'\x1b\\link\x1b]8;;\x1b\\")
	tab.Until("its colour", func() bool { return Eval[bool](tab, `coloured`) })
	tab.Until("a link", func() bool { return Eval[bool](tab, `seen.has("link")`) })
	if title := Eval[string](tab, `document.title`); title != "Console of web-vm-0 · Evenkeel" {
		t.Errorf("the guest set the title %q", title)
	}
	tab.Clean()

	tty, err := c.api.Console(t.Context(), "web-vm-0")
	must(t, err)
	tab.Until("the console was taken over", func() bool { return strings.Contains(tab.Text(), "another reader took it over") })
	must(t, tty.Close())
	tab.Press("Connect again")
	tab.Until("the console is connected again", func() bool { return strings.Contains(tab.Text(), "Connected.") })
	tab.Clean()
}
