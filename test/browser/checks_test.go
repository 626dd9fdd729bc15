package browser

import (
	"context"
	"sync"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// TestChecksWait: a form of a tenant that makes too many dry runs says so, and when it is checked again, and shows the answer once there is
// one.
func TestChecksWait(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 1)
	_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film"})
	must(t, err)
	token, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: "of film", Role: "editor", Tenant: "film"})
	must(t, err)
	const file = "name: web\ngroups:\n  - {name: vm, cpu: 0.1, memory: 256MiB, image: tiny}\n"
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	other, err := client.New(client.Config{Address: c.Address("h1"), Token: token.Token, CAFile: c.CAFile()})
	must(t, err)
	t.Cleanup(other.Close)
	for range 4 { // another client of the tenant, which takes all that it may
		busy.Go(func() {
			for ctx.Err() == nil {
				_, _ = other.Create(ctx, v1.VirtualClusterSpec{Name: "other", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.1, Memory: 256 << 20, Image: "tiny"}}}, client.DryRun())
			}
		})
	}
	tab := c.login(b, "h1", "/ui/new", token.Token)
	tab.Fill("textarea", file)
	// A check may come just when there is room for one: then the form is changed again.
	tab.Until("the page says that it waits", func() bool {
		return tab.Is(`{
const answer = document.querySelector("[data-answer]");
const waits = /Too many requests[^]*It is checked again in \d+ s/.test(answer.textContent);
if (!waits && answer.firstChild) {
  answer.replaceChildren();
  document.querySelector("textarea").dispatchEvent(new Event("input", { bubbles: true }));
}
waits; }`)
	})
	stop()
	tab.Until("what it would do", func() bool {
		return tab.Is(`document.querySelector("[data-answer] .problem") === null && document.querySelector("[data-answer] > *") !== null`)
	})
}
