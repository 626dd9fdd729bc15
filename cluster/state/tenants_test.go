package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/state"
)

func putTenant(t *testing.T, k *cluster, row state.Tenant) {
	t.Helper()
	old, _ := k.Snapshot().Tenant(row.Name)
	if row.Salt == "" {
		row.Salt = "00"
	}
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: row, Version: old.ModifyIndex})
}

func TestFullNames(t *testing.T) {
	for _, c := range []struct{ tenant, name, full string }{
		{"default", "web", "web"}, {"film", "web", "film/web"}, {"film", "web-core-0", "film/web-core-0"},
	} {
		if tenant, _ := state.SplitName(state.FullName(c.tenant, "acme/"+c.name)); tenant != c.tenant {
			t.Errorf("a name with a slash of %s is of %s", c.tenant, tenant)
		}
		if got := state.FullName(c.tenant, c.name); got != c.full {
			t.Errorf("%s of %s: %q, want %q", c.name, c.tenant, got, c.full)
		}
		if tenant, name := state.SplitName(c.full); tenant != c.tenant || name != c.name {
			t.Errorf("%s: %q of %q", c.full, name, tenant)
		}
	}
	a, b := state.VM{ID: "01M7A", Name: "film/a-b-0"}, state.VM{ID: "01M7B", Name: "film/a-b-0"} // made again under its name
	if a.Domain() != "ek-01M7A" || b.Domain() != "ek-01M7B" {
		t.Errorf("domains %q and %q", a.Domain(), b.Domain())
	}
}

func TestTenantRows(t *testing.T) {
	film := state.Tenant{Name: "film", Salt: "ab"}
	for _, c := range []struct {
		what string
		body state.TenantPut
		err  error
	}{
		{"a new one", state.TenantPut{Tenant: state.Tenant{Name: "web", Salt: "ab"}}, nil},
		{"one that is there", state.TenantPut{Tenant: film}, state.ErrConflict},
		{"a change of another version", state.TenantPut{Tenant: film, Version: 1}, state.ErrConflict},
		{"a change of what is not there", state.TenantPut{Tenant: state.Tenant{Name: "web", Salt: "ab"}, Version: 7}, state.ErrNotFound},
		{"the default one", state.TenantPut{Tenant: state.Tenant{Name: "default", Salt: "ab"}}, state.ErrConflict},
		{"a name with a slash", state.TenantPut{Tenant: state.Tenant{Name: "a/b", Salt: "ab"}}, state.ErrInvalid},
		{"a name with a dot", state.TenantPut{Tenant: state.Tenant{Name: "a.b", Salt: "ab"}}, state.ErrInvalid},
		{"a long name", state.TenantPut{Tenant: state.Tenant{Name: strings.Repeat("a", 64), Salt: "ab"}}, state.ErrInvalid},
		{"no salt", state.TenantPut{Tenant: state.Tenant{Name: "web"}}, state.ErrInvalid},
		{"a key that is not there", state.TenantPut{Tenant: state.Tenant{Name: "web", Salt: "ab", Quota: map[state.QuotaKey]state.Limit{"gpus": 1}}}, state.ErrInvalid},
		{"a limit below 0", state.TenantPut{Tenant: state.Tenant{Name: "web", Salt: "ab", Quota: map[state.QuotaKey]state.Limit{"vms": -2}}}, state.ErrInvalid},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := small(t, 1)
			putTenant(t, k, film)
			before := rows(t, k.Snapshot())
			err := k.apply(t, state.KindTenantPut, c.body)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if err != nil && rows(t, k.Snapshot()) != before {
				t.Error("refused, and the state changed")
			}
		})
	}
}

func TestTenantOwnsNothingWhenDeleted(t *testing.T) {
	k := small(t, 1)
	putTenant(t, k, state.Tenant{Name: "film"})
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/shot", 0.25, gib, "h1"))
	for name, want := range map[string]error{"film": state.ErrInUse, "default": state.ErrInUse, "none": state.ErrNotFound, "*": state.ErrNotFound} {
		if err := k.apply(t, state.KindTenantDrop, state.TenantDrop{Name: name}); !errors.Is(err, want) {
			t.Errorf("delete %s: %v, want %v", name, err, want)
		}
	}
}

// What counts: VCs of the tenant alone, from their creation on; another tenant and a higher limit change nothing for it.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		what     string
		own      map[state.QuotaKey]state.Limit
		defaults map[state.QuotaKey]state.Limit
		key      state.QuotaKey // that refuses a second VC of 1 VM; "" = it is admitted
	}{
		{"unset", nil, nil, ""},
		{"0", map[state.QuotaKey]state.Limit{"disk": 0}, nil, ""}, // it asks for none
		{"as much as there will be", map[state.QuotaKey]state.Limit{"vms": 2, "vcs": 2, "cpu": 0.5, "memory": state.Limit(2 * gib)}, nil, ""},
		{"too few VMs", map[state.QuotaKey]state.Limit{"vms": 1}, nil, "vms"},
		{"too few VCs", map[state.QuotaKey]state.Limit{"vcs": 1}, nil, "vcs"},
		{"too few cores", map[state.QuotaKey]state.Limit{"cpu": 0.49}, nil, "cpu"},
		{"too little memory", map[state.QuotaKey]state.Limit{"memory": state.Limit(2*gib - 1)}, nil, "memory"},
		{"the defaults", nil, map[state.QuotaKey]state.Limit{"vms": 1}, "vms"},
		{"unlimited, against the defaults", map[state.QuotaKey]state.Limit{"vms": state.Unlimited}, map[state.QuotaKey]state.Limit{"vms": 1}, ""},
		{"more than the defaults", map[state.QuotaKey]state.Limit{"vms": 5}, map[state.QuotaKey]state.Limit{"vms": 1}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := small(t, 2)
			k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: state.QuotaDefaults, Quota: c.defaults, Salt: "00"}})
			putTenant(t, k, state.Tenant{Name: "film"})
			putTenant(t, k, state.Tenant{Name: "filmset"}) // its name begins like the other's
			k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/first", 0.25, gib, "h1"))
			k.must(t, state.KindPlan, planOf(k.Snapshot(), "filmset/other", 0.25, gib, "h1"))
			k.must(t, state.KindPlan, planOf(k.Snapshot(), "mine", 0.25, gib, "h1"))
			putTenant(t, k, state.Tenant{Name: "film", Quota: c.own})
			err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "film/second", 0.25, gib, "h2"))
			var over *state.QuotaError
			if c.key == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.As(err, &over) || over.Key != c.key || over.Tenant != "film" || over.Used == 0 || over.Asked == 0 {
				t.Fatalf("%v, want a refusal by %s", err, c.key)
			}
			k.must(t, state.KindPlan, planOf(k.Snapshot(), "also-mine", 0.25, gib, "h2"))
		})
	}
}

// The VMs of groups that are removed count until they are gone: a tenant that replaces its groups has no more VMs at once than it may.
func TestQuotaCountsRemovedGroups(t *testing.T) {
	k := small(t, 2)
	putTenant(t, k, state.Tenant{Name: "film", Quota: map[state.QuotaKey]state.Limit{"vms": 3}})
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/a", 0.25, gib, "h1", "h2"))
	for _, c := range []struct {
		count int // of the group that comes for the one that there is
		err   error
	}{{2, state.ErrQuota}, {1, nil}} {
		next, _ := k.Snapshot().VCNamed("film/a")
		next.Groups = slices.Clone(next.Groups)
		other := next.Groups[0]
		other.Name, other.Count = "other", c.count
		next.Groups[0].Count = 0
		next.Groups = append(next.Groups, other)
		p := state.Plan{Basis: k.Snapshot().Index(), Verb: "changed", VC: &next, VCVersion: next.ModifyIndex, Operation: &state.Operation{ID: "op-change", Kind: "apply", VC: next.ID, Name: next.Name}}
		if err := k.apply(t, state.KindPlan, p); !errors.Is(err, c.err) {
			t.Errorf("replaced by %d VMs: %v, want %v", c.count, err, c.err)
		}
	}
	if use := k.Snapshot().UseOf("film"); use[state.QuotaVMs] != 3 || use[state.QuotaCPU] != 0.75 || use[state.QuotaMemory] != float64(3*gib) {
		t.Errorf("it uses %v", use)
	}
}

// A tenant over a limit that was lowered may still make its VCs smaller, stop and delete them; the cluster's own plans go on.
func TestOverQuota(t *testing.T) {
	k := small(t, 2)
	putTenant(t, k, state.Tenant{Name: "film"})
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/big", 0.25, gib, "h1", "h2"))
	putTenant(t, k, state.Tenant{Name: "film", Quota: map[state.QuotaKey]state.Limit{"vms": 1, "vcs": 0}})
	vc, _ := k.Snapshot().VCNamed("film/big")
	for _, c := range []struct {
		count int
		err   error
	}{{3, state.ErrQuota}, {1, nil}} {
		next := vc
		next.Groups = append([]state.Group{}, vc.Groups...)
		next.Groups[0].Count = c.count
		if err := k.Snapshot().CheckGrowth("scale", &next); !errors.Is(err, c.err) {
			t.Errorf("to %d VMs: %v", c.count, err)
		}
	}
	queued := vc
	queued.Admitted = false
	own := state.Plan{Basis: k.Snapshot().Index(), Verb: "preempted", VC: &queued, VCVersion: vc.ModifyIndex}
	putTenant(t, k, state.Tenant{Name: "film", Suspended: true, Quota: map[state.QuotaKey]state.Limit{"queued": 0}})
	own.Basis = k.Snapshot().Index()
	k.must(t, state.KindPlan, own)
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "film/more", 0.25, gib, "h1")); !errors.Is(err, state.ErrSuspended) {
		t.Errorf("a suspended tenant creates: %v", err)
	}
	k.must(t, state.KindPlan, leave(k.Snapshot(), "film/big", state.GoalDelete))
}

// Events about what a tenant owns are numbered for it without gaps, whatever others do meanwhile. Names decide, and an object of
// another kind is the cluster's.
func TestEventsOfTenants(t *testing.T) {
	k := small(t, 2)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "early", 0.25, gib, "h1"))
	putTenant(t, k, state.Tenant{Name: "film"})
	for i := range 3 {
		k.must(t, state.KindPlan, planOf(k.Snapshot(), fmt.Sprintf("film/a%d", i), 0.1, gib/4, "h1"))
		k.must(t, state.KindPlan, planOf(k.Snapshot(), fmt.Sprintf("mine%d", i), 0.1, gib/4, "h2"))
		k.must(t, state.KindHostCordon, state.HostCordon{Host: "h2", Cordoned: i%2 == 0})
		k.must(t, state.KindHostCordon, state.HostCordon{Host: "h2"})
	}
	next := map[string]uint64{}
	for _, e := range k.Snapshot().EventsAfter(0, 0) {
		owner := e.OwnerOf()
		if e.Name == "early" || owner == "" {
			if e.TenantSeq != 0 {
				t.Errorf("%+v has a number", e)
			}
			continue
		}
		if next[owner]++; e.TenantSeq != next[owner] {
			t.Errorf("%s: number %d, want %d", e.Name, e.TenantSeq, next[owner])
		}
	}
	if next["film"] < 3 || next["default"] < 3 || len(next) != 2 {
		t.Errorf("events by tenant: %v", next)
	}
}

// Once there are tenants, a server that does not know them does not come in.
func TestServerWithoutTenants(t *testing.T) {
	k := small(t, 1)
	old := state.Member{Name: "old", Server: true, Address: "10.0.0.9:7480", Format: 1}
	k.must(t, state.KindMemberPut, old)
	if _, err := k.Snapshot().Encode(state.KindTenantPut, start, state.TenantPut{}); !errors.Is(err, state.ErrTooNew) {
		t.Errorf("a tenant beside an older server: %v", err)
	}
	k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "old"})
	putTenant(t, k, state.Tenant{Name: "film"})
	if err := k.apply(t, state.KindMemberPut, old); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an older server beside a tenant: %v", err)
	}
}

// A restore keeps who may do what now: a tenant that is suspended since stays so, and one that came since is there. The events that a
// tenant sees are numbered as the saved state has them. Of another cluster, the tenants of this one get nothing.
func TestTenantsAfterARestore(t *testing.T) {
	k := small(t, 1)
	putTenant(t, k, state.Tenant{Name: "film"})
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/shot", 0.25, gib, "h1"))
	saved := save(t, k.Snapshot())
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/later", 0.25, gib, "h1"))
	putTenant(t, k, state.Tenant{Name: "film", Suspended: true})
	putTenant(t, k, state.Tenant{Name: "acme"})
	of := token("acme", state.RoleEditor)
	of.Tenant = "acme"
	k.must(t, state.KindAdminToken, of)
	var out bytes.Buffer
	if err := state.PrepareRestore(strings.NewReader(saved), &out, "restore", start, k.Snapshot()); err != nil {
		t.Fatal(err)
	}
	after := state.New()
	if err := after.Restore(&out); err != nil {
		t.Fatal(err)
	}
	film, _ := after.Snapshot().Tenant("film")
	_, acme := after.Snapshot().Tenant("acme")
	if _, ok := after.Snapshot().Token(of.ID); !film.Suspended || film.Events != 1 || !acme || !ok {
		t.Errorf("film %+v, acme there %v, its token %v", film, acme, ok)
	}
}

// A cluster that takes over the state of another one keeps its own tokens, but not those of its tenants: a tenant of the same name
// there is another one.
func TestTokensOfTenantsElsewhere(t *testing.T) {
	here, there := newCluster(), small(t, 1)
	here.must(t, state.KindInit, state.Init{ID: "cluster-2", Settings: state.DefaultSettings()})
	putTenant(t, here, state.Tenant{Name: "film"})
	of, admin := token("film", state.RoleEditor), token("root", state.RoleAdmin)
	of.Tenant = "film"
	here.must(t, state.KindAdminToken, of)
	here.must(t, state.KindAdminToken, admin)
	putTenant(t, there, state.Tenant{Name: "film"})
	var out bytes.Buffer
	if err := state.PrepareRestore(strings.NewReader(save(t, there.Snapshot())), &out, "restore", start, here.Snapshot()); err != nil {
		t.Fatal(err)
	}
	after := state.New()
	if err := after.Restore(&out); err != nil {
		t.Fatal(err)
	}
	_, film := after.Snapshot().Token(of.ID)
	if _, ok := after.Snapshot().Token(admin.ID); film || !ok {
		t.Errorf("the tenant's token is there: %v, the admin's: %v", film, ok)
	}
}

// A tenant that was deleted and made again since the state was saved is another one: it does not get the old one's virtual clusters.
func TestTenantMadeAgainBeforeARestore(t *testing.T) {
	for _, owns := range []bool{false, true} {
		k := small(t, 1)
		putTenant(t, k, state.Tenant{Name: "film"})
		if owns {
			k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/shot", 0.25, gib, "h1"))
		}
		saved := save(t, k.Snapshot())
		if owns {
			k.must(t, state.KindPlan, leave(k.Snapshot(), "film/shot", state.GoalDelete))
			k.must(t, state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: "vm-film/shot-0", Generation: 1, Phase: state.Stopped, SourceLost: true}}})
		}
		k.must(t, state.KindTenantDrop, state.TenantDrop{Name: "film"})
		putTenant(t, k, state.Tenant{Name: "film"})
		var out bytes.Buffer
		if err := state.PrepareRestore(strings.NewReader(saved), &out, "restore", start, k.Snapshot()); err != nil {
			t.Fatal(err)
		}
		after := state.New()
		if err := after.Restore(&out); err != nil {
			t.Fatal(err)
		}
		if film, _ := after.Snapshot().Tenant("film"); film.Suspended != owns || film.Events != 0 {
			t.Errorf("the saved state has a virtual cluster of the old tenant: %v, the new one: %+v", owns, film)
		}
	}
}

// A tenant without a quota does not use up the tokens of the cluster or of another tenant.
func TestTokensOfTenantsAreLimited(t *testing.T) {
	k := small(t, 1)
	putTenant(t, k, state.Tenant{Name: "film", Quota: map[state.QuotaKey]state.Limit{"tokens": state.Unlimited}})
	putTenant(t, k, state.Tenant{Name: "acme"})
	of := func(tenant string, n int) error {
		row := state.Token{ID: fmt.Sprintf("%016x", n), Hash: strings.Repeat("0", 64), Name: "ci", Role: state.RoleAdmin, Tenant: tenant}
		if tenant != "" {
			row.Role = state.RoleViewer
		}
		return k.apply(t, state.KindAdminToken, row)
	}
	made, err := 0, error(nil)
	for ; err == nil && made <= state.MaxTokens; made++ {
		err = of("film", made)
	}
	if !errors.Is(err, state.ErrQuota) || made != 101 {
		t.Errorf("token %d of film: %v", made, err)
	}
	for i, tenant := range []string{"acme", "default"} {
		if err := of(tenant, 2000+i); err != nil {
			t.Errorf("a token of %s: %v", tenant, err)
		}
	}
	for n := range state.MaxTokens {
		if err = of("", 3000+n); err != nil {
			t.Fatalf("token %d of the cluster: %v", n, err)
		}
	}
	if err = of("", 5000); !errors.Is(err, state.ErrConflict) {
		t.Errorf("one token more than the cluster keeps: %v", err)
	}
}

// An event about a VM that the state does not know is the cluster's: its name does not say whose it was.
func TestUnknownVMsAreNobodys(t *testing.T) {
	for kind, want := range map[string]string{"vm-unmanaged": "", "vm-running": state.DefaultTenant} {
		if owner := (state.Event{Kind: kind, Object: "vm", Name: "01J"}).OwnerOf(); owner != want {
			t.Errorf("%s is of %q, want %q", kind, owner, want)
		}
	}
}

// A plan for a host that was removed meanwhile is one to make again. To a tenant, an answer that something is not found would name the
// host.
func TestPlanForHostThatIsGone(t *testing.T) {
	k := small(t, 1)
	for _, affected := range [][]string{{"h1", "h9"}, {"h1"}} {
		p := planOf(k.Snapshot(), "a", 0.25, gib, "h1")
		if p.AffectedHosts = affected; len(affected) == 1 {
			p.VMs[0].Host = "h9"
		}
		if err := k.apply(t, state.KindPlan, p); !errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrNotFound) {
			t.Errorf("hosts %v: %v", affected, err)
		}
	}
}
