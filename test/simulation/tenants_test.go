package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/test/quota"
)

// tenants of a run, beside the default one: clients of their own ask for their VCs, and change their quotas.
type tenants struct {
	clients int
	names   []string // of their VCs
	quotas  map[string]map[state.QuotaKey]state.Limit
	hasty   bool // clients give most requests up before the answer can be there
	atOnce  bool // clients ask together, in the same instant
}

// someTenants are two, with little room each.
func someTenants(o *options) {
	o.tenants = &tenants{clients: 3, names: []string{"film/ra", "film/kb", "film/rc", "acme/ra", "acme/kb", "acme/rc"},
		quotas: map[string]map[state.QuotaKey]state.Limit{
			"film": {state.QuotaVCs: 2, state.QuotaCPU: 0.8, state.QuotaQueued: 1},
			"acme": {state.QuotaVMs: 4, state.QuotaMemory: 1 << 30},
		}}
	o.names = append(o.names, o.tenants.names...)
}

// own are the names of VCs that the clients of the default tenant know.
func (o options) own() []string {
	return slices.DeleteFunc(slices.Clone(o.names), func(name string) bool {
		return strings.Contains(name, "/") || o.periodic != nil && o.periodic.knows(name)
	})
}

// newDisks gives all servers empty disks, of one new cluster. What they write is noted, whatever they forget of it.
func (s *sim) newDisks() {
	var mu sync.Mutex
	log := &quota.Log{}
	s.logs = append(s.logs, log)
	for _, name := range s.names {
		disk := node.NewMemory()
		disk.Watch(func(index, term uint64, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			log.Add(quota.Entry{Index: index, Term: term, Data: data})
		})
		s.servers[name].disk = disk
	}
}

// makeTenants with their quotas.
func (s *sim) makeTenants() error {
	if s.o.tenants == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.o.tenants.quotas)) {
		var err error
		if !s.eventually(time.Minute, func() bool {
			err = s.withLeader(func(ctx context.Context, p *serving) error {
				_, err := p.ctl.PutTenant(ctx, name, "", true, false, func(t *state.Tenant) { t.Quota = s.o.tenants.quotas[name] })
				if exists := (*leader.Exists)(nil); errors.As(err, &exists) { // an earlier try was heeded after all
					return nil
				}
				return err
			})
			return err == nil
		}) {
			return fmt.Errorf("make tenant %s: %w", name, err)
		}
	}
	return nil
}

// tenantClient is client for VCs of tenants. It comes more often, and changes quotas now and then, as an operator.
func (s *sim) tenantClient(ctx context.Context, id int) {
	rng := seeded(s.o.seed, uint64(1000+id))
	for n := 0; ; n++ {
		pause := time.Duration(100+rng.IntN(2000)) * time.Millisecond
		if s.o.tenants.atOnce {
			pause = time.Second - time.Since(s.began)%time.Second
		}
		if wait(ctx, pause) != nil {
			return
		}
		name := s.o.tenants.names[rng.IntN(len(s.o.tenants.names))]
		w := want{Verb: "create", Count: 1 + rng.IntN(3)}
		switch k := rng.IntN(20); {
		case k < 4:
			w.Verb = "scale"
		case k < 5:
			w = want{Verb: "stop"}
		case k < 7:
			w = want{Verb: "start"}
		case k < 13:
			w = want{Verb: "delete"}
		case k < 14:
			s.setQuota(name, rng)
			continue
		}
		s.clients.RLock() // a restore waits for the requests that are under way
		if s.o.tenants.hasty && w.Verb == "create" && rng.IntN(4) > 0 {
			s.giveUp(ctx, rng, id, n, name, w)
		} else {
			s.request(ctx, rng, id, n, name, w)
		}
		s.clients.RUnlock()
	}
}

// giveUp asks, and hears no answer: the request may be anywhere by then.
func (s *sim) giveUp(ctx context.Context, rng *rand.Rand, id, n int, name string, w want) {
	called := time.Since(s.began)
	short, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
	defer cancel()
	_, err := ask(short, s, "client", s.names[rng.IntN(len(s.names))], func(ctx context.Context, p *serving) (got, error) {
		return p.act(ctx, name, w, fmt.Sprintf("client-%d-%d", id, n))
	})
	if err != nil {
		s.count("creates that their clients gave up")
	}
	s.history.add(id, name, w, got{Is: "unknown"}, int64(called), int64(time.Since(s.began)))
}

// setQuota sets the quota of the tenant of a VC to what it was made with, or a little above or below.
func (s *sim) setQuota(name string, rng *rand.Rand) {
	tenant, _ := state.SplitName(name)
	limits := s.o.tenants.quotas[tenant]
	if limits == nil {
		return
	}
	factor := state.Limit([]float64{0.5, 1, 1, 1.5}[rng.IntN(4)])
	err := s.withLeader(func(ctx context.Context, p *serving) error {
		_, err := p.ctl.PutTenant(ctx, tenant, "", false, false, func(t *state.Tenant) {
			t.Quota = map[state.QuotaKey]state.Limit{}
			for key, limit := range limits {
				t.Quota[key] = limit * factor
			}
		})
		return err
	})
	if err == nil {
		s.count("quotas changed")
	}
}

// fillTenants: what each tenant uses is what its objects add up to, a VC up to the very limit is accepted, and one more VM is not.
func (s *sim) fillTenants() {
	if s.o.tenants == nil {
		return
	}
	for _, tenant := range slices.Sorted(maps.Keys(s.o.tenants.quotas)) {
		if !s.eventually(time.Minute, func() bool {
			return s.withLeader(func(ctx context.Context, p *serving) error { return s.fill(ctx, p, tenant) }) == nil
		}) {
			s.violate("the quotas of tenant %s could not be looked at", tenant)
		}
	}
}

func (s *sim) fill(ctx context.Context, p *serving, tenant string) error {
	v, err := p.ctl.View(ctx, false)
	if err != nil {
		return err
	}
	if _, there := v.VCNamed(state.FullName(tenant, "last")); there { // an earlier try was heeded after all
		return nil
	}
	use := quota.Sum(v.Snapshot, tenant)
	if says := v.UseOf(tenant); !quota.Same(use, says) {
		s.violate("tenant %s uses %v in the end, the state says %v", tenant, use, says)
	}
	spec := s.spec(state.FullName(tenant, "last"), 2)
	more := map[state.QuotaKey]float64{state.QuotaVCs: 1, state.QuotaVMs: 2, state.QuotaCPU: 2 * spec.Groups[0].CPU, state.QuotaMemory: 2 * float64(spec.Groups[0].Memory)}
	set := func(tight state.QuotaKey, by float64) error {
		_, err := p.ctl.PutTenant(ctx, tenant, "", false, false, func(t *state.Tenant) {
			t.Quota = map[state.QuotaKey]state.Limit{}
			for key, n := range more {
				t.Quota[key] = state.Limit(use[key] + n)
			}
			t.Quota[tight] -= state.Limit(by)
		})
		return err
	}
	for key, by := range map[state.QuotaKey]float64{state.QuotaVCs: 1, state.QuotaVMs: 1, state.QuotaCPU: 0.001, state.QuotaMemory: 1} {
		if err := set(key, by); err != nil {
			return err
		}
		_, err := p.ctl.Create(ctx, spec, leader.Call{})
		var over *state.QuotaError
		switch {
		case errors.As(err, &over) && over.Key == key:
			s.count("creates refused just above a limit")
		case errors.Is(err, leader.ErrNoLeader), errors.Is(err, leader.ErrTimeout):
			return err
		default:
			s.violate("a create that exceeds quota %s of tenant %s by %v: %v", key, tenant, by, err)
		}
	}
	if err := set(state.QuotaVMs, 0); err != nil {
		return err
	}
	switch _, err := p.ctl.Create(ctx, spec, leader.Call{}); {
	case err == nil:
		s.count("creates accepted up to the limit")
		return nil
	case errors.Is(err, state.ErrQuota):
		s.violate("a create up to the quotas of tenant %s: %v", tenant, err)
		return nil
	default:
		return err
	}
}

// checkQuotas plays what the servers wrote again: after no entry does a tenant exceed a quota, or use anything else than what the
// rows add up to.
func (s *sim) checkQuotas() {
	for i, log := range s.logs {
		committed := ^uint64(0) // of a cluster that was lost with all its servers, nearly all was
		if i == len(s.logs)-1 {
			committed = 0
			for _, name := range s.names {
				if p := s.servers[name].alive(); p != nil {
					committed = max(committed, p.store.Snapshot().Index())
				}
			}
		}
		r := log.Check(committed)
		for _, v := range r.Violations {
			s.violate("quota: %s", v)
		}
		s.mu.Lock()
		s.counts["entries of logs played again"] += r.Entries
		s.counts["entries after which a tenant uses more"] += r.Grew
		s.counts["entries after which a tenant uses all of a quota"] += r.AtLimit
		s.counts["entries refused for a quota"] += r.Refused
		s.mu.Unlock()
	}
}

// After at least 100 creates that their clients gave up, and failovers, restores and moves, what tenants use is what their objects
// add up to, and a limit can be reached and not exceeded: see fillTenants and checkQuotas.
func TestQuotasStayExact(t *testing.T) {
	o := defaults(7)
	o.names, o.clients, o.verbose = nil, 0, *verbose
	someTenants(&o)
	o.tenants.clients, o.tenants.hasty = 12, true
	var script strings.Builder
	script.WriteString("at 0s random\n")
	for at := 10; at < 150; at += 10 {
		fmt.Fprintf(&script, "at %ds off h%d\nat %ds on h%d\nat %ds move any\nat %ds move any\n", at, 1+at/10, at+30, 1+at/10, at+3, at+6)
	}
	script.WriteString("at 25s save\nat 55s restore\nat 60s save\nat 70s transfer\nat 100s restore\nat 40s crash s2\nat 65s start s2\n")
	if err := parseScript(script.String(), &o); err != nil {
		t.Fatal(err)
	}
	r := play(t, o)
	if len(r.violations) > 0 {
		report(t, o, r)
	}
	t.Log(stats(r.counts))
	for what, want := range map[string]int{"creates that their clients gave up": 100, "snapshots restored": 2, "moves opened": 3, "creates accepted up to the limit": 2,
		"creates refused just above a limit": 8, "requests over a quota": 20, "entries after which a tenant uses all of a quota": 20} {
		if r.counts[what] < want {
			t.Errorf("%d %s, want at least %d", r.counts[what], what, want)
		}
	}
}

// unchecked is a state that does not check quotas where it applies the log: the leader checks them before it plans, and many plans are
// on their way at once. Apply checks what it knows as requests of tenants.
var unchecked = broken{name: "no quota check in the log", log: func(_ *sim, l leader.Log) leader.Log { return uncheckedLog{l} }}

type uncheckedLog struct{ leader.Log }

func (l uncheckedLog) Apply(ctx context.Context, entry []byte) (uint64, error, error) { //nolint:staticcheck // leader.Log says so
	cmd, body, err := state.Decode(entry)
	if plan, is := body.(*state.Plan); err == nil && is && plan.Operation != nil {
		plan.Operation.Kind = "unchecked " + plan.Operation.Kind
		if entry, err = state.Encode(cmd.Kind, cmd.At, plan); err != nil {
			return 0, nil, err
		}
	}
	return l.Log.Apply(ctx, entry)
}

// crowdOfTenants is a crowd of clients of tenants on as many hosts as plans side by side need.
func crowdOfTenants(o *options) {
	o.hosts, o.names, o.clients = 64, nil, 0
	someTenants(o)
	o.tenants.clients, o.tenants.atOnce = 16, true
	o.script = []step{{0, "random", nil}, {20 * time.Second, "transfer", nil}, {60 * time.Second, "heal", nil}}
}

// Requests that come in the same instant are checked where the log is applied; without that check a quota is exceeded, and found.
func TestQuotasAtOnce(t *testing.T) {
	play := func(t *testing.T, seed uint64, b broken) outcome {
		o := defaults(seed)
		crowdOfTenants(&o)
		o.broken, o.verbose = b, *verbose
		r := play(t, o)
		if b.name == "" && len(r.violations) > 0 {
			report(t, o, r)
		}
		return r
	}
	t.Run("as it is", func(t *testing.T) {
		t.Parallel()
		r := play(t, 1, broken{})
		if t.Log(stats(r.counts)); r.counts["entries refused for a quota"] == 0 {
			t.Error("the state refused nothing: the leader's own check was enough")
		}
	})
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		for seed := uint64(1); seed <= 10; seed++ {
			r := play(t, seed, unchecked)
			if at := slices.IndexFunc(r.violations, func(v string) bool { return strings.Contains(v, "quota: index") }); at >= 0 {
				t.Logf("found with seed %d: %s", seed, r.violations[at])
				return
			}
		}
		t.Error("10 seeds did not find it")
	})
}
