package admission_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// VMs start only where the pool of their disks is. A host that has not reported its pools may have any.
func TestPools(t *testing.T) {
	has := func(pools ...string) map[string]string {
		out := map[string]string{}
		for _, p := range pools {
			out[p] = "dir /" + p
		}
		return out
	}
	for _, c := range []struct {
		name  string
		pools placement.Pools
		count int
		disk  state.Disk
		image string
		want  []string // hosts; nil = refused
		says  []string
	}{
		{"nothing is known", nil, 2, state.Disk{Size: scheduling.GiB, Pool: "fast"}, "", []string{"h1", "h2", "h3"}, nil},
		{"one has it", placement.Pools{"h1": has("default"), "h2": has("default", "fast"), "h3": has()}, 2, state.Disk{Size: scheduling.GiB, Pool: "fast"}, "", []string{"h2"}, nil},
		{"an image is a disk, too", placement.Pools{"h1": has("default"), "h2": has("default", "fast"), "h3": has()}, 1, state.Disk{Pool: "fast"}, "disk", []string{"h2"}, nil},
		{"no disk, no pool", placement.Pools{"h1": has("default"), "h2": has("default"), "h3": has("default")}, 1, state.Disk{Pool: "fast"}, "", []string{"h1", "h2", "h3"}, nil},
		{"one has not reported", placement.Pools{"h1": has("default"), "h2": has("default")}, 2, state.Disk{Size: scheduling.GiB, Pool: "fast"}, "", []string{"h3"}, nil},
		{"no host has it", placement.Pools{"h1": has("default"), "h2": has("ssd", "default"), "h3": has()}, 1, state.Disk{Size: scheduling.GiB, Pool: "fast"}, "", nil,
			[]string{"no host has the storage pool fast of group g0; hosts have default, ssd", "h1 has no storage pool fast; it has default", "h3 has no storage pool fast; it has none"}},
		{"who has it is full", placement.Pools{"h1": has("default"), "h2": has("fast"), "h3": has("default")}, 9, state.Disk{Size: scheduling.GiB, Pool: "fast"}, "", nil,
			[]string{"h1 has no storage pool fast; it has default"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := scheduling.NewCluster(t, "h1", "h2", "h3")
			g := scheduling.Group(c.count, 0.5, scheduling.GiB)
			g.Disk, g.Image = c.disk, c.image
			x := scheduling.VC("x", 0.5, g)
			x.OnFull = state.Reject
			env := k.Env()
			env.Pools = c.pools
			a := admission.Create(k.Snapshot(), x, env)
			if a.Decision.Admitted != (c.want != nil) {
				t.Fatalf("%+v", a.Decision)
			}
			explained := a.Decision.Summary + "\n"
			for _, r := range a.Decision.Hosts {
				explained += r.Host + " " + r.Text + "\n"
			}
			for _, want := range c.says {
				if !strings.Contains(explained, want) {
					t.Errorf("%q lacks %q", explained, want)
				}
			}
			if a.Plan == nil {
				return
			}
			for _, vm := range a.Plan.VMs {
				if !slices.Contains(c.want, vm.Host) {
					t.Errorf("%s is on %s, want %v", vm.Name, vm.Host, c.want)
				}
			}
		})
	}
}

// A host that a rule keeps the VM from is explained by the rule, also where its name begins that of the host that is required.
func TestPoolsBesideRules(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h10")
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h10", Cordoned: true})
	g := scheduling.Group(1, 0.5, scheduling.GiB)
	g.Disk, g.Affinity.Require = state.Disk{Size: scheduling.GiB, Pool: "fast"}, []string{"host:h10"}
	x := scheduling.VC("x", 0.5, g)
	x.OnFull = state.Reject
	env := c.Env()
	env.Pools = placement.Pools{"h1": {}, "h10": {"fast": "/fast"}}
	a := admission.Create(c.Snapshot(), x, env)
	if len(a.Decision.Hosts) == 0 || a.Decision.Hosts[0].Rule != "require host:h10" {
		t.Errorf("%+v", a.Decision)
	}
}
