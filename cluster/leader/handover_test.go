package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// lateLog commits entries at once, or delays them so that their outcome is unknown.
type lateLog struct {
	mu      sync.Mutex // entries come one after the other
	store   *state.Store
	index   uint64
	delay   bool
	delayed [][]byte
}

func (l *lateLog) Apply(_ context.Context, entry []byte) (uint64, error, error) { //nolint:staticcheck // leader.Log says so
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delay {
		l.delayed = append(l.delayed, entry)
		return 0, nil, node.ErrUnknown
	}
	l.index++
	return l.index, l.store.Apply(l.index, entry), nil
}
func (l *lateLog) Linearize(context.Context) error { return nil }
func (l *lateLog) Leads() bool                     { return true }
func (l *lateLog) Leader() string                  { return "s1" }

// attempt at a hand-over, by a process of an agent.
type attempt struct {
	open       uint64
	done, over bool
	err        string
	unknown    bool // hypervisor.ErrEndUnknown
}

// mover is an agent as the rounds of package agent go, with anything in between.
type mover struct {
	want   agent.Desired
	listed []hypervisor.VM
	known  map[uint64]bool
	past   map[string]*attempt // by VM
	stage  int                 // 0: to look, 1: to hear what is wanted, 2: to decide and act
	grant  *agent.Handover     // it has a permit, and is about to begin
	// What outlives a process: the move that was begun, and whether the agent received that it ended and kept the VM.
	sent uint64
	kept bool
	// No migration goes on that a process before this one began.
	alone bool
}

// journey is one VM, two hosts, their agents, a leader, and what is true.
type journey struct {
	t     *rapid.T
	log   *lateLog
	ctl   *leader.Service
	store *state.Store
	at    string // where the VM runs, or ran last
	from  string // of the migration that goes on, if one does
	to    string
	// With targets that resume. still: the VM stands paused where it ran last, by a migration that ended so. stands are the hosts with
	// a copy that came paused, and whether it is as the VM was last.
	resumes   bool
	still     bool
	stands    map[string]bool
	evaluated bool     // an agent has seen it run where it is since the last migration ended
	ended     bool     // the guest ended by itself where it ran last
	by        *attempt // that began it, nil once its agent is dead
	hosts     map[string]*mover
	bag       []agent.Report // said, and not heard, or heard and repeated
}

var places = []string{"h1", "h2"}

func newJourney(t *rapid.T) *journey {
	store := state.New()
	j := &journey{t: t, store: store, log: &lateLog{store: store}, at: "h1", hosts: map[string]*mover{}, resumes: rapid.Bool().Draw(t, "resumes"), stands: map[string]bool{}}
	j.ctl = leader.New(leader.Options{State: store, Log: j.log, Logger: slog.New(slog.DiscardHandler), Clock: func() lease.Instant { return 0 }})
	j.put(state.KindInit, state.Init{ID: "c", Settings: state.DefaultSettings()})
	for _, h := range places {
		j.hosts[h] = &mover{past: map[string]*attempt{}}
		j.must(j.ctl.Report(context.Background(), j.report(h, nil)))
	}
	p := state.Plan{Basis: store.Snapshot().Index(), Verb: "created", AffectedHosts: []string{"h1"},
		VC: &state.VC{ID: "v", Name: "v", Goal: state.GoalRun, Admitted: true, Groups: []state.Group{{Name: "g", Count: 1, CPU: 1, VCPUs: 1, Memory: 1 << 30, MemoryMin: 1 << 30}}},
		VMs: []state.VM{{ID: "m", VC: "v", Group: "g", Name: "v-g-0", Host: "h1", Generation: 1, Goal: state.GoalRun, Phase: state.Starting, VCPUs: 1,
			BootMemory: 1 << 30, ChargedMemory: 1 << 30}}, Allocations: []state.Allocation{{VC: "v", Group: "g", CPU: 1}}}
	j.put(state.KindPlan, p)
	j.put(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: "m", Generation: 1, Phase: state.Running}}})
	return j
}

func (j *journey) must(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}

// commit an entry, and put one that must be taken.
func (j *journey) commit(kind state.Kind, body any) error {
	entry, err := state.Encode(kind, time.Unix(0, 0), body)
	j.must(err)
	_, outcome, err := j.log.Apply(context.Background(), entry)
	j.must(err)
	return outcome
}

func (j *journey) put(kind state.Kind, body any) { j.must(j.commit(kind, body)) }

func (j *journey) report(host string, statuses []agent.Status) agent.Report {
	size := hypervisor.Capacity{CPU: 4, Memory: 8 << 30}
	return agent.Report{Host: host, Capacity: size, Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Overhead: 1 << 20, MigrateURI: host, Reach: true,
		Running: []agent.Instance{}, Statuses: statuses, Resumes: j.resumes}
}

// list is what the hypervisor of a host lists.
func (j *journey) list(host string) (out []hypervisor.VM) {
	vm := hypervisor.VM{Identity: hypervisor.Identity{Cluster: "c", VM: "m", Generation: 1}, Name: "ek-v-g-0", State: hypervisor.Running, VCPUs: 1, Memory: 1 << 30,
		Balloon: 1 << 30, CPU: hypervisor.CPU{Cap: 1, Weight: 1}}
	switch host {
	case j.at:
		if j.still {
			vm.State, vm.Leftover = hypervisor.Incoming, true
		}
		out = append(out, vm)
	case j.to:
		vm.State = hypervisor.Incoming
		out = append(out, vm)
	default:
		if _, is := j.stands[host]; is {
			vm.State = hypervisor.Paused
			out = append(out, vm)
		}
	}
	m := j.hosts[host]
	j.evaluated = j.evaluated || host == j.at && !j.still && j.from != host
	for _, a := range m.past {
		a.over = a.done
		if a.over && (a.unknown || a.err == "") && host == j.at && !j.still && j.from != host {
			a.unknown, a.err, m.kept = false, "it is here", true
		}
	}
	if m.past["m"] == nil && host == j.at && !j.still && j.from != host {
		m.kept = true
	}
	return out
}

// round takes the next step of a host's agent.
func (j *journey) round(host string) {
	m := j.hosts[host]
	switch m.stage {
	case 0:
		if m.grant != nil {
			j.begin(host)
			return
		}
		if !m.alone && j.from == host {
			j.end(rapid.Bool().Draw(j.t, "it is handed over first"))
		}
		if !m.alone && m.sent != 0 && j.at == host { // no agent counted what it sent
			m.past["m"] = &attempt{open: m.sent, done: true, over: true, err: "uncounted", unknown: !m.kept}
		}
		m.alone = true
		m.listed = j.list(host)
	case 1:
		want, _, err := j.ctl.Desired(context.Background(), host)
		j.must(err)
		m.want = want
		isNew := false
		before := m.known
		m.known = map[uint64]bool{}
		for _, vm := range want.VMs {
			if vm.Move != nil {
				k := vm.Move.Open<<1 | map[bool]uint64{true: 1}[vm.Move.SourceLost]
				m.known[k], isNew = true, isNew || !before[k]
			}
		}
		if isNew {
			m.listed = j.list(host)
		}
	case 2:
		j.perform(host)
	}
	m.stage = (m.stage + 1) % 3
}

func (j *journey) perform(host string) {
	m := j.hosts[host]
	past := agent.Past{Moving: map[string]bool{}, Moved: map[string]agent.MoveEnd{}, Handed: map[string]bool{}, Leftover: map[string]time.Duration{}}
	open := uint64(0)
	for _, vm := range m.want.VMs {
		if vm.Move != nil && !vm.Move.Incoming {
			open = vm.Move.Open
		}
	}
	if a := m.past["m"]; a != nil {
		switch {
		case !a.over:
			past.Moving["m"] = true
		case a.open != open:
			delete(m.past, "m")
		default:
			past.Moved["m"] = agent.MoveEnd{Error: a.err, Unknown: a.unknown}
			past.Handed["m"] = a.err == "" || a.unknown
		}
	} else if m.sent == open && open != 0 && !m.kept {
		past.Handed["m"] = true
	}
	for _, vm := range m.listed { // as package agent finds what is left over, and believes it now or then
		outdated := vm.State == hypervisor.Paused && !slices.ContainsFunc(m.want.VMs, func(w agent.VM) bool {
			return w.Move == nil || w.Move.Incoming && !w.Move.Wait && (!w.Move.SourceLost || w.Move.Left)
		})
		if (vm.Leftover || outdated) && rapid.Bool().Draw(j.t, "believed") {
			past.Leftover["m"] = time.Minute
		}
	}
	if rapid.IntRange(1, 10).Draw(j.t, "patience") == 1 {
		past.Waited = map[string]bool{"m": true}
	}
	var reported []agent.Status
	for _, op := range agent.Decide(m.want, m.listed, past) {
		switch op := op.(type) {
		case agent.ReportStatus:
			if op.Status.Phase == agent.PhaseStayed && !j.stays(host, op.Status) {
				continue
			}
			if !j.resumes {
				op.Status.Resumes = false
			}
			reported = append(reported, op.Status)
		case agent.Resume:
			h := agent.Handover{VM: "m", Generation: 1, Move: op.Move}
			if p, err := j.ctl.Permit(context.Background(), agent.PermitRequest{Host: host, Resumes: []agent.Handover{h}}); err == nil && slices.Contains(p.Resumes, h) {
				j.resume(host)
			}
		case agent.Clear:
			i := agent.Instance{VM: "m", Generation: 1, Leftover: op.Paused}
			if p, err := j.ctl.Permit(context.Background(), agent.PermitRequest{Host: host, Leftovers: []agent.Instance{i}}); err == nil && slices.Contains(p.Leftovers, i) {
				j.clear(host)
			}
		case agent.Migrate:
			h := agent.Handover{VM: "m", Generation: 1, Move: op.Move.Open}
			p, err := j.ctl.Permit(context.Background(), agent.PermitRequest{Host: host, Moves: []agent.Handover{h}})
			switch {
			case err != nil: // nothing is known
			case slices.Contains(p.Moves, h):
				m.grant = &h
			default:
				m.past["m"] = &attempt{open: h.Move, done: true, over: true, err: "not permitted"}
			}
		}
	}
	j.t.Logf("%s reports %+v, knowing that it was handed over: %v, ended: %+v", host, reported, past.Handed, past.Moved)
	if len(reported) > 0 {
		j.bag = append(j.bag, j.report(host, reported))
	}
}

// resume what stands paused on a host, in the same step of its agent.
func (j *journey) resume(host string) {
	switch latest, is := j.stands[host]; {
	case host == j.at:
		j.still, j.evaluated = false, true
		j.hosts[host].kept = true
		if a := j.hosts[host].past["m"]; a != nil && a.over {
			a.unknown = false
		}
		for h := range j.stands {
			j.stands[h] = false
		}
	case !is:
	case !latest || j.at != "":
		j.t.Fatalf("%s has the VM go on as it was before it ran on %s", host, j.at)
	default:
		delete(j.stands, host)
		j.at = host
	}
}

// clear away what stands paused on a host.
func (j *journey) clear(host string) {
	if host == j.at {
		j.t.Fatalf("%s destroys the VM (still: %v)", host, j.still)
	}
	if j.stands[host] {
		j.t.Fatalf("%s destroys the VM that was handed over to it", host)
	}
	delete(j.stands, host)
}

// stays gives up what migration goes on, which may be over before that.
func (j *journey) stays(host string, st agent.Status) bool {
	if j.from == host {
		j.end(rapid.Bool().Draw(j.t, "it is handed over first"))
	}
	if j.at != host || j.still {
		return false
	}
	if a := j.hosts[host].past["m"]; a == nil || a.open != st.Move {
		j.hosts[host].past["m"] = &attempt{open: st.Move, done: true, over: true, err: "it stayed"}
	}
	j.hosts[host].past["m"].unknown, j.hosts[host].kept = false, true
	return true
}

// begin a migration that was permitted: in the same step of the agent, but what others do may come before it.
func (j *journey) begin(host string) {
	m := j.hosts[host]
	a := &attempt{open: m.grant.Move}
	m.past["m"], m.grant = a, nil
	m.sent, m.kept = a.open, m.kept && m.sent == a.open
	row, _ := j.store.Snapshot().VM("m")
	if j.from != "" || j.at != host || j.still {
		a.done, a.err, m.kept = true, "no such VM", true
		return
	}
	if _, is := j.stands[row.MovingTo]; is {
		a.done, a.err, m.kept = true, "it is there already", true
		return
	}
	if mg, _ := j.store.Snapshot().MigrationOf("m"); mg.Open != a.open || mg.From != host {
		j.t.Fatalf("move %d begins on %s, and the state has %+v, %+v", a.open, host, row, mg)
	}
	j.from, j.to, j.by = host, row.MovingTo, a
}

// end the migration that goes on.
func (j *journey) end(well bool) {
	from := j.from
	j.evaluated = false
	row, _ := j.store.Snapshot().MigrationOf("m")
	how := "fails"
	switch {
	case well && !row.Paused:
		j.at = j.to
		how = ""
	case well: // the copy is complete, and the target's hypervisor says so
		j.stands[j.to] = true
		switch how = rapid.SampledFrom([]string{"", "", "its answer is lost", "the daemon dies before it", "the daemon dies after it"}).Draw(j.t, "hand-over"); how {
		case "its answer is lost":
			j.stands[j.to] = false
		case "the daemon dies before it":
			j.still = true
		default:
			j.at = ""
		}
	case row.Paused && rapid.IntRange(1, 4).Draw(j.t, "the daemon dies") == 1: // and the target's gives up
		how, j.still = "the daemon dies early", true
	}
	if j.by != nil {
		j.by.done = true
		j.by.err = how
		if j.by.unknown = len(how) > 3 && how[:3] == "the"; how != "" && !j.by.unknown {
			j.hosts[from].kept = true
		}
	}
	j.from, j.to, j.by = "", "", nil
}

func (j *journey) step() {
	host := rapid.SampledFrom(places).Draw(j.t, "host")
	switch rapid.SampledFrom([]string{"round", "round", "round", "round", "round", "round", "round", "hear", "hear", "hear", "open", "open", "end", "end", "commit", "restart", "guest ends"}).Draw(j.t, "step") {
	case "round":
		j.log.delay = rapid.IntRange(1, 12).Draw(j.t, "hold") == 1
		j.round(host)
	case "hear":
		if len(j.bag) == 0 {
			return
		}
		i := rapid.IntRange(0, len(j.bag)-1).Draw(j.t, "report")
		r := j.bag[i]
		if rapid.IntRange(1, 4).Draw(j.t, "again") > 1 {
			j.bag = slices.Delete(j.bag, i, i+1)
		}
		j.log.delay = rapid.IntRange(1, 6).Draw(j.t, "hold") == 1
		if err := j.ctl.Report(context.Background(), r); err != nil && !errors.Is(err, leader.ErrTimeout) {
			j.t.Fatal(err)
		}
	case "open":
		j.log.delay = false
		_ = j.commit(state.KindMove, state.Move{VM: "m", Generation: 1, To: host, Open: true, ID: fmt.Sprintf("mg-%06d", j.log.index)})
	case "end":
		if j.from != "" {
			j.end(rapid.IntRange(1, 3).Draw(j.t, "well") > 1)
		}
	case "guest ends": // as its host's agent knows that it ran on there, if a migration did not take it
		if j.resumes && j.at != "" && !j.still && j.from == "" && (len(j.stands) > 0 || rapid.IntRange(1, 20).Draw(j.t, "now") == 1) && (len(j.stands) == 0 || j.evaluated) {
			j.at, j.ended = "", true
			for h := range j.stands {
				j.stands[h] = false
			}
		}
	case "restart": // what it began may go on
		if rapid.Bool().Draw(j.t, "not now") {
			return
		}
		old := j.hosts[host]
		j.hosts[host] = &mover{past: map[string]*attempt{}, sent: old.sent, kept: old.kept}
		if j.by != nil && old.past["m"] == j.by {
			j.by = nil
		}
	case "commit":
		if n := len(j.log.delayed); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(j.t, "entry")
			entry := j.log.delayed[i]
			j.log.delayed = slices.Delete(j.log.delayed, i, i+1)
			j.log.index++
			_ = j.store.Apply(j.log.index, entry)
		}
	}
	j.log.delay = false
}

// check that the state is not wrong about where the VM may be.
func (j *journey) check() {
	vm, ok := j.store.Snapshot().VM("m")
	m, _ := j.store.Snapshot().MigrationOf("m")
	fail := func(what string) {
		j.t.Fatalf("%s: it runs on %s, and goes from %q to %q; the state has %+v, %+v", what, j.at, j.from, j.to, vm, m)
	}
	switch {
	case j.ended: // that nothing older is resumed is what is left to see
	case !ok || vm.Phase != state.Running || vm.Generation != 1:
		fail("the VM never ended")
	case vm.MovingTo == "" && (vm.Host != j.at || j.from != ""):
		fail("no move is open")
	case vm.MovingTo != "" && j.at != vm.Host && j.at != vm.MovingTo && !(j.at == "" && j.stands[vm.MovingTo]):
		fail("it runs on neither host of its move")
	case m.SourceLost > 0 && j.at != vm.MovingTo && j.at != "":
		fail("it is not gone from the source")
	case m.Left > 0 && j.at != vm.MovingTo && !j.stands[vm.MovingTo]:
		fail("it did not leave for its target")
	case j.from != "" && (j.from != vm.Host || j.to != vm.MovingTo):
		fail("it goes another way")
	}
}

// However late, doubled and out of order reports and log entries come, however often agents are killed at any point and migrations end either
// way: the state never takes a VM for being where it is not.
func TestMovesUnderLateReports(t *testing.T) {
	arrived, stayed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		j := newJourney(t)
		for range rapid.IntRange(100, 600).Draw(t, "steps") {
			j.step()
			j.check()
		}
		for _, e := range j.store.Snapshot().EventsAfter(0, 0) {
			switch e.Kind {
			case "vm-moved":
				arrived++
			case "vm-stayed":
				stayed++
			}
		}
	})
	if t.Logf("%d moves ended on the target, %d on the source", arrived, stayed); arrived < 10 || stayed < 10 {
		t.Error("too few moves to show anything")
	}
}
