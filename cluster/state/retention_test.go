package state_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/state"
)

// A tenant whose script does much does not take the history of another, nor that of the cluster: each keeps its share, and more where
// the others use less. A server that begins in the middle forgets the same.
func TestRetentionIsFair(t *testing.T) {
	const keep, slack = 10_000, 256
	k := small(t, 1)
	for _, name := range []string{"film", "acme"} {
		k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: name, Salt: "s"}})
	}
	ops := 0
	of := func(tenant string) {
		ops++
		name := state.FullName(tenant, "web")
		k.must(t, state.KindAudit, state.Audit{Kind: "vc-scaled", Object: "vc", Name: name, Text: "again"})
		k.must(t, state.KindPlan, state.Plan{Basis: uint64(len(k.log)), Operation: &state.Operation{ID: fmt.Sprintf("op-%06d", ops), Kind: "scale", VC: "vc-" + name, Name: name}})
	}
	kept := func() (events, operations map[string]int) {
		events, operations = map[string]int{}, map[string]int{}
		for _, e := range k.Snapshot().EventsAfter(0, 0) {
			events[e.OwnerOf()]++
		}
		for _, op := range k.Snapshot().Operations() {
			tenant, _ := state.SplitName(op.Name)
			operations[tenant]++
		}
		return events, operations
	}
	for range 300 {
		of("acme")
	}
	oldest := k.Snapshot().EventsAfter(0, 1)[0]
	later := state.New()
	half := 0
	for n := range keep + 2*slack {
		if n == keep-1000 {
			if err := later.Restore(strings.NewReader(save(t, k.Snapshot()))); err != nil {
				t.Fatal(err)
			}
			half = len(k.log)
		}
		if n%1000 == 7 { // one that is refused
			if err := k.apply(t, state.KindPlan, state.Plan{Basis: 1 << 40}); !errors.Is(err, state.ErrConflict) {
				t.Fatal(err)
			}
		}
		of("film")
	}
	events, operations := kept()
	if events["acme"] != 300 || operations["acme"] != 300 {
		t.Errorf("of what the quiet tenant did %d events and %d operations are kept, of 300", events["acme"], operations["acme"])
	}
	if total := events[""] + events["acme"] + events["film"] + events["default"]; total != keep {
		t.Errorf("%d events are kept: %v", total, events)
	}
	if n := operations["film"]; n < keep-300-slack || n > keep-300+slack {
		t.Errorf("%d operations of the busy tenant are kept", n)
	}
	if len(k.Snapshot().EventsAfter(0, 1)) == 0 || k.Snapshot().EventsAfter(0, 1)[0] != oldest {
		t.Error("the cluster lost an event to a tenant")
	}
	for range keep / 2 { // now both are busy
		of("acme")
	}
	events, operations = kept()
	if d := events["film"] - events["acme"]; d < -1 || d > 1 {
		t.Errorf("two busy tenants keep %d and %d events", events["film"], events["acme"])
	}
	if d := operations["film"] - operations["acme"]; d < -slack || d > slack {
		t.Errorf("two busy tenants keep %d and %d operations", operations["film"], operations["acme"])
	}
	if ids := k.SeenAmiss(); len(ids) > 0 {
		t.Errorf("the cache differs: %v", ids)
	}
	for i, entry := range k.log[half:] {
		later.ApplyAll([]state.Entry{{Index: uint64(half + i + 1), Data: entry}})
	}
	if save(t, later.Snapshot()) != save(t, k.Snapshot()) {
		t.Error("a server that was started again forgets others")
	}
	newest := k.Snapshot().EventsWhere(state.EventFilter{}, 0, true, 5)
	if last := k.Snapshot().LastEvent(); len(newest) != 5 || newest[4].Seq != last || newest[0].Seq != last-4 {
		t.Errorf("the newest events: %+v", newest)
	}
}

// Whatever a script does, of each kind of events of a tenant its newest are kept: at least as many as its share, the tenant's share
// over the number of kinds that it has. What is kept is bounded, and of each kind without holes.
func TestEachKindKeepsItsShare(t *testing.T) {
	const keep = 10_000
	kinds := []string{"vc-created", "vc-deleted", "vm-running", "vm-stopped", "vm-failed", "token-made", "image-added", "vc-scaled"}
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 26))
		k := small(t, 1)
		tenants := []string{"default", "film", "acme"}[:1+seed]
		for _, name := range tenants[1:] {
			k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: name, Salt: "s"}})
		}
		type own struct{ tenant, kind string }
		happened, total := map[own][]string{}, 0
		for total = range keep + 4_000 {
			at := own{tenants[r.IntN(len(tenants))], kinds[min(r.IntN(len(kinds)), r.IntN(len(kinds)))]}
			if total%10 > 0 { // a script
				at = own{tenants[0], kinds[total%2]}
			}
			text := fmt.Sprint(total)
			k.must(t, state.KindAudit, state.Audit{Kind: at.kind, Object: "vc", Name: state.FullName(at.tenant, "web"), Text: text})
			happened[at] = append(happened[at], text)
		}
		kept, events := map[own][]string{}, k.Snapshot().EventsAfter(0, 0)
		owners, kindsOf := map[string]bool{}, map[string]map[string]bool{}
		for _, e := range events {
			owner := e.OwnerOf()
			owners[owner] = true
			if kindsOf[owner] == nil {
				kindsOf[owner] = map[string]bool{}
			}
			kindsOf[owner][e.Kind] = true
			if e.Object == "vc" {
				kept[own{owner, e.Kind}] = append(kept[own{owner, e.Kind}], e.Text)
			}
		}
		if len(events) != keep {
			t.Errorf("%d events are kept", len(events))
		}
		for at, all := range happened {
			share := min(len(all), keep/len(owners)/len(kindsOf[at.tenant]))
			has := kept[at]
			if len(has) < share {
				t.Errorf("seed %d: of %d events %s of %s %d are kept, its share is %d", seed, len(all), at.kind, at.tenant, len(has), share)
			}
			if !slices.Equal(has, all[len(all)-len(has):]) {
				t.Errorf("seed %d: of the events %s of %s not the newest are kept", seed, at.kind, at.tenant)
			}
		}
		if ids := k.SeenAmiss(); len(ids) > 0 {
			t.Errorf("the cache differs: %v", ids)
		}
	}
}
