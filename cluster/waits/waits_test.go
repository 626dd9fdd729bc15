package waits_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/cluster/waits"
)

// ends are the values that wait for nothing.
var ends = map[string][]string{
	"ResetState":     {"done", "failed"},
	"Phase":          {"running", "stopped", "failed"},
	"VCState":        {"running", "stopped", "failed"},
	"MovePlanState":  {"done", "failed", "stopped", "superseded"},
	"StepState":      {"done", "failed", "skipped"},
	"MigrationState": {"done", "failed", "aborted"},
	"DrainState":     {"drained"},
	"OpState":        {"done", "failed", "superseded"},

	"SignOffState":    {"accepted", "rejected"},
	"OccurrenceState": {"confirmed", "re-confirmed", "running", "met", "missed", "skipped"},
}

// within are the values that go on for as long as another does, which has a rule.
var within = map[string]string{
	"VCState.starting":     "Phase.starting",
	"VCState.stopping":     "Phase.stopping",
	"VCState.deleting":     "Phase.stopping",
	"StepState.waiting":    "MovePlanState.running",
	"StepState.preparing":  "MovePlanState.running",
	"StepState.moving":     "MigrationState.running",
	"ResetState.permitted": "ResetState.asked",
	"OpState.pending":      "VCState.queued", // or the phases of its VMs
}

// enumerations returns the enumerations of states in package state: every string type named Phase or ...State, with its values.
func enumerations(t *testing.T) map[string][]string {
	t.Helper()
	set := token.NewFileSet()
	files, err := filepath.Glob("../state/*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, is := n.(*ast.ValueSpec)
			if !is || len(v.Values) != 1 {
				return true
			}
			typ, named := v.Type.(*ast.Ident)
			lit, literal := v.Values[0].(*ast.BasicLit)
			if named && literal && (typ.Name == "Phase" || strings.HasSuffix(typ.Name, "State")) {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[typ.Name] = append(out[typ.Name], text)
			}
			return true
		})
	}
	return out
}

// Every state that is no end has a reason, a limit and a way out.
func TestEveryStateThatWaitsHasARule(t *testing.T) {
	ruled := map[string]waits.Rule{}
	for _, r := range waits.Rules {
		key := r.Enum + "." + r.Value
		ruled[key] = r
		if r.Object == "" || r.Out == "" || r.Limit < 0 || r.Limit > 24*time.Hour || r.Ends == "" && r.Limit > 0 {
			t.Errorf("%s: %+v lacks something", key, r)
		}
	}
	found := map[string]bool{}
	for enum, values := range enumerations(t) {
		for _, value := range values {
			key := enum + "." + value
			found[key] = true
			n := 0
			if _, is := ruled[key]; is {
				n++
			}
			if other, is := within[key]; is {
				n++
				if _, has := ruled[other]; !has {
					t.Errorf("%s goes on with %s, which has no rule", key, other)
				}
			}
			for _, end := range ends[enum] {
				if end == value {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s is a state with %d of: a rule in package waits, another state's rule, an end; say which it is", key, n)
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("found only %v", found)
	}
	for key := range ruled {
		if !found[key] {
			t.Errorf("the rule of %s is of no state", key)
		}
	}
}

// What waits is a condition after its limit, once for all that wait for the same reason.
func TestConditions(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wait := func(name, reason string) waits.Wait {
		return waits.Wait{Rule: waits.Starting, ID: name + "/1", Name: name, Host: "h1", Reason: reason}
	}
	var tr waits.Tracker
	limit := waits.Starting.Limit
	all := []waits.Wait{wait("a", "no room"), wait("b", "no room"), wait("c", "")}
	look := func(after time.Duration, all []waits.Wait, want ...string) (late []waits.Late) {
		t.Helper()
		late = tr.Evaluate(at.Add(after), all)
		var names []string
		for _, l := range late {
			names = append(names, l.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("after %s: %v are late, want %v", after, names, want)
		}
		return late
	}
	look(0, all)
	for d := 10 * time.Second; d <= limit; d += 10 * time.Second {
		look(d, all)
	}
	look(limit+time.Second, all, "a", "b", "c")
	look(limit+2*time.Second, append([]waits.Wait{wait("c", "host h1 is lost")}, all[:2]...), "c", "a", "b")
	look(limit+3*time.Second, all, "a", "b")               // why c waits is not known again, for a second
	look(2*limit+time.Second, all, "a", "b")               // and it is not known why it did meanwhile
	late := look(2*limit+2*time.Second, all[:2], "a", "b") // c does not wait any more
	if late[0].For != 2*limit+2*time.Second {
		t.Errorf("a waits for %s", late[0].For)
	}
	late = append(late, waits.Late{Wait: wait("c", ""), For: time.Hour})
	got := waits.Conditions(late)
	if len(got) != 2 || got[0].Object != "vm" || !strings.HasPrefix(got[0].Text, "starting on host h1 for 4m2s at least: a, b: no room; what to do: vcctl vm get a;") {
		t.Errorf("%+v", got)
	}
	if len(got) == 2 && !strings.Contains(got[1].Text, "no reason is known") {
		t.Errorf("%+v", got[1])
	}
	if got := waits.Conditions([]waits.Late{{Wait: waits.Wait{Rule: waits.Blocked, Name: "h1"}}}); got != nil {
		t.Errorf("reported twice: %+v", got)
	}
}

// Starts that hosts give back after a minute each are one wait: no generation lasts until its limit.
func TestVMThatIsGivenBackAgainAndAgain(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var tr waits.Tracker
	look := func(after time.Duration) []waits.Late {
		w := waits.Wait{Rule: waits.Starting, ID: fmt.Sprintf("v/%d", after/time.Minute), Name: "web-0", Host: "h1", ToRun: "v", Reason: "four other starts have not ended"}
		if after%time.Minute == 50*time.Second {
			w.Rule, w.Reason = waits.Lost, "it did not start within 1m0s: four other starts have not ended"
		}
		return tr.Evaluate(at.Add(after), []waits.Wait{w})
	}
	for after := time.Duration(0); after <= waits.Lost.Limit; after += 10 * time.Second {
		if late := look(after); len(late) > 0 {
			t.Fatalf("late after %s: %+v", after, late)
		}
	}
	late := look(waits.Lost.Limit + 10*time.Second)
	if len(late) != 1 || late[0].For != waits.Lost.Limit+10*time.Second {
		t.Fatalf("%+v", late)
	}
	got := waits.Conditions(late)
	if want := "given back and started again, now starting on host h1, and not running for 5m10s at least: web-0: four other starts have not ended;"; len(got) != 1 || !strings.HasPrefix(got[0].Text, want) {
		t.Errorf("%+v, want %s", got, want)
	}
	tr.Evaluate(at.Add(6*time.Minute), nil) // it runs
	if late := look(7 * time.Minute); len(late) > 0 {
		t.Errorf("late at once when it is started later: %+v", late)
	}
}

// A VM that waits for room for longer than a start may take is not late when it is started, nor is one of whose time nothing is known.
func TestFirstStartIsNotLate(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	starting := func(generation int) []waits.Wait {
		return []waits.Wait{{Rule: waits.Starting, ID: fmt.Sprint("v/", generation), Name: "web-0", Host: "h2", ToRun: "v", Reason: "it starts"}}
	}
	lost := []waits.Wait{{Rule: waits.Lost, ID: "v/1", Name: "web-0", Host: "h1", ToRun: "v", Reason: "no room"}}
	var tr waits.Tracker
	now := time.Duration(0)
	for ; now < waits.Lost.Limit+3*time.Minute; now += 10 * time.Second {
		tr.Evaluate(at.Add(now), lost)
	}
	for end := now + waits.Starting.Limit; now < end; now += 10 * time.Second {
		if late := tr.Evaluate(at.Add(now), starting(2)); len(late) > 0 {
			t.Fatalf("its first start is late after %s: %+v", now, late)
		}
	}
	now += time.Hour // without a leader
	if late := tr.Evaluate(at.Add(now), starting(3)); len(late) > 0 {
		t.Errorf("late of a time of which nothing is known: %+v", late)
	}
}

// A VM that moves waits for its target once it is gone from its source, and for no longer than guests may stand still.
func TestHandedOver(t *testing.T) {
	store := state.New()
	index := uint64(0)
	put := func(kind state.Kind, body any) {
		t.Helper()
		entry, err := state.Encode(kind, time.Unix(0, 0), body)
		if err != nil {
			t.Fatal(err)
		}
		index++
		if err := store.Apply(index, entry); err != nil {
			t.Fatal(err)
		}
	}
	size := state.Resources{CPU: 4, Memory: 8 << 30}
	put(state.KindInit, state.Init{ID: "c", Settings: state.DefaultSettings()})
	for _, h := range []string{"h1", "h2"} {
		put(state.KindHostReport, state.HostReport{Name: h, Capacity: size, Allowance: size, MigrateURI: h})
	}
	put(state.KindPlan, state.Plan{Basis: index, Verb: "created", AffectedHosts: []string{"h1"},
		VC: &state.VC{ID: "v", Name: "v", Goal: state.GoalRun, Admitted: true, Groups: []state.Group{{Name: "g", Count: 1, CPU: 1, VCPUs: 1, Memory: 1 << 30, MemoryMin: 1 << 30}}},
		VMs: []state.VM{{ID: "m", VC: "v", Group: "g", Name: "v-g-0", Host: "h1", Generation: 1, Goal: state.GoalRun, Phase: state.Starting, VCPUs: 1,
			BootMemory: 1 << 30, ChargedMemory: 1 << 30}}, Allocations: []state.Allocation{{VC: "v", Group: "g", CPU: 1}}})
	report := func(host string, st state.VMStatus) {
		t.Helper()
		m, _ := store.Snapshot().MigrationOf("m")
		st.VM, st.Generation, st.Move = "m", 1, m.Open
		put(state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{st}})
	}
	is := func(rule waits.Rule, reason string, out map[string]string) {
		t.Helper()
		s := store.Snapshot()
		vm, _ := s.VM("m")
		if w, waiting := waits.OfVM(s, &vm, func(host string) string { return out[host] }); !waiting || w.Rule != rule || w.Reason != reason {
			t.Errorf("it waits: %v, %+v; want the reason %q", waiting, w, reason)
		}
	}
	report("h1", state.VMStatus{Phase: state.Running})
	put(state.KindMove, state.Move{VM: "m", Generation: 1, To: "h2", Open: true, ID: "mg"})
	is(waits.Moving, "host h2 has no room for it yet", nil)
	report("h2", state.VMStatus{Room: true, Resumes: true})
	report("h1", state.VMStatus{Phase: state.Lost})
	is(waits.Handed, "it is lost at host h1, and host h2 has not said yet that nothing of it is there", nil)
	report("h1", state.VMStatus{Phase: state.Lost, Left: true})
	is(waits.Handed, "host h2 has not had it go on yet", nil)
	is(waits.Handed, "host h2 has not been heard of for 9s", map[string]string{"h2": "has not been heard of for 9s"})
}
