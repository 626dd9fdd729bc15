package agent_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// guestsOf a host of 4 cores, by VM: how they deal with memory.
func guestsOf(t *testing.T, memory int64, guests map[string]simulated.Guest, f func(t *testing.T, w *simulated.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		timing := simulated.DefaultTiming()
		w, err := simulated.New(simulated.Options{Hosts: 1, CPU: 4, Memory: memory, Timing: &timing, Guest: func(s hypervisor.Spec) simulated.Guest { return guests[s.VM] }})
		if err != nil {
			t.Fatal(err)
		}
		f(t, w)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// sampled is what the leader was last reported a VM.
func (l *leader) sampled(id string) agent.Sample {
	for _, s := range l.last().Samples {
		if s.VM == id {
			return s
		}
	}
	return agent.Sample{}
}

func memoryOf(t *testing.T, w *simulated.World, id string) simulated.GuestMemory {
	t.Helper()
	g, err := w.GuestMemory("h1", id)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Guests of 1 GiB are squeezed to half of it. One spikes from idle to nearly all in 2 s. It gets memory at once, no process is
// killed, the agent reports it to the leader, and the other guests are not affected.
func TestGuestThatSpikesIsGrantedMemory(t *testing.T) {
	const memory = 3*gib/2 + gib/2 + 3*64*mib // the three as they are squeezed, and room for one to grow back
	spike := func(deflates bool, swap int64) simulated.Guest {
		return simulated.Guest{Memory: simulated.Spike{From: 300 * mib, To: 900 * mib, At: 2 * time.Minute, Took: 2 * time.Second}, Deflates: deflates, Swap: swap}
	}
	idle := simulated.Guest{Memory: simulated.Bytes(350 * mib), Deflates: true}
	for name, g := range map[string]simulated.Guest{"takes it back": spike(true, 0), "swaps": spike(false, gib)} {
		t.Run(name, func(t *testing.T) {
			guestsOf(t, memory, map[string]simulated.Guest{"a": g, "b": idle, "c": idle}, func(t *testing.T, w *simulated.World) {
				l := newLeader(wanted("a"), wanted("b"), wanted("c"))
				l.order(func(d *agent.Desired) { d.Memory = 4 * gib }) // to start with; there is no overcommitment at the start
				var squeezed []string
				log := slog.New(slog.NewTextHandler(lines(func(line string) {
					if strings.Contains(line, "balloon ek-a") && strings.Contains(line, "-> 536870912 bytes") {
						squeezed = append(squeezed, line)
					}
				}), nil))
				defer runLogged(t, w.Host("h1"), l, log)()
				after(30 * time.Second)
				l.order(func(d *agent.Desired) {
					d.Memory = memory
					for i := range d.VMs {
						d.VMs[i].Spec.Balloon = gib / 2
					}
				})
				after(80 * time.Second)
				for _, id := range []string{"a", "b", "c"} {
					bearsSqueeze(t, l, id)
				}
				reports := l.count()
				after(16 * time.Second) // 3 s of spike and 2 s between two reports of a guest, and then some
				m, s := memoryOf(t, w, "a"), l.sampled("a")
				if m.Kills > 0 || s.Balloon < 900*mib || m.Swapped > 0 || s.Guest.Pressure != "" {
					t.Errorf("after its spike: %+v, %+v", m, s)
				}
				reported, charged := l.pressureSince(reports, "a")
				if len(squeezed) != 1 {
					t.Errorf("it was squeezed %d times, and took memory back in between: %v", len(squeezed), squeezed)
				}
				if !reported || charged < 900*mib {
					t.Errorf("the leader received that it is pressed: %v, and that it holds %d MiB", reported, charged/mib)
				}
				for _, id := range []string{"b", "c"} {
					isLeftAlone(t, w, l, id)
				}
				before := memoryOf(t, w, "a")
				after(9 * time.Minute) // it keeps what it got
				if s := l.sampled("a"); s.Balloon < 900*mib {
					t.Errorf("9 minutes after it was relieved it has %d MiB", s.Balloon/mib)
				}
				after(20 * time.Minute) // and is never squeezed below what it uses, whatever the leader says
				if m, s := memoryOf(t, w, "a"), l.sampled("a"); s.Balloon < 900*mib || m.Kills+int(m.Swapped) > 0 || m.TookBack > before.TookBack || m.SwapIn > before.SwapIn {
					t.Errorf("half an hour later: %+v, %+v", m, s)
				}
			})
		})
	}
}

// A guest of 1 GiB that was squeezed to half of it takes 50 MiB a second. Its balloon follows, and it swaps nothing, though its host reports to the leader
// every ten seconds only. It was never short of memory, and the leader receives no more reports than otherwise.
func TestGuestThatGrowsFastDoesNotSwap(t *testing.T) {
	const memory = 2 * (gib + 64*mib)
	grows := simulated.Guest{Memory: simulated.Spike{From: 300 * mib, To: 900 * mib, At: 2 * time.Minute, Took: 12 * time.Second}, Swap: gib}
	guestsOf(t, memory, map[string]simulated.Guest{"a": grows, "b": {Memory: simulated.Bytes(350 * mib)}}, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		defer runSampling(t, w.Host("h1"), l, slog.New(slog.DiscardHandler), 10*time.Second)()
		after(30 * time.Second)
		l.order(func(d *agent.Desired) {
			for i := range d.VMs {
				d.VMs[i].Spec.Balloon = gib / 2
			}
		})
		after(40 * time.Second)
		reports := l.count()
		after(40 * time.Second)
		if n := l.count() - reports; n > 8 {
			t.Errorf("the leader received %d reports in 40 s in which nothing happened", n)
		}
		bearsSqueeze(t, l, "a")
		reports = l.count()
		after(30 * time.Second)
		m, s := memoryOf(t, w, "a"), l.sampled("a")
		if pressed, _ := l.pressureSince(reports, "a"); pressed || m.SwapOut > 0 || s.Balloon < 900*mib {
			t.Errorf("it was short of memory: %v; swapped out %d MiB, has %d MiB", pressed, m.SwapOut/mib, s.Balloon/mib)
		}
	})
}

// bearsSqueeze: a guest has half of its memory, follows its balloon, and is short of nothing.
func bearsSqueeze(t *testing.T, l *leader, id string) {
	t.Helper()
	if s := l.sampled(id); s.Balloon != gib/2 || s.Guest == nil || !s.Guest.Follows || s.Guest.Pressure != "" || s.Guest.Available <= 0 {
		t.Fatalf("%s is squeezed: %+v, %+v", id, s, s.Guest)
	}
}

// isLeftAlone: a guest that was not under pressure kept its memory, and took none back.
func isLeftAlone(t *testing.T, w *simulated.World, l *leader, id string) {
	t.Helper()
	if m, s := memoryOf(t, w, id), l.sampled(id); m.Kills > 0 || m.TookBack > 0 || s.Balloon != gib/2 || s.Guest.Pressure != "" {
		t.Errorf("%s, which had nothing to do with it: %+v, %+v", id, m, s.Guest)
	}
}

// pressureSince says whether a report, from that one on, had a VM under memory pressure, and the largest memory that it was
// reported to be charged.
func (l *leader) pressureSince(report int, id string) (reported bool, charged int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reports[report:] {
		for _, x := range r.Samples {
			reported = reported || x.VM == id && x.Guest != nil && x.Guest.Pressure != ""
		}
		for _, st := range r.Statuses {
			if st.VM == id {
				charged = max(charged, st.ChargedMemory)
			}
		}
	}
	return reported, charged
}

// A guest that leaks gets what its machine has to give and no more, up to its own end; the others are not harmed, and the host
// never promises what it does not have.
func TestGuestThatLeaksTakesNobodysMemory(t *testing.T) {
	const memory = 3*gib/2 + gib/4 + 3*64*mib
	idle := simulated.Guest{Memory: simulated.Bytes(350 * mib)}
	guestsOf(t, memory, map[string]simulated.Guest{"a": {Memory: simulated.Leak{From: 200 * mib, PerSecond: 4 * mib}}, "b": idle, "c": idle}, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a", balloon(gib/2)), wanted("b", balloon(gib/2)), wanted("c", balloon(gib/2)))
		l.order(func(d *agent.Desired) { d.Memory = 4 * gib })
		defer run(t, w, l)()
		after(20 * time.Second)
		l.order(func(d *agent.Desired) { d.Memory = memory })
		after(2 * time.Minute)
		s := l.sampled("a")
		if s.Balloon < gib/2+gib/4-2*mib || s.Balloon > gib/2+gib/4 || !strings.Contains(s.Guest.Pressure, "MiB are left") {
			t.Errorf("the one that leaks: %+v, %+v", s, s.Guest)
		}
		if !strings.Contains(strings.Join(l.last().Lacking, " "), "a") && l.last().Index != 0 {
			t.Errorf("the leader does not hear that it goes without: %+v", l.last())
		}
		after(3 * time.Minute)
		if m := memoryOf(t, w, "a"); m.Kills != 1 {
			t.Errorf("in the end it is killed, in its own guest: %+v", m)
		}
		for _, id := range []string{"b", "c"} {
			if m, s := memoryOf(t, w, id), l.sampled(id); m.Kills+int(m.Swapped) > 0 || s.Balloon != gib/2 {
				t.Errorf("%s: %+v", id, m)
			}
		}
		peak := w.Audit().Peaks["h1"].Memory // the start apart, when all had 1 GiB
		if peak > 3*gib {
			t.Errorf("%d MiB were promised", peak/mib)
		}
	})
}

// A guest that ignores its balloon is asked, given up, and asked again much later; one without a driver is left alone.
func TestGuestsThatDoNotFollow(t *testing.T) {
	idle := simulated.Guest{Memory: simulated.Bytes(300 * mib), Deflates: true}
	guestsOf(t, 8*gib, map[string]simulated.Guest{"a": idle, "b": {Memory: simulated.Bytes(300 * mib), Deaf: true}}, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		var tries []string
		log := slog.New(slog.NewTextHandler(lines(func(line string) {
			if strings.Contains(line, "balloon ek-") {
				tries = append(tries, line)
			}
		}), nil))
		defer runLogged(t, w.Host("h1"), l, log)()
		after(10 * time.Second)
		if s := l.sampled("b"); s.Guest != nil || s.Balloon != gib {
			t.Errorf("one without a driver reports: %+v", s.Guest)
		}
		if err := w.StickBalloon("h1", "a", true); err != nil {
			t.Fatal(err)
		}
		l.order(func(d *agent.Desired) { d.VMs[0].Spec.Balloon = gib / 2 })
		after(30 * time.Second)
		if s := l.sampled("a"); s.Guest == nil || s.Guest.Follows || s.Balloon != gib {
			t.Errorf("one that ignores its balloon: %+v, %+v", s, s.Guest)
		}
		n := len(tries)
		after(8 * time.Minute)
		if len(tries) != n || n > 3 {
			t.Errorf("%d tries in half a minute, %d more in the next 8: %v", n, len(tries)-n, tries)
		}
		if err := w.StickBalloon("h1", "a", false); err != nil {
			t.Fatal(err)
		}
		after(4 * time.Minute)
		if s := l.sampled("a"); !s.Guest.Follows || s.Balloon != gib/2 {
			t.Errorf("now it would: %+v, %+v", s, s.Guest)
		}
	})
}

type lines func(string)

func (f lines) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }
