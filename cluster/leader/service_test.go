package leader_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

const mib = 1 << 20

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// The main job: three VCs that need more CPU than there is, all run, at equal
// yields; one is scaled and the others shrink; one is refused; all are deleted.
func TestTour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 4, 1, 512*mib), leader.Call{}))
		c.done(c.Create(ctx, vc("b", 4, 1, 512*mib), leader.Call{}))
		v := c.done(c.Create(ctx, vc("c", 2, 1, 512*mib), leader.Call{}))
		for _, x := range v.VCs() {
			view := v.VCView(x)
			if view.State != state.VCRunning || !near(view.Yield, 0.8) {
				t.Errorf("%s: %s, yield %v, want running at 8 cores / 10 needed", x.Name, view.State, view.Yield)
			}
		}
		for _, vm := range v.VMs() {
			if view := v.VMView(vm); math.Abs(view.Cap-view.Allocation) > 1e-4 {
				t.Errorf("%s: cap in force %v, allocation %v", vm.Name, view.Cap, view.Allocation)
			}
		}
		count := 4
		v = c.done(c.Scale(ctx, "c", leader.Scale{Count: &count}, leader.Call{}))
		b, _ := v.VCNamed("b")
		if y := v.VCView(b).Yield; !near(y, 8.0/12) {
			t.Errorf("yield of b after c grew: %v, want 8/12", y)
		}
		big := vc("d", 20, 1, 512*mib)
		big.OnFull = state.Reject
		var refused *leader.Refused
		if _, err := c.Create(ctx, big, leader.Call{}); !errors.As(err, &refused) || len(refused.Decision.Hosts) != 2 {
			t.Fatalf("20 more cores at yield 0.5 on 8: %v, want a refusal with a reason per host", err)
		}
		for _, name := range []string{"a", "b", "c"} {
			c.done(c.Delete(ctx, name, leader.Call{}))
		}
		if s := c.state.Snapshot(); len(s.VMs())+len(s.VCs()) != 0 {
			t.Errorf("left behind: %v %v", s.VCs(), s.VMs())
		}
		audit := world.Audit()
		for host, peak := range audit.Peaks {
			if peak.CPU > 4*(1+1e-9) || peak.Memory > 8<<30 {
				t.Errorf("host %s had %v cores of caps and %d bytes at one instant, more than it has", host, peak.CPU, peak.Memory)
			}
		}
		if len(audit.Doubled) > 0 {
			t.Error("ran twice:", audit.Doubled)
		}
	})
}

// What does not fit waits, and starts when there is room.
func TestQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("first", 4, 1, 512*mib), leader.Call{}))
		c.done(c.Create(ctx, vc("second", 4, 1, 512*mib), leader.Call{}))
		r, err := c.Create(ctx, vc("third", 4, 1, 512*mib), leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := c.View(ctx, false)
		if x := v.VCView(r.VC); x.State != state.VCQueued || x.Reason == "" {
			t.Fatalf("third is %s (%s), want queued with a reason", x.State, x.Reason)
		}
		c.done(c.Delete(ctx, "first", leader.Call{}))
		c.eventually("third starts", func(v *leader.View) bool { return v.Progress(r.Operation).State == state.OpDone })
	})
}

// What waits is explained by the hosts that can be had now.
func TestExplainBesideASilentHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1)
		c := startCluster(t, scratch.Dir(t), world, 1)
		if err := world.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		c.eventually("h1 is out of reach", func(v *leader.View) bool { h, _ := v.Host("h1"); return v.HostView(h).State == "unreachable" })
		r, err := c.Create(t.Context(), vc("a", 1, 1, 512*mib), leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := c.View(t.Context(), false)
		if e := leader.Explain(v, r.VC); v.VCView(r.VC).State != state.VCQueued || !strings.Contains(strings.Join(e.Lines, "\n"), "0 of 1 VMs fit") {
			t.Errorf("%s: %q", v.VCView(r.VC).State, e.Lines)
		}
	})
}

// Stopping keeps the VC; starting raises the generation.
func TestStopStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{}))
		v := c.done(c.Stop(ctx, "a", leader.Call{}))
		a, _ := v.VCNamed("a")
		if s := v.VCView(a).State; s != state.VCStopped {
			t.Fatalf("state %s after stop", s)
		}
		if l := v.LoadOf("h1"); l.VMs != 0 || l.Memory != 0 {
			t.Errorf("a stopped VC still holds %+v", l)
		}
		v = c.done(c.Start(ctx, "a", leader.Call{}))
		for _, vm := range v.VMs() {
			if vm.Generation != 2 {
				t.Errorf("%s has generation %d after its second start", vm.Name, vm.Generation)
			}
		}
	})
}

// A VC does not start while a VM that was stopped alone is still stopping: it would stay down. Once it has stopped it starts.
func TestStartWhileAVMStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		v := c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{}))
		name := v.VMs()[0].Name
		stop, err := c.StopVM(ctx, name, leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		var busy *leader.Busy
		if _, err := c.Start(ctx, "a", leader.Call{}); !errors.As(err, &busy) {
			t.Errorf("while it stops: %v", err)
		}
		c.done(stop, nil)
		v = c.done(c.Start(ctx, "a", leader.Call{}))
		for _, vm := range v.VMs() {
			if vm.Phase != state.Running || vm.Order != (state.VMOrder{}) {
				t.Errorf("%+v", vm)
			}
		}
	})
}

// A VM that ends by itself is not started again; the state of its VC shows that; start brings it back.
func TestCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1)
		c := startCluster(t, scratch.Dir(t), world, 1)
		ctx := t.Context()
		v := c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{}))
		victim := v.VMs()[0]
		if err := world.Crash("h1", victim.ID); err != nil {
			t.Fatal(err)
		}
		v = c.eventually("a is degraded", func(v *leader.View) bool {
			a, _ := v.VCNamed("a")
			return v.VCView(a).State == state.VCDegraded
		})
		if vm, _ := v.VM(victim.ID); vm.Phase != state.Failed || vm.Reason == "" {
			t.Errorf("VM is %s (%q), want failed with a reason", vm.Phase, vm.Reason)
		}
		c.done(c.Start(ctx, "a", leader.Call{}))
	})
}

// The same key with the same request gets the same answer; another request with it is refused.
func TestIdempotency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		call := leader.Call{IdempotencyKey: "k1"}
		first, err := c.Create(ctx, vc("a", 1, 1, 512*mib), call)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Create(ctx, vc("a", 1, 1, 512*mib), call)
		if err != nil || !again.Replayed || again.Operation.ID != first.Operation.ID {
			t.Errorf("second call: %+v, %v; want the first answer again", again, err)
		}
		var invalid *leader.Invalid
		if _, err := c.Create(ctx, vc("b", 1, 1, 512*mib), call); !errors.As(err, &invalid) {
			t.Errorf("the key with another request: %v", err)
		}
		if _, err := c.Create(ctx, vc("a", 1, 1, 512*mib), leader.Call{}); !errors.Is(err, leader.ErrConflict) {
			t.Errorf("the name again: %v", err)
		}
	})
}

// TestImageIdempotency: a request to add or delete an image that comes late, after it was sent again and carried out, changes nothing.
func TestImageIdempotency(t *testing.T) {
	c := startCluster(t, t.TempDir(), newWorld(t, 1), 1)
	ctx := t.Context()
	img := state.Image{Name: "late", Kind: state.DiskImage, File: "/images/late"}
	add, drop := leader.Call{IdempotencyKey: "add"}, leader.Call{IdempotencyKey: "delete"}
	first, replayed, err := c.AddImage(ctx, img, add)
	if err != nil || replayed || first.AddedAt.IsZero() {
		t.Fatalf("%+v, %v, %v", first, replayed, err)
	}
	if again, replayed, err := c.AddImage(ctx, img, add); err != nil || !replayed || again != first {
		t.Errorf("added again: %+v, %v, %v; want the first answer", again, replayed, err)
	}
	if _, _, err := c.AddImage(ctx, img, leader.Call{IdempotencyKey: "another"}); !errors.As(err, new(*leader.Exists)) {
		t.Errorf("added under another key: %v", err)
	}
	for range 2 {
		if err := c.DeleteImage(ctx, "late", drop); err != nil {
			t.Fatal(err)
		}
	}
	if again, replayed, err := c.AddImage(ctx, img, add); err != nil || !replayed || again.Name != "late" {
		t.Errorf("the first request, after the image was deleted: %+v, %v, %v", again, replayed, err)
	}
	if _, there := c.state.Snapshot().Image("late"); there {
		t.Error("a late request brought the image back")
	}
	if _, _, err := c.AddImage(ctx, img, leader.Call{IdempotencyKey: "new"}); err != nil {
		t.Error(err)
	}
	if err := c.DeleteImage(ctx, "late", drop); err != nil {
		t.Error(err)
	}
	if _, there := c.state.Snapshot().Image("late"); !there {
		t.Error("a late request deleted a new image of that name")
	}
	if _, _, err := c.AddImage(ctx, state.Image{Name: "other", Kind: state.DiskImage, File: "/images/late"}, add); !errors.As(err, new(*leader.Invalid)) {
		t.Errorf("the key with another request: %v", err)
	}
}

// A dry run changes nothing.
func TestDryRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 1, 1, 512*mib), leader.Call{}))
		before := c.state.Snapshot().Index()
		r, err := c.Delete(ctx, "a", leader.Call{DryRun: true})
		if err != nil || len(r.Changes) != 1 {
			t.Fatalf("dry run of a delete: %+v, %v", r, err)
		}
		if len(r.VMs) != 1 || r.VMs[0].Goal != state.GoalDelete {
			t.Errorf("its VMs as they would be: %+v", r.VMs)
		}
		r, err = c.Create(ctx, vc("b", 2, 2, 512*mib), leader.Call{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.VMs) != 2 || r.VMs[0].Phase != state.Starting || !near(r.VC.Groups[0].Allocation, 1.6) || r.VC.CreatedAt.IsZero() {
			t.Errorf("b as it would be: %+v %+v, want 2 VMs with 4/5 of the 2 cores each needs", r.VC, r.VMs)
		}
		count := 3
		r, err = c.Scale(ctx, "a", leader.Scale{Count: &count}, leader.Call{DryRun: true})
		if err != nil || len(r.VMs) != 3 || r.VMs[0].Phase != state.Running {
			t.Errorf("a as it would be with 3 VMs: %+v, %v", r.VMs, err)
		}
		if after := c.state.Snapshot().Index(); after != before {
			t.Errorf("index went from %d to %d", before, after)
		}
	})
}

// A VM that stops is shown with the cap it keeps, not with what its group is
// given now: the figures of a host never add up to more than it has.
func TestStoppingKeepsItsCap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		a := vc("a", 4, 0.5, 512*mib)
		a.Groups[0].VCPUs = 2
		c.done(c.Create(ctx, a, leader.Call{}))
		count, cpu := 2, 2.0
		if _, err := c.Scale(ctx, "a", leader.Scale{Count: &count, CPU: &cpu}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v, err := c.View(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, vm := range v.VMs() {
			sum += v.VMView(vm).Allocation
		}
		if sum > 4*(1+1e-9) {
			t.Errorf("the VMs of the host are shown with %v cores together, it has 4", sum)
		}
	})
}

// Nothing of a refused scale stays.
func TestScaleRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{}))
		count, nan, much := 40, math.NaN(), int64(16<<30)
		var refused *leader.Refused
		if _, err := c.Scale(ctx, "a", leader.Scale{Count: &count}, leader.Call{}); !errors.As(err, &refused) {
			t.Errorf("40 VMs of 1 core at yield 0.5 on 4 cores: %v", err)
		}
		var invalid *leader.Invalid
		if _, err := c.Scale(ctx, "a", leader.Scale{CPU: &nan}, leader.Call{}); !errors.As(err, &invalid) || invalid.Fields[0].Field != "cpu" {
			t.Errorf("NaN cores: %v", err)
		}
		if _, err := c.Scale(ctx, "a", leader.Scale{Memory: &much}, leader.Call{}); !errors.As(err, &invalid) || invalid.Fields[0].Field != "memory" {
			t.Errorf("more memory than it booted with: %v", err)
		}
		if x, _ := c.state.Snapshot().VCNamed("a"); x.Groups[0].Count != 2 {
			t.Errorf("count is %d", x.Groups[0].Count)
		}
	})
}

// A group that was removed while its VMs still leave is no group to scale: it neither comes back nor makes another one unclear.
func TestScaleBesideARemovedGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		spec := vc("a", 1, 0.5, 512*mib)
		spec.Groups = append(spec.Groups, state.Group{Name: "other", Count: 1, CPU: 0.5, Memory: 512 * mib})
		c.done(c.Create(ctx, spec, leader.Call{}))
		spec.Groups = spec.Groups[:1]
		if _, err := c.Apply(ctx, spec, leader.Apply{Verb: "apply"}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		if x, _ := c.state.Snapshot().VCNamed("a"); len(x.Groups) != 2 || x.Groups[1].Count != 0 {
			t.Fatalf("its VM is gone already: %+v", x.Groups)
		}
		two := 2
		var invalid *leader.Invalid
		if _, err := c.Scale(ctx, "a", leader.Scale{Group: "other", Count: &two}, leader.Call{}); !errors.As(err, &invalid) || invalid.Fields[0].Field != "group" {
			t.Errorf("of the removed group: %v", err)
		}
		v := c.done(c.Scale(ctx, "a", leader.Scale{Count: &two}, leader.Call{}))
		if x, _ := v.VCNamed("a"); len(x.Groups) != 1 || x.Groups[0].Count != 2 {
			t.Errorf("%+v", x.Groups)
		}
	})
}

// A balloon that is made smaller frees memory once the guest has let go of it.
func TestBalloon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		x := vc("a", 1, 1, 1024*mib)
		x.Groups[0].MemoryMin = 256 * mib
		c.done(c.Create(ctx, x, leader.Call{}))
		half := int64(512 * mib)
		c.done(c.Scale(ctx, "a", leader.Scale{Memory: &half}, leader.Call{}))
		c.eventually("the guest lets go", func(v *leader.View) bool {
			vm := v.VMs()[0]
			return vm.ChargedMemory == half && v.VMView(vm).Balloon == half
		})
		v, _ := c.View(ctx, false)
		if l := v.LoadOf("h1"); l.Reserve.Bytes() != half {
			t.Errorf("reserve %d: the VM may take %d back by itself", l.Reserve.Bytes(), half)
		}
	})
}

// Down and up again at once: the new VMs do not wait for the numbers of those that leave.
func TestScaleDownAndUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 3, 0.5, 512*mib), leader.Call{}))
		one, three := 1, 3
		if _, err := c.Scale(ctx, "a", leader.Scale{Count: &one}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v := c.done(c.Scale(ctx, "a", leader.Scale{Count: &three}, leader.Call{}))
		if n := len(v.VMs()); n != 3 {
			t.Errorf("%d VMs", n)
		}
	})
}

// A VC that is queued has no VMs, and their names all the same.
func TestVMNamesOfAQueuedVC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		create := func(name, group string, memory int64) error {
			x := vc(name, 1, 0.25, memory)
			x.Groups[0].Name, x.OnFull = group, state.Queue
			_, err := c.Create(ctx, x, leader.Call{})
			return err
		}
		if err := create("full", "g", 6<<30); err != nil {
			t.Fatal(err)
		}
		if err := create("a-b", "c", 4<<30); err != nil {
			t.Fatal(err)
		}
		var taken *leader.Exists
		for name, group := range map[string]string{"a": "b-c", "a-b-c": "g"} {
			if err := create(name, group, 64*mib); name == "a" && (!errors.As(err, &taken) || !strings.Contains(taken.Text, "virtual cluster a-b;")) || name != "a" && err != nil {
				t.Errorf("%s with group %s: %v", name, group, err)
			}
		}
	})
}

// Memory down and up again leaves a group without a minimum without one.
func TestScaleMemoryDownAndUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 1, 0.5, 2048*mib), leader.Call{}))
		small, large := int64(1024*mib), int64(2048*mib)
		c.done(c.Scale(ctx, "a", leader.Scale{Memory: &small}, leader.Call{}))
		v := c.done(c.Scale(ctx, "a", leader.Scale{Memory: &large}, leader.Call{}))
		if x, _ := v.VCNamed("a"); x.Groups[0].MemoryMin != large {
			t.Errorf("the minimum is %d bytes", x.Groups[0].MemoryMin)
		}
	})
}

// A change is superseded once a later one changes the same group, and not by one of another group.
func TestScaleSuperseded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		spec := vc("a", 1, 0.25, 256*mib)
		spec.Groups = append(spec.Groups, state.Group{Name: "other", Count: 1, CPU: 0.25, Memory: 256 * mib})
		c.done(c.Create(ctx, spec, leader.Call{}))
		one, two, three := 1, 2, 3
		scaled, err := c.Scale(ctx, "a", leader.Scale{Group: spec.Groups[0].Name, Count: &three}, leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		c.done(c.Scale(ctx, "a", leader.Scale{Group: "other", Count: &two}, leader.Call{}))
		progress := func(v *leader.View) state.OpState {
			op, _ := v.Operation(scaled.Operation.ID)
			return v.Progress(op).State
		}
		c.eventually("the first change is done as well", func(v *leader.View) bool { return progress(v) == state.OpDone })
		v := c.done(c.Scale(ctx, "a", leader.Scale{Group: spec.Groups[0].Name, Count: &one}, leader.Call{}))
		if got := progress(v); got != state.OpSuperseded {
			t.Errorf("of 3 VMs, where a later request wants 1: %s", got)
		}
		if _, err := c.Stop(ctx, "a", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		if v, _ = c.View(ctx, false); progress(v) != state.OpSuperseded {
			t.Errorf("and stopped: %s", progress(v))
		}
	})
}

// Memory that grows in place is refused where the host has no room for it.
func TestScaleMemoryRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		x := vc("a", 1, 1, 4096*mib)
		x.Groups[0].MemoryMin = 512 * mib
		c.done(c.Create(ctx, x, leader.Call{}))
		small, large := int64(1024*mib), int64(4096*mib)
		c.done(c.Scale(ctx, "a", leader.Scale{Memory: &small}, leader.Call{}))
		c.eventually("the guest lets go", func(v *leader.View) bool { return v.VMs()[0].ChargedMemory == small })
		// What one VM may take back by itself is kept free for it: 3 GiB here.
		c.done(c.Create(ctx, vc("b", 1, 1, 3900*mib), leader.Call{}))
		c.done(c.Scale(ctx, "a", leader.Scale{Memory: &large}, leader.Call{}))
		c.done(c.Scale(ctx, "a", leader.Scale{Memory: &small}, leader.Call{}))
		full := vc("c", 1, 1, 512*mib)
		full.OnFull = state.Reject
		var refused *leader.Refused
		if _, err := c.Create(ctx, full, leader.Call{}); !errors.As(err, &refused) {
			t.Errorf("512 MiB into the memory that is kept for a: %v", err)
		}
	})
}

// No VC is admitted without a share: a VC that accepts any yield still needs a minimum share.
func TestNoShareLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		all := vc("all", 4, 1, 512*mib)
		all.MinYield = 1
		c.done(c.Create(ctx, all, leader.Call{}))
		any := vc("any", 2, 1, 512*mib)
		any.MinYield = 0
		r, err := c.Create(ctx, any, leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := c.View(ctx, false)
		if s := v.VCView(r.VC).State; s != state.VCQueued {
			t.Errorf("any is %s on a host that is given away", s)
		}
		c.done(c.Delete(ctx, "all", leader.Call{}))
		c.eventually("any runs", func(v *leader.View) bool { return v.Progress(r.Operation).State == state.OpDone })
	})
}
