package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// eventually looks at a condition until it holds. look says what it saw, for
// the failure's text.
func (s Setup) eventually(t *testing.T, what string, look func() (ok bool, observed string)) {
	t.Helper()
	deadline := time.NewTimer(s.Wait)
	defer deadline.Stop()
	tick := time.NewTicker(s.Poll)
	defer tick.Stop()
	for {
		ok, observed := look()
		if ok {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %v; last seen: %s", what, s.Wait, observed)
		case <-tick.C:
		}
	}
}

// find is the VM of that id in the host's list; ok is false if there is none.
func find(t *testing.T, h hypervisor.Host, id string) (vm hypervisor.VM, ok bool) {
	t.Helper()
	vms, err := h.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, v := range vms {
		if !v.Foreign && v.Identity.VM == id {
			if ok {
				t.Fatalf("List names VM %s twice: %+v", id, vms)
			}
			vm, ok = v, true
		}
	}
	return vm, ok
}

// must is find for a VM that has to be there.
func must(t *testing.T, h hypervisor.Host, id string) hypervisor.VM {
	t.Helper()
	vm, ok := find(t, h, id)
	if !ok {
		t.Fatalf("List does not name VM %s, which runs", id)
	}
	return vm
}

// stat is the sample of one VM.
func stat(t *testing.T, h hypervisor.Host, id string) (hypervisor.Stats, bool) {
	t.Helper()
	all, err := h.Stats(t.Context())
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	for _, x := range all {
		if x.VM == id {
			return x, true
		}
	}
	return hypervisor.Stats{}, false
}

// rate is the CPU, in cores, that a VM uses over at least window of the host's
// own time: its vCPUs alone, and with the emulator's threads.
func (s Setup) rate(t *testing.T, id string, window time.Duration) (vcpus, total float64) {
	t.Helper()
	first, ok := stat(t, s.Host, id)
	if !ok {
		t.Fatalf("Stats does not cover VM %s, which runs", id)
	}
	last := first
	s.eventually(t, "a window of samples", func() (bool, string) {
		now, ok := stat(t, s.Host, id)
		if !ok {
			t.Fatalf("VM %s vanished from Stats", id)
		}
		if now.At.Before(last.At) || now.VCPUTime < last.VCPUTime {
			t.Fatalf("VM %s: sample went backwards: %v at %v, then %v at %v", id, last.VCPUTime, last.At, now.VCPUTime, now.At)
		}
		if now.TotalTime < now.VCPUTime {
			t.Fatalf("VM %s: total time %v is less than its vCPUs' %v", id, now.TotalTime, now.VCPUTime)
		}
		last = now
		d := now.At.Sub(first.At)
		if d < window {
			return false, fmt.Sprintf("%v of %v", d, window)
		}
		vcpus, total = float64(now.VCPUTime-first.VCPUTime)/float64(d), float64(now.TotalTime-first.TotalTime)/float64(d)
		return true, ""
	})
	return vcpus, total
}

// uses checks that want cores lie between what a VM's vCPUs use and what they
// use with the emulator's threads: a cap covers all of these, a guest without
// one keeps its vCPUs busy. A busy machine may spoil one window, so it looks at
// up to three; a cap that is wrong spoils them all.
func (s Setup) uses(t *testing.T, id string, want float64) {
	t.Helper()
	var seen []string
	for range 3 {
		vcpus, total := s.rate(t, id, s.Window)
		if vcpus <= want+s.Tolerance && total >= want-s.Tolerance {
			return
		}
		seen = append(seen, fmt.Sprintf("%.3f, %.3f in all", vcpus, total))
	}
	t.Errorf("the vCPUs of VM %s use %q cores in windows of %v, want %.3f within %.3f", id, seen, s.Window, want, s.Tolerance)
}

// busy waits until the guest has booted and computes: until it uses most of
// what it may.
func (s Setup) busy(t *testing.T, id string, may float64) {
	t.Helper()
	s.eventually(t, "VM "+id+" becomes busy", func() (bool, string) {
		got, _ := s.rate(t, id, s.Window/4)
		return got > may-max(s.Tolerance, may/4), fmt.Sprintf("%.3f cores of %.3f", got, may)
	})
}

// gone waits until a VM is no longer listed.
func (s Setup) gone(t *testing.T, h hypervisor.Host, id string) {
	t.Helper()
	s.eventually(t, "VM "+id+" goes", func() (bool, string) {
		vm, ok := find(t, h, id)
		return !ok, fmt.Sprintf("%+v", vm)
	})
}

// take removes a VM at the end of a test whatever became of it.
func take(t *testing.T, h hypervisor.Host, spec hypervisor.Spec, bound time.Duration) {
	t.Cleanup(func() {
		// t.Context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		if err := h.Destroy(ctx, spec.VM); err != nil {
			t.Errorf("Destroy %s at the end: %v", spec.VM, err)
		}
		if err := h.Undefine(ctx, spec); err != nil {
			t.Errorf("Undefine %s at the end: %v", spec.VM, err)
		}
	})
}

// boot defines and starts a VM and has it removed when the test ends.
func (s Setup) boot(t *testing.T, spec hypervisor.Spec) {
	t.Helper()
	take(t, s.Host, spec, s.Wait)
	if err := s.Host.Define(t.Context(), spec); err != nil {
		t.Fatalf("Define %s: %v", spec.VM, err)
	}
	if err := s.Host.Start(t.Context(), spec); err != nil {
		t.Fatalf("Start %s: %v", spec.VM, err)
	}
}

// is checks an error's kind.
func is(t *testing.T, doing string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: error is %v, want one that is %q", doing, got, want)
	}
}

// near says whether a cap or weight read back is the one that was set: hosts
// round them to whole microseconds of quota and whole shares.
func near(a, b float64) bool { return math.Abs(a-b) <= 0.011+0.01*math.Abs(b) }

// events has the events that a host sent since watch returned.
type events struct {
	mu   sync.Mutex
	all  []hypervisor.Event
	more chan struct{} // closed and replaced at each event
	done chan struct{} // closed with the host's channel
}

func watch(t *testing.T, ctx context.Context, h hypervisor.Host) *events {
	t.Helper()
	c, err := h.Events(ctx)
	if err != nil {
		t.Fatalf("Events: %v", err)
	}
	w := &events{more: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for e := range c {
			w.mu.Lock()
			w.all = append(w.all, e)
			close(w.more)
			w.more = make(chan struct{})
			w.mu.Unlock()
		}
	}()
	return w
}

// mark is where the record stands now: await looks only at what came after it.
func (w *events) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// since is the events that came after a mark, and a channel that is closed when there are more.
func (w *events) since(mark int) ([]hypervisor.Event, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]hypervisor.Event(nil), w.all[mark:]...), w.more
}

// await waits for an event of a kind about a VM.
func (w *events) await(t *testing.T, bound time.Duration, mark int, kind hypervisor.EventKind, id string) hypervisor.Event {
	t.Helper()
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	for {
		got, more := w.since(mark)
		for _, e := range got {
			if e.Kind == kind && e.VM == id {
				return e
			}
		}
		select {
		case <-more:
		case <-w.done:
			t.Fatalf("the channel of events closed before %s of VM %q; got %+v", kind, id, got)
		case <-deadline.C:
			t.Fatalf("no event %s of VM %q within %v; got %+v", kind, id, bound, got)
		}
	}
}

// none checks that no event of a kind was sent about a VM.
func (w *events) none(t *testing.T, mark int, kind hypervisor.EventKind, id string) {
	t.Helper()
	got, _ := w.since(mark)
	for _, e := range got {
		if e.Kind == kind && e.VM == id {
			t.Errorf("event %+v, which should not have happened", e)
		}
	}
}
