package simulated_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

func TestInject(t *testing.T) {
	t.Parallel()
	own := errors.New("own error")
	for _, x := range []struct {
		name  string
		fault simulated.Fault
		fails []int // of six SetCPU calls, with a List before each
		lists []int // of these List calls
		err   error
	}{
		{"next call", simulated.Fault{Call: simulated.CallSetCPU}, []int{0}, nil, hypervisor.ErrUnavailable},
		{"third call", simulated.Fault{Call: simulated.CallSetCPU, Nth: 3, Err: own}, []int{2}, nil, own},
		{"two in a row", simulated.Fault{Call: simulated.CallSetCPU, Nth: 2, Times: 2}, []int{1, 2}, nil, hypervisor.ErrUnavailable},
		{"for ever", simulated.Fault{Call: simulated.CallSetCPU, Nth: 5, Times: -1}, []int{4, 5}, nil, hypervisor.ErrUnavailable},
		{"any call", simulated.Fault{Nth: 2, Times: 2}, []int{0}, []int{1}, hypervisor.ErrUnavailable},
		{"other call", simulated.Fault{Call: simulated.CallStats, Times: -1}, nil, nil, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			w, _ := stepped(t, simulated.Options{Hosts: 2})
			run(t, w, "h1", sized("vm", 1, 0, 1))
			must(t, w.Inject("h1", x.fault))
			h := w.Host("h1")
			var fails, lists []int
			for i := range 6 {
				if _, err := h.List(ctx); err != nil {
					lists = append(lists, i)
				}
				if err := h.SetCPU(ctx, "vm", hypervisor.CPU{Cap: 0.5}); err != nil {
					fails = append(fails, i)
					if !errors.Is(err, x.err) {
						t.Errorf("call %d: %v, want %v", i, err, x.err)
					}
				}
				if _, err := w.Host("h2").List(ctx); err != nil {
					t.Errorf("another host was struck: %v", err)
				}
			}
			if !equal(fails, x.fails) || !equal(lists, x.lists) {
				t.Errorf("SetCPU failed at %v, want %v; List at %v, want %v", fails, x.fails, lists, x.lists)
			}
		})
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestLostAnswer(t *testing.T) {
	t.Parallel()
	w, _ := stepped(t, simulated.Options{Hosts: 1})
	h, s := w.Host("h1"), sized("vm", 1, 0, 1)
	must(t, h.Define(ctx, s))
	must(t, w.Inject("h1", simulated.Fault{Call: simulated.CallStart, After: true}))
	if err := h.Start(ctx, s); !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Errorf("Start: %v", err)
	}
	if vms, _ := h.List(ctx); len(vms) != 1 {
		t.Errorf("the call took no effect: %+v", vms)
	}
	if err := h.Start(ctx, s); !errors.Is(err, hypervisor.ErrExists) {
		t.Errorf("second Start: %v", err)
	}
}

func TestHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := simulated.New(simulated.Options{Hosts: 1, Timing: &simulated.Timing{Timeout: 7 * time.Second}})
		must(t, err)
		h := w.Host("h1")
		must(t, w.Inject("h1", simulated.Fault{Call: simulated.CallList, Hang: true, Times: 2}))
		begin := time.Now()
		if _, err := h.List(ctx); !errors.Is(err, hypervisor.ErrUnavailable) || time.Since(begin) != 7*time.Second {
			t.Errorf("List: %v after %v", err, time.Since(begin))
		}
		begin = time.Now()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := h.List(short); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("List: %v after %v", err, time.Since(begin))
		}
		if _, err := h.List(ctx); err != nil {
			t.Errorf("third List: %v", err)
		}
	})
}

// A call that is stuck goes on after its time-out, until the daemon is started again.
func TestStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := simulated.New(simulated.Options{Hosts: 1})
		must(t, err)
		h := w.Host("h1")
		s := sized("vm", 1, 0, 1)
		must(t, h.Define(ctx, s))
		must(t, w.Inject("h1", simulated.Fault{Call: simulated.CallStart, Hang: true, Stuck: true}))
		if err := h.Start(ctx, s); !errors.Is(err, hypervisor.ErrUnavailable) || !strings.Contains(err.Error(), "start vm has been waiting for 10s") {
			t.Errorf("Start: %v", err)
		}
		if got := hypervisor.HangingOf(h); len(got) != 1 || got[0].Call != "start vm" || got[0].VM != "vm" {
			t.Errorf("hanging: %+v", got)
		}
		must(t, w.Disconnect("h1"))
		must(t, w.Reconnect("h1"))
		if got := hypervisor.HangingOf(h); len(got) != 0 {
			t.Errorf("hanging after a restart of the daemon: %+v", got)
		}
		must(t, h.Start(ctx, s))
	})
}

func TestPowerOff(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 2})
	h := w.Host("h1")
	events, err := h.Events(ctx)
	must(t, err)
	s := sized("vm", 1, 0, 1)
	run(t, w, "h1", s)
	console, err := h.Console(ctx, "vm")
	must(t, err)
	must(t, w.PowerOff("h1"))
	if _, err := io.ReadAll(console); err != nil {
		t.Errorf("the console's end: %v", err)
	}
	if _, err := h.List(ctx); !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	if err := h.Start(ctx, s); !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Errorf("Start: %v", err)
	}
	clock.Advance(time.Hour)
	must(t, w.PowerOn("h1"))
	if vms, err := h.List(ctx); err != nil || len(vms) != 0 {
		t.Errorf("after power came back: %+v, %v", vms, err)
	}
	if err := h.Start(ctx, s); err != nil { // its disk is still there
		t.Errorf("Start: %v", err)
	}
	if got := used(t, w, "h1")["vm"]; got != 0 {
		t.Errorf("a VM that boots again has used %v", got)
	}
	for i, want := range []hypervisor.EventKind{hypervisor.Started, hypervisor.Disconnected, hypervisor.Resync, hypervisor.Started} {
		if e := <-events; e.Kind != want {
			t.Errorf("event %d is %+v, want %s", i, e, want)
		}
	}
	if len(w.Audit().Doubled) != 0 {
		t.Errorf("doubled: %v", w.Audit().Doubled)
	}
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 1})
	h := w.Host("h1")
	events, err := h.Events(ctx)
	must(t, err)
	run(t, w, "h1", sized("vm", 1, 0, 1))
	run(t, w, "h1", sized("lost", 1, 0, 1))
	must(t, w.Disconnect("h1"))
	if _, err := h.List(ctx); !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	must(t, w.Crash("h1", "lost")) // no event is sent
	clock.Advance(time.Minute)
	must(t, w.Reconnect("h1"))
	if got := used(t, w, "h1"); len(got) != 1 || got["vm"] != time.Minute {
		t.Errorf("used %v, want a minute of vm", got)
	}
	must(t, w.Crash("h1", "vm"))
	for i, want := range []hypervisor.EventKind{hypervisor.Started, hypervisor.Started, hypervisor.Disconnected, hypervisor.Resync, hypervisor.Stopped} {
		if e := <-events; e.Kind != want {
			t.Errorf("event %d is %+v, want %s", i, e, want)
		} else if want == hypervisor.Stopped && e.Reason != "crashed" {
			t.Errorf("event %d is %+v", i, e)
		}
	}
}

func TestStuckBalloon(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 1, Timing: &simulated.Timing{Balloon: 1 << 20}})
	h := w.Host("h1")
	s := sized("vm", 1, 0, 1)
	run(t, w, "h1", s)
	must(t, h.SetBalloon(ctx, "vm", s.Memory-64<<20))
	clock.Advance(16 * time.Second)
	must(t, w.StickBalloon("h1", "vm", true))
	clock.Advance(time.Hour)
	must(t, h.SetBalloon(ctx, "vm", s.Memory/2)) // succeeds without an effect
	clock.Advance(time.Hour)
	balloon := func() int64 {
		vms, err := h.List(ctx)
		must(t, err)
		return vms[0].Balloon
	}
	if got := balloon(); got != s.Memory-16<<20 {
		t.Errorf("stuck at %d, want %d", got, s.Memory-16<<20)
	}
	must(t, w.StickBalloon("h1", "vm", false))
	clock.Advance(8 * time.Second)
	if got := balloon(); got != s.Memory-24<<20 {
		t.Errorf("let go for 8 s: %d, want %d", got, s.Memory-24<<20)
	}
}

func TestIgnoreStopAndLoseEvents(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 1})
	h := w.Host("h1")
	events, err := h.Events(ctx)
	must(t, err)
	must(t, w.LoseEvents("h1", 1))
	run(t, w, "h1", sized("vm", 1, 0, 1)) // the event of its start is lost
	must(t, w.IgnoreStop("h1", "vm", true))
	must(t, h.Stop(ctx, "vm"))
	clock.Advance(time.Hour)
	if vms, _ := h.List(ctx); len(vms) != 1 || vms[0].State != hypervisor.Running {
		t.Errorf("List is %+v", vms)
	}
	must(t, w.IgnoreStop("h1", "vm", false))
	must(t, h.Stop(ctx, "vm"))
	if e := <-events; e.Kind != hypervisor.Stopped {
		t.Errorf("first event heard is %+v", e)
	}
}

func TestSlowReaderMustResync(t *testing.T) {
	t.Parallel()
	w, _ := stepped(t, simulated.Options{Hosts: 1})
	h := w.Host("h1")
	events, err := h.Events(ctx)
	must(t, err)
	s := sized("vm", 1, 0, 1)
	must(t, h.Define(ctx, s))
	for range 2000 {
		must(t, h.Start(ctx, s))
		must(t, h.Destroy(ctx, s.VM))
	}
	must(t, h.Close())
	_, again := <-events // Close ends the channel even if no one reads it
	for again {
		_, again = <-events
	}

	h = w.Host("h1")
	events, err = h.Events(ctx)
	must(t, err)
	for range 2000 {
		must(t, h.Start(ctx, s))
		must(t, h.Destroy(ctx, s.VM))
	}
	must(t, h.Start(ctx, s))
	resync := false
	for e := range events {
		resync = resync || e.Kind == hypervisor.Resync
		if resync && e.Kind == hypervisor.Started {
			break // events after the gap are sent again
		}
	}
}

func TestUnknownHost(t *testing.T) {
	t.Parallel()
	w, _ := stepped(t, simulated.Options{Hosts: 1})
	if _, err := w.Host("h2").List(ctx); !errors.Is(err, hypervisor.ErrUnavailable) || !strings.Contains(err.Error(), "h2") {
		t.Errorf("List: %v", err)
	}
	for name, err := range map[string]error{
		"Inject": w.Inject("h2", simulated.Fault{}), "PowerOff": w.PowerOff("h2"), "Crash": w.Crash("h1", "no"),
		"StickBalloon": w.StickBalloon("h1", "no", true), "IgnoreStop": w.IgnoreStop("h1", "no", true),
		"RemoveForeign": w.RemoveForeign("h1", "no"), "AddForeign": w.AddForeign("h1", hypervisor.Spec{}),
	} {
		if err == nil {
			t.Errorf("%s of nothing is no error", name)
		}
	}
}
