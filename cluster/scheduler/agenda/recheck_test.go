package agenda_test

import (
	"testing"

	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// What the same command drops makes room on the newer state, too, and what is over for a tenant that was suspended meanwhile still ends.
func TestRecheckOfDropsAndEnds(t *testing.T) {
	c := withJobs(t, 1, 2, 1, 6*scheduling.GiB)
	put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var takes, waits state.Occurrence
	for _, o := range put.Occurrences {
		if o.Reserves() {
			takes = o
		} else {
			waits = o
		}
	}
	if takes.ID == "" || waits.ID == "" {
		t.Fatalf("want one that reserves and one that waits: %+v", put.Occurrences)
	}
	c.Must(state.KindAgenda, put)
	next := waits
	next.State, next.Text, next.Hosts = state.Reconfirmed, "", takes.Hosts
	for _, drop := range []bool{false, true} {
		again := state.AgendaPut{Basis: c.Snapshot().Index(), Occurrences: []state.Occurrence{next}}
		if drop {
			again.Drop = []string{takes.ID}
		}
		out, err := agenda.Recheck(c.Snapshot(), again, c.Now(), nil)
		if err != nil || len(out.Occurrences) != map[bool]int{true: 1}[drop] {
			t.Errorf("the other one is dropped: %v: %+v, %v", drop, out.Occurrences, err)
		}
	}
}

// An occurrence that is over ends though its tenant was suspended meanwhile; nothing is reserved for that tenant.
func TestRecheckOfSuspended(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	c.Must(state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "acme", Salt: "ab"}})
	c.Create(scheduling.VC("acme/x", 0.5, scheduling.Group(1, 0.1, scheduling.GiB/8)))
	c.Run()
	c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "stopped", VC: stopped(c, "acme/x"), VCVersion: c.Named("acme/x").ModifyIndex, VMs: gone(c, "acme/x")})
	c.Must(state.KindPeriodic, state.PeriodicPut{Job: "acme/x", SignOff: by("FREQ=HOURLY"), Verb: "accept"})
	put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
	if err != nil || len(put.Occurrences) < 2 {
		t.Fatalf("%+v, %v", put, err)
	}
	c.Must(state.KindAgenda, put)
	ends, keeps := put.Occurrences[0], put.Occurrences[1]
	ends.State, ends.Text, ends.Hosts = state.Missed, "no run arrived", nil
	keeps.State = state.Reconfirmed
	again := state.AgendaPut{Basis: c.Snapshot().Index(), Occurrences: []state.Occurrence{ends, keeps}}
	tenant, _ := c.Snapshot().Tenant("acme")
	tenant.Suspended = true
	c.Must(state.KindTenantPut, state.TenantPut{Tenant: tenant, Version: tenant.ModifyIndex})
	out, err := agenda.Recheck(c.Snapshot(), again, c.Now(), nil)
	if err != nil || len(out.Occurrences) != 1 || out.Occurrences[0].ID != ends.ID {
		t.Errorf("%+v, %v", out.Occurrences, err)
	}
}

// Hosts that have room again when the entry is made keep it for their occurrence. So do not those that lack it still.
func TestRecheckKeepsHostsThatHaveRoomAgain(t *testing.T) {
	c := crowded(t, []string{"h1", "h2", "h3"}, func(host string) int64 { return map[string]int64{"h1": gib, "h2": 3 * gib, "h3": gib}[host] }, 1, 5*gib)
	first := plan(t, c)["job"]
	if !first.Reserves() || first.Hosts[0] == "h2" {
		t.Fatalf("%+v", first)
	}
	c.Host(first.Hosts[0], 4, 5*gib, state.Resources{})
	put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
	if err != nil || len(put.Occurrences) != 1 || put.Changed(c.Snapshot()) {
		t.Fatalf("%+v, %v", put, err)
	}
	for _, again := range []bool{false, true} {
		if again {
			c.Host(first.Hosts[0], 4, 8*gib, state.Resources{})
		}
		out, err := agenda.Recheck(c.Snapshot(), put, c.Now(), nil)
		if err != nil || len(out.Occurrences) != map[bool]int{false: 1}[again] || put.Changed(c.Snapshot()) != again {
			t.Errorf("room again: %v: %+v, %v; changed: %v", again, out.Occurrences, err, put.Changed(c.Snapshot()))
		}
	}
}
