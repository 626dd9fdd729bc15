package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// squeezed: few hosts, with needs that are estimated badly: hosts' forecasts are made up. Whatever they say, hosts
// stay within their memory (see audit), floors are kept, and declared needs do not change.
func squeezed(o *options) {
	o.rightsized, o.hosts = true, 3
	o.settings.Rightsizing = state.RightsizingSettings{Mode: state.RightsizingOn, Needs: state.NeedsEstimated}
}

// crowded: as squeezed, with many more VMs than hosts have memory for once their guests burst, which they do together. None takes memory back by
// itself: so many at once are more than a host keeps for that (docs/reference/rightsizing.md, Limits).
func crowded(o *options) {
	squeezed(o)
	o.bursts, o.clients = true, 0 // clients would stop and delete
	o.names = append(o.names, "rf", "rg", "rh", "ri", "rj", "kf", "kg", "kh", "ki", "kj")
	randomScript(o, long)
	for i := range o.script {
		if v := o.script[i].verb; v != "random" && v != "create" { // a leader takes nothing of a VM before it has seen it for a while
			o.script[i].at += calm
		}
	}
}

// larger is how many times as many VMs as otherwise VCs have.
func (o *options) larger() int {
	if o.bursts {
		return 2
	}
	return 1
}

// Guests of crowded runs burst for burstFor in every burstEvery, for the first time at burstEvery after the run began. Until calm no fault is made.
const (
	calm       = 90 * time.Second
	burstEvery = 100 * time.Second
	burstFor   = 20 * time.Second
)

// burst is what a guest wants that uses little, and much when others do.
type burst struct {
	quiet, high int64         // bytes
	boot        time.Duration // when the guest booted, after the run began
}

// Wants implements simulated.Memory.
func (b burst) Wants(t time.Duration) (bytes int64, until time.Duration) {
	now := b.boot + t
	cycle := now / burstEvery * burstEvery
	if now < burstEvery || now >= cycle+burstFor {
		return b.quiet, cycle + burstEvery - b.boot
	}
	return b.high, cycle + burstFor - b.boot
}

// period of looks at needs, and step of forecasts.
func (o *options) period() time.Duration {
	if o.rightsized {
		return 2 * time.Second
	}
	if o.periodic != nil {
		return evaluateRuns
	}
	return 0
}

// rightsize makes a VC larger, so that hosts are crowded; VCs whose names end with c have declared needs.
func (o *options) rightsize(vc *state.VC, k *rand.Rand) {
	if !o.rightsized {
		return
	}
	g := &vc.Groups[0]
	g.Memory *= 2
	g.MemoryMin = g.Memory / 8
	g.Role = []string{"core", "elastic"}[k.IntN(2)]
	vc.Aggressiveness = []string{"", state.Conservative, state.Aggressive}[k.IntN(3)]
	if o.bursts { // many small ones: of few a host keeps free what the largest may take back, and they burst into that
		g.CPU, g.Memory, g.MemoryMin, vc.MinYield, vc.Aggressiveness = 0.2, 256<<20, 64<<20, 0.05, state.Aggressive
	}
	if vc.Name[len(vc.Name)-1] == 'c' {
		vc.Needs = state.NeedsDeclared
	}
}

// guests want now more, now less; some have no balloon driver, some take back what they lack.
func (o *options) guests() func(hypervisor.Spec) simulated.Guest {
	if !o.rightsized {
		return nil
	}
	began, boots := time.Now(), sync.Map{}
	return func(spec hypervisor.Spec) simulated.Guest {
		k := seeded(o.seed, uint64(len(spec.Title)+3)<<32|uint64(spec.Title[len(spec.Title)-1])<<8|uint64(spec.Title[0])) // the same each time
		trace := simulated.MemoryTrace{Interval: time.Duration(3+k.IntN(12)) * time.Second}
		for range 12 {
			trace.Bytes = append(trace.Bytes, int64(k.Float64()*k.Float64()*1.1*float64(spec.Memory)))
		}
		memory := simulated.Memory(trace)
		if o.bursts && k.IntN(8) > 0 {
			boot, _ := boots.LoadOrStore(fmt.Sprint(spec.VM, "/", spec.Generation), time.Since(began)) // a guest that moves does not boot again
			memory = burst{spec.Memory / 8, int64((0.85 + 0.15*k.Float64()) * float64(spec.Memory)), boot.(time.Duration)}
		}
		return simulated.Guest{Memory: memory, Swap: int64(k.IntN(2)) << 28, Deflates: k.IntN(2) == 0 && !o.bursts, Deaf: k.IntN(6*o.larger()) == 0}
	}
}

// Report implements agent.Leader.
func (w watched) Report(ctx context.Context, r agent.Report) error {
	s := w.link.h.s
	if s.o.rightsized {
		r.Estimates = nil
		for _, m := range r.Samples {
			r.Estimates = append(r.Estimates, s.guess(m))
		}
		s.uses.reported(r.Samples)
	}
	if s.o.periodic != nil {
		r.Samples = s.throttled(r.Samples)
	}
	err := w.link.Report(ctx, r)
	if err == nil {
		w.link.h.mu.Lock()
		w.link.h.heard = time.Now()
		w.link.h.mu.Unlock()
	}
	return err
}

// guess what a VM will use: rather well, or not at all.
func (s *sim) guess(m agent.Sample) agent.Estimate {
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead := func(now float64) agent.Ahead {
		a := agent.Ahead{Trusted: s.rng.IntN(8) > 0, Reason: "it is made up"}
		f := 0.3 + 1.2*s.rng.Float64()
		if s.o.bursts { // or needs rise again and again, and nothing falls
			f, a.Trusted = 1, true
		}
		for range agent.AheadSteps {
			a.Mean, a.Deviation = append(a.Mean, now*f), append(a.Deviation, now*0.1*s.rng.Float64())
		}
		return a
	}
	return agent.Estimate{VM: m.VM, Generation: m.Generation, Until: time.Now(), CPU: ahead(m.Used), Memory: ahead(float64(m.Memory))}
}

// watchRightsize looks at what the leader wants of VMs.
func (s *sim) watchRightsize() {
	if !s.o.rightsized {
		return
	}
	l := s.leader()
	if l == nil {
		return
	}
	snap := l.store.Snapshot()
	for _, vm := range snap.VMs() {
		vc, _ := snap.VC(vm.VC)
		g, _ := vc.GroupOf(vm)
		switch {
		case vm.Target > 0 && vm.Target < g.MemoryMin, g.Estimated < 0, g.Estimated > g.CPU:
			s.violate("VM %s is to have %d bytes and %v cores, of %+v", vm.Name, vm.Target, g.Estimated, g)
		case vc.Needs == state.NeedsDeclared && (vm.Target > 0 || g.Estimated > 0 || vm.PreemptedAt > 0):
			s.violate("VM %s has what was declared for it, and is rightsized: %+v", vm.Name, vm)
		case vm.Target > 0:
			s.count("looks at VMs that have less than was declared")
		}
		if vm.PreemptedAt > 0 && vm.Phase == state.Stopped {
			s.count("looks at VMs that were evicted")
		}
	}
	for _, p := range snap.MovePlans() {
		if p.Kind == state.MovesMemory {
			s.count("looks at plans that free memory, " + string(p.State))
		}
	}
	before := s.uses.evictions
	for _, text := range s.uses.watch(snap) {
		s.violate("%s", text)
	}
	for range s.uses.evictions - before {
		s.count("evictions judged")
	}
}
