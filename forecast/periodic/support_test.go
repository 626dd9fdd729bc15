package periodic

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSupport(t *testing.T) {
	for name, c := range map[string]struct {
		m     Model
		limit int
		want  string
	}{
		"enough":         {Model{Asked: 0.05, Miss: 1.0 / 21, Runs: 20}, 0, ""},
		"too few":        {Model{Asked: 0.01, Miss: 0.04, Runs: 24}, 0, "asked 1%, 24 runs support 4%: 75 more runs would support it"},
		"rounded up":     {Model{Asked: 0.003, Miss: 1.0 / 22, Runs: 21}, 0, "asked 0.3%, 21 runs support 4.6%: 312 more runs would support it"},
		"one more":       {Model{Asked: 0.05, Miss: 1.0 / 19, Runs: 18}, 0, "asked 5%, 18 runs support 5.3%: one more run would support it"},
		"above a limit":  {Model{Asked: 0.01, Miss: 1.0 / 31, Runs: 30}, 30, "asked 1%, 30 runs support 3.3%; it takes 99, and the last 30 at most are learned from"},
		"below a limit":  {Model{Asked: 0.05, Miss: 0.1, Runs: 9}, 30, "asked 5%, 9 runs support 10%: 10 more runs would support it"},
		"some uncovered": {Model{Asked: 0.05, Miss: 0.1, Runs: 29}, 0, "asked 5%, 29 runs support 10%: some of them need something in steps in which no other run does"},
	} {
		if got := c.m.Support(c.limit); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
	for _, chance := range []float64{0.5, 0.1, 0.05, 0.04, 0.01, 0.003} {
		n := RunsFor(chance)
		if !Supports(n, chance) || n > 1 && Supports(n-1, chance) {
			t.Errorf("chance %v: %d runs", chance, n)
		}
	}
}

// A promise is kept where the choice of the weight matters: one run in thirteen is much longer. Beyond what 20 runs support nothing is
// promised; with peers fewer runs need more.
func TestPromiseOfFewRunsIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 24))
	jobs := 60 * *more
	const own, next = 20, 40
	past, future := make([][][]float64, jobs), make([][][]float64, jobs)
	var peers []Peer
	for i := range jobs {
		all := madeRuns(rng, own+next, 8+rng.IntN(9), 10)
		past[i], future[i] = all[:own], all[own:]
		p, _ := NewPeer(past[i])
		peers = append(peers, p)
	}
	for _, c := range []struct {
		chance float64
		peers  []Peer
	}{{0.2, nil}, {0.1, nil}, {0.01, nil}, {0.01, peers}} {
		promised := 0.0
		shares := make([]float64, 0, jobs)
		for i, runs := range past {
			m, err := Learn(runs, Options{Miss: c.chance, Debts: true, Peers: c.peers, Steps: 100})
			if err != nil {
				t.Fatal(err)
			}
			if m.Miss < max(c.chance, MinChance(own))-1/float64(own+1) || m.Miss < MinChance(own)-1e-9 || m.Borrowed != (c.peers != nil) {
				t.Fatalf("asked %v: %+v", c.chance, m)
			}
			promised += m.Miss / float64(jobs)
			share := 0.0
			for _, r := range future[i] {
				if m.Score(r) > 1+1e-9 {
					share += 1.0 / next
				}
			}
			shares = append(shares, share)
		}
		mean, variance := 0.0, 0.0
		for _, s := range shares {
			mean += s / float64(jobs)
		}
		for _, s := range shares {
			variance += (s - mean) * (s - mean) / float64(jobs-1)
		}
		se := math.Sqrt(variance / float64(jobs))
		t.Logf("asked %v, %d peers: promised %.4f, needed more %.4f (standard error %.4f)", c.chance, len(c.peers), promised, mean, se)
		if mean > promised+3*se {
			t.Errorf("asked %v: promised %v, and %v needed more", c.chance, promised, mean)
		}
	}
}

// What is borrowed is on top of what own runs need, changes no promise, and looks like no drift.
func TestLearnBorrows(t *testing.T) {
	for _, debts := range []bool{true, false} {
		rng := newRand(9)
		runs := noisyRuns(rng, 20)
		peer := noisyRuns(rng, 200)
		for _, r := range peer[100:] {
			for k := range r {
				r[k] *= 3
			}
		}
		heavy, _ := NewPeer(peer)
		plain, err := Learn(runs, Options{Miss: 0.01, Debts: debts})
		if err != nil {
			t.Fatal(err)
		}
		m, err := Learn(runs, Options{Miss: 0.01, Debts: debts, Peers: []Peer{heavy}})
		if err != nil {
			t.Fatal(err)
		}
		if !m.Borrowed || plain.Borrowed || m.Miss != plain.Miss {
			t.Errorf("debts %v: %+v, without peers %+v", debts, m, plain)
		}
		if f := factor(plain.Skyline, m.Skyline, debts); f > 1+1e-9 {
			t.Errorf("debts %v: less than without peers, by %v", debts, f)
		}
		steps := 0
		for _, r := range runs {
			steps = max(steps, len(r))
		}
		if f := factor(unseenRun(runs, []Peer{heavy}, 0.01, steps), m.Skyline, debts); math.Abs(f-1) > 1e-9 {
			t.Errorf("debts %v: the borrowed run is served %v times", debts, 1/f)
		}
		var w, v Watch
		for _, r := range runs {
			if a, b := w.Observe(m, r), v.Observe(plain, r); a != b || w != v {
				t.Fatalf("debts %v: %q, without peers %q", debts, a, b)
			}
		}
		if again, err := Learn(runs, Options{Miss: 0.2, Debts: debts, Peers: []Peer{heavy}}); err != nil || again.Borrowed {
			t.Errorf("debts %v: a job with runs enough borrows: %v", debts, err)
		}
	}
}
