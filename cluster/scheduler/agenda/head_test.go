package agenda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// waits plays two days in which small VCs, each of up to three hours which it says, fill two hosts at any time, and returns how long a large
// one waited and how many small ones started meanwhile.
func waits(t *testing.T, seed uint64, reserve bool) (waited time.Duration, started int) {
	t.Helper()
	c := scheduling.NewCluster(t, "h1", "h2")
	r := rand.New(rand.NewPCG(seed, 25))
	ends := map[string]time.Time{}
	var asked time.Time
	var head *placement.Head
	env := func() placement.Env {
		e := c.Env()
		e.Head = head
		return e
	}
	create := func(vc state.VC) bool {
		vc.ID = c.ID()
		a := admission.Create(c.Snapshot(), vc, env())
		if a.Plan == nil {
			t.Fatalf("%s is refused: %+v", vc.Name, a.Decision)
		}
		c.Must(state.KindPlan, a.Plan)
		return !a.Queued
	}
	lives := map[string]time.Duration{}
	for n := 0; c.Now().Sub(scheduling.Start) < 48*time.Hour; c.Ahead += 5 * time.Minute {
		for _, name := range sortedNames(ends) {
			if vc, ok := c.Snapshot().VCNamed(name); ok && !ends[name].After(c.Now()) {
				c.Must(state.KindPlan, admission.Delete(c.Snapshot(), vc, c.Env()).Plan)
				delete(ends, name)
			}
		}
		follow := func() {
			for _, vm := range c.Snapshot().VMs() {
				if vm.Phase == state.Starting || vm.Goal == state.GoalDelete {
					c.Follow(vm)
				}
			}
		}
		follow()
		if reserve {
			var err error
			if head, err = agenda.First(c.Snapshot(), admission.Queue(c.Snapshot()), c.Env()); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			p := new(admission.QueueCache).Admit(c.Snapshot(), env())
			if p == nil {
				break
			}
			c.Must(state.KindPlan, p)
		}
		for len(admission.Queue(c.Snapshot())) < 5 {
			n++
			life := time.Duration(10+r.IntN(170)) * time.Minute
			vc := scheduling.VC(fmt.Sprintf("small%d-x", n), 0.5, scheduling.Group(1, 0.5, int64(1+r.IntN(3))*scheduling.GiB))
			vc.Duration = int64(life / time.Second)
			lives[vc.Name] = life
			create(vc)
		}
		if n > 20 && asked.IsZero() {
			large := scheduling.VC("large-x", 0.5, scheduling.Group(2, 1, 7*scheduling.GiB))
			large.Duration = 3600
			if create(large) {
				t.Fatal("the large one did not have to wait")
			}
			asked = c.Now()
		}
		follow()
		for _, vc := range c.Snapshot().VCs() {
			if life, is := lives[vc.Name]; is && vc.Admitted && ends[vc.Name].IsZero() {
				ends[vc.Name] = c.Now().Add(life)
				if !asked.IsZero() {
					started++
				}
			}
		}
		if !asked.IsZero() && c.Named("large-x").Admitted {
			return c.Now().Sub(asked), started
		}
	}
	return 48 * time.Hour, started
}

// No VC waits for ever behind smaller ones that say how long they run: it starts within twice the longest of their durations, and those
// that are gone before then start meanwhile.
func TestLargeStartsInTime(t *testing.T) {
	overtaken := 0
	for seed := range uint64(2) {
		if waited, _ := waits(t, seed, false); waited < 40*time.Hour {
			t.Logf("seed %d: without a reservation it waited %s", seed, waited)
		} else {
			overtaken++
		}
		waited, started := waits(t, seed, true)
		t.Logf("seed %d: it waited %s, while %d small ones started", seed, waited, started)
		if waited > 6*time.Hour {
			t.Errorf("seed %d: it waited %s", seed, waited)
		}
		if started == 0 {
			t.Errorf("seed %d: none started meanwhile", seed)
		}
	}
	if overtaken == 0 {
		t.Error("it does not wait for ever without, either: the test shows nothing")
	}
}

// Room is kept from the end of what says when it ends, and from nothing else.
func TestHeadRestsOnKnownEnds(t *testing.T) {
	for _, known := range []bool{true, false} {
		c := scheduling.NewCluster(t, "h1", "h2")
		runs := scheduling.VC("runs", 0.5, scheduling.Group(2, 1, 5*scheduling.GiB))
		if known {
			runs.Duration = 3600
		}
		c.Create(runs)
		c.Run()
		c.Create(scheduling.VC("first", 0.5, scheduling.Group(2, 1, 6*scheduling.GiB)))
		head, err := agenda.First(c.Snapshot(), admission.Queue(c.Snapshot()), c.Env())
		if err != nil || (head != nil) != known {
			t.Fatalf("its end is known: %v: %+v, %v", known, head, err)
		}
		if !known {
			continue
		}
		if until := head.At.Sub(c.Now()); head.VC != c.Named("first").ID || until < 50*time.Minute || until > 70*time.Minute || len(head.Hosts) != 2 || len(head.Ends) != 1 || head.Ends[0] != c.Named("runs").ID {
			t.Errorf("%s: %+v", until, head)
		}
		env := c.Env()
		env.Head = head
		for name, x := range map[string]struct {
			duration time.Duration
			priority int
			admitted bool
		}{"short": {30 * time.Minute, 0, true}, "long": {5 * time.Hour, 0, false}, "not known": {0, 0, false}, "of higher priority": {0, 1, true}} {
			vc := scheduling.VC("y", 0.5, scheduling.Group(1, 1, 2*scheduling.GiB))
			vc.Duration, vc.Priority = int64(x.duration/time.Second), x.priority
			if d := admission.Consider(c.Snapshot(), vc, env); d.Admitted != x.admitted {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
}
