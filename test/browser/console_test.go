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
const box = document.getElementById("console");
new MutationObserver(() => {
  for (const word of ["Z", "echo-of-this", "link"]) if (box.innerText.includes(word)) seen.add(word);
  if (box.querySelector("span[style*='10, 200, 30']")) seen.add("coloured");
}).observe(box, { subtree: true, childList: true, characterData: true });`)
	// The guest beats fast, so that what it writes may have left the screen before a slow browser drew it: it is sent until it is seen.
	seen := func(what, text string, send func()) {
		t.Helper()
		tab.Until(what, func() bool {
			send()
			return Eval[bool](tab, `seen.has("`+text+`")`)
		})
	}
	seen("the echo of a key", "Z", func() { tab.Type("Z") })
	seen("an echo", "echo-of-this", func() { tab.Paste(" echo-of-this ") })
	// The guest of these tests echoes what it gets: so these are sequences that a guest writes.
	seen("a colour", "coloured", func() { tab.Paste("\x1b[38;2;10;200;30mcoloured\x1b[0m \x1b]0;taken\x07") })
	seen("a link", "link", func() { tab.Paste("\x1b]8;;javascript:document.title='taken'\x1b\\link\x1b]8;;\x1b\\") })
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
