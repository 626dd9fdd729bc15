package agenda_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

const gib = scheduling.GiB

// play is a cluster over days: a nightly job, and other work that fills the hosts.
type play struct {
	*scheduling.Cluster
	r         *rand.Rand
	ends      map[string]time.Time // of VCs, by name
	agenda    bool
	adHoc     int
	waited    []string // nights on which the run did not start at once
	started   int
	elsewhere []string // nights on which it did not start on its witness
}

func newPlay(t *testing.T, seed uint64) *play {
	return &play{Cluster: scheduling.NewCluster(t, "h1", "h2", "h3", "h4"), r: rand.New(rand.NewPCG(seed, 1)), ends: map[string]time.Time{}}
}

// until lets time pass, in steps of five minutes.
func (p *play) until(to time.Time, each func()) {
	for p.Now().Before(to) {
		for _, name := range sortedNames(p.ends) {
			if p.ends[name].After(p.Now()) {
				continue
			}
			if vc, ok := p.Snapshot().VCNamed(name); ok {
				p.Must(state.KindPlan, admission.Delete(p.Snapshot(), vc, p.Env()).Plan)
			}
			delete(p.ends, name)
		}
		p.follow()
		if p.agenda {
			p.plan()
		}
		if each != nil {
			each()
		}
		p.queue()
		p.follow()
		p.Ahead += 5*time.Minute - p.Now().Sub(p.Now().Truncate(5*time.Minute))
	}
}

func sortedNames(m map[string]time.Time) (out []string) {
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// follow reports what starts and stops.
func (p *play) follow() {
	for _, vm := range p.Snapshot().VMs() {
		if h, _ := p.Snapshot().Host(vm.Host); h.Lost.Proof == "" && (vm.Phase == state.Starting || vm.Goal == state.GoalDelete) {
			p.Follow(vm)
		}
	}
}

func (p *play) plan() {
	put, err := agenda.Plan(p.Snapshot(), p.Now(), nil)
	if err != nil {
		p.T.Fatalf("%s: %v", p.Now(), err)
	}
	if len(put.Occurrences)+len(put.Drop) > 0 {
		p.Must(state.KindAgenda, put)
	}
	if again, err := agenda.Plan(p.Snapshot(), p.Now(), nil); err != nil || len(again.Occurrences)+len(again.Drop) > 0 {
		p.T.Fatalf("%s: the agenda does not rest: %+v, %v", p.Now(), again, err)
	}
}

func (p *play) queue() {
	for range 200 {
		plan := new(admission.QueueCache).Admit(p.Snapshot(), p.Env())
		if plan == nil {
			plan = placement.Reallocate(p.Snapshot())
		}
		if plan == nil {
			return
		}
		p.Must(state.KindPlan, plan)
	}
	p.T.Fatalf("the loop does not come to rest")
}

// others is a VC of other work, of which half says how long it takes. The hosts are full of it.
func (p *play) others() {
	for p.waiting() < 4 {
		p.adHoc++
		name := fmt.Sprintf("other%d-x", p.adHoc)
		vc := scheduling.VC(name, 0.5, scheduling.Group(1+p.r.IntN(3), 1, int64(1+p.r.IntN(6))*gib/2))
		life := time.Duration(10+p.r.IntN(400)) * time.Minute
		if p.r.IntN(2) == 0 {
			vc.Duration = int64(life / time.Second)
		}
		p.Create(vc)
		p.ends[name] = p.Now().Add(life)
	}
}

func (p *play) waiting() int { return len(admission.Queue(p.Snapshot())) }

// night creates the run of a night: four VMs of two GiB for fifty minutes.
func (p *play) night(day time.Time) {
	arrives := day.Add(2*time.Hour + time.Duration(p.r.IntN(4))*time.Minute)
	p.Ahead += arrives.Sub(p.Now())
	name := "render-" + day.Format(time.DateOnly)
	vc := scheduling.VC(name, 0.5, scheduling.Group(4, 1, 2*gib))
	vc.Groups[0].Affinity.Spread = "host"
	o, claimed := placement.Claim(p.Snapshot(), &vc, p.Now())
	a := p.Create(vc)
	p.ends[name] = p.Now().Add(50 * time.Minute)
	p.started++
	if a.Queued || a.Plan == nil {
		p.waited = append(p.waited, fmt.Sprintf("%s: %s (claims %v, %s %s)", day.Format(time.DateOnly), a.Decision.Summary, claimed, o.State, o.Text))
		return
	}
	for _, vm := range p.Snapshot().VMsOf(vc.ID) {
		if claimed && !slices.Contains(o.Hosts, vm.Host) {
			p.elsewhere = append(p.elsewhere, day.Format(time.DateOnly))
		}
	}
}

// days plays so many, each with a run at night.
func (p *play) days(n int, each func()) {
	for range n {
		day := p.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		p.until(day.Add(2*time.Hour), each)
		p.night(day)
		p.until(p.Now().Add(5*time.Minute), each)
	}
	p.until(p.Now().Add(2*time.Hour), each)
}

// record gives the runs that have ended a skyline.
func (p *play) record() {
	var put state.RunUsagePut
	for _, r := range p.Snapshot().Runs("render-#") {
		u := state.RunUsage{Step: 60}
		for k := range int(r.Ended.Sub(r.Started) / time.Minute) {
			u.VMs, u.Cores, u.Memory = append(u.VMs, 4), append(u.Cores, int64(2000+k*20+p.r.IntN(200))), append(u.Memory, 4096)
		}
		put.Runs = append(put.Runs, state.RunUsageOf{Run: r.ID, Usage: u})
	}
	p.Must(state.KindRunUsage, put)
}

// signOff accepts what is proposed.
func (p *play) signOff() {
	p.T.Helper()
	x, err := agenda.Propose(p.Snapshot().Runs("render-#"), agenda.Ask{Deadline: 3 * time.Hour}, nil)
	if err != nil || x.SignOff.Runs < 8 || x.Period != 24*time.Hour {
		p.T.Fatalf("proposed: %+v, %v", x, err)
	}
	p.Must(state.KindPeriodic, state.PeriodicPut{Job: "render-#", SignOff: x.SignOff, Verb: "accept"})
	p.agenda = true
}

// A run of a job that its owner signed off starts in its slot at once, on the hosts of its witness, while other work fills the cluster and
// waits for room; also after a host was lost. Without the agenda it waits.
func TestSignedOffRunsStartInTheirSlots(t *testing.T) {
	without := 0
	for seed := range uint64(1) {
		for _, reserved := range []bool{true, false} {
			p := newPlay(t, seed)
			p.days(10, nil)
			p.record()
			if len(p.waited) > 0 {
				t.Fatalf("in an empty cluster: %v", p.waited)
			}
			if reserved {
				p.signOff()
			}
			p.started = 0
			p.days(3, p.others)
			p.lose("h2")
			p.days(3, p.others)
			if !reserved {
				without += len(p.waited)
				continue
			}
			if len(p.waited) > 0 || len(p.elsewhere) > 0 || p.started != 6 {
				t.Errorf("seed %d: of %d runs waited %v; not on their witness %v", seed, p.started, p.waited, p.elsewhere)
			}
			met := 0
			for _, o := range p.Snapshot().Occurrences("render-#") {
				if o.State == state.Met {
					met++
				} else if o.State.Over() {
					t.Errorf("seed %d: %+v", seed, o)
				}
			}
			if met < 5 {
				t.Errorf("seed %d: %d runs met their deadline", seed, met)
			}
		}
	}
	if without == 0 {
		t.Error("without the agenda no run waits: the play proves nothing")
	}
	t.Logf("without the agenda %d of 6 runs wait", without)
}

// lose a host for ever, with all that it runs; another one comes.
func (p *play) lose(host string) {
	p.Must(state.KindHostLost, state.HostLost{Host: host, Proof: state.ProofOperator, Text: "it burned"})
	p.Must(state.KindHostCordon, state.HostCordon{Host: host, Cordoned: true})
	p.Host("h5", 4, 8*gib, state.Resources{})
}
