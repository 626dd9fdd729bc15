package leader_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// drawnSpec is a random spec of a VC, of some of the groups a, b and c. What a user may leave out is left out now and then.
func drawnSpec(r *rand.Rand, name string) state.VC {
	some := func(of ...string) string { return of[r.IntN(len(of))] }
	vc := state.VC{Name: name, MinYield: -1, OnHostLoss: some("", "keep", "restart"), Needs: some("", "declared"), Priority: r.IntN(3), OnFull: state.OnFull(some("", "queue", "reject"))}
	if r.IntN(2) == 0 {
		vc.MinYield = float64(r.IntN(5)) / 10
	}
	for _, group := range []string{"a", "b", "c"} {
		if r.IntN(3) == 0 && (group != "c" || len(vc.Groups) > 0) {
			continue
		}
		g := state.Group{Name: group, Count: 1 + r.IntN(5), CPU: float64(1+r.IntN(8)) / 4, Memory: int64(2+r.IntN(4)) * 128 * mib, Image: "tiny", Role: some("", "core", "elastic")}
		if r.IntN(3) == 0 {
			g.VCPUs = 2 + r.IntN(2)
		}
		if r.IntN(3) == 0 {
			g.MemoryMin = 256 * mib
		}
		if r.IntN(3) == 0 {
			g.Labels = map[string]string{"app": some("x", "y")}
		}
		if r.IntN(4) == 0 {
			g.Affinity = state.Affinity{Spread: "host"}
		}
		if r.IntN(4) == 0 {
			g.Affinity.Prefer = []string{"app=x"}
		}
		g.Network = some("", "", "", "default")
		vc.Groups = append(vc.Groups, g)
	}
	return vc
}

// mutated is a spec with a few changes.
func mutated(r *rand.Rand, vc state.VC) state.VC {
	other := drawnSpec(r, vc.Name)
	vc.Groups = slices.Clone(vc.Groups)
	switch r.IntN(6) {
	case 0:
		return other
	case 1:
		vc.MinYield, vc.Priority, vc.OnHostLoss = other.MinYield, other.Priority, other.OnHostLoss
	}
	for i := range vc.Groups {
		g := &vc.Groups[i]
		from := other.Groups[r.IntN(len(other.Groups))]
		switch r.IntN(8) {
		case 0:
			g.Count = from.Count
		case 1:
			g.CPU = min(from.CPU, max(1, float64(g.VCPUs)))
		case 2:
			g.Memory = max(from.Memory, g.MemoryMin)
		case 3:
			g.Labels, g.Role = from.Labels, from.Role
		case 4:
			g.Affinity = from.Affinity
		case 5:
			g.Network = from.Network
		}
		if g.VCPUs > 0 {
			g.VCPUs = max(g.VCPUs, int(math.Ceil(g.CPU)))
		}
	}
	return vc
}

// mayTouch says by itself whether a VM has to stop for a change of its group from old to next: it is not as the agent's start needs it.
// rules: a rule that names hosts or VMs changed, which may forbid its place.
func mayTouch(vm state.VM, old, next state.Group) bool {
	return next.CPU > float64(vm.VCPUs) || next.VCPUs > vm.VCPUs || next.Memory > vm.BootMemory || old.Network != next.Network ||
		old.Affinity.Spread != next.Affinity.Spread && next.Affinity.Spread != ""
}

// A file that is applied makes of a VC what deleting it and creating it from that file would; a VM stops only if it must; and what is
// got is what changes nothing.
func TestApplyEndsWhereDeleteAndCreateWould(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), bubbled(func(t *testing.T) {
			c := startCluster(t, scratch.Dir(t), newWorld(t, 4), 4)
			ctx, r := t.Context(), rand.New(rand.NewPCG(seed, 1))
			apply := leader.Apply{Verb: "apply", Create: true, Restart: true}
			spec := drawnSpec(r, "a")
			changes, refusals, stopped, kept := 0, 0, 0, 0
			for n := range 30 {
				s := c.state.Snapshot()
				before, there := s.VCNamed("a")
				vms := s.VMsOf(before.ID)
				twin := spec
				twin.Name = "twin"
				res, err := c.Apply(ctx, spec, apply, leader.Call{})
				var refused *leader.Refused
				if errors.As(err, &refused) {
					refusals++
					if after, _ := c.state.Snapshot().VCNamed("a"); there && !cmp.Equal(state.SpecOf(before), state.SpecOf(after)) {
						t.Fatalf("%d: refused, and changed: %s", n, cmp.Diff(state.SpecOf(before), state.SpecOf(after)))
					}
					spec = drawnSpec(r, "a")
					continue
				}
				if err != nil {
					t.Fatalf("%d: %v", n, err)
				}
				if res.Operation.ID != "" {
					c.done(res, err)
					changes++
				}
				s = c.state.Snapshot()
				after, _ := s.VCNamed("a")
				made, err := c.Create(ctx, twin, leader.Call{DryRun: true})
				if err == nil {
					if diff := cmp.Diff(state.SpecOf(made.VC), state.SpecOf(after)); diff != "" {
						t.Fatalf("%d: (-deleted and created +applied)\n%s", n, diff)
					}
				} else if !errors.As(err, &refused) { // there may be no room for a second one
					t.Fatal(err)
				}
				for _, old := range vms {
					now, still := s.VM(old.ID)
					next := after.SharedGroup(old.Group)
					g, _ := before.GroupOf(old)
					switch {
					case next == nil || !still && next.Count < g.Count:
					case !still:
						t.Fatalf("%d: VM %s is gone", n, old.Name)
					case now.Generation == old.Generation && now.Host == old.Host:
						kept++
					case !mayTouch(old, g, *next):
						t.Fatalf("%d: VM %s was restarted without need: %+v -> %+v", n, old.Name, g, *next)
					default:
						stopped++
					}
				}
				counts := map[string]int{}
				for _, vm := range s.VMsOf(after.ID) {
					counts[vm.Group]++
				}
				for _, g := range after.Groups {
					if counts[g.Name] != g.Count {
						t.Fatalf("%d: group %s has %d VMs of %d", n, g.Name, counts[g.Name], g.Count)
					}
				}
				written, _ := s.Written(after, "", state.Author{})
				again, err := c.Apply(ctx, written.On(state.VC{Name: "a"}), apply, leader.Call{})
				if x, _ := c.state.Snapshot().VCNamed("a"); err != nil || again.Operation.ID != "" || x.ModifyIndex < after.ModifyIndex || !cmp.Equal(state.SpecOf(x), state.SpecOf(after)) {
					t.Fatalf("%d: what it got was applied: %+v, %v", n, again, err)
				}
				spec = mutated(r, spec)
			}
			t.Logf("%d changes, %d refused; %d VMs restarted, %d ran on", changes, refusals, stopped, kept)
			if changes < 10 || kept == 0 {
				t.Errorf("only %d changes, %d VMs ran on", changes, kept)
			}
		}))
	}
}

// What only some VMs must restart for is refused as a whole without leave, and changes nothing.
func TestApplyWithoutRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		spec := vc("a", 2, 1, 512*mib)
		how := leader.Apply{Verb: "apply", Create: true}
		c.done(c.Apply(ctx, spec, how, leader.Call{}))
		before, _ := c.state.Snapshot().VCNamed("a")
		spec.Groups = slices.Clone(spec.Groups)
		spec.Groups[0].Memory, spec.Priority = 1024*mib, 5
		_, err := c.Apply(ctx, spec, how, leader.Call{})
		var restart *leader.NeedsRestart
		if !errors.As(err, &restart) || restart.VMs != 2 || len(restart.Fields) != 2 || !strings.Contains(restart.Fields[0].Text, "was started with 512MiB") {
			t.Errorf("%v", err)
		}
		if after, _ := c.state.Snapshot().VCNamed("a"); after.ModifyIndex != before.ModifyIndex {
			t.Error("it changed")
		}
		how.Restart = true
		c.done(c.Apply(ctx, spec, how, leader.Call{}))
		for _, vm := range c.state.Snapshot().VMsOf(before.ID) {
			if vm.Generation != 2 || vm.BootMemory != 1024*mib || vm.PreemptedAt != 0 || vm.Reason != "" {
				t.Errorf("%+v", vm)
			}
		}
	})
}

// What disks and names do not allow is refused with the field, however the rest is.
func TestApplyRefusesWhatCannotChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		spec := vc("a", 1, 1, 512*mib)
		spec.Groups[0].Disk = state.Disk{Size: 1 << 30}
		how := leader.Apply{Verb: "apply", Create: true, Restart: true}
		c.done(c.Apply(ctx, spec, how, leader.Call{}))
		for field, change := range map[string]func(g *state.Group){
			"groups[w].disk.size":      func(g *state.Group) { g.Disk.Size = 2 << 30 },
			"groups[w].disk.pool":      func(g *state.Group) { g.Disk.Pool = "other" },
			"groups[w].disk.ephemeral": func(g *state.Group) { g.Disk.Ephemeral = true },
			"groups[w].disk":           func(g *state.Group) { g.Disk = state.Disk{} },
			"groups[w].image":          func(g *state.Group) { g.Image, g.Boot = "", state.Boot{Kernel: "tiny"} },
		} {
			next := spec
			next.Groups = slices.Clone(spec.Groups)
			change(&next.Groups[0])
			_, err := c.Apply(ctx, next, how, leader.Call{})
			var invalid *leader.Invalid
			want := strings.ReplaceAll(field, "[w]", "["+spec.Groups[0].Name+"]")
			if !errors.As(err, &invalid) || invalid.Fields[0].Field != want {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
}

// If-Match is respected, and an edit creates nothing.
func TestApplyUnderConditions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		spec := vc("a", 1, 1, 512*mib)
		how := leader.Apply{Verb: "apply", Create: true}
		if _, err := c.Apply(ctx, spec, how, leader.Call{IfMatch: 7}); !errors.Is(err, leader.ErrPrecondition) {
			t.Errorf("of one that is not there: %v", err)
		}
		c.done(c.Apply(ctx, spec, how, leader.Call{}))
		spec.Priority = 3
		if _, err := c.Apply(ctx, spec, how, leader.Call{IfMatch: 7}); !errors.Is(err, leader.ErrPrecondition) {
			t.Errorf("another version: %v", err)
		}
		at, _ := c.state.Snapshot().VCNamed("a")
		c.done(c.Apply(ctx, spec, how, leader.Call{IfMatch: at.ModifyIndex}))
		if x, _ := c.state.Snapshot().VCNamed("a"); x.Priority != 3 || len(x.Groups) != 1 {
			t.Errorf("%+v", x)
		}
		if _, err := c.Apply(ctx, vc("b", 1, 1, 512*mib), leader.Apply{Verb: "edit"}, leader.Call{}); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("an edit of what is not there: %v", err)
		}
	})
}
