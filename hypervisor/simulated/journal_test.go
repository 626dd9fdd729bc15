package simulated_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

// picture is all that can be observed of a world.
func picture(t tb, w *simulated.World) string {
	t.Helper()
	var b strings.Builder
	for _, name := range w.Hosts() {
		vms, err := w.Host(name).List(ctx)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", name, err)
			continue
		}
		stats, err := w.Host(name).Stats(ctx)
		must(t, err)
		fmt.Fprintf(&b, "%s\n", name)
		for _, vm := range vms {
			fmt.Fprintf(&b, "  %+v\n", vm)
		}
		for _, s := range stats {
			// A restored world counts CPU time from another instant: the sum may be
			// rounded otherwise in the last ns.
			s.VCPUTime, s.TotalTime = s.VCPUTime.Round(time.Microsecond), s.TotalTime.Round(time.Microsecond)
			fmt.Fprintf(&b, "  %+v\n", s)
		}
	}
	return b.String()
}

// after goes on with a copy of a state file, as a process would after the last
// was killed, at the time of the old world's clock plus d.
func after(t tb, file, dir string, o simulated.Options, at time.Time, d time.Duration) (*simulated.World, *simulated.Virtual) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	copied := filepath.Join(dir, "copy")
	must(t, os.WriteFile(copied, data, 0o600))
	clock := simulated.NewVirtual(at.Add(d))
	o.Clock, o.StateFile = clock, copied
	if o.Timing == nil {
		o.Timing = &simulated.Timing{}
	}
	w, err := simulated.New(o)
	must(t, err)
	return w, clock
}

// The process may be killed at any moment between two calls. The world that is restored is the same,
// whenever it is read again.
func TestRestoreProperty(t *testing.T) {
	t.Parallel()
	top := scratch.Dir(t)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(top, "")
		must(t, err)
		file := filepath.Join(dir, "state")
		o := simulated.Options{
			Hosts: 2, CPU: 2, Memory: 1 << 40, StateFile: file,
			Workload: func(s hypervisor.Spec) simulated.Workload {
				return simulated.Trace{Interval: 1700 * time.Millisecond, Cores: []float64{float64(len(s.VM)), 0.3, 1}}
			},
			// A link so fast that a migration never waits for the clock.
			Timing: &simulated.Timing{Balloon: 16 << 20, Link: 1 << 62, Shutdown: 2 * time.Second},
		}
		w, clock := stepped(t, o)
		defer func() { must(t, w.Close()) }()
		n := 0
		host := func() string { return rapid.SampledFrom(w.Hosts()).Draw(t, "host") }
		vm := func(h string) (hypervisor.VM, bool) {
			vms, err := w.Host(h).List(ctx)
			if err != nil || len(vms) == 0 {
				return hypervisor.VM{}, false
			}
			return vms[rapid.IntRange(0, len(vms)-1).Draw(t, "vm")], true
		}
		any := func(f func(h hypervisor.Host, name string, vm hypervisor.VM)) func(*rapid.T) {
			return func(*rapid.T) {
				name := host()
				if v, ok := vm(name); ok && !v.Foreign {
					f(w.Host(name), name, v)
				}
			}
		}
		on := func(f func(h hypervisor.Host, name string, vm hypervisor.VM)) func(*rapid.T) {
			return any(func(h hypervisor.Host, name string, vm hypervisor.VM) {
				if !vm.Leftover {
					f(h, name, vm)
				}
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				n++
				s := sized(fmt.Sprint("vm", n), rapid.IntRange(1, 3).Draw(t, "vcpus"), float64(n%3)/2, float64(n%4))
				s.Balloon -= int64(n%3) << 20
				h := host()
				if w.Host(h).Define(ctx, s) == nil {
					must(t, w.Host(h).Start(ctx, s))
				}
			},
			"foreign": func(t *rapid.T) {
				n++
				if err := w.AddForeign(host(), spec(fmt.Sprint("other", n))); err != nil && !errors.Is(err, hypervisor.ErrUnavailable) {
					t.Fatalf("%v", err)
				}
			},
			"cpu": on(func(h hypervisor.Host, _ string, vm hypervisor.VM) {
				must(t, h.SetCPU(ctx, vm.Identity.VM, hypervisor.CPU{Cap: float64(n%5) / 4, Weight: 1}))
			}),
			"balloon": on(func(h hypervisor.Host, _ string, vm hypervisor.VM) {
				must(t, h.SetBalloon(ctx, vm.Identity.VM, vm.Memory-rapid.Int64Range(0, vm.Memory/2).Draw(t, "less")))
			}),
			"stop":    on(func(h hypervisor.Host, _ string, vm hypervisor.VM) { must(t, h.Stop(ctx, vm.Identity.VM)) }),
			"resume":  any(func(h hypervisor.Host, _ string, vm hypervisor.VM) { must(t, h.Resume(ctx, vm.Identity.VM)) }),
			"destroy": any(func(h hypervisor.Host, _ string, vm hypervisor.VM) { must(t, h.Destroy(ctx, vm.Identity.VM)) }),
			"crash":   on(func(_ hypervisor.Host, name string, vm hypervisor.VM) { must(t, w.Crash(name, vm.Identity.VM)) }),
			"move": on(func(h hypervisor.Host, name string, vm hypervisor.VM) {
				to := map[string]string{"h1": "h2", "h2": "h1"}[name]
				fault := rapid.SampledFrom([]func(string, int) error{nil, w.KeepSources, w.LoseAnswer}).Draw(t, "fault")
				if fault != nil {
					must(t, fault(name, 1))
				}
				_, err := h.Migrate(ctx, vm.Identity.VM, hypervisor.Migration{To: to, Paused: rapid.Bool().Draw(t, "paused")})
				if err != nil && !errors.Is(err, hypervisor.ErrUnavailable) && !errors.Is(err, hypervisor.ErrExists) && vm.State != hypervisor.Paused {
					t.Fatalf("%v", err)
				}
				must(t, w.KeepSources(name, 0))
				must(t, w.LoseAnswer(name, 0))
			}),
			"power": func(t *rapid.T) {
				name := host()
				if rapid.IntRange(0, 5).Draw(t, "off") == 0 {
					must(t, w.PowerOff(name))
				} else {
					must(t, w.PowerOn(name))
				}
			},
			"compact": func(t *rapid.T) { must(t, simulated.Compact(w)) },
			"wait": func(t *rapid.T) {
				clock.Advance(time.Duration(rapid.Int64Range(0, 5e9).Draw(t, "ns")))
			},
			"": func(t *rapid.T) {
				same, later := after(t, file, dir, o, clock.Now(), 0)
				if diff := cmp.Diff(picture(t, w), picture(t, same)); diff != "" {
					t.Fatalf("another world after a kill:\n%s", diff)
				}
				later.Advance(3 * time.Second)
				want := picture(t, same)
				must(t, same.Close())
				gap, _ := after(t, file, dir, o, clock.Now(), 3*time.Second)
				if diff := cmp.Diff(want, picture(t, gap)); diff != "" {
					t.Fatalf("a world that was not looked at for 3 s differs:\n%s", diff)
				}
				must(t, gap.Close())
			},
		})
	})
}

func TestRestoreEndsWhatEndedMeanwhile(t *testing.T) {
	t.Parallel()
	o := simulated.Options{Hosts: 1, StateFile: scratch.Dir(t) + "/state", Timing: &simulated.Timing{Shutdown: 10 * time.Second}}
	w, clock := stepped(t, o)
	run(t, w, "h1", sized("vm", 1, 0, 1))
	must(t, w.Host("h1").Stop(ctx, "vm"))
	clock.Advance(time.Second)
	must(t, w.Close())

	early, earlyClock := after(t, o.StateFile, scratch.Dir(t), o, clock.Now(), 0)
	events, err := early.Host("h1").Events(ctx)
	must(t, err)
	earlyClock.Advance(9 * time.Second)
	if e := <-events; e.Kind != hypervisor.Stopped || e.VM != "vm" {
		t.Errorf("reported %+v", e)
	}
	must(t, early.Close())

	late, _ := after(t, o.StateFile, scratch.Dir(t), o, clock.Now(), time.Minute)
	if vms, err := late.Host("h1").List(ctx); err != nil || len(vms) != 0 {
		t.Errorf("a minute later there is %+v, %v", vms, err)
	}
}

func TestRestoreAfterMove(t *testing.T) {
	t.Parallel()
	o := simulated.Options{Hosts: 2, StateFile: scratch.Dir(t) + "/state", Timing: &simulated.Timing{Link: 1 << 62}}
	w, clock := stepped(t, o)
	run(t, w, "h1", sized("vm", 1, 0, 1))
	clock.Advance(10 * time.Second)
	if _, err := w.Host("h1").Migrate(ctx, "vm", hypervisor.Migration{To: "h2"}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10 * time.Second)
	must(t, w.Close())
	again, _ := after(t, o.StateFile, scratch.Dir(t), o, clock.Now(), time.Minute)
	if got := used(t, again, "h2"); len(got) != 1 || got["vm"] != 80*time.Second {
		t.Errorf("target has used %v, want vm with %v", got, 80*time.Second)
	}
	if got := used(t, again, "h1"); len(got) != 0 {
		t.Errorf("source has %v", got)
	}
	must(t, again.Close())
}

// Time goes on from the last change even if the wall clock was set back.
func TestRestoreWithClockSetBack(t *testing.T) {
	t.Parallel()
	o := simulated.Options{Hosts: 1, StateFile: scratch.Dir(t) + "/state"}
	w, clock := stepped(t, o)
	run(t, w, "h1", sized("vm", 1, 0, 1))
	clock.Advance(time.Minute)
	must(t, w.Host("h1").SetCPU(ctx, "vm", hypervisor.CPU{Cap: 0.5}))
	must(t, w.Close())
	back, backClock := after(t, o.StateFile, scratch.Dir(t), o, start, -time.Hour)
	if got := used(t, back, "h1")["vm"]; got != time.Minute {
		t.Errorf("used %v at first, want %v", got, time.Minute)
	}
	backClock.Advance(time.Minute)
	if got := used(t, back, "h1")["vm"]; got != 90*time.Second {
		t.Errorf("used %v a minute later, want %v", got, 90*time.Second)
	}
	must(t, back.Close())
}

// A process can be killed while it writes: whatever the last line lost, the
// lines before it count, and nothing else is invented.
func TestRestoreTornFile(t *testing.T) {
	t.Parallel()
	o := simulated.Options{Hosts: 1, StateFile: scratch.Dir(t) + "/state", Timing: &simulated.Timing{}}
	w, clock := stepped(t, o)
	for i := range 3 {
		run(t, w, "h1", sized(fmt.Sprint("vm", i), 1, 0, 1))
	}
	must(t, w.Close())
	data, err := os.ReadFile(o.StateFile)
	must(t, err)
	dir := scratch.Dir(t)
	for n := range len(data) + 1 {
		o.StateFile = filepath.Join(dir, "state")
		must(t, os.WriteFile(o.StateFile, data[:n], 0o600))
		o.Clock = clock
		torn, err := simulated.New(o)
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
		vms, err := torn.Host("h1").List(ctx)
		must(t, err)
		if want := bytes.Count(data[:n], []byte(`"start"`+`,"host"`)); n == len(data) && want != 3 {
			t.Fatalf("the file does not look as this test believes: %s", data)
		} else if full := bytes.LastIndexByte(data[:n], '\n') + 1; len(vms) != bytes.Count(data[:full], []byte(`"start","host"`)) {
			t.Fatalf("%d of %d bytes: %d VMs", n, len(data), len(vms))
		}
		must(t, torn.Close())
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	good := `{"at":1,"op":"world","format":1}` + "\n"
	for name, text := range map[string]string{
		"other file":       "hello\n",
		"other JSON":       "{}\n",
		"later format":     `{"at":1,"op":"world","format":2}` + "\n",
		"unknown host":     good + `{"at":2,"op":"define","host":"h9","vm":"x"}` + "\n",
		"unknown change":   good + `{"at":2,"op":"paint","host":"h1"}` + "\n",
		"VM out of thin":   good + `{"at":2,"op":"end","host":"h1","vm":"x"}` + "\n",
		"start of nothing": good + `{"at":2,"op":"start","host":"h1","vm":"x"}` + "\n",
		"broken middle":    good + `{"at":2,"op` + "\n" + `{"at":2,"op":"define","host":"h1","vm":"x"}` + "\n",
	} {
		file := filepath.Join(scratch.Dir(t), "state")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := simulated.New(simulated.Options{Hosts: 1, StateFile: file}); err == nil {
			t.Errorf("%s: taken", name)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%s: a file that was refused was changed to %q (%v)", name, now, err)
		}
	}
}

func TestStateFileHasOneOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the second waits for the first to end
		o := simulated.Options{Hosts: 1, StateFile: scratch.Dir(t) + "/state", Timing: &simulated.Timing{}}
		first, err := simulated.New(o)
		must(t, err)
		if _, err := simulated.New(o); err == nil {
			t.Error("two worlds have one file")
		}
		must(t, first.Close())
		second, err := simulated.New(o)
		must(t, err)
		must(t, second.Close())
	})
}

func TestJournalStaysShort(t *testing.T) {
	t.Parallel()
	o := simulated.Options{Hosts: 2, StateFile: scratch.Dir(t) + "/state"}
	w, clock := stepped(t, o)
	h := w.Host("h1")
	run(t, w, "h1", sized("vm", 1, 0, 1))
	for i := range 20000 {
		must(t, h.SetCPU(ctx, "vm", hypervisor.CPU{Cap: float64(i%2+1) / 4, Weight: 1}))
		clock.Advance(time.Millisecond)
	}
	info, err := os.Stat(o.StateFile)
	must(t, err)
	if info.Size() > 1<<20 {
		t.Errorf("%d bytes for one VM", info.Size())
	}
	again, _ := after(t, o.StateFile, scratch.Dir(t), o, clock.Now(), 0)
	if got, want := used(t, again, "h1")["vm"], used(t, w, "h1")["vm"]; (got - want).Abs() > time.Microsecond {
		t.Errorf("used %v, after a restore %v", want, got)
	}
	must(t, w.Close())
}

// A change that cannot be kept is not made.
func TestJournalThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	o := simulated.Options{Hosts: 1, StateFile: scratch.Dir(t) + "/state", Timing: &simulated.Timing{}}
	w, err := simulated.New(o)
	must(t, err)
	h := w.Host("h1")
	s := sized("vm", 1, 0, 1)
	must(t, h.Define(ctx, s))
	simulated.BreakJournal(w)
	if err := h.Start(ctx, s); err == nil {
		t.Error("Start succeeded")
	}
	if vms, err := h.List(ctx); err != nil || len(vms) != 0 {
		t.Errorf("List is %+v, %v", vms, err)
	}
}
