package agenda_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// crowded has a VC of one VM on each host, and a job, of so many VMs of a core and memory, at noon.
func crowded(t *testing.T, hosts []string, memory func(host string) int64, vms int, need int64) *scheduling.Cluster {
	t.Helper()
	c := scheduling.NewCluster(t, hosts...)
	signed(t, c, "job", contract(vms, need))
	for _, h := range hosts {
		for _, other := range hosts {
			c.Must(state.KindHostCordon, state.HostCordon{Host: other, Cordoned: other != h})
		}
		if m := memory(h); m > 0 {
			if a := c.Create(scheduling.VC("on-"+h, 0.5, scheduling.Group(1, 1, m))); a.Plan == nil || a.Queued {
				t.Fatalf("%+v", a)
			}
			c.Run()
		}
	}
	for _, h := range hosts {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h})
	}
	return c
}

// noonIn sets the clock to a time before the next noon.
func noonIn(c *scheduling.Cluster, d time.Duration) {
	noon := c.Now().Truncate(24 * time.Hour).Add(12 * time.Hour)
	if !noon.After(c.Now()) {
		noon = noon.Add(24 * time.Hour)
	}
	c.Ahead += noon.Add(-d).Sub(c.Now())
}

// forSlot plans moves for the first slot without room; no plan: there is none.
func forSlot(t *testing.T, c *scheduling.Cluster) (placement.Slot, state.MovePlan, []string) {
	t.Helper()
	slots := agenda.WithoutRoom(c.Snapshot(), c.Now())
	if len(slots) == 0 {
		return placement.Slot{}, state.MovePlan{}, nil
	}
	f := moves.NewFleet(c.Snapshot(), c.Env(), moves.Observation{}, moves.Options{Reserved: slots[0].Reserved}, slots[0].VC)
	p, hosts, err := rebalance.PlanSlot(f, &slots[0], -1)
	if err != nil {
		t.Fatal(err)
	}
	return slots[0], p, hosts
}

// Room is looked for from a quarter of an hour before a slot until it begins, and not for one that has room.
func TestWhenVMsMoveForASlot(t *testing.T) {
	three := func(string) int64 { return 3 * gib }
	for _, tc := range []struct {
		name   string
		need   int64
		before time.Duration
		want   int
	}{
		{"16 minutes before", 6 * gib, 16 * time.Minute, 0},
		{"14 minutes before", 6 * gib, 14 * time.Minute, 1},
		{"a minute before", 6 * gib, time.Minute, 1},
		{"it has room", 4 * gib, time.Minute, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := crowded(t, []string{"h1", "h2"}, three, 1, tc.need)
			plan(t, c)
			noonIn(c, tc.before)
			if got := agenda.WithoutRoom(c.Snapshot(), c.Now()); len(got) != tc.want {
				t.Errorf("%d slots, want %d: %+v", len(got), tc.want, c.Snapshot().Agenda())
			}
		})
	}
}

// While moves make its room, a slot keeps the hosts that it is to have, and no longer. It is re-confirmed as soon as they have the room.
func TestASlotToWhichRoomComes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		then  func(t *testing.T, c *scheduling.Cluster, p state.MovePlan)
		state state.OccurrenceState
		hosts bool
	}{
		{"moves are under way", func(*testing.T, *scheduling.Cluster, state.MovePlan) {}, state.Degraded, true},
		{"the moves failed", func(t *testing.T, c *scheduling.Cluster, p state.MovePlan) {
			p, _ = c.Snapshot().MovePlan(p.ID)
			version := p.ModifyIndex
			p.State = state.MovesFailed
			c.Must(state.KindMovePlan, state.MovePlanPut{Plan: p, Version: version})
		}, state.Degraded, false},
		{"there is room", func(t *testing.T, c *scheduling.Cluster, p state.MovePlan) {
			vm, _ := c.Snapshot().VM(p.Steps[0].VM)
			c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "stopped", VC: stopped(c, "on-"+vm.Host), VCVersion: c.Named("on-" + vm.Host).ModifyIndex, VMs: gone(c, "on-"+vm.Host)})
			vm, _ = c.Snapshot().VM(vm.ID)
			c.Follow(vm)
		}, state.Reconfirmed, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := crowded(t, []string{"h1", "h2"}, func(string) int64 { return 3 * gib }, 1, 6*gib)
			plan(t, c)
			noonIn(c, 10*time.Minute)
			slot, p, hosts := forSlot(t, c)
			if len(p.Steps) != 1 || !slices.Equal(hosts, []string{p.Steps[0].From}) {
				t.Fatalf("%+v, %v", p, hosts)
			}
			o := slot.Occurrence
			o.Hosts = hosts
			c.Must(state.KindAgenda, state.AgendaPut{Basis: c.Index, Occurrences: []state.Occurrence{o}})
			p.ID, p.Occurrence = "m1", o.ID
			c.Must(state.KindMovePlan, state.MovePlanPut{Plan: p})
			tc.then(t, c, p)
			if after := plan(t, c)["job"]; after.State != tc.state || (len(after.Hosts) > 0) != tc.hosts {
				t.Errorf("%+v", after)
			}
			if len(agenda.WithoutRoom(c.Snapshot(), c.Now())) > 0 == tc.hosts {
				t.Error("room is looked for again")
			}
		})
	}
}

// After the moves of a plan for a slot each host has room for its VMs and for all that is reserved there, whatever else is reserved.
func TestMovesForASlotLeaveWhatIsReserved(t *testing.T) {
	planned := 0
	rapid.Check(t, func(r *rapid.T) {
		hosts := []string{"h1", "h2", "h3", "h4"}[:rapid.IntRange(2, 4).Draw(r, "hosts")]
		c := crowded(t, hosts, func(h string) int64 { return int64(rapid.SampledFrom([]int{3, 2, 4, 0, 5}).Draw(r, h)) * gib }, rapid.IntRange(1, 2).Draw(r, "VMs"), int64(rapid.SampledFrom([]int{6, 5, 7, 4}).Draw(r, "GiB"))*gib)
		for i := range rapid.IntRange(0, 3).Draw(r, "other jobs") {
			k := contract(rapid.IntRange(1, 2).Draw(r, "their VMs"), int64(rapid.IntRange(1, 4).Draw(r, "their GiB"))*gib)
			k.Recurrence = fmt.Sprintf("DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=%d", 12+rapid.IntRange(0, 2).Draw(r, "hour"))
			signed(t, c, fmt.Sprintf("other%d", i), k)
		}
		plan(t, c)
		noonIn(c, 10*time.Minute)
		plan(t, c)
		slot, p, on := forSlot(t, c)
		if len(p.Steps) == 0 {
			return
		}
		planned++
		s := c.Snapshot()
		at := map[string]string{}
		for _, vm := range s.VMs() {
			at[vm.ID] = vm.Host
		}
		for _, step := range p.Steps {
			at[step.VM] = step.To
		}
		for _, name := range hosts {
			h, _ := s.Host(name)
			need := slot.Reserved[name]
			for _, vm := range s.VMs() {
				if at[vm.ID] == name {
					vc, _ := s.VC(vm.VC)
					g, _ := vc.GroupOf(vm)
					charge := vm.ChargeOn(h, g)
					need.Memory, need.CPU = need.Memory+charge.Memory, need.CPU+vc.MinYield*g.Need()
				}
			}
			for _, of := range on {
				if of == name {
					g := slot.VC.Groups[0]
					need.Memory, need.CPU = need.Memory+g.Memory+h.VMOverhead, need.CPU+g.CPU
				}
			}
			if u := h.Usable(); need.Memory > u.Memory || need.CPU > u.CPU+1e-6 {
				r.Fatalf("host %s has %+v and needs %+v after %+v for %v", name, u, need, p.Steps, on)
			}
		}
	})
	if t.Logf("%d plans", planned); planned == 0 {
		t.Error("no plan was looked at")
	}
}
