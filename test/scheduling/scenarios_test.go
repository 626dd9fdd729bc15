package scheduling_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

var update = flag.Bool("update", false, "write the golden files again")

// TestScenarios plays testdata/scenarios/*.txt: clusters whose users feared, or suffered, needless moves, moves that end worse,
// and drains that hang. What is decided, when and why, is in the .golden beside each. Decisions are the product's own. Hosts
// carry out orders at once, and moves take the time that is predicted.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newPlay(t, string(text)).run()
			golden := strings.TrimSuffix(file, ".txt") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s: decided\n%s\nexpected\n%s", file, got, want)
			}
		})
	}
}

// tick is how often the leader and the hosts look.
const tick = 10 * time.Second

// play is a scenario under way.
type play struct {
	*scheduling.Cluster
	t      *testing.T
	now    time.Duration
	until  time.Duration
	events []event
	out    strings.Builder

	balance rebalance.Trigger
	said    string // last answer without a plan
	flying  map[string]time.Duration
	trail   map[string][]string // hosts that a VM came to, by VM name
	bytes   int64
}

type event struct {
	at, every time.Duration
	do        []string
}

func newPlay(t *testing.T, text string) *play {
	p := &play{Cluster: &scheduling.Cluster{Store: state.New(), T: t}, t: t, flying: map[string]time.Duration{}, trail: map[string][]string{}}
	set := state.DefaultSettings()
	set.MinYield = 0.01
	p.put(state.KindInit, state.Init{ID: "c", Settings: set})
	p.put(state.KindImagePut, state.Image{Name: "kernel", Kind: state.KernelImage})
	for _, line := range strings.Split(text, "\n") {
		switch text, rest, _ := strings.Cut(line, " "); text {
		case "", "#":
		case "at", "every":
			when, do, ok := strings.Cut(rest, ": ")
			if !ok {
				t.Fatalf("%q: no colon", line)
			}
			e := event{do: strings.Split(do, "; ")}
			if every, from, repeats := strings.Cut(when, " from "); repeats {
				e.every, e.at = p.duration(every), p.duration(from)
			} else {
				e.at = p.duration(when)
			}
			p.events = append(p.events, e)
		case "until":
			p.until = p.duration(rest)
		default:
			p.line(line)
		}
	}
	return p
}

func (p *play) duration(s string) time.Duration {
	p.t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *play) time() time.Time { return scheduling.Start.Add(p.now) }

func (p *play) Env() placement.Env { return placement.Env{Now: p.time(), NewID: p.ID} }

// put a command into the log at the scenario's own time.
func (p *play) put(kind state.Kind, body any) {
	p.t.Helper()
	p.Index++
	entry, err := state.Encode(kind, p.time(), body)
	if err == nil {
		err = p.Apply(p.Index, entry)
	}
	if err != nil {
		p.t.Fatalf("at %s: %s: %v: %+v", p.now, kind, err, body)
	}
}

func (p *play) say(format string, args ...any) {
	fmt.Fprintf(&p.out, "%8s  %s\n", p.now, fmt.Sprintf(format, args...))
}

// line carries out a line of a scenario.
func (p *play) line(line string) {
	p.t.Helper()
	availability := strings.Fields(line)
	names, opts := []string{}, map[string]string{}
	for _, w := range availability[1:] {
		if k, v, is := strings.Cut(w, "="); is {
			opts[k] = v
		} else {
			names = append(names, w)
		}
	}
	switch availability[0] {
	case "host", "join":
		for _, name := range names {
			r := state.Resources{CPU: p.number(opts["cpu"]), Memory: p.size(opts["memory"])}
			p.put(state.KindHostReport, state.HostReport{Name: name, Capacity: r, Allowance: r})
		}
	case "settings":
		m, _ := p.Snapshot().Meta()
		m.Settings.Moves.OnJoin = opts["onJoin"] == "true"
		p.put(state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
	case "cordon", "uncordon":
		p.put(state.KindHostCordon, state.HostCordon{Host: names[0], Cordoned: availability[0] == "cordon"})
	case "drain":
		p.drain(names[0], strings.Join(names[1:], ""))
	case "vc":
		p.place(names[0], opts)
	case "scale":
		vc := p.Named(names[0])
		vc.Groups = slices.Clone(vc.Groups)
		vc.Groups[0].CPU = p.number(opts["cpu"])
		vc.Groups[0].VCPUs = int(math.Ceil(vc.Groups[0].CPU))
		a := admission.Scale(p.Snapshot(), vc, p.Env())
		if a.Plan == nil {
			p.t.Fatalf("%s: refused: %s", line, a.Decision.Summary)
		}
		p.put(state.KindPlan, a.Plan)
	default:
		p.t.Fatalf("%q: no such line", line)
	}
}

func (p *play) number(s string) float64 {
	p.t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return x
}

func (p *play) size(s string) int64 {
	return int64(p.number(strings.TrimSuffix(s, "GiB"))) * scheduling.GiB
}

// place places a VC where the scenario says, running.
func (p *play) place(name string, opts map[string]string) {
	p.t.Helper()
	hosts := strings.Split(opts["on"], ",")
	g := scheduling.Group(len(hosts), p.number(opts["cpu"]), p.size(opts["memory"]))
	if n := int(p.number(opts["count"])); n != len(hosts) {
		p.t.Fatalf("%s: %d VMs on %d hosts", name, n, len(hosts))
	}
	g.Affinity.Spread = opts["spread"]
	if r := opts["require"]; r != "" {
		g.Affinity.Require = []string{r}
	}
	x := scheduling.VC(name, 0.01, g)
	x.Admitted, x.OnHostLoss = true, state.KeepOnLoss
	plan := &state.Plan{Basis: p.Snapshot().Index(), Verb: "create", VC: &x, AffectedHosts: slices.Compact(slices.Sorted(slices.Values(hosts)))}
	report := map[string][]state.VMStatus{}
	for i, h := range hosts {
		vm := state.VM{ID: p.ID(), VC: x.ID, Group: "g0", Task: i, Name: fmt.Sprintf("%s-g0-%d", name, i), Host: h, Generation: 1,
			Goal: state.GoalRun, Phase: state.Starting, VCPUs: g.VCPUs, BootMemory: g.Memory, ChargedMemory: g.Memory}
		plan.VMs = append(plan.VMs, vm)
		report[h] = append(report[h], state.VMStatus{VM: vm.ID, Generation: 1, Phase: state.Running})
		p.trail[vm.Name] = []string{h}
	}
	p.put(state.KindPlan, plan)
	for _, h := range plan.AffectedHosts {
		p.put(state.KindVMReport, state.VMReport{Host: h, VMs: report[h]})
	}
}

// run the scenario and return what was decided.
func (p *play) run() string {
	p.decide()
	p.yields("at first")
	for ; p.now <= p.until; p.now += tick {
		for _, e := range p.events {
			if p.now == e.at || e.every > 0 && p.now > e.at && (p.now-e.at)%e.every == 0 {
				for _, line := range e.do {
					p.line(line)
				}
				p.decide()
				p.yields(strings.Join(e.do, "; "))
			}
		}
		p.land()
		p.execute()
		p.empty()
		p.balanceNow()
	}
	twice, back := 0, 0
	for _, hosts := range p.trail {
		if len(hosts) > 2 {
			twice++
		}
		for i := 2; i < len(hosts); i++ {
			if slices.Contains(hosts[:i], hosts[i]) {
				back++
			}
		}
	}
	moves := 0
	for _, hosts := range p.trail {
		moves += len(hosts) - 1
	}
	fmt.Fprintf(&p.out, "moves %d, %.1f GiB; VMs moved more than once %d, moves back to where a VM had been %d\n", moves, float64(p.bytes)/float64(scheduling.GiB), twice, back)
	return p.out.String()
}

func (p *play) yields(why string) {
	in := rebalance.Observe(p.Snapshot(), p.Env())
	p.say("minimum yield %.3f, VMs need %.0f%% of the CPU: %s", in.MinYield, 100*in.Load, why)
}

// decide what the control loop decides besides moves, until it has nothing to do.
func (p *play) decide() {
	p.t.Helper()
	for range 100 {
		plan := new(admission.QueueCache).Admit(p.Snapshot(), p.Env())
		if plan == nil {
			plan = placement.Reallocate(p.Snapshot())
		}
		if plan == nil {
			return
		}
		p.put(state.KindPlan, plan)
	}
	p.t.Fatal("the loop does not come to rest")
}

// land ends the moves of VMs that took as long as was predicted.
func (p *play) land() {
	for _, m := range p.Snapshot().Migrations() {
		if m.State != state.MigrationRunning || p.now < p.flying[m.ID] {
			continue
		}
		p.put(state.KindMove, state.Move{VM: m.VM, Generation: m.Generation, To: m.To, Arrived: true, Move: m.Open})
		p.put(state.KindMigrationReport, state.MigrationReport{ID: m.ID, Bytes: m.Bytes, DowntimeMs: 100})
		p.trail[m.VMName] = append(p.trail[m.VMName], m.To)
		p.bytes += m.Bytes
		p.decide()
	}
}

// execute out the move plans that run.
func (p *play) execute() {
	p.t.Helper()
	index := p.Snapshot().Index()
	in := moves.Execution{Env: p.Env(), SyncedUpTo: func(string) uint64 { return index }, Synced: func(string) uint64 { return index }, UnavailableFor: func(string) time.Duration { return 0 },
		Refused: func(string, int) (int, string) { return 0, "" }}
	for range 100 {
		index = p.Snapshot().Index()
		actions := moves.Next(p.Snapshot(), in)
		if len(actions) == 0 {
			return
		}
		switch a := actions[0]; {
		case a.Put != nil:
			p.put(state.KindMovePlan, a.Put)
			if a.Put.Plan.State.Ended() {
				p.yields(fmt.Sprintf("plan is %s", a.Put.Plan.State))
			}
		case a.Open != nil:
			p.put(state.KindMove, a.Open)
			m, _ := p.Snapshot().MovePlan(a.Open.Plan)
			p.flying[a.Open.ID] = p.now + time.Duration(m.Steps[a.Open.Step].Seconds*float64(time.Second))
		default:
			p.t.Fatalf("at %s: %s", p.now, a)
		}
		p.decide()
	}
	p.t.Fatalf("at %s: the moves do not come to rest", p.now)
}

// fleet is the cluster as a drain is planned on it.
func (p *play) fleet(supersedes []string, keep map[string]string) *moves.Fleet {
	return moves.NewFleet(p.Snapshot(), p.Env(), moves.Observation{}, moves.Options{Supersedes: supersedes, Pinned: keep})
}

// drain drains a host. The VMs that cannot leave it are named before anything moves.
func (p *play) drain(host, onBlocked string) {
	p.t.Helper()
	if onBlocked == "" {
		onBlocked = drain.OnBlockedStop
	}
	a, err := drain.Plan(p.fleet(nil, nil), host, drain.Options{Budget: -1, MinGain: math.Inf(1)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.say("drain %s, %s if it is blocked:", host, onBlocked)
	for _, b := range a.Blockers {
		p.say("  blocked by %s; %s", b, strings.Join(b.Advice, "; or "))
	}
	if len(a.Blockers) > 0 && onBlocked == drain.OnBlockedStop {
		p.say("  refused, nothing is moved")
		return
	}
	h, _ := p.Snapshot().Host(host)
	p.put(state.KindDrain, state.HostDrain{Host: host, Version: h.Drain.Index,
		Drain: state.Drain{State: state.DrainRunning, Since: p.time(), MaxBytes: -1, OnBlocked: onBlocked}})
}

// empty takes the next step for every host with a drain.
func (p *play) empty() {
	p.t.Helper()
	for _, h := range p.Snapshot().Hosts() {
		inventory := drain.HostInventory{Listed: true}
		for _, vm := range p.Snapshot().VMsOn(h.Name) {
			inventory.Running = append(inventory.Running, vm.Name)
		}
		step, err := drain.Next(p.Snapshot(), h, inventory, p.Env(), p.fleet)
		if err != nil {
			p.t.Fatal(err)
		}
		if step.Put == nil {
			continue
		}
		p.put(state.KindDrain, step.Put)
		if plan := step.Put.MovePlan; plan != nil && plan.Version == 0 {
			p.report(plan.Plan)
		} else {
			p.say("drain of %s is %s: %s", h.Name, step.Put.Drain.State, step.Put.Drain.Text)
		}
	}
}

// balanceNow asks whether to move VMs, as the leader does, and begins to.
func (p *play) balanceNow() {
	p.t.Helper()
	s := p.Snapshot()
	meta, _ := s.Meta()
	set := meta.Settings.Moves
	var v rebalance.Verdict
	p.balance, v = p.balance.Due(rebalance.PaceOf(set), rebalance.Observe(s, p.Env()))
	if !v.Evaluate {
		return
	}
	plan, err := rebalance.Plan(moves.NewFleet(s, p.Env(), moves.Observation{}, moves.Options{MinResidency: set.WithDefaults().MinResidency.Duration()}), set.Budget(), set.WithDefaults().MinGain, true)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(plan.Steps) == 0 {
		if p.said != plan.Reason {
			p.say("%s", v.Why)
			p.say("  %s", plan.Reason)
		}
		p.said = plan.Reason
		return
	}
	p.said = ""
	p.say("%s", v.Why)
	p.begin(plan)
}

// begin to carry a plan out.
func (p *play) begin(plan state.MovePlan) {
	p.t.Helper()
	plan.ID = p.ID()
	p.report(plan)
	p.put(state.KindMovePlan, state.MovePlanPut{Plan: plan})
}

// report what a plan is.
func (p *play) report(plan state.MovePlan) {
	of := ""
	if plan.Budget >= 0 {
		of = fmt.Sprintf(" of %.1f", float64(plan.Budget)/float64(scheduling.GiB))
	}
	p.say("  plan: %.1f GiB%s, %.0f s, minimum yield %.3f -> %.3f, average %.3f -> %.3f: %s", float64(plan.Bytes)/float64(scheduling.GiB), of,
		plan.Seconds, plan.MinYieldBefore, plan.MinYieldAfter, plan.AverageYieldBefore, plan.AverageYieldAfter, plan.Reason)
	for _, step := range plan.Steps {
		p.say("  %s: %s -> %s, %.1f GiB, after %v: %s", step.VMName, step.From, step.To, float64(step.Bytes)/float64(scheduling.GiB), step.After, step.Reason)
	}
}
