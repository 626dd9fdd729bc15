package simulated_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// tb is what testing.T and rapid.T have in common here.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// stepped is a world under a virtual clock; without a Timing it is one in which calls take no time.
func stepped(t tb, o simulated.Options) (*simulated.World, *simulated.Virtual) {
	t.Helper()
	clock := simulated.NewVirtual(start)
	o.Clock = clock
	if o.Timing == nil {
		o.Timing = &simulated.Timing{}
	}
	w, err := simulated.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return w, clock
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// run defines and starts a VM.
func run(t tb, w *simulated.World, host string, s hypervisor.Spec) {
	t.Helper()
	h := w.Host(host)
	must(t, h.Define(ctx, s))
	must(t, h.Start(ctx, s))
}

// used is the vCPU time of each VM of a host.
func used(t tb, w *simulated.World, host string) map[string]time.Duration {
	t.Helper()
	all, err := w.Host(host).Stats(ctx)
	must(t, err)
	r := make(map[string]time.Duration)
	for _, x := range all {
		r[x.VM] = x.VCPUTime
	}
	return r
}

// sized is a busy VM with a cap and weight.
func sized(id string, vcpus int, cap, weight float64) hypervisor.Spec {
	s := spec(id)
	s.VM, s.VCPUs, s.Boot.Cmdline = id, vcpus, ""
	s.CPU = hypervisor.CPU{Cap: cap, Weight: weight}
	return s
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]simulated.Options{
		"negative hosts":                         {Hosts: -1},
		"CPU not finite":                         {CPU: math.Inf(1)},
		"CPU no number":                          {CPU: math.NaN()},
		"no name":                                {Machines: []simulated.Machine{{CPU: 1, Memory: 1}}},
		"no memory":                              {Machines: []simulated.Machine{{Name: "a", CPU: 1}}},
		"equal names":                            {Machines: []simulated.Machine{{Name: "a", CPU: 1, Memory: 1}, {Name: "a", CPU: 1, Memory: 1}}},
		"state in a directory that is not there": {StateFile: scratch.Dir(t) + "/no/state"},
	} {
		if w, err := simulated.New(o); err == nil {
			t.Errorf("%s: made %v", name, w.Hosts())
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	w, err := simulated.New(simulated.Options{Timing: &simulated.Timing{}})
	must(t, err)
	if n := w.Hosts(); len(n) != 12 || n[0] != "h1" || n[11] != "h12" {
		t.Errorf("hosts are %v", n)
	}
	c, err := w.Host("h12").Capacity(ctx)
	must(t, err)
	if c.Name != "h12" || c.CPU != 32 || c.Memory != 128<<30 {
		t.Errorf("capacity is %+v", c)
	}
}

// Demand, cap and company change; the CPU time is what paper and pencil give.
func TestCPUTimeByHand(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 1, CPU: 2, Memory: 1 << 30, Workload: func(s hypervisor.Spec) simulated.Workload {
		if s.VM == "steps" {
			return simulated.Steps{{At: 10 * time.Second, Cores: 2}, {At: 20 * time.Second, Cores: 1}}
		}
		return simulated.FromCmdline(s)
	}})
	run(t, w, "h1", sized("steps", 2, 0, 1))
	run(t, w, "h1", sized("steady", 2, 1.5, 3))
	clock.Advance(10 * time.Second) // steady is alone, at its cap: 15 s
	clock.Advance(5 * time.Second)  // both want more than there is, 1 to 3: steps 2.5 s, steady 7.5 s
	must(t, w.Host("h1").SetCPU(ctx, "steady", hypervisor.CPU{Cap: 0.5, Weight: 3}))
	clock.Advance(5 * time.Second)  // steady 2.5 s, steps the other 1.5 cores: 7.5 s
	clock.Advance(10 * time.Second) // steps wants 1: 10 s, steady 5 s
	want := map[string]time.Duration{"steps": 20 * time.Second, "steady": 30 * time.Second}
	for id, got := range used(t, w, "h1") {
		if d := got - want[id]; d.Abs() > time.Microsecond {
			t.Errorf("%s used %v, want %v", id, got, want[id])
		}
	}
}

// Against a simulation in slots of 10 ms that knows nothing of events.
func TestCPUTimeAgainstSlots(t *testing.T) {
	t.Parallel()
	const slot = 10 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		loads := make(map[string]simulated.Steps)
		w, clock := stepped(t, simulated.Options{Hosts: 1, CPU: 3, Memory: 1 << 40, Workload: func(s hypervisor.Spec) simulated.Workload {
			return loads[s.VM]
		}})
		h := w.Host("h1")
		type guest struct {
			spec hypervisor.Spec
			born int // slot
			used float64
		}
		var guests []*guest
		at, born := 0, 0
		last := map[string]time.Duration{}
		cores := rapid.SampledFrom([]float64{0, 0.25, 0.5, 1, 2})
		draw := func() hypervisor.CPU {
			return hypervisor.CPU{Cap: cores.Draw(t, "cap"), Weight: rapid.Float64Range(0.1, 4).Draw(t, "weight")}
		}
		pick := func() *guest {
			if len(guests) == 0 {
				return nil
			}
			return guests[rapid.IntRange(0, len(guests)-1).Draw(t, "guest")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				born++
				id := fmt.Sprintf("vm%d", born)
				var steps simulated.Steps
				for when := time.Duration(0); rapid.Bool().Draw(t, "step"); {
					steps = append(steps, simulated.Step{At: when, Cores: cores.Draw(t, "cores")})
					when += time.Duration(rapid.IntRange(1, 30).Draw(t, "slots")) * slot
				}
				loads[id] = steps
				s := sized(id, rapid.IntRange(1, 2).Draw(t, "vcpus"), 0, 0)
				s.CPU = draw()
				run(t, w, "h1", s)
				guests = append(guests, &guest{spec: s, born: at})
			},
			"cap": func(t *rapid.T) {
				if g := pick(); g != nil {
					g.spec.CPU = draw()
					must(t, h.SetCPU(ctx, g.spec.VM, g.spec.CPU))
				}
			},
			"destroy": func(t *rapid.T) {
				if g := pick(); g != nil {
					must(t, h.Destroy(ctx, g.spec.VM))
					guests = slices.DeleteFunc(guests, func(x *guest) bool { return x == g })
					delete(last, g.spec.VM)
				}
			},
			"wait": func(t *rapid.T) {
				n := rapid.IntRange(1, 20).Draw(t, "slots")
				clock.Advance(time.Duration(n) * slot)
				for range n {
					limits, weights := make([]float64, len(guests)), make([]float64, len(guests))
					for i, g := range guests {
						want, _ := loads[g.spec.VM].Demand(time.Duration(at-g.born) * slot)
						limits[i] = min(want, float64(g.spec.VCPUs))
						if g.spec.CPU.Cap > 0 {
							limits[i] = min(limits[i], g.spec.CPU.Cap)
						}
						weights[i] = g.spec.CPU.Weight
					}
					for i, x := range fill(3, limits, weights) {
						guests[i].used += x * slot.Seconds()
					}
					at++
				}
			},
			"": func(t *rapid.T) {
				all := used(t, w, "h1")
				if len(all) != len(guests) {
					t.Fatalf("%d sampled of %d", len(all), len(guests))
				}
				for _, g := range guests {
					got := all[g.spec.VM]
					if got < last[g.spec.VM] {
						t.Fatalf("%s: CPU time fell from %v to %v", g.spec.VM, last[g.spec.VM], got)
					}
					last[g.spec.VM] = got
					if math.Abs(got.Seconds()-g.used) > 1e-6 {
						t.Fatalf("%s used %v s, slots say %v", g.spec.VM, got.Seconds(), g.used)
					}
				}
			},
		})
	})
}

// fill shares CPU by giving each VM a little at a time per weight, until
// no VM wants more or no CPU is left.
func fill(capacity float64, limits, weights []float64) []float64 {
	got := make([]float64, len(limits))
	for range len(limits) + 1 {
		total, left := 0.0, capacity
		for i := range got {
			left -= got[i]
			if got[i] < limits[i] {
				total += weights[i]
			}
		}
		if total == 0 || left <= 1e-12 {
			break
		}
		rise := left / total // per weight, but no further than to where the first is full
		for i := range got {
			if got[i] < limits[i] {
				rise = min(rise, (limits[i]-got[i])/weights[i])
			}
		}
		for i := range got {
			if got[i] < limits[i] {
				if got[i] += rise * weights[i]; limits[i]-got[i] < 1e-12 {
					got[i] = limits[i]
				}
			}
		}
	}
	return got
}

// Looking must not change what is seen.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	see := func(every time.Duration) map[string]time.Duration {
		w, clock := stepped(t, simulated.Options{Hosts: 1, CPU: 1.7, Memory: 1 << 40, Workload: func(s hypervisor.Spec) simulated.Workload {
			return simulated.Trace{Interval: 333 * time.Millisecond, Cores: []float64{0.1, 0.9, 0.37, 1}}
		}})
		for i := range 7 {
			run(t, w, "h1", sized(fmt.Sprint("vm", i), 1, 0.31*float64(i), 1+float64(i)))
			clock.Advance(111 * time.Millisecond)
		}
		for passed := time.Duration(0); passed < time.Minute; passed += every {
			clock.Advance(every)
			used(t, w, "h1")
		}
		return used(t, w, "h1")
	}
	often, once := see(10*time.Millisecond), see(time.Minute)
	for id := range once {
		if often[id] != once[id] {
			t.Errorf("%s: %v if looked at often, %v if once", id, often[id], once[id])
		}
	}
}

func TestBootBalloonAndShutdown(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 1, CPU: 4, Memory: 1 << 40, Timing: &simulated.Timing{
		Boot: 2 * time.Second, Shutdown: time.Second, Balloon: 64 << 20,
	}})
	h := w.Host("h1")
	events, err := h.Events(ctx)
	must(t, err)
	s := sized("vm", 1, 0, 1)
	s.Memory, s.Balloon = 256<<20, 128<<20
	run(t, w, "h1", s)
	for _, x := range []struct {
		after   time.Duration // of the last
		balloon int64
		used    time.Duration
	}{
		{0, 256 << 20, 0},
		{2 * time.Second, 256 << 20, 0},
		{time.Second, 192 << 20, time.Second},
		{time.Second, 128 << 20, 2 * time.Second},
		{time.Hour, 128 << 20, time.Hour + 2*time.Second},
	} {
		clock.Advance(x.after)
		vms, err := h.List(ctx)
		must(t, err)
		if len(vms) != 1 || vms[0].Balloon != x.balloon {
			t.Errorf("%v: %+v, want a balloon of %d", w.Now().Sub(start), vms, x.balloon)
		}
		if got := used(t, w, "h1")["vm"]; got != x.used {
			t.Errorf("%v: used %v, want %v", w.Now().Sub(start), got, x.used)
		}
	}
	must(t, h.Stop(ctx, "vm"))
	must(t, h.Stop(ctx, "vm")) // asking twice is asking
	clock.Advance(999 * time.Millisecond)
	if vms, err := h.List(ctx); err != nil || len(vms) != 1 || vms[0].State != hypervisor.Stopping {
		t.Errorf("before its end: %+v, %v", vms, err)
	}
	clock.Advance(time.Millisecond)
	if vms, err := h.List(ctx); err != nil || len(vms) != 0 {
		t.Errorf("after its end: %+v, %v", vms, err)
	}

	// A guest asked to stop while it boots does so once it has booted.
	run(t, w, "h1", s)
	must(t, h.Stop(ctx, "vm"))
	clock.Advance(3*time.Second - 1)
	if vms, _ := h.List(ctx); len(vms) != 1 {
		t.Errorf("gone before it booted and shut down")
	}
	clock.Advance(1)
	if vms, _ := h.List(ctx); len(vms) != 0 {
		t.Errorf("still there: %+v", vms)
	}

	want := []struct {
		kind hypervisor.EventKind
		at   time.Duration
	}{
		{hypervisor.Started, 0}, {hypervisor.BalloonMoved, 4 * time.Second}, {hypervisor.Stopped, time.Hour + 5*time.Second},
		{hypervisor.Started, time.Hour + 5*time.Second}, {hypervisor.Stopped, time.Hour + 8*time.Second},
	}
	for i, x := range want {
		e := <-events
		if e.Kind != x.kind || e.At.Sub(start) != x.at || e.VM != "vm" {
			t.Errorf("event %d is %+v (%v in), want %s at %v", i, e, e.At.Sub(start), x.kind, x.at)
		}
	}
}

// A thousand VMs on twelve hosts with the usual latencies, in a bubble: how
// long they take is then exact.
func TestThousandStartInSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := simulated.New(simulated.Options{Seed: 1})
		must(t, err)
		begin := time.Now()
		done := make(chan error)
		hosts := w.Hosts()
		for i, name := range hosts {
			go func() {
				h := w.Host(name)
				for n := i; n < 1000; n += len(hosts) {
					s := sized(fmt.Sprintf("vm-%d", n), 1, 0.3, 0.3)
					s.Balloon = s.Memory / 2
					if err := h.Define(ctx, s); err != nil {
						done <- err
						return
					}
					if err := h.Start(ctx, s); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range hosts {
			must(t, <-done)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		n := 0
		for _, name := range hosts {
			vms, err := w.Host(name).List(ctx)
			must(t, err)
			for _, vm := range vms {
				n++
				if vm.Balloon != 64<<20 || vm.State != hypervisor.Running {
					t.Errorf("after a minute: %+v", vm)
				}
			}
		}
		if n != 1000 {
			t.Errorf("%d VMs run", n)
		}
		must(t, w.Close())
	})
}

func TestSeedDecidesJitter(t *testing.T) {
	t.Parallel()
	boots := func(seed uint64) (r []time.Duration) {
		w, clock := stepped(t, simulated.Options{Hosts: 1, CPU: 100, Memory: 1 << 40, Seed: seed,
			Timing: &simulated.Timing{Boot: 10 * time.Second, Jitter: 0.3}})
		for i := range 20 {
			run(t, w, "h1", sized(fmt.Sprint("vm", i), 1, 0, 1))
		}
		clock.Advance(20 * time.Second)
		all := used(t, w, "h1")
		for i := range 20 {
			r = append(r, 20*time.Second-all[fmt.Sprint("vm", i)])
		}
		return r
	}
	a, again, b := boots(1), boots(1), boots(2)
	if !slices.Equal(a, again) {
		t.Errorf("one seed, two worlds: %v and %v", a, again)
	}
	if slices.Equal(a, b) {
		t.Errorf("two seeds, one world: %v", a)
	}
	if low, high := slices.Min(a), slices.Max(a); low < 7*time.Second || high > 13*time.Second || high-low < time.Second {
		t.Errorf("boots between %v and %v", low, high)
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 2, CPU: 4, Memory: 1 << 40, Timing: &simulated.Timing{Balloon: 1 << 20}})
	s := sized("vm", 2, 0.5, 1)
	s.Balloon = s.Memory / 2
	run(t, w, "h1", s)
	clock.Advance(32 * time.Second)
	must(t, w.Host("h1").SetCPU(ctx, "vm", hypervisor.CPU{Cap: 1.5, Weight: 1}))
	must(t, w.Host("h1").SetCPU(ctx, "vm", hypervisor.CPU{Cap: 0.1, Weight: 1}))
	run(t, w, "h1", sized("other", 1, 0, 1)) // while vm has given back 32 of 64 MiB
	clock.Advance(time.Hour)
	run(t, w, "h1", sized("last", 1, 0.1, 1))
	must(t, w.Host("h1").Destroy(ctx, "last"))
	must(t, w.Host("h1").Destroy(ctx, "other"))
	must(t, w.Host("h1").SetBalloon(ctx, "vm", s.Memory)) // counts before it is there
	a := w.Audit()
	if got, want := a.Peaks["h1"], (simulated.Peak{CPU: 1.5, Memory: (64 + 128 + 128) << 20}); got != want {
		t.Errorf("peak is %+v, want %+v", got, want)
	}
	if len(a.Doubled) != 0 {
		t.Errorf("doubled: %v", a.Doubled)
	}
	run(t, w, "h2", s)
	if got := w.Audit().Peaks["h2"].Memory; got != s.Memory {
		t.Errorf("a guest that has not given back anything yet counts %d, want %d", got, s.Memory)
	}
	if a := w.Audit(); !slices.Equal(a.Doubled, []string{"vm on h1 and h2"}) {
		t.Errorf("doubled: %v", a.Doubled)
	}
}
