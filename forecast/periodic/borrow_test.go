package periodic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// madeRuns are runs of a job of so much work in so many steps: one in thirteen takes up to 1.6 times as long, and all spread a little.
func madeRuns(rng *rand.Rand, n, steps int, work float64) (runs [][]float64) {
	for range n {
		slow := math.Exp(0.05 * rng.NormFloat64())
		if rng.IntN(13) == 0 {
			slow *= 1.2 + 0.4*rng.Float64()
		}
		r := make([]float64, max(1, int(math.Round(slow*float64(steps)))))
		for k := range r {
			r[k] = slow * work / float64(len(r))
		}
		runs = append(runs, r)
	}
	return runs
}

// Of twenty runs the most is exceeded by one in twenty-one. With a borrowed run fewer runs exceed it, about as many as asked for.
func TestUnseenKeepsTheChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 24))
	jobs := make([][][]float64, 60)
	var peers []Peer
	var future [][][]float64
	for i := range jobs {
		all := madeRuns(rng, 220, 10+rng.IntN(90), math.Exp(5*rng.Float64()))
		jobs[i], future = all[:20], append(future, all[20:])
		l, ok := NewPeer(jobs[i])
		if !ok {
			t.Fatal("no peer")
		}
		peers = append(peers, l)
	}
	for _, chance := range []float64{0.01, 0.03} {
		own, borrowed, n := 0.0, 0.0, 0.0
		for i, runs := range jobs {
			unseen := unseenRun(runs, peers, chance, 1000)
			work, length := sizes(runs)
			_, steps := sizes([][]float64{unseen})
			heaviest, extra := slices.Max(work), 0.0
			for _, v := range unseen {
				extra += v
			}
			if steps[0] < slices.Min(length) {
				t.Fatalf("a run of %v steps, the shortest of %v", steps, length)
			}
			for _, r := range future[i] {
				w, _ := sizes([][]float64{r})
				n++
				if w[0] > heaviest {
					own++
				}
				if w[0] > max(heaviest, extra) {
					borrowed++
				}
			}
		}
		t.Logf("asked %v: of own runs alone %.4f, with one borrowed %.4f", chance, own/n, borrowed/n)
		if own/n < 0.025 || borrowed/n > 1.3*chance || borrowed/n < chance/10 {
			t.Errorf("asked %v: %v of its own runs alone, %v with one borrowed", chance, own/n, borrowed/n)
		}
	}
}

// A chance that own runs can prove gives the heaviest away; one that they cannot adds a run.
func TestToServe(t *testing.T) {
	var runs [][]float64
	for k := range 19 {
		runs = append(runs, []float64{float64((7 * k) % 19)})
	}
	for _, c := range []struct {
		chance   float64
		n        int
		heaviest float64
	}{{0.05, 19, 18}, {0.1, 18, 17}, {0.5, 10, 9}, {0.99, 1, 0}} {
		got, promised := ToServe(runs, nil, c.chance, 9)
		heaviest := 0.0
		if promised > c.chance+1e-9 || promised < c.chance-0.05-1e-9 {
			t.Errorf("chance %v: %v is promised", c.chance, promised)
		}
		for _, r := range got {
			heaviest = max(heaviest, r[0])
		}
		if len(got) != c.n || heaviest != c.heaviest {
			t.Errorf("chance %v: %d runs of at most %v, not %d of %v", c.chance, len(got), heaviest, c.n, c.heaviest)
		}
	}
	l, _ := NewPeer(append(slices.Repeat([][]float64{{5}}, 60), slices.Repeat([][]float64{{9}}, 60)...))
	if got, promised := ToServe(slices.Repeat([][]float64{{2}}, 19), []Peer{l}, 0.02, 9); len(got) != 20 || math.Abs(promised-0.05) > 1e-9 || math.Abs(got[19][0]-3.6) > 1e-9 {
		t.Errorf("with a peer: %v", got)
	}
	if got, promised := ToServe(runs, nil, 0.01, 9); len(got) != 19 || math.Abs(promised-0.05) > 1e-9 {
		t.Errorf("no job has runs for it: %d runs", len(got))
	}
}

func TestUnseen(t *testing.T) {
	flat := func(n int, of ...float64) (runs [][]float64) {
		for range n {
			runs = append(runs, of)
		}
		return runs
	}
	peersOf := func(runs [][]float64) []Peer {
		l, _ := NewPeer(runs)
		return []Peer{l}
	}
	twice := append(flat(10, 3, 3), flat(10, 3, 3, 3, 3)...) // later runs take twice as long
	for name, c := range map[string]struct {
		runs   [][]float64
		peers  []Peer
		chance float64
		steps  int
		want   []float64
	}{
		"own runs are enough":        {flat(20, 1, 2), peersOf(twice), 0.05, 9, nil},
		"no job has runs for it":     {flat(10, 1, 2), nil, 0.05, 9, nil},
		"others have too few":        {flat(10, 1, 2), peersOf(twice), 0.05, 9, nil},
		"as much longer":             {flat(5, 1, 2), peersOf(twice), 0.1, 9, []float64{1, 1, 2, 2}},
		"no longer than the window":  {flat(5, 1, 2), peersOf(twice), 0.1, 3, []float64{1, 1, 2}},
		"never less than is typical": {flat(5, 1, 2), peersOf(append(flat(10, 4), flat(10, 1)...)), 0.1, 9, []float64{1, 2}},
		"runs that do nothing":       {flat(5, 0, 0), peersOf(twice), 0.1, 9, nil},
	} {
		got := unseenRun(c.runs, c.peers, c.chance, c.steps)
		if len(got) != len(c.want) || slices.ContainsFunc(got, math.IsNaN) {
			t.Errorf("%s: %v, not %v", name, got, c.want)
			continue
		}
		for k := range got {
			if math.Abs(got[k]-c.want[k]) > 1e-9 {
				t.Errorf("%s: %v, not %v", name, got, c.want)
				break
			}
		}
	}
	// The unsteady job is no measure for the steady one.
	rng := rand.New(rand.NewPCG(2, 24))
	var wild, calm [][]float64
	for range 40 {
		wild, calm = append(wild, []float64{math.Exp(2 * rng.NormFloat64())}), append(calm, []float64{math.Exp(0.05 * rng.NormFloat64())})
	}
	both := append(peersOf(wild), peersOf(calm)...)
	if got := unseenRun(calm[:10], both, 0.05, 9); len(got) != 1 || got[0] > 1.5 {
		t.Errorf("a steady job borrows from an unsteady one: %v", got)
	}
	if got := unseenRun(wild[:10], both, 0.05, 9); len(got) != 1 || got[0] < 3 {
		t.Errorf("an unsteady job borrows from a steady one: %v", got)
	}
	if _, ok := NewPeer(flat(MinRuns-1, 1)); ok {
		t.Error("a peer of too few runs")
	}
	if _, ok := NewPeer(flat(20, 0)); ok {
		t.Error("a peer that does nothing")
	}
}
