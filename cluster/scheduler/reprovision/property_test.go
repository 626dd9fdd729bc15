package reprovision_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/reprovision"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// drawn is a play with two jobs whose slots begin half an hour after each other, beside drawn other work that fills the hosts at its minimum
// yields as far as the slots leave room. The first job runs.
func drawn(t *rapid.T) *play {
	p := &play{Cluster: scheduling.NewCluster(t, "h1", "h2", "h3"), extras: map[string]state.Extras{}, share: 1}
	set := state.DefaultSettings()
	set.Periodic.Reprovision = p.share
	m, _ := p.Snapshot().Meta()
	p.Must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
	for j := range 2 {
		name := fmt.Sprintf("job%d", j)
		vc := scheduling.VC(name+"-0", 0.5, scheduling.Group(1, 0.1, gib/8))
		vc.Periodic.Name = name
		p.Create(vc)
		p.Run()
		p.remove(vc.Name)
		count, cpu := rapid.IntRange(1, 3).Draw(t, "VMs"), float64(rapid.IntRange(1, 4).Draw(t, "CPU"))
		cores := rapid.Float64Range(0.3, 1).Draw(t, "skyline") * cpu * float64(count)
		p.Must(state.KindPeriodic, state.PeriodicPut{Job: name, Verb: "accept", SignOff: state.SignOff{State: state.SignedOff, MinYield: 0.5,
			Recurrence: fmt.Sprintf("DTSTART;TZID=UTC:20260102T04%02d00\nRRULE:FREQ=DAILY", 30*j), Lateness: 300, Due: 3600, Declared: true,
			Groups: []state.RunGroup{{Name: "g0", Count: count, CPU: cpu, Memory: gib}}, Step: 300, Cores: []float64{cores, cores, cores, cores, cores, cores, cores, cores}}})
	}
	p.Must(state.KindAgenda, must(agenda.Plan(p.Snapshot(), p.Now(), nil)))
	for n := range rapid.IntRange(0, 12).Draw(t, "others") {
		vc := scheduling.VC(fmt.Sprintf("other%d", n), 0.5, scheduling.Group(rapid.IntRange(1, 2).Draw(t, "count"), float64(rapid.IntRange(1, 3).Draw(t, "cores")), gib/4))
		vc.Duration = 48 * 3600 // none ends before the slots
		p.Create(vc)
	}
	p.decide()
	p.at("job0")
	return p
}

func must(put state.AgendaPut, err error) state.AgendaPut {
	if err != nil {
		panic(err)
	}
	return put
}

// at goes to the begin of a job's slot and creates its run, if hosts keep room for it. It must start at once, on its witness.
func (p *play) at(job string) (ran bool) {
	var o state.Occurrence
	for _, x := range p.Snapshot().Occurrences(job) {
		if x.Reserves() {
			o = x
			break
		}
	}
	if o.ID == "" {
		return false
	}
	p.Ahead += o.Start.Add(time.Second).Sub(p.Now())
	j, _ := p.Snapshot().PeriodicJob(job)
	g := j.SignOff.Groups[0]
	vc := scheduling.VC(job+"-1", 0.5, scheduling.Group(g.Count, g.CPU, g.Memory))
	vc.Periodic.Name = job
	if a := p.Create(vc); a.Plan == nil || a.Queued {
		p.T.Fatalf("the run of %s waits in its slot: %s", job, a.Decision.Summary)
	}
	for k, vm := range p.Snapshot().VMsOf(vc.ID) {
		if len(o.Hosts) <= k || vm.Host == "" {
			p.T.Fatalf("VM %d runs on %q, with witness %v", k, vm.Host, o.Hosts)
		}
	}
	p.follow()
	p.decide()
	return true
}

// Whatever a run was granted, and however long ago, the run of another job starts in its slot at once: what grants took is back before.
func TestGrantsDelayNoSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)
		vc, ok := p.Snapshot().VCNamed("job0-1")
		if !ok {
			return
		}
		run, _ := p.Snapshot().OpenRun(vc.ID)
		cores := float64(run.Groups[0].Count) * run.Groups[0].CPU * rapid.Float64Range(0.1, 1).Draw(t, "granted")
		p.Must(state.KindReprovision, state.ReprovisionPut{Basis: p.Snapshot().Index(), Runs: []state.RunGrant{{Run: run.ID, Grant: &state.Grant{Cores: cores, Extra: cores / 2}}}})
		p.decide()
		p.at("job1")
		keepsMinYields(t, p.Snapshot())
	})
}

// A run that is held back has what is reserved for it after one evaluation, where its hosts have that beside all minimum yields; no grant
// takes more than the share, nor what another was promised.
func TestReservationsAreBackInOneEvaluation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)
		vc, ok := p.Snapshot().VCNamed("job0-1")
		if !ok {
			return
		}
		samples := map[string]reprovision.Sample{}
		p.Ahead += time.Minute
		for _, vm := range p.Snapshot().VMs() {
			x, _ := p.Snapshot().VC(vm.VC)
			g, _ := x.GroupOf(vm)
			samples[vm.ID] = reprovision.Sample{At: p.Now(), Cap: g.Allocation, Used: g.Allocation}
		}
		free := placement.FreeOfMinYields(p.Snapshot())
		p.reprovision(samples)
		keepsMinYields(t, p.Snapshot())
		vc, _ = p.Snapshot().VCNamed("job0-1")
		job, _ := p.Snapshot().PeriodicJob("job0")
		g := vc.Groups[0]
		want := min(g.CPU, job.SignOff.Cores[0]/float64(g.Count))
		on := map[string]int{}
		for _, vm := range p.Snapshot().VMsOf(vc.ID) {
			on[vm.Host]++
		}
		for host, n := range on {
			want = min(want, g.CPU*vc.MinYield+max(0, free[host])/float64(n))
		}
		if g.Allocation < want*(1-1e-6) {
			t.Fatalf("each VM has %v cores, of %v that are reserved: %+v", g.Allocation, want, g)
		}
	})
}

func keepsMinYields(t *rapid.T, s *state.Snapshot) {
	for _, vc := range s.VCs() {
		if y := state.YieldOf(vc, s.VMsOf(vc.ID)); vc.Admitted && y < vc.MinYield-1e-6 {
			t.Fatalf("%s has a yield of %v, below %v", vc.Name, y, vc.MinYield)
		}
	}
}
