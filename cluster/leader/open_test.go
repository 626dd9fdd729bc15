package leader_test

import (
	"errors"
	"strings"
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// Which pools and networks a tenant may name, on a cluster whose settings open the pool fast and the network lab to the tenant acme. A
// disk that is as large as its image lies in a pool, too.
func TestPoolsOfTenants(t *testing.T) {
	bubble(t, poolsOfTenants)
}

func poolsOfTenants(t *testing.T) {
	c := startCluster(t, t.TempDir(), newWorld(t, 1), 1)
	if _, _, err := c.AddImage(t.Context(), state.Image{Name: "debian", Kind: state.DiskImage, File: "/images/debian"}, leader.Call{}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"film", "acme"} {
		if _, err := c.PutTenant(t.Context(), tenant, "", true, false, func(*state.Tenant) {}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Settings(t.Context(), func(s *state.Settings) error {
		s.Pools, s.Networks, s.SharedPools = []string{"fast=acme"}, []string{"lab=acme"}, []string{"fast"}
		return nil
	}, leader.Call{}); err != nil {
		t.Fatal(err)
	}
	disk := func(image string, d state.Disk) func(*state.Group) {
		return func(g *state.Group) { g.Image, g.Disk = image, d }
	}
	for _, q := range []struct {
		what  string
		group func(*state.Group)
		field string // refused to film
	}{
		{"a disk of its own size", disk("tiny", state.Disk{Size: 1 << 30, Pool: "fast"}), "groups[0].disk.pool"},
		{"a disk as large as its image", disk("debian", state.Disk{Pool: "fast"}), "groups[0].disk.pool"},
		{"an ephemeral disk", disk("debian", state.Disk{Pool: "fast", Ephemeral: true}), "groups[0].disk.pool"},
		{"the standard pool", disk("debian", state.Disk{}), ""},
		{"a network", func(g *state.Group) { g.Network = "lab" }, "groups[0].network"},
		{"the standard network", func(g *state.Group) { g.Network = "default" }, ""},
	} {
		for _, tenant := range []string{"film", "acme"} {
			x := vc(tenant+"/probe", 1, 0.1, 512<<20)
			q.group(&x.Groups[0])
			_, err := c.Create(t.Context(), x, leader.Call{DryRun: true})
			var bad *leader.Invalid
			refused := ""
			if errors.As(err, &bad) {
				refused = bad.Fields[0].Field
			}
			if want := map[string]string{"film": q.field}[tenant]; refused != want {
				t.Errorf("%s of %s: refused %q (%v), want %q", q.what, tenant, refused, err, want)
			}
		}
	}
	for _, tenant := range []string{"film", "acme"} { // pools of others are not advised
		x := vc(tenant+"/probe", 1, 0.1, 512<<20)
		x.OnHostLoss, x.Groups[0].Image = state.RestartOnLoss, "debian"
		_, err := c.Create(t.Context(), x, leader.Call{DryRun: true})
		if err == nil || strings.Contains(err.Error(), "fast") != (tenant == "acme") {
			t.Errorf("a restart without a shared disk, %s: %v", tenant, err)
		}
	}
}
