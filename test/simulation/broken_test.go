package simulation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// Variants that are broken on purpose, by wrappers. The runs must find each of them; otherwise they could find nothing.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		variant   broken
		highest   int    // seeds that it may take
		found     string // a part of what one of them must find
		rightsize func(*options)
	}{
		{noLeaseWait, 40, "in two places", func(o *options) { o.watchdogs, o.devices = always(5*time.Second), always("") }},
		{ackBeforeCommit, 10, "not linearizable", func(*options) {}},
		{withoutProof, 60, "in two places", func(*options) {}},
		{staleRelay, 60, "in two places", func(o *options) { o.watchdogs = always(5 * time.Second) }},
		{evictsByForecast, 10, "were evicted, though", crowded},
		{oneSidedProof, 60, "in two places", func(o *options) { o.watchdogs = always(5 * time.Second); randomScript(o, long); manyMoves(o) }},
	} {
		t.Run(c.variant.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= uint64(c.highest); seed++ {
				o := defaults(seed)
				c.rightsize(&o)
				o.broken, o.quiet, o.unhealed = c.variant, 20*time.Second, c.found == "in two places"
				if o.script == nil {
					randomScript(&o, long)
				}
				r := play(t, o)
				for _, v := range r.violations {
					if strings.Contains(v, c.found) {
						t.Logf("found with seed %d: %.300s", seed, v)
						return
					}
				}
				t.Logf("seed %d: %d other violations %.600s", seed, len(r.violations), strings.Join(r.violations, "\n"))
			}
			t.Errorf("%d seeds did not find it", c.highest)
		})
	}
}

// manyMoves keeps migrations under way whenever a host is cut off or fails.
func manyMoves(o *options) {
	for at := 15 * time.Second; at < long; at += 1500 * time.Millisecond {
		o.script = append(o.script, step{at, "move", []string{"any"}})
	}
	_ = parseScript("", o) // in order of time
}

// manyPlans makes the leader plan moves all the time, and drains hosts.
func manyPlans(o *options) {
	for at := 15 * time.Second; at < long; at += 8 * time.Second {
		o.script = append(o.script, step{at, "drain", []string{"any", []string{"-1", "900"}[int(at/(8*time.Second))%2]}},
			step{at + 4*time.Second, "rebalance", []string{"1500"}}, step{at + 20*time.Second, "undrain", []string{"any"}})
	}
	_ = parseScript("", o) // in order of time
}

// 1. The agent gets a longer lease than the leader counts.
var noLeaseWait = broken{name: "no lease wait", agent: func(_ *host, l agent.Leader) agent.Leader { return longLease{l} }}

type longLease struct{ agent.Leader }

func (l longLease) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	r.Left /= 10 // or the leader would hear of it
	g, err := l.Leader.Renew(ctx, r)
	g.Lease *= 10
	return g, err
}

// 2. The log answers clients before an entry is committed.
var ackBeforeCommit = broken{name: "ack before commit", log: func(s *sim, l leader.Log) leader.Log { return hasty{l, s} }}

type hasty struct {
	leader.Log
	s *sim
}

func (l hasty) Apply(ctx context.Context, entry []byte) (uint64, error, error) { //nolint:staticcheck // leader.Log says so
	_, body, err := state.Decode(entry)
	if plan, is := body.(*state.Plan); err != nil || !l.Leads() || !is || plan.Operation == nil {
		return l.Log.Apply(ctx, entry) // the loop would see no end of what it does
	}
	l.s.group.Go(func() { _, _, _ = l.Log.Apply(l.s.ctx, entry) })
	return 0, nil, nil
}

// 3. The leader takes a silent host for lost, without any proof.
var withoutProof = broken{name: "restart without proof", leading: func(ctx context.Context, p *serving) {
	for wait(ctx, time.Second) == nil {
		v, err := p.ctl.View(ctx, true)
		if err != nil {
			continue
		}
		for _, h := range v.Hosts() {
			if v.HostView(h).Lease == "over" && h.Lost.Proof == "" {
				propose(ctx, p.node.Apply, state.KindHostLost, state.HostLost{Host: h.Name, Proof: state.ProofOperator, Text: "it is so quiet", Basis: v.Index()})
			}
		}
	}
}}

func propose(ctx context.Context, apply func(context.Context, []byte) (uint64, error, error), kind state.Kind, body any) { //nolint:staticcheck // leader.Log says so
	if entry, err := state.Encode(kind, time.Now(), body); err == nil {
		_, _, _ = apply(ctx, entry)
	}
}

// 4. A relay serves what it heard earlier as if it were new, and grants permits by itself.
var staleRelay = broken{name: "stale relay obeyed", agent: func(h *host, l agent.Leader) agent.Leader {
	return &stale{Leader: l, h: h}
}}

// stales are what relays heard for each host, kept longer than its agent lives.
var stales sync.Map // *host -> map[string]agent.VM

type stale struct {
	agent.Leader
	h *host
}

func (l *stale) Desired(ctx context.Context, host string) (agent.Desired, <-chan struct{}, error) {
	d, changed, err := l.Leader.Desired(ctx, host)
	if err != nil {
		return d, changed, err
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	old, _ := stales.LoadOrStore(l.h, map[string]agent.VM{})
	heard := old.(map[string]agent.VM)
	there := map[string]bool{}
	for _, vm := range d.VMs {
		there[vm.Spec.VM] = true
		if vm.MayStart {
			heard[vm.Spec.VM] = vm
		}
	}
	d.VMs = append([]agent.VM(nil), d.VMs...)
	for id, vm := range heard {
		if !there[id] {
			d.VMs = append(d.VMs, vm)
		}
	}
	return d, changed, nil
}

func (l *stale) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	d, _, err := l.Leader.Desired(ctx, q.Host)
	return agent.Permit{Epoch: d.Epoch, Index: d.Index, Granted: q.Starts}, err
}

// 5. While a VM moves, the proof for one host is taken for that of both.
var oneSidedProof = broken{name: "one-sided proof in a migration", leading: func(ctx context.Context, p *serving) {
	for wait(ctx, 500*time.Millisecond) == nil {
		snap := p.store.Snapshot()
		for _, vm := range snap.VMs() {
			if vm.MovingTo == "" || !vm.ConsumesResources() {
				continue
			}
			from, _ := snap.Host(vm.Host)
			to, _ := snap.Host(vm.MovingTo)
			if from.Lost.Proof == "" && to.Lost.Proof == "" && !snap.SourceLost(&vm) {
				continue
			}
			for _, host := range []string{vm.Host, vm.MovingTo} {
				propose(ctx, p.node.Apply, state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation,
					Phase: state.Lost, Reason: fmt.Sprintf("one of %s and %s is proved", vm.Host, vm.MovingTo)}}})
			}
		}
	}
}}

// 6. The leader evicts elastic VMs whose forecasts do not fit, though what they use does.
var evictsByForecast = broken{name: "evicts by forecast", leading: func(ctx context.Context, p *serving) {
	for wait(ctx, 2*time.Second) == nil {
		snap := p.store.Snapshot()
		claimed := map[string]int64{} // by host, bytes
		for _, vm := range snap.VMs() {
			vc, _ := snap.VC(vm.VC)
			g, known := vc.GroupOf(vm)
			h, _ := snap.Host(vm.Host)
			if !known || !vm.ConsumesResources() || vc.Needs == state.NeedsDeclared {
				continue
			}
			if claimed[h.Name] += g.Memory; g.Role != "elastic" || claimed[h.Name] <= h.Usable().Memory {
				continue
			}
			reason := fmt.Sprintf("host %s lacks memory; its VMs use 1 MiB of 1 MiB, and taking back the 1 MiB that they leave idle is not enough; no VM moves for it: none was asked", h.Name)
			if plan := rightsizing.Preempt(snap, rightsizing.Preemption{VC: vc.ID, VM: vm.ID, Host: h.Name, Reason: reason}, time.Now().UTC()); plan != nil {
				propose(ctx, p.node.Apply, state.KindPlan, plan)
			}
		}
	}
}}
