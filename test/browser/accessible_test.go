package browser

import (
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// TestAccessibleToTenants: the pages of a tenant, those that it may not see and those that are not there included, break no rule of
// axe-core in either theme.
func TestAccessibleToTenants(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 1)
	_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film"})
	must(t, err)
	c.ran("old", "nightly", client.OfTenant("film"))
	c.runs(v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.5, Memory: 256 << 20, Image: "tiny"}}}, client.OfTenant("film"))
	for _, role := range []string{"owner", "viewer"} {
		token, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: "of film", Role: role, Tenant: "film"})
		must(t, err)
		tab := c.login(b, "h1", "/ui/virtual-clusters", token.Token)
		for _, theme := range []string{"light", "dark"} {
			tab.Theme(theme)
			for _, path := range []string{"/ui/virtual-clusters", "/ui/virtual-clusters/web", "/ui/file/web", "/ui/vms", "/ui/console/web-vm-0", "/ui/forecast/web-vm-0", "/ui/new", "/ui/periodic", "/ui/periodic/nightly", "/ui/images", "/ui/operations", "/ui/migrations", "/ui/migrations?vm=web-vm-0", "/ui/tokens", "/ui/roles", "/ui/tenants", "/ui/tenants/film", "/ui/events", "/ui/hosts", "/ui/nothing"} {
				tab.Go(c.page("h1", path))
				accessible(tab, path+" as "+role+", "+theme)
				tab.Clean()
			}
		}
		b = Start(t, required) // of the next role, with a session of its own
	}
}
