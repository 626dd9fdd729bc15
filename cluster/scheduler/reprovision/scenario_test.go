package reprovision_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/reprovision"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

const gib = scheduling.GiB

// play is a cluster whose time passes minute by minute: four periodic jobs, of which one run a period is delayed, and other work.
type play struct {
	*scheduling.Cluster
	r        *rand.Rand
	share    float64 // setting periodic.reprovision
	extras   map[string]state.Extras
	todo     map[string]float64   // core-seconds, of runs by the names of their VCs
	stalls   map[string]time.Time // runs that do nothing until then
	ends     map[string]time.Time // of other work
	adHoc    int
	peak     float64 // cores that grants had beyond reservations
	late     int     // runs that were not admitted at once
	borrowed float64 // core-seconds

	tick  time.Duration // of evaluations
	cores float64       // of the cluster
	vms   float64       // of a run
}

const (
	jobs     = 4
	periods  = 4
	period   = 30 * time.Minute
	work     = 2.5 * 600 // core-seconds of a run
	declared = 4.0       // cores of a run
	deadline = 17*time.Minute + 30*time.Second
)

func newPlay(t *testing.T, seed uint64, share float64) *play {
	p := &play{Cluster: scheduling.NewCluster(t, "h1", "h2", "h3", "h4"), r: rand.New(rand.NewPCG(seed, 3)), share: share, extras: map[string]state.Extras{},
		todo: map[string]float64{}, stalls: map[string]time.Time{}, ends: map[string]time.Time{},
		tick: time.Minute, cores: 16, vms: 2}
	set := state.DefaultSettings()
	set.Periodic.Reprovision = share
	m, _ := p.Snapshot().Meta()
	p.Must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
	for j := range jobs {
		name := fmt.Sprintf("job%d", j)
		vc := scheduling.VC(name+"-0", 0.5, scheduling.Group(1, 0.1, gib/8))
		vc.Periodic.Name = name
		p.Create(vc)
		p.Run()
		p.remove(vc.Name)
		p.Must(state.KindPeriodic, state.PeriodicPut{Job: name, Verb: "accept", SignOff: state.SignOff{State: state.SignedOff,
			Recurrence: "DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=30", Lateness: 120, Due: int64(deadline / time.Second), Declared: true,
			Groups: []state.RunGroup{{Name: "g0", Count: 2, CPU: declared / 2, Memory: gib, Spread: true}}, MinYield: 0.5, Step: 300, Cores: []float64{2.5, 2.5}}})
	}
	return p
}

func (p *play) remove(name string) {
	vc, ok := p.Snapshot().VCNamed(name)
	if !ok {
		return
	}
	p.Must(state.KindPlan, admission.Delete(p.Snapshot(), vc, p.Env()).Plan)
	p.follow()
}

// follow reports what starts and stops.
func (p *play) follow() {
	for _, vm := range p.Snapshot().VMs() {
		if vm.Phase == state.Starting || vm.Goal == state.GoalDelete {
			p.Follow(vm)
		}
	}
}

// decide does what the leader does until it has nothing to do.
func (p *play) decide() {
	for range 200 {
		plan := new(admission.QueueCache).Admit(p.Snapshot(), p.Env())
		if plan == nil {
			plan = placement.Reallocate(p.Snapshot())
		}
		if plan == nil {
			p.follow()
			return
		}
		p.Must(state.KindPlan, plan)
		p.follow()
	}
	p.T.Fatalf("the loop does not come to rest")
}

// begin creates the runs of a period.
func (p *play) begin(delayed int, stall time.Duration) {
	for j := range jobs {
		name := fmt.Sprintf("job%d-%s", j, p.Now().UTC().Format("0102T1504"))
		vc := scheduling.VC(name, 0.5, scheduling.Group(2, declared/2, gib))
		vc.Groups[0].Affinity.Spread = "host"
		vc.Periodic.Name = fmt.Sprintf("job%d", j)
		if a := p.Create(vc); a.Queued || a.Plan == nil {
			p.late++
			p.T.Errorf("%s: %s", name, a.Decision.Summary)
		}
		p.todo[name] = work
		if j == delayed {
			p.stalls[name] = p.Now().Add(stall)
		}
	}
}

// others keeps the cluster three quarters full of other work.
func (p *play) others() {
	for name, end := range p.ends {
		if !end.After(p.Now()) {
			p.remove(name)
			delete(p.ends, name)
		}
	}
	for len(p.ends) < 12 {
		p.adHoc++
		vc := scheduling.VC(fmt.Sprintf("other%d", p.adHoc), 0.5, scheduling.Group(1, 1, gib/2))
		vc.Duration = int64(24 * 3600)
		p.Create(vc)
		p.ends[vc.Name] = p.Now().Add(time.Duration(20+p.r.IntN(100)) * time.Minute)
	}
}

// minute lets a tick pass: all work at their caps.
func (p *play) minute() {
	put, err := agenda.Plan(p.Snapshot(), p.Now(), nil)
	if err != nil {
		p.T.Fatalf("%v", err)
	}
	if len(put.Occurrences)+len(put.Drop) > 0 {
		p.Must(state.KindAgenda, put)
	}
	p.decide()
	next := p.Now().Truncate(p.tick).Add(p.tick)
	samples := map[string]reprovision.Sample{}
	s := p.Snapshot()
	for _, vm := range s.VMs() {
		vc, _ := s.VC(vm.VC)
		g, _ := vc.GroupOf(vm)
		used := g.Allocation
		if todo, is := p.todo[vc.Name]; is {
			used = min(used, todo/p.tick.Seconds()/p.vms)
			if p.stalls[vc.Name].After(p.Now()) {
				used = 0
			}
		}
		samples[vm.ID] = reprovision.Sample{At: next, Cap: g.Allocation, Used: used}
	}
	for _, vm := range s.VMs() {
		if vc, _ := s.VC(vm.VC); p.todo[vc.Name] > 0 {
			p.todo[vc.Name] -= p.tick.Seconds() * samples[vm.ID].Used
		}
	}
	p.Ahead += next.Sub(p.Now())
	for name, todo := range p.todo {
		if todo <= 1e-6 {
			p.remove(name)
			delete(p.todo, name)
		}
	}
	p.reprovision(samples)
}

func (p *play) reprovision(samples map[string]reprovision.Sample) {
	s := p.Snapshot()
	out := reprovision.Evaluate(s, reprovision.Observations{Now: p.Now(), Period: p.tick, Samples: samples, Extras: p.extras})
	for _, r := range out.Rows {
		p.extras[r.Run.ID] = r.Extras
	}
	p.peak, p.borrowed = max(p.peak, out.Granted), p.borrowed+p.tick.Seconds()*out.Borrowed
	if out.Granted > p.share*p.cores+1e-9 {
		p.T.Errorf("%v cores are granted, of %v with a share of %v", out.Granted, p.cores, p.share)
	}
	if len(out.Changed) > 0 {
		p.Must(state.KindReprovision, state.ReprovisionPut{Basis: s.Index(), Runs: out.Changed})
		p.decide()
	}
}

// periods plays so many. In each the run of one job stands still for a while.
func (p *play) periods(n int, stall time.Duration) {
	for k := range n {
		next := p.Now().Truncate(period).Add(period)
		for p.Now().Before(next) {
			p.others()
			p.minute()
		}
		p.begin(k%jobs, stall)
	}
	for range int(period / time.Minute) {
		p.others()
		p.minute()
	}
}

// outcome are how many runs met their deadlines, and which did not.
func (p *play) outcome() (met int, missed []string) {
	for j := range jobs {
		for _, o := range p.Snapshot().Occurrences(fmt.Sprintf("job%d", j)) {
			switch o.State {
			case state.Met:
				met++
			case state.Missed:
				missed = append(missed, o.ID+": "+o.Text)
			}
		}
	}
	slices.Sort(missed)
	return met, missed
}

// Figure 12 of the paper in small: beside other work that takes three quarters of the cluster a run that stood still for ten minutes meets
// its deadline with re-provisioning. Without it misses it, and so it does with its reservation alone. All others meet theirs.
func TestDelayedRunsMeetTheirDeadlines(t *testing.T) {
	for seed := range uint64(1) {
		missedBy := map[float64]int{}
		for _, share := range []float64{0.25, 1e-9, 0} {
			p := newPlay(t, seed, share)
			p.periods(periods, 9*time.Minute+30*time.Second)
			met, missed := p.outcome()
			missedBy[share] = len(missed)
			if met+len(missed) < periods*jobs || p.late > 0 {
				t.Errorf("share %v: %d met, missed %v, %d not admitted at once", share, met, missed, p.late)
			}
			if share == 0.25 && (len(missed) > 0 || p.peak == 0) {
				t.Errorf("seed %d: with re-provisioning %v missed; grants had up to %v cores", seed, missed, p.peak)
			}
			t.Logf("seed %d, share %v: %d met, %d missed, grants up to %.2f cores, %.1f core-hours borrowed", seed, share, met, len(missed), p.peak, p.borrowed/3600)
		}
		if missedBy[1e-9] == 0 || missedBy[0] == 0 {
			t.Errorf("seed %d: without grants no run is late: the play proves nothing: %v", seed, missedBy)
		}
	}
}
