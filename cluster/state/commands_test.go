package state_test

import (
	"errors"
	"strings"
	"testing"

	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
)

// Each command: what it changes, or how it is refused. Every case begins with two hosts and a
// VC "a" of two VMs, on h1 and h2, with 1 core and 1 GiB each.
func TestCommands(t *testing.T) {
	type see func(t *testing.T, s *state.Snapshot)
	vm := func(id string, want state.Phase, host string) see {
		return func(t *testing.T, s *state.Snapshot) {
			if vm, ok := s.VM(id); !ok || vm.Phase != want || vm.Host != host {
				t.Errorf("VM is %+v, want %s on %s", vm, want, host)
			}
		}
	}
	for _, c := range []struct {
		name string
		kind state.Kind
		body func(s *state.Snapshot) any
		err  error // nil: it is applied
		see  see
	}{
		{"a second init is ignored", state.KindInit, func(*state.Snapshot) any { return state.Init{ID: "other"} }, nil, func(t *testing.T, s *state.Snapshot) {
			if m, _ := s.Meta(); m.ID != "cluster-1" {
				t.Errorf("the cluster is %s now", m.ID)
			}
		}},
		{"host report, unchanged", state.KindHostReport, func(*state.Snapshot) any { return hostReport("h1", 4, 8*gib) }, nil, func(t *testing.T, s *state.Snapshot) {
			if h, _ := s.Host("h1"); h.Version == s.Index() {
				t.Error("its version moved")
			}
		}},
		{"host report, a host of nothing", state.KindHostReport, func(*state.Snapshot) any { return state.HostReport{Name: "h3"} }, nil, func(t *testing.T, s *state.Snapshot) {
			if _, ok := s.Host("h3"); !ok {
				t.Error("there is no such host")
			}
		}},
		{"host report, less allowed", state.KindHostReport, func(*state.Snapshot) any { return hostReport("h1", 2, 4*gib) }, nil, func(t *testing.T, s *state.Snapshot) {
			if h, _ := s.Host("h1"); h.Usable().CPU != 2 || h.Version != s.Index() {
				t.Errorf("host is %+v", h)
			}
		}},
		{"host report, negative", state.KindHostReport, func(*state.Snapshot) any { return hostReport("h1", -1, 4*gib) }, state.ErrInvalid, nil},
		{"cordon", state.KindHostCordon, func(*state.Snapshot) any { return state.HostCordon{Host: "h1", Cordoned: true, Reason: "disk"} }, nil, func(t *testing.T, s *state.Snapshot) {
			if h, _ := s.Host("h1"); !h.Cordoned || h.CordonReason != "disk" || h.Version != s.Index() {
				t.Errorf("host is %+v", h)
			}
		}},
		{"cordon of an unknown host", state.KindHostCordon, func(*state.Snapshot) any { return state.HostCordon{Host: "h9", Cordoned: true} }, state.ErrNotFound, nil},
		{"image", state.KindImagePut, func(*state.Snapshot) any {
			return state.Image{Name: "deb", Kind: state.DiskImage, File: "/d"}
		}, nil, func(t *testing.T, s *state.Snapshot) {
			if i, ok := s.Image("deb"); !ok || i.CreateIndex != s.Index() {
				t.Errorf("image is %+v", i)
			}
		}},
		{"image again", state.KindImagePut, func(*state.Snapshot) any { return state.Image{Name: "tiny"} }, state.ErrConflict, nil},
		{"image without a name", state.KindImagePut, func(*state.Snapshot) any { return state.Image{} }, state.ErrInvalid, nil},
		{"image with an initrd that is gone", state.KindImagePut, func(*state.Snapshot) any { return state.Image{Name: "k", Kind: state.KernelImage, Initrd: "i"} }, state.ErrNotFound, nil},
		{"drop an image in use", state.KindImageDrop, func(*state.Snapshot) any { return state.ImageDrop{Name: "tiny"} }, state.ErrInUse, nil},
		{"drop an unknown image", state.KindImageDrop, func(*state.Snapshot) any { return state.ImageDrop{Name: "deb"} }, state.ErrNotFound, nil},
		{"create", state.KindPlan, func(s *state.Snapshot) any { return planOf(s, "b", 1, gib, "h1", "h1") }, nil, vm("vm-b-1", state.Starting, "h1")},
		{"create under a name that is taken", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "a", 1, gib, "h1")
			p.VC.ID, p.Allocations[0].VC, p.VMs = "vc-other", "vc-other", nil
			return p
		}, state.ErrConflict, nil},
		{"create under an id that is taken", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.VC.ID, p.Allocations[0].VC, p.VMs[0].VC = "vc-a", "vc-a", "vc-a"
			return p
		}, state.ErrConflict, nil},
		{"a VM name that is taken", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.VMs[0].Name = "a-g-0"
			return p
		}, state.ErrConflict, nil},
		{"a VM that belongs to another VC", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.VMs[0].ID, p.VMs[0].Name = "vm-a-0", "a-g-0"
			return p
		}, state.ErrConflict, nil},
		{"an image that is gone", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.VC.Groups[0].Image = "deb"
			return p
		}, state.ErrConflict, nil},
		{"more CPU than there is", state.KindPlan, func(s *state.Snapshot) any { return planOf(s, "b", 3.01, gib, "h1") }, state.ErrConflict, nil},
		{"more memory than there is", state.KindPlan, func(s *state.Snapshot) any { return planOf(s, "b", 1, 7*gib, "h1") }, state.ErrConflict, nil},
		{"more CPU than there is, on a host it says nothing of", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 3.01, gib, "h1")
			p.AffectedHosts = nil
			return p
		}, state.ErrConflict, nil},
		{"a share that does not fit, on a host it says nothing of", state.KindPlan, func(s *state.Snapshot) any {
			return state.Plan{Basis: s.Index(), Allocations: []state.Allocation{{VC: "vc-a", Group: "g", CPU: 4.1}}}
		}, state.ErrConflict, nil},
		{"planned on what is still to come", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.Basis += 100
			return p
		}, state.ErrConflict, nil},
		{"planned before the host changed", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			h, _ := s.Host("h1")
			p.Basis = h.Version - 1
			return p
		}, state.ErrConflict, nil},
		{"an unknown host", state.KindPlan, func(s *state.Snapshot) any { return planOf(s, "b", 1, gib, "h9") }, state.ErrConflict, nil},
		{"an old version of the VC", state.KindPlan, func(s *state.Snapshot) any {
			p := leave(s, "a", state.GoalStop)
			p.VCVersion--
			return p
		}, state.ErrConflict, nil},
		{"stop", state.KindPlan, func(s *state.Snapshot) any { return leave(s, "a", state.GoalStop) }, nil, vm("vm-a-0", state.Stopping, "h1")},
		{"a start of what is still held", state.KindPlan, func(s *state.Snapshot) any {
			p := leave(s, "a", state.GoalRun)
			for i := range p.VMs {
				p.VMs[i].Generation, p.VMs[i].Phase = 2, state.Starting
			}
			return p
		}, state.ErrConflict, nil},
		{"a start elsewhere of what is still held", state.KindPlan, func(s *state.Snapshot) any {
			p := leave(s, "a", state.GoalRun)
			p.VMs[0].Host = "h2"
			return p
		}, state.ErrConflict, nil},
		{"a phase back", state.KindPlan, func(s *state.Snapshot) any {
			p := leave(s, "a", state.GoalRun)
			p.VMs[0].Phase = state.Starting
			return p
		}, state.ErrConflict, nil},
		{"an idempotency key without a key", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.Remembered = &state.Remembered{}
			return p
		}, state.ErrInvalid, nil},
		{"a VM without a name", state.KindPlan, func(s *state.Snapshot) any {
			p := planOf(s, "b", 1, gib, "h1")
			p.VMs[0].Name = ""
			return p
		}, state.ErrInvalid, nil},
		{"a group that the VC does not have", state.KindPlan, func(s *state.Snapshot) any {
			return state.Plan{Basis: s.Index(), Allocations: []state.Allocation{{VC: "vc-a", Group: "x", CPU: 1}}}
		}, state.ErrConflict, nil},
		{"a report of a host that is unknown", state.KindVMReport, func(*state.Snapshot) any { return report("h9", "vm-a-0", 1, state.Failed) }, state.ErrNotFound, nil},
		{"a report of another generation", state.KindVMReport, func(*state.Snapshot) any { return report("h1", "vm-a-0", 2, state.Failed) }, nil, vm("vm-a-0", state.Running, "h1")},
		{"a report of another host", state.KindVMReport, func(*state.Snapshot) any { return report("h2", "vm-a-0", 1, state.Failed) }, nil, vm("vm-a-0", state.Running, "h1")},
		{"a report of a VM that is unknown", state.KindVMReport, func(*state.Snapshot) any { return report("h1", "vm-x-0", 1, state.Failed) }, nil, nil},
		{"it ended by itself", state.KindVMReport, func(*state.Snapshot) any { return report("h1", "vm-a-0", 1, state.Stopped) }, nil, func(t *testing.T, s *state.Snapshot) {
			vm("vm-a-0", state.Failed, "h1")(t, s)
			if l := s.LoadOf("h1"); l.VMs != 0 || l.CPU != 0 || l.Memory != 0 {
				t.Errorf("it still holds %+v", l)
			}
		}},
		{"gone, but it is not to be deleted", state.KindVMReport, func(*state.Snapshot) any {
			r := report("h1", "vm-a-0", 1, state.Stopped)
			r.VMs[0].SourceLost = true
			return r
		}, nil, vm("vm-a-0", state.Failed, "h1")},
		{"holds more", state.KindVMReport, func(*state.Snapshot) any {
			r := report("h1", "vm-a-0", 1, state.Running)
			r.VMs[0].ChargedMemory = 2 * gib
			return r
		}, nil, func(t *testing.T, s *state.Snapshot) {
			if l := s.LoadOf("h1"); l.Memory != 2*gib+64*mib {
				t.Errorf("load %+v", l)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := small(t, 2)
			k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1", "h2"))
			k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
			k.must(t, state.KindVMReport, report("h2", "vm-a-1", 1, state.Running))
			before := k.Snapshot()
			err := k.apply(t, c.kind, c.body(before))
			after := k.Snapshot()
			if after.Index() != before.Index()+1 {
				t.Errorf("index went from %d to %d", before.Index(), after.Index())
			}
			if !errors.Is(err, c.err) {
				t.Fatalf("outcome %v, want %v", err, c.err)
			}
			if err != nil && rows(t, before) != rows(t, after) {
				t.Errorf("refused (%v), but the state changed:\n%s\nbefore:\n%s", err, rows(t, after), rows(t, before))
			}
			if c.see != nil {
				c.see(t, after)
			}
		})
	}
}

// The whole life of a VC: create, run, stop, start again, delete. Its events report each of these.
func TestLifeOfAVC(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalStop))
	if l := k.Snapshot().LoadOf("h1"); l.CPU != 1 || l.Memory != gib+64*mib {
		t.Errorf("a VM that stops holds %+v, want its share until it is gone", l)
	}
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Stopped))
	if l := k.Snapshot().LoadOf("h1"); l != (capacity.Load{}) {
		t.Errorf("a VM that stopped holds %+v", l)
	}
	again := leave(k.Snapshot(), "a", state.GoalRun)
	again.VC.Admitted = true
	again.VMs[0].Generation, again.VMs[0].Phase, again.VMs[0].ChargedMemory = 2, state.Starting, gib
	k.must(t, state.KindPlan, again)
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Failed)) // the first generation's late word
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 2, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalDelete))
	gone := report("h1", "vm-a-0", 2, state.Stopped)
	gone.VMs[0].SourceLost = true
	k.must(t, state.KindVMReport, gone)
	s := k.Snapshot()
	if n := len(s.VCs()) + len(s.VMs()); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	var reported []string
	for _, e := range s.EventsAfter(0, 0) {
		if e.Object == "vc" || e.Object == "vm" {
			reported = append(reported, e.Kind)
		}
	}
	want := "vc-created vm-running vc-stop vm-stopped vc-run vm-running vc-delete vm-deleted vc-deleted"
	if got := strings.Join(reported, " "); got != want {
		t.Errorf("events %s\nwant   %s", got, want)
	}
	op, _ := s.Operation("op-a")
	if p := s.ProgressOf(op, func(string) uint64 { return 0 }); p.State != state.OpSuperseded {
		t.Errorf("creation of what was deleted: %+v", p)
	}
}

// A VM whose balloon is small can take its memory back also while it stops.
func TestReserveOfAStoppingVM(t *testing.T) {
	k := small(t, 1)
	p := planOf(k.Snapshot(), "a", 1, gib, "h1")
	p.VMs[0].BootMemory = 3 * gib
	k.must(t, state.KindPlan, p)
	if l := k.Snapshot().LoadOf("h1"); l.Reserve.Bytes() != 2*gib {
		t.Errorf("reserve %d", l.Reserve.Bytes())
	}
	k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalDelete))
	if l := k.Snapshot().LoadOf("h1"); l.Reserve.Bytes() != 2*gib {
		t.Errorf("reserve while it stops %d", l.Reserve.Bytes())
	}
}

// A failure that a host took back counts again: what runs is counted.
func TestHostTakesAFailureBack(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Failed))
	r := report("h1", "vm-a-0", 1, state.Running)
	r.VMs[0].ChargedMemory = gib
	k.must(t, state.KindVMReport, r)
	if l := k.Snapshot().LoadOf("h1"); l.VMs != 1 || l.CPU != 1 || l.Memory != gib+64*mib {
		t.Errorf("load %+v", l)
	}
}
