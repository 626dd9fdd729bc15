package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/test/browser"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
)

// TestDashboard: an operator makes a virtual cluster on the pages of `vcd dev`, sees its guest run, types on the guest's console, reads why it
// cannot grow, has its only host drained as far as that goes, loses the server and finds the page live again, and deletes what was made.
func TestDashboard(t *testing.T) {
	lab.Real(t)
	t.Parallel()
	b := browser.Start(t, os.Getenv("CI") != "")
	d := daemon.New(t, lab.New(t, lab.Options{Hosts: 1}).Host(1))
	tab := b.Open(t, d.Address+"/ui/new")
	shows := func(what string, texts ...string) {
		t.Helper()
		tab.Until(what, func() bool {
			text := tab.Text()
			for _, part := range texts {
				if !strings.Contains(text, part) {
					return false
				}
			}
			return true
		})
	}
	tab.Fill(`input[name=token]`, d.Token())
	tab.Press("Log in")
	tab.Until("the form", func() bool { return tab.At() == "/ui/new" })
	tab.Fill(`textarea`, "name: web\nonFull: reject\nminYield: 0.9\ngroups:\n- {name: vm, cpu: 0.3, memory: 96MiB, boot: {kernel: tiny, cmdline: console=ttyS0 quiet no_timer_check panic=-1}}\n")
	tab.Press("Create")
	tab.Until("the page of web", func() bool { return tab.At() == "/ui/virtual-clusters/web" })
	shows("the guest runs", "running · 1 of 1")
	tab.Clean()

	tab.Go(d.Address + "/ui/console/web-vm-0")
	shows("the guest's console", "Connected.")
	// The guest's other lines may push an answer off the screen before it is looked at.
	tab.Inject(`const box = document.getElementById("console");
new MutationObserver(() => { window.answered ||= box.innerText.includes("OK echo over-the-page"); }).observe(box, { subtree: true, childList: true, characterData: true });`)
	// The page shows nothing while a capped guest boots, which a busy machine lets take its time.
	d.Eventually(2*time.Minute, "the guest's answer", func(context.Context) (bool, error) {
		tab.Paste("echo over-the-page\n")
		return tab.Is(`window.answered === true`), nil
	})
	tab.Clean()

	tab.Go(d.Address + "/ui/virtual-clusters/web")
	tab.Fill(`input[name=count]`, "100")
	tab.Press("Scale")
	shows("why it is refused", "What each host lacks", "h1", "What would help")
	tab.Go(d.Address + "/ui/hosts/h1")
	tab.Press("Check the drain")
	shows("why the host cannot be emptied", "web-vm-0")
	tab.Clean()

	tab.Go(d.Address + "/ui/virtual-clusters/web")
	d.Kill()
	tab.Until("the page says that it is not live", func() bool { return tab.Is(`!lost.hidden`) })
	d.Launch()
	tab.Until("the page is live again", func() bool { return tab.Is(`lost.hidden`) })
	shows("the guest runs on", "running · 1 of 1")
	tab.Press("Delete")
	tab.Until("web is gone", func() bool {
		vms, err := d.VMs(t.Context(), "", "")
		return err == nil && len(vms) == 0
	})
}
