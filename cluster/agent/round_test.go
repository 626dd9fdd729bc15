package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// calls are what an agent asked of its hypervisor and of the leader, in order.
type calls struct {
	mu   sync.Mutex
	made []string
	fail string // the call that fails, once, as in "list 2"
}

var errBroken = errors.New("broken by a test")

// make notes a call, and returns whether it fails.
func (c *calls) make(call string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, call)
	n := 0
	for _, made := range c.made {
		if made == call {
			n++
		}
	}
	if c.fail == fmt.Sprintf("%s %d", call, n) {
		return fmt.Errorf("%s: %w: %w", call, errBroken, hypervisor.ErrUnavailable)
	}
	return nil
}

// take returns the calls since it was called last.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.made
	c.made = nil
	return out
}

// tracedHost notes the calls of a hypervisor.
type tracedHost struct {
	hypervisor.Host
	calls *calls
}

// traced makes a call that is noted, unless it is to fail.
func traced[T any](c *calls, call string, f func() (T, error)) (T, error) {
	if err := c.make(call); err != nil {
		var none T
		return none, err
	}
	return f()
}

func tracedChange(c *calls, call string, f func() error) error {
	_, err := traced(c, call, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (h tracedHost) Capacity(ctx context.Context) (hypervisor.Capacity, error) {
	return traced(h.calls, "capacity", func() (hypervisor.Capacity, error) { return h.Host.Capacity(ctx) })
}
func (h tracedHost) Partner(ctx context.Context) (hypervisor.Partner, error) {
	return traced(h.calls, "partner", func() (hypervisor.Partner, error) { return h.Host.Partner(ctx) })
}
func (h tracedHost) List(ctx context.Context) ([]hypervisor.VM, error) {
	return traced(h.calls, "list", func() ([]hypervisor.VM, error) { return h.Host.List(ctx) })
}
func (h tracedHost) Stats(ctx context.Context) ([]hypervisor.Stats, error) {
	return traced(h.calls, "stats", func() ([]hypervisor.Stats, error) { return h.Host.Stats(ctx) })
}
func (h tracedHost) Pressure(ctx context.Context) (hypervisor.Pressure, error) {
	return traced(h.calls, "pressure", func() (hypervisor.Pressure, error) { return h.Host.Pressure(ctx) })
}
func (h tracedHost) Abort(ctx context.Context, id string) (moved hypervisor.Moved, found bool, err error) {
	err = tracedChange(h.calls, "abort", func() error {
		moved, found, err = h.Host.Abort(ctx, id)
		return err
	})
	return moved, found, err
}
func (h tracedHost) Define(ctx context.Context, spec hypervisor.Spec) error {
	return tracedChange(h.calls, "define", func() error { return h.Host.Define(ctx, spec) })
}
func (h tracedHost) Start(ctx context.Context, spec hypervisor.Spec) error {
	return tracedChange(h.calls, "start", func() error { return h.Host.Start(ctx, spec) })
}
func (h tracedHost) SetCPU(ctx context.Context, id string, cpu hypervisor.CPU) error {
	return tracedChange(h.calls, "set CPU", func() error { return h.Host.SetCPU(ctx, id, cpu) })
}
func (h tracedHost) SetBalloon(ctx context.Context, id string, bytes int64) error {
	return tracedChange(h.calls, "set balloon", func() error { return h.Host.SetBalloon(ctx, id, bytes) })
}
func (h tracedHost) Destroy(ctx context.Context, id string) error {
	return tracedChange(h.calls, "destroy", func() error { return h.Host.Destroy(ctx, id) })
}

// tracedLeader notes the calls of the leader, and permits all starts.
type tracedLeader struct {
	calls   *calls
	want    Desired
	changed chan struct{}
	reports []Report
}

func (l *tracedLeader) Desired(context.Context, string) (Desired, <-chan struct{}, error) {
	if err := l.calls.make("desired"); err != nil {
		return Desired{}, nil, err
	}
	return l.want, l.changed, nil
}

func (l *tracedLeader) Report(_ context.Context, r Report) error {
	if err := l.calls.make("report"); err != nil {
		return err
	}
	l.reports = append(l.reports, r)
	return nil
}

func (l *tracedLeader) Permit(_ context.Context, q PermitRequest) (Permit, error) {
	return traced(l.calls, "permit", func() (Permit, error) {
		return Permit{Epoch: l.want.Epoch, Index: l.want.Index, Granted: q.Starts}, nil
	})
}

func (l *tracedLeader) Renew(context.Context, Renewal) (Grant, error) {
	return Grant{}, errors.New("there are no leases")
}

// reported are the statuses of all reports.
func (l *tracedLeader) reported() (out []string) {
	for _, r := range l.reports {
		for _, st := range r.Statuses {
			out = append(out, fmt.Sprintf("%s %s", st.VM, st.Phase))
		}
	}
	return out
}

// tracedVM is a VM of 1 GiB and one core, generation 1.
func tracedVM(id string) VM {
	const gib = 1 << 30
	return VM{Want: WantRun, ChargedMemory: gib, Spec: hypervisor.Spec{Identity: hypervisor.Identity{Cluster: "c", VM: id, Generation: 1}, Name: "ek-" + id, VCPUs: 1,
		Memory: gib, Balloon: gib, CPU: hypervisor.CPU{Cap: 1, Weight: 1}}}
}

// inRound runs f with an agent that has done nothing yet: VM b runs, and is to have half of its CPU and memory; VM a may start.
func inRound(t *testing.T, f func(t *testing.T, r *runner, l *tracedLeader, c *calls)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		timing := simulated.DefaultTiming()
		w, err := simulated.New(simulated.Options{Hosts: 1, CPU: 4, Memory: 8 << 30, Timing: &timing})
		if err != nil {
			t.Fatal(err)
		}
		a, b, h := tracedVM("a"), tracedVM("b"), w.Host("h1")
		if err := errors.Join(h.Define(t.Context(), b.Spec), h.Start(t.Context(), b.Spec)); err != nil {
			t.Fatal(err)
		}
		a.MayStart, b.Seen = true, true
		b.Spec.CPU, b.Spec.Balloon = hypervisor.CPU{Cap: 0.5, Weight: 0.5}, b.Spec.Memory/2
		c := &calls{}
		l := &tracedLeader{calls: c, changed: make(chan struct{}), want: Desired{Cluster: "c", Index: 7, CPU: 4, Memory: 8 << 30, VMs: []VM{a, b}}}
		r, err := newRunner(tracedOptions(h, l, c, io.Discard))
		if err != nil {
			t.Fatal(err)
		}
		f(t, r, l, c)
		r.beside.Wait()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func tracedOptions(h hypervisor.Host, l Leader, c *calls, log io.Writer) Options {
	return Options{Host: "h1", Hypervisor: tracedHost{h, c}, Leader: l, Log: slog.New(slog.NewTextHandler(log, nil)),
		Allowance: func(c hypervisor.Capacity) Limits { return Limits{CPU: c.CPU, Memory: c.Memory} }, Overhead: func(hypervisor.Capacity) int64 { return 0 }}
}

// Each step of an agent's first round asks what it says it reads, changes what it says it changes, and hands on what the next
// one needs. Decide asks nothing of anything.
func TestRoundStepByStep(t *testing.T) {
	inRound(t, func(t *testing.T, r *runner, l *tracedLeader, c *calls) {
		after := func(at step, err error, found bool, result any, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, c.take()); diff != "" {
				t.Errorf("calls of step %s (-want +got):\n%s", at, diff)
			}
			if err != nil || !found {
				t.Fatalf("step %s returned %+v, %v", at, result, err)
			}
		}
		there, changed, err := r.identify(t.Context())
		after(stepIdentify, err, changed == nil && len(there.vms) == 1 && r.cluster == "c", there, "capacity", "partner", "list", "desired", "list", "abort")

		err = r.announce(t.Context(), there)
		after(stepAnnounce, err, len(l.reports) == 1 && len(l.reports[0].Running) == 1 && l.reports[0].Index == 0, l.reports, "report")

		got, err := r.fetch(t.Context(), there)
		after(stepFetch, err, got.want.Index == 7 && got.changed != nil && len(got.there.vms) == 1 && !got.outdated, got, "desired", "stats")

		decided := r.decide(got)
		operations := "[cap ek-b: 1.0000 -> 0.5000 cores balloon ek-b: 1073741824 -> 536870912 bytes start ek-a generation 1 report a generation 1 running]"
		after(stepDecide, nil, fmt.Sprint(decided.ops) == operations, decided.ops)

		done := r.act(t.Context(), decided)
		after(stepAct, done.err, done.acted == 3 && len(done.statuses) == 1, done, "set CPU", "set balloon", "permit", "define", "start")

		err = r.report(t.Context(), decided, done)
		last := l.reports[len(l.reports)-1]
		after(stepReport, err, len(l.reports) == 2 && last.Index == 0 && last.Error == "" && last.Samples != nil, l.reports, "stats", "pressure", "report")
		if reported := l.reported(); !slices.Equal(reported, []string{"a running"}) {
			t.Errorf("reported %q", reported)
		}
	})
}

// changing are the calls that change what runs.
func changing(made []string) (out []string) {
	for _, call := range made {
		if slices.Contains([]string{"set CPU", "set balloon", "define", "start", "destroy"}, call) {
			out = append(out, call)
		}
	}
	return out
}

// A step that fails ends the round, which names it: no later step changes or reports anything, and nothing that was not done is
// reported. The next rounds make good for it.
func TestRoundEndsAtStepThatFails(t *testing.T) {
	all := []string{"set CPU", "set balloon", "define", "start"}
	for _, c := range []struct {
		fail    string // the call, and which of its kind
		step    step
		last    string   // call that the round makes
		changes []string // what the round does or tries to do
	}{
		{"capacity 1", stepIdentify, "report", nil}, // that the hypervisor does not answer is reported
		{"list 1", stepIdentify, "report", nil},
		{"desired 1", stepIdentify, "desired", nil},
		{"list 2", stepIdentify, "report", nil},
		{"abort 1", stepIdentify, "report", nil},
		{"report 1", stepAnnounce, "report", nil},
		{"desired 2", stepFetch, "desired", nil},
		{"stats 1", stepFetch, "report", nil},
		{"set CPU 1", stepAct, "report", all[:1]},
		{"set balloon 1", stepAct, "report", all[:2]},
		{"permit 1", stepAct, "report", all[:2]},
		{"define 1", stepAct, "report", all[:3]},
		{"start 1", stepAct, "report", all},
		{"report 2", stepReport, "report", all},
	} {
		t.Run(c.fail, func(t *testing.T) {
			inRound(t, func(t *testing.T, r *runner, l *tracedLeader, calls *calls) {
				calls.fail = c.fail
				r.unspoken = time.Now().Add(-unspokenFor) // else Report may be left to the next round
				end := r.round(t.Context())
				made := calls.take()
				if end.step != c.step || !errors.Is(end.err, errBroken) || end.again {
					t.Errorf("the round ended in step %s: %v; again: %v", end.step, end.err, end.again)
				}
				if diff := cmp.Diff(c.changes, changing(made)); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
				if made[len(made)-1] != c.last {
					t.Errorf("calls %q, want %s as the last", made, c.last)
				}
				if reported := l.reported(); slices.Contains(reported, "a running") {
					t.Errorf("reported %q, and the round failed", reported)
				}
				for _, report := range l.reports {
					if report.Index != 0 {
						t.Errorf("reported as in force: %+v", report)
					}
				}
				calls.fail = ""
				for n := 0; n == 0 || end.again; n++ {
					if end = r.round(t.Context()); end.err != nil || n > 5 {
						t.Fatalf("round %d after it ended in step %s: %v", n, end.step, end.err)
					}
					time.Sleep(time.Second) // sleep: in a bubble of synctest, where time is fake
				}
				vms, err := r.Hypervisor.List(t.Context())
				if err != nil || len(vms) != 2 || vms[slices.IndexFunc(vms, func(vm hypervisor.VM) bool { return vm.Identity.VM == "b" })].CPU.Cap != 0.5 {
					t.Errorf("in the end there are %+v, %v", vms, err)
				}
				if reported := l.reported(); !slices.Contains(reported, "a running") {
					t.Errorf("reported in the end: %q", reported)
				}
			})
		})
	}
}

// After a restore nothing is decided on a list from before it.
func TestRoundOfLaterEpochDecidesNothing(t *testing.T) {
	inRound(t, func(t *testing.T, r *runner, l *tracedLeader, c *calls) {
		there, _, err := r.identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.want.Epoch++
		if got, err := r.fetch(t.Context(), there); err != nil || !got.outdated {
			t.Errorf("Fetch returned %+v, %v", got, err)
		}
		l.want.Epoch++
		c.take()
		if end := r.round(t.Context()); end.step != stepFetch || end.err != nil || !end.again {
			t.Errorf("the round ended in step %s: %v; again: %v", end.step, end.err, end.again)
		}
		if made := changing(c.take()); made != nil {
			t.Errorf("it did %q", made)
		}
		if end := r.round(t.Context()); end.step == stepFetch || end.err != nil {
			t.Errorf("the next ended in step %s: %v", end.step, end.err)
		}
	})
}

// The log names the step at which a round ended.
func TestLogNamesStepThatFailed(t *testing.T) {
	inRound(t, func(t *testing.T, r *runner, l *tracedLeader, c *calls) {
		c.fail = "desired 2"
		var log strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		o := r.Options
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(ctx, o); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), `msg="round failed" host=h1 step=fetch error="desired state: desired: broken by a test`) {
			t.Errorf("the log does not name the step:\n%s", log.String())
		}
	})
}
