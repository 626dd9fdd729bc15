package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

func size(v v1.Size) *v1.Size { return &v }

var at = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// Ages in recorded texts are those of three hours later.
func init() { now = func() time.Time { return at.Add(3 * time.Hour) } }

// aPlan is under way: one VM waits on a third host, one moves, one is there, one could not.
func aPlan() v1.Plan {
	return v1.Plan{
		ID: "01JD3Y2T6M5W0000000000000A", Kind: "rebalance", State: "running", By: "admin", Text: "before the rush",
		Bytes: 18 << 30, BytesBudget: size(64 << 30), BytesMoved: 5 << 30, Seconds: 140.2, MinYieldBefore: 0.7272, MinYieldAfter: 1, AverageYieldBefore: 0.9,
		AverageYieldAfter: 1, UpperBound: 1, Reason: "4 moves of 18GiB bring the minimum yield from 0.727 to 1.000", CreatedAt: at, Effort: 2_000_000, Basis: 42, ModifyIndex: 57,
		Moves: []v1.Move{
			{VM: "batch-w-0", From: "east", To: "south", Bytes: 14 << 30, Seconds: 104.1, State: "moving", Migration: "01M1", Staging: true, Reason: "makes way on host east for web-front-0"},
			{VM: "web-front-0", From: "north", To: "east", After: []int{0}, Bytes: 4 << 30, Begins: 104.1, Seconds: 36, State: "waiting", Reason: "host north can give its VMs 72.7% of what they need"},
			{VM: "web-front-1", From: "north", To: "east", Bytes: 1 << 29, Seconds: 4, State: "done", Migration: "01M0", Reason: "host north can give its VMs 72.7% of what they need"},
			{VM: "cache-0", From: "north", To: "east", Bytes: 1 << 20, Seconds: 0.1, State: "failed", Migration: "01M2", Text: "host east does not answer", Reason: "the same"},
		},
	}
}

func aMigration() v1.Migration {
	return v1.Migration{ID: "01M1", VM: "batch-w-0", From: "east", To: "south", State: "running", Plan: "01JD3Y2T6M5W0000000000000A", Reason: "makes way on host east for web-front-0",
		Bytes: 14 << 30, BytesBudget: size(20 << 30), BytesMoved: 4 << 30, OpenedAt: at, Options: v1.MoveOptions{Bandwidth: 100 << 20, AutoConverge: true, Deadline: "30m"},
		Progress: &v1.MoveProgress{Bytes: 4 << 30, Remaining: 10 << 30, Rate: 100 << 20, Dirty: 12 << 20, Since: 41, ETA: 116.4}}
}

func aDrain() v1.Drain {
	return v1.Drain{Host: "h1", State: "draining", Reason: "new memory", By: "admin", Text: "1 of 4 VMs has left", Since: at, Deadline: at.Add(time.Hour),
		OnBlocked: "skip", BytesBudget: size(64 << 30), BytesMoved: 3 << 30, Plan: "01P", VMs: []v1.DrainVM{
			{VM: "web-front-0", State: "done", To: "h2", Bytes: 2 << 30, BytesMoved: 2<<30 + 5<<20, ETA: -1},
			{VM: "web-front-1", State: "moving", To: "h3", Bytes: 2 << 30, BytesMoved: 1 << 30, Rate: 117e6, ETA: 9.2},
			{VM: "web-front-2", State: "waiting", To: "h3", Bytes: 2 << 30, ETA: -1, Text: "waits for web-front-1"},
			{VM: "db-0", State: "stays", ETA: -1, Text: "its disk lies on this host only"},
		}}
}

// TestTexts: what commands print of plans, migrations, drains and simulations, beside files that hold it
// (UPDATE_SCRIPTS=1 writes them again).
func TestTexts(t *testing.T) {
	nothing := v1.Plan{Kind: "rebalance", State: "proposed", MinYieldBefore: 0.7273, MinYieldAfter: 0.7273, AverageYieldBefore: 0.9, AverageYieldAfter: 0.9, UpperBound: 1, Moves: []v1.Move{},
		BytesBudget: size(10 << 30), Reason: "no beneficial move within 10 GiB: the minimum yield stays 0.7273; 1.0000 takes at least 17.5 GiB"}
	proposed := aPlan()
	proposed.State, proposed.Moves = "proposed", proposed.Moves[:2]
	for i := range proposed.Moves {
		proposed.Moves[i].State, proposed.Moves[i].Migration = "waiting", ""
	}
	proposed.BytesMoved, proposed.BytesBudget = 0, nil
	drainPlan := proposed
	drainPlan.Kind, drainPlan.Host = "drain", "h1"
	gone := aMigration()
	gone.State, gone.Progress, gone.DowntimeMs, gone.EndedAt, gone.BytesMoved = "done", nil, 87, at.Add(2*time.Minute), 14<<30+77<<20
	aborted := aMigration()
	aborted.ID, aborted.State, aborted.Progress, aborted.Abort, aborted.Error, aborted.BytesBudget = "01M3", "aborted", nil, "asked for by admin", "", nil
	blockers := []v1.Blocker{{VM: "db-0", VirtualCluster: "db", Why: "its disk lies in pool default of host h1 only", Advice: []string{"stop it: vcctl vc stop db", "--on-blocked skip leaves it where it is"}},
		{VM: "gpu-0", VirtualCluster: "gpu", Why: "no host with label\nhas room", Advice: []string{}}}
	var same []v1.Blocker
	for i := range 5 {
		same = append(same, v1.Blocker{VM: fmt.Sprintf("a-%d", i), VirtualCluster: []string{"a", "b"}[i/4], Why: "host h1 cannot send VMs: /etc/pki/CA/cacert.pem is missing on h1",
			Advice: []string{"see docs/how-to/set-up-live-migration.md"}})
	}
	ended := aDrain()
	ended.State, ended.Text = "stopped", "the deadline is over"
	try := v1.SimulateResult{MinYieldBefore: 0.61, MinYieldAfter: 0.74, AverageYieldBefore: 0.7, AverageYieldAfter: 0.8, Bytes: 18 << 30, Refused: []string{"render: promised 0.8, would get 0.74"},
		Unplaced: []v1.Unplaced{{VM: "db-0", VirtualCluster: "db", Why: "needs 64GiB of memory"}}, Plan: proposed}
	rows := []v1.FailoverRow{{Host: "h1", Fits: true, MinYield: 0.52, Text: "all 12 VMs find another host"},
		{Host: "h2", Unplaced: []string{"a-0", "a-1", "a-2", "a-3", "a-4"}, Text: "5 of 14 VMs find none"}}
	curve := make([]v1.CurvePoint, 60)
	for i := range curve {
		curve[i] = v1.CurvePoint{Bytes: v1.Size(i) << 28, MinYield: 0.4 + 0.01*float64(i)}
	}
	settings := v1.ClusterSettings{MinYield: 0.5, OnFull: "queue", Image: "tiny", Pool: "default", MinMemory: 64 << 20, MaxVMs: 4096, Placement: "spread", SharedPools: []string{"nfs", "ceph"}, Networks: []string{"default", "bridge:br0=film"}, Pools: []string{},
		Moves:       v1.MoveSettings{Mode: "auto", Period: "10m", MinResidency: "10m", CoolDown: "30m", StabilizationWindow: "1m", MinGain: 0.1, IdleBelow: 0.05, Budget: 75_000_000_000, PerHost: 2, Deadline: "30m"},
		Rightsizing: v1.RightsizingSettings{Mode: "shadow", Needs: "declared", Aggressiveness: "balanced"}}
	for name, text := range map[string]string{
		"plan":             planText(aPlan(), nil, false),
		"plan-moving":      planText(aPlan(), []v1.Migration{aMigration()}, false),
		"plan-wide":        planText(aPlan(), []v1.Migration{aMigration()}, true),
		"plan-nothing":     planResultText(v1.PlanResult{Plan: nothing}, false),
		"plan-dry-run":     planResultText(v1.PlanResult{Plan: proposed, DryRun: true}, false),
		"plan-proposed":    planResultText(v1.PlanResult{Plan: proposed}, false),
		"plans":            planTable.text([]v1.Plan{aPlan(), drainPlan}, false),
		"plans-wide":       planTable.text([]v1.Plan{aPlan(), drainPlan}, true),
		"migrations":       migrationTable.text([]v1.Migration{gone, aborted, aMigration()}, false),
		"migrations-wide":  migrationTable.text([]v1.Migration{gone, aborted, aMigration()}, true),
		"operations":       operationTable.text(someOperations(), false),
		"operations-wide":  operationTableOfAll.text(someOperations(), true),
		"migration":        migrationText(aMigration()),
		"migration-done":   migrationText(gone),
		"curve":            curveText(curve, false),
		"curve-empty":      curveText(nil, false),
		"blockers":         blockersText(blockers),
		"blockers-same":    blockersText(append(same, blockers...)),
		"drain":            drainText(aDrain()),
		"drain-dry-run":    drainResultText(v1.DrainResult{Host: "h1", Plan: &drainPlan, Blockers: blockers, DryRun: true}, false),
		"drain-empty":      drainResultText(v1.DrainResult{Host: "h1"}, false),
		"drain-ended":      endText(ended, v1.HostEmpty{Host: "h1", VMs: []string{"db-0"}}),
		"drain-ended-well": endText(aDrain(), v1.HostEmpty{Host: "h1", Empty: true, At: at}),
		"groups":           groupsText(v1.DrainBatches{Items: []v1.DrainBatch{{Hosts: []string{"h1", "h4"}, Bytes: 12 << 30, MinYield: 0.61}, {Hosts: []string{"h2"}, MinYield: 0.7}}, Blocked: []v1.BlockedHost{{Host: "h3", Why: "VM db-0 cannot move"}}}),
		"try":              simulateText(try, false),
		"spare":            failoverText(rows, false),
		"spare-wide":       failoverText(rows, true),
		"settings":         settingsText(settings),
		"empty":            emptyText(v1.HostEmpty{Host: "h1", Empty: true, At: at}),
		"not-empty":        emptyText(v1.HostEmpty{Host: "h1", VMs: []string{"db-0"}, Unmanaged: []string{"ek-old-0"}}),
	} {
		path := filepath.Join("testdata", "text", name+".golden")
		if os.Getenv("UPDATE_SCRIPTS") != "" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a file of this repository
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, text, want)
		}
	}
}

// Off a terminal a drain is shown line by line, each step once.
func TestDrainBoard(t *testing.T) {
	var errs bytes.Buffer
	b := &drainBoard{t: &tool{err: &errs}, last: map[string]string{}}
	d := aDrain()
	b.show([]v1.Drain{d})
	first := errs.String()
	for _, want := range []string{"h1: web-front-0: moved to h2, 2.0GiB sent\n", "h1: web-front-1: moving to h3\n", "h1: db-0: stays on h1, its disk lies on this host only\n", "h1: draining: 1 of 4 VMs has left\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q lacks %q", first, want)
		}
	}
	d.VMs[1].BytesMoved += 1 << 20 // bytes alone are no step
	b.show([]v1.Drain{d})
	if errs.String() != first {
		t.Errorf("said again: %q", errs.String()[len(first):])
	}
	d.VMs[1].State = "done"
	b.show([]v1.Drain{d})
	if got := errs.String()[len(first):]; got != "h1: web-front-1: moved to h3, 1.0GiB sent\n" {
		t.Errorf("%q", got)
	}
}

// The target may say that a VM has arrived before its source says what it sent: a move that sent 1 GiB is not "0B sent".
func TestDrainBoardKnowsBytesLater(t *testing.T) {
	var errs bytes.Buffer
	b := &drainBoard{t: &tool{err: &errs}, last: map[string]string{}}
	d := aDrain()
	b.show([]v1.Drain{d})
	first := len(errs.String())
	d.VMs[1].State, d.VMs[1].BytesMoved = "done", 0
	b.show([]v1.Drain{d})
	if got := errs.String()[first:]; got != "" {
		t.Errorf("before its source reported: %q", got)
	}
	d.VMs[1].BytesMoved = 1 << 30
	b.show([]v1.Drain{d})
	if got := errs.String()[first:]; got != "h1: web-front-1: moved to h3, 1GiB sent\n" {
		t.Errorf("%q", got)
	}
	first = len(errs.String())
	d.VMs[3].State, d.VMs[3].Text, d.VMs[3].BytesMoved, d.State, d.Text = "done", "", 0, "drained", ""
	b.show([]v1.Drain{d}) // it is over, and what that one sent will not be known any more
	if got := errs.String()[first:]; strings.Contains(got, "0B") || !strings.Contains(got, "h1: "+d.VMs[3].VM+": done") {
		t.Errorf("%q", got)
	}
}

// The exit status of a drain says whether the host is empty, and if not, who ended it.
func TestDrainOutcome(t *testing.T) {
	for _, c := range []struct {
		states []string
		empty  []bool
		want   int
	}{
		{[]string{"drained"}, []bool{true}, statusDone},
		{[]string{"blocked"}, []bool{true}, statusDone}, // it became empty after all
		{[]string{"drained"}, []bool{false}, statusFailed},
		{[]string{"stopped"}, []bool{false}, statusFailed},
		{[]string{"none"}, []bool{false}, statusConflict},
		{[]string{"none", "stopped"}, []bool{false, false}, statusFailed},
		{[]string{"drained", "none"}, []bool{true, false}, statusConflict},
	} {
		var all []v1.Drain
		var ends []v1.HostEmpty
		for i, s := range c.states {
			all, ends = append(all, v1.Drain{State: s}), append(ends, v1.HostEmpty{Empty: c.empty[i]})
		}
		if got := statusOf(drainOutcome(all, ends)); got != c.want {
			t.Errorf("%v, empty %v: status %d, want %d", c.states, c.empty, got, c.want)
		}
	}
}

// The flag package takes values apart at commas; hosts are put together again.
func TestSimulateHosts(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want []string
	}{
		{nil, nil},
		{[]string{"32", "128GiB", "2"}, []string{"32,128GiB,2"}},
		{[]string{"32,128GiB,2"}, []string{"32,128GiB,2"}},
		{[]string{"32", "128GiB", "8", "16GiB"}, []string{"32,128GiB,8", "16GiB"}}, // as it would be read: N, then what is no host
		{[]string{"32", "128GiB", "0.5", "16GiB"}, []string{"32,128GiB", "0.5,16GiB"}},
		{[]string{"32", "128GiB", "2", "8", "16GiB", "1"}, []string{"32,128GiB,2", "8,16GiB,1"}},
	} {
		if got := hostTriples(c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	for _, bad := range []string{"32", "x,1GiB", "32,1GB", "32,1GiB,0", "32,1GiB,2,3", "-1,1GiB", "NaN,1GiB", "32,0"} {
		if h, err := simulatedHost(bad); statusOf(err) != statusUsage {
			t.Errorf("%s is taken for %+v (%v)", bad, h, err)
		}
	}
	if h, err := simulatedHost("32,128GiB,2"); err != nil || h != (v1.SimulatedHost{CPU: 32, Memory: 128 << 30, Count: 2}) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, bad := range []string{"web", "web=", "=4", "web=x", "web=-1", "/front=4", "web=0"} {
		if n, err := simulatedNeed(bad); statusOf(err) != statusUsage {
			t.Errorf("%s is taken for %+v (%v)", bad, n, err)
		}
	}
	if n, err := simulatedNeed("web/front=4.5"); err != nil || n != (v1.SimulatedNeed{VirtualCluster: "web", Group: "front", CPU: 4.5}) {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestSkipped(t *testing.T) {
	groups := v1.DrainBatches{Items: []v1.DrainBatch{{Hosts: []string{"h1", "h2"}, Bytes: 7}, {Hosts: []string{"h3"}}, {Hosts: []string{"h4"}}}, Blocked: []v1.BlockedHost{{Host: "h5"}, {Host: "h6"}}}
	got := withoutSkipped(groups, []string{"h1", "h3", "h5"})
	want := v1.DrainBatches{Items: []v1.DrainBatch{{Hosts: []string{"h2"}, Bytes: 7}, {Hosts: []string{"h4"}}}, Blocked: []v1.BlockedHost{{Host: "h6"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func someOperations() []v1.Operation {
	return []v1.Operation{
		{ID: "01P", Kind: "drain", Host: "h1", Plan: "01Q", State: v1.OperationPending, Done: 1, Total: 5, Text: "1 of 5 moves done", At: at},
		{ID: "01O", Kind: "restart", Tenant: "film", VirtualCluster: "render", VM: "render-worker-0", State: v1.OperationDone, Done: 1, Total: 1, Text: "running", At: at},
		{ID: "01N", Kind: "apply", Tenant: "default", VirtualCluster: "web", State: v1.OperationFailed, Text: "VM web-a-0: no such network", At: at},
		{ID: "01M", Kind: "rebalance", Plan: "01R", State: v1.OperationSuperseded, At: at},
	}
}

// vcctl reports wrong usage of the commands that move VMs before it sends a request to a server.
func TestMoveUsage(t *testing.T) {
	for _, line := range []string{
		"host drain", "host drain h1 h2", "host drain h1 --on-blocked kill", "host drain h1 --deadline 0s", "host drain h1 --deadline soon", "host drain h1 --max-bytes 64GB",
		"host drain h1 --next", "host drain h1 --skip h2", "host drain h1 --dry-run --detach", "host drain h1 --dry-rum", "host drain h1 --force", "host undrain", "host confirm-empty h1 h2",
		"rebalance now", "rebalance --max-bytes -1", "rebalance --curve --wait", "rebalance --curve --max-bytes 1GiB", "rebalance --timeout 1m", "rebalance --dry-run --wait",
		"simulate", "simulate --each-host --lose h1", "simulate --add-host 32", "simulate --need web", "simulate --snapshot nothing.here", "plan apply", "plan get a b", "plan list --limit 0", "plan stop",
		"migration abort", "migration list --limit 1001", "operation list --limit 0", "operation list --state open", "operation list --all --state done", "operation get", "cluster settings set", "cluster settings set minYield", "cluster settings set period=1m", "cluster settings all",
	} {
		var out, errs bytes.Buffer
		args := append([]string{"vcctl", "--address", "https://127.0.0.1:1"}, strings.Fields(line)...)
		if got := run(args, strings.NewReader(""), &out, &errs); got != statusUsage {
			t.Errorf("%s: status %d, %s", line, got, errs.String())
		}
	}
}

// Every command that moves VMs explains itself with an example.
func TestMoveHelp(t *testing.T) {
	for _, line := range []string{"rebalance", "plan list", "plan get", "plan apply", "plan stop", "simulate", "migration list", "migration get", "migration abort", "operation list", "operation get",
		"host drain", "host undrain", "host confirm-empty", "cluster settings", "cluster settings set"} {
		var out, errs bytes.Buffer
		if got := run(append(append([]string{"vcctl"}, strings.Fields(line)...), "--help"), strings.NewReader(""), &out, &errs); got != statusDone {
			t.Errorf("%s --help: status %d, %s", line, got, errs.String())
		}
		if !strings.Contains(out.String(), "Example: vcctl "+strings.Fields(line)[0]) {
			t.Errorf("%s --help gives no example:\n%s", line, out.String())
		}
	}
}

func TestOutcome(t *testing.T) {
	for state, want := range map[string]int{v1.OperationDone: statusDone, v1.OperationFailed: statusFailed, v1.OperationSuperseded: statusConflict} {
		if got := statusOf(outcome(v1.Operation{Kind: "rebalance", Plan: "01P", State: state})); got != want {
			t.Errorf("%s: %d", state, got)
		}
	}
	err := outcome(v1.Operation{Kind: "rebalance", Plan: "01P", State: v1.OperationFailed, Text: "no room"})
	var f *failure
	if !errors.As(err, &f) || f.Error() != "rebalance of plan 01P failed: no room" {
		t.Errorf("%v", err)
	}
}

// What is said of several VMs of a drain for the same reason is said once, with the host they stay on.
func TestDrainBoardGroups(t *testing.T) {
	var said strings.Builder
	b := &drainBoard{t: &tool{err: &said}, last: map[string]string{}}
	d := v1.Drain{Host: "h1", State: "draining"}
	for i := range 5 {
		d.VMs = append(d.VMs, v1.DrainVM{VM: fmt.Sprintf("a-%d", i), State: "waiting", To: "h3"})
	}
	b.show([]v1.Drain{d})
	for i := range d.VMs {
		d.VMs[i].State, d.VMs[i].Text = "stays", "host h1 cannot send VMs: a key is missing on h1"
	}
	b.show([]v1.Drain{d})
	b.show([]v1.Drain{d})
	want := ""
	for i := range 5 {
		want += fmt.Sprintf("h1: a-%d: queued for h3\n", i)
	}
	want = strings.Replace(want, "h1: a-4: queued for h3\n", "h1: a-4: queued for h3\nh1: draining\n", 1)
	want += "h1: 5 VMs: a-0, a-1, a-2 and 2 more: stays on h1, host h1 cannot send VMs: a key is missing on h1\n"
	if said.String() != want {
		t.Errorf("said\n%s\nwant\n%s", said.String(), want)
	}
}
