package transport

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
)

// weather makes a network worse: connections break, and some of what is sent is late.
type weather struct {
	mu    sync.Mutex
	rnd   *mathrand.Rand
	calm  bool
	conns []net.Conn
}

func (w *weather) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// late is how long a write waits: mostly not at all, at times longer than any caller does.
func (w *weather) late() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.calm || w.rnd.IntN(100) > 3:
		return 0
	default:
		return time.Duration(w.rnd.IntN(15_000)) * time.Millisecond
	}
}

func (w *weather) seen(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
}

// breakSome of the connections there were.
func (w *weather) breakSome() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range w.conns {
		if c != nil && w.rnd.IntN(3) == 0 {
			_ = c.Close()
			w.conns[i] = nil
		}
	}
}

// Whatever the network does and whichever server leads: what an agent takes for its orders is what a leader sent, in that
// order. What a leader takes comes in the order in which it was sent, however late some of it is. What was acknowledged was
// taken. In the end all is as it should be.
func TestBadWeather(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { badWeather(t, seed) })
		})
	}
}

func badWeather(t *testing.T, seed uint64) {
	s := newSite(t)
	sky := &weather{rnd: mathrand.New(mathrand.NewPCG(seed, 1))}
	s.inMemory(sky)
	var leads [3]*lead
	var brains [3]*brain
	var members [3]*member
	for i := range members {
		leads[i], brains[i] = &lead{}, newBrain()
		members[i] = s.member(fmt.Sprint("s", i), true, false, PeersOptions{Leader: brains[i], Lead: leads[i].ask,
			Servers: func() []string { return []string{"s0:1", "s1:1", "s2:1"} }})
	}
	a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), 100*time.Hour), members[0].at, members[1].at)
	leader, at := 0, uint64(1)
	elect := func(n int) {
		leader = n
		for i := range leads {
			leads[i].set(i == n, members[n].at)
		}
	}
	states := map[uint64]int{} // how many VMs each had, by index
	write := func() {
		d := agent.Desired{Index: at}
		for i := range sky.draw(4) {
			d.VMs = append(d.VMs, vm(strconv.Itoa(i), uint64(sky.draw(2))))
		}
		states[at] = len(d.VMs)
		for _, b := range brains { // the log is the same on all
			b.set("h1", d)
		}
		at++
	}
	write()
	elect(0)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var acked, boots []uint64
	spoil := func(what func(n uint64) error, acked *[]uint64) {
		for n := uint64(1); ctx.Err() == nil; n++ {
			if what(n) == nil && acked != nil {
				*acked = append(*acked, n)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	wg.Go(func() {
		spoil(func(n uint64) error {
			bounded, cancel := context.WithTimeout(ctx, 12*time.Second)
			defer cancel()
			return a.Report(bounded, agent.Report{Host: "h1", Error: strconv.FormatUint(n/3, 10), Statuses: []agent.Status{{VM: "a", Generation: n}}})
		}, &acked)
	})
	wg.Go(func() {
		spoil(func(n uint64) error {
			bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := a.Renew(bounded, agent.Renewal{Host: "h1", Boot: strconv.FormatUint(n, 10)})
			return err
		}, &boots)
	})
	seen := uint64(0)
	look := func() {
		got, _, err := a.Desired(ctx, "h1")
		if err != nil {
			return
		}
		if n, reported := states[got.Index]; !reported || n != len(got.VMs) {
			t.Errorf("the agent received a state %d of %d VMs that was never written", got.Index, len(got.VMs))
		}
		seen = max(seen, got.Index)
	}
	for range 300 {
		switch sky.draw(10) {
		case 0:
			elect(sky.draw(3))
		case 1:
			sky.breakSome()
		case 2:
			s.net.set(members[sky.draw(3)].at, true)
		case 3, 4:
			s.net.set(members[sky.draw(3)].at, false)
		default:
			write()
		}
		look()
		time.Sleep(time.Duration(sky.draw(1500)) * time.Millisecond) // sleep: a fake clock's, as all here
		look()
	}
	sky.mu.Lock()
	sky.calm = true
	sky.mu.Unlock()
	for _, m := range members {
		s.net.set(m.at, false)
	}
	elect(sky.draw(3))
	write()
	time.Sleep(time.Minute) // sleep: a fake clock's
	if got, _, err := a.Desired(ctx, "h1"); err != nil || got.Index != at-1 {
		t.Errorf("in good weather the agent is at %d of %d, %v", got.Index, at-1, err)
	}
	before := len(brains[leader].taken())
	time.Sleep(10 * time.Second) // sleep: a fake clock's
	if n := len(brains[leader].taken()) - before; n < 8 {
		t.Errorf("in good weather %d reports in 10 s", n)
	}
	cancel()
	wg.Wait()
	taken := map[uint64]bool{}
	for i, b := range brains {
		last, lastBoot := uint64(0), uint64(0)
		for _, r := range b.taken() {
			n := r.Statuses[0].Generation
			if n < last {
				t.Errorf("server %d took report %d after %d", i, n, last)
			}
			if r.Error != strconv.FormatUint(n/3, 10) {
				t.Errorf("server %d took report %d as %q", i, n, r.Error)
			}
			last = n
			taken[n] = true
		}
		for _, r := range b.renewals() { // a late one may come still
			n, _ := strconv.ParseUint(r.Boot, 10, 64)
			if n < lastBoot {
				t.Errorf("server %d took renewal %d after %d", i, n, lastBoot)
			}
			lastBoot = n
		}
	}
	for _, n := range acked {
		if !taken[n] {
			t.Errorf("report %d was acknowledged and is not there", n)
		}
	}
	if len(acked) < 60 || len(boots) < 60 || seen < 20 {
		t.Errorf("weather too bad to show anything: %d reports, %d renewals, state %d", len(acked), len(boots), seen)
	}
}
