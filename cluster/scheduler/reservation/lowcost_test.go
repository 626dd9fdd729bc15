package reservation

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Figure 7 of the paper: stage 3 demands 16 containers of 38 that remain, and 19 steps are left.
func TestIntervalOfFigure7(t *testing.T) {
	if got := interval(16, 38, 19); got != 8 {
		t.Errorf("16 of 38 over 19 steps: %d steps, the paper has 8", got)
	}
}

func containers(counts ...int) (stages []Stage) {
	for _, n := range counts {
		stages = append(stages, Stage{VMs: n})
	}
	return stages
}

var oneCore = &Elastic{Unit: Amount{1, 1, 1}}

func anyElastic(t *rapid.T, steps int) Request {
	periods := []int{0}
	for p := 4; p <= steps; p++ {
		if steps%p == 0 {
			periods = append(periods, p)
		}
	}
	r := Request{Name: "r", Period: rapid.SampledFrom(periods).Draw(t, "period")}
	period := r.period(steps)
	r.Phase = rapid.IntRange(0, steps-1).Draw(t, "phase")
	r.Earliest = rapid.IntRange(0, period).Draw(t, "earliest")
	r.Due = r.Earliest + rapid.IntRange(1, period).Draw(t, "window")
	r.Stages = containers(rapid.SliceOfN(rapid.IntRange(1, 12), 1, 6).Draw(t, "stages")...)
	r.Elastic = &Elastic{Unit: Amount{1, 2, 1}, Gang: rapid.IntRange(0, 3).Draw(t, "gang")}
	if rapid.Bool().Draw(t, "bounded") {
		r.Elastic.MaxParallel = max(1, r.Elastic.Gang) + rapid.IntRange(0, 6).Draw(t, "parallel")
	}
	r.Unsteady = rapid.Bool().Draw(t, "unsteady")
	return r
}

func anyLoad(t *rapid.T, steps int) *Load {
	l, err := NewLoad(Amount{20, 40, math.Inf(1)}, steps)
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.used {
		c := float64(rapid.IntRange(0, 15).Draw(t, "load"))
		l.used[i] = Amount{c, 2 * c, c}
	}
	return l
}

// An elastic slot is contiguous, within its window, has all its demand and no more, keeps to its parallelism, and leaves others as
// they are.
func TestElasticSlots(t *testing.T) {
	placed := 0
	rapid.Check(t, func(t *rapid.T) {
		const steps = 24
		l, r := anyLoad(t, steps), anyElastic(t, steps)
		before := *l
		s, err := l.Place(r, DefaultOptions())
		if err != nil {
			e := newElastic(l, &r)
			if e.shortest() <= r.Due-r.Earliest {
				t.Fatalf("%v, though its stages take %d steps of %d", err, e.shortest(), r.Due-r.Earliest)
			}
			return
		}
		placed++
		if s.Start < r.Earliest || s.End() > r.Due {
			t.Fatalf("[%d, %d) is not within [%d, %d)", s.Start, s.End(), r.Earliest, r.Due)
		}
		want, peak, got := 0, 0, 0.0
		for _, k := range r.Stages {
			want, peak = want+k.VMs, max(peak, k.VMs)
		}
		if m := r.Elastic.MaxParallel; m > 0 {
			peak = min(peak, m)
		}
		for x, a := range s.Amounts {
			if a[VMs] <= 0 {
				t.Fatalf("step %d of %v is empty", x, s.Amounts)
			}
			if a[VMs] > float64(peak) || a[Memory] != 2*a[VMs] || a[Cores] != a[VMs] {
				t.Fatalf("step %d: %v, at most %d VMs", x, a, peak)
			}
			got += a[VMs]
		}
		if got != float64(want) {
			t.Fatalf("%v VMs placed of %d", got, want)
		}
		for i := range l.used {
			if l.used[i] != before.used[i] {
				t.Fatal("Place changed the load")
			}
		}
		checkOffsets(t, l, &s)
	})
	if placed < 20 {
		t.Errorf("only %d requests were placed", placed)
	}
}

// checkOffsets adds a slot: each run has the same offset in its period, the sums are those of all runs, and the cost is what Place
// said. Removed, nothing is left.
func checkOffsets(t *rapid.T, l *Load, s *Slot) {
	steps, period := l.Steps(), s.Request.period(l.Steps())
	before := make([]Amount, steps)
	copy(before, l.used)
	l.Add(s)
	cost := 0.0
	for at := range s.Amounts {
		for i := range steps / period {
			step := (s.Request.Phase + s.Start + at + i*period) % steps
			cost = max(cost, l.Cost(step))
			for r := range l.used[step] {
				if math.Abs(l.used[step][r]-before[step][r]-s.Amounts[at][r]) > 1e-9 {
					t.Fatalf("run %d has %v in its step %d, not %v", i, l.used[step][r]-before[step][r], at, s.Amounts[at][r])
				}
			}
		}
	}
	if math.Abs(cost-s.Cost) > 1e-9 {
		t.Fatalf("the cost is %v, Place said %v", cost, s.Cost)
	}
	l.Remove(s)
	for i := range before {
		for r := range before[i] {
			if math.Abs(before[i][r]-l.used[i][r]) > 1e-9 {
				t.Fatalf("step %d has %v left", i, l.used[i])
			}
		}
	}
}

// A rigid slot does all its CPU work at no less than its minimum yield, and has the memory of every stage for all its time.
func TestRigidSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const steps = 24
		l, r := anyLoad(t, steps), anyElastic(t, steps)
		r.Elastic = nil
		r.MinYield = rapid.SampledFrom([]float64{0, 0.3, 0.5, 0.9, 1}).Draw(t, "yield")
		work, memory := 0.0, 0.0
		for k := range r.Stages {
			s := &r.Stages[k]
			s.Cores, s.Memory = rapid.Float64Range(0, 5).Draw(t, "cores"), rapid.Float64Range(0, 5).Draw(t, "memory")
			work, memory = work+s.Cores, max(memory, s.Memory)
		}
		s, err := l.Place(r, DefaultOptions())
		if err != nil {
			if len(r.Stages) <= r.Due-r.Earliest {
				t.Fatal(err)
			}
			return
		}
		if s.Start < r.Earliest || s.End() > r.Due || s.Yield > 1 || s.Yield < r.MinYield-1e-9 || r.MinYield == 0 && s.Yield != 1 {
			t.Fatalf("[%d, %d) with yield %v", s.Start, s.End(), s.Yield)
		}
		got, peak := 0.0, 0.0
		for j, a := range s.Amounts {
			got, peak = got+a[Cores], max(peak, a[Memory])
			from, to := float64(j)*s.Yield, float64(j+1)*s.Yield
			for k, st := range r.Stages {
				if float64(k) < to-1e-6 && float64(k+1) > from+1e-6 && a[Memory] < st.Memory {
					t.Fatalf("step %d has %v of the memory %v of stage %d", j, a[Memory], st.Memory, k)
				}
			}
		}
		if math.Abs(got-work) > 1e-9 || peak != memory {
			t.Fatalf("CPU work %v of %v, memory %v of %v", got, work, peak, memory)
		}
		checkOffsets(t, l, &s)
	})
}

// A stretched run takes the trough that it does not fit at full speed.
func TestStretchedIntoATrough(t *testing.T) {
	l, _ := NewLoad(Amount{10, 100, math.Inf(1)}, 10)
	for i := range l.used {
		l.used[i] = Amount{5, 0, 0}
	}
	r := Request{Name: "r", Period: 10, Due: 10, Stages: []Stage{{2, 8, 10}, {2, 8, 10}}}
	if s, err := l.Place(r, Options{}); err != nil || s.Cost <= 1 {
		t.Fatalf("%v, %v: 8 cores of 5 free fit", s, err)
	}
	r.MinYield = 0.5
	s, err := l.Place(r, Options{})
	if err != nil || s.Cost > 1 || len(s.Amounts) != 4 || s.Amounts[0][Memory] != 10 || s.Yield != 0.5 {
		t.Errorf("%v, %v", s, err)
	}
}

// An unsteady job stays near the middle of its window, a steady one goes where the load is lowest.
func TestAlignmentPenalty(t *testing.T) {
	l, _ := NewLoad(Amount{100, 100, math.Inf(1)}, 20)
	for i := 3; i < 20; i++ {
		l.used[i] = Amount{5, 0, 0}
	}
	r := Request{Name: "r", Period: 20, Due: 20, Stages: []Stage{{1, 1, 1}, {1, 1, 1}}}
	if s, _ := l.Place(r, DefaultOptions()); s.End() > 3 {
		t.Errorf("a steady job is at %d", s.Start)
	}
	r.Unsteady = true
	if s, _ := l.Place(r, DefaultOptions()); s.Start != 9 {
		t.Errorf("an unsteady job is at %d, not in the middle", s.Start)
	}
}

// Theorem 6.1: LowCost is O(log(Pmax/Pmin))-competitive on jobs of equal skyline. Measured against the lower bound of the LP: total
// work over the time, and the work of the densest window.
func TestRatioOfTheorem61(t *testing.T) {
	worst := map[int]float64{}
	rapid.Check(t, func(t *rapid.T) {
		const steps = 96
		spread := rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "Pmax/Pmin")
		l, _ := NewLoad(Amount{1, math.Inf(1), math.Inf(1)}, steps)
		skyline := containers(rapid.SliceOfN(rapid.IntRange(1, 8), 1, 3).Draw(t, "skyline")...)
		total := 0
		for _, s := range skyline {
			total += s.VMs
		}
		work := make([]float64, steps*steps) // of windows [a, b), of the whole jobs that lie in them
		shortest := steps                    // period of all
		for range rapid.IntRange(1, 12).Draw(t, "jobs") {
			period := 6 // twice the longest skyline
			for p := 1; p < spread; p *= 2 {
				if rapid.Bool().Draw(t, "longer") {
					period *= 2
				}
			}
			shortest = min(shortest, period)
			phase := rapid.IntRange(0, period-1).Draw(t, "phase")
			r := Request{Name: "r", Period: period, Phase: phase, Due: period, Stages: skyline, Elastic: oneCore}
			s, err := l.Place(r, Options{})
			if err != nil {
				t.Fatal(err)
			}
			l.Add(&s)
			for first := phase; first < steps; first += period {
				for a := 0; a <= first; a++ {
					for b := first + period; b <= steps; b++ {
						work[a*steps+b-1] += float64(total)
					}
				}
			}
		}
		bound := 0.0
		for a := range steps {
			for b := a + 1; b <= steps; b++ {
				bound = max(bound, work[a*steps+b-1]/float64(b-a))
			}
		}
		sum := 0.0
		for _, u := range l.used {
			sum += u[Cores]
		}
		bound = max(bound, sum/steps)
		// One job alone: each other stage takes a step of its window at least.
		for _, k := range skyline {
			bound = max(bound, float64(k.VMs)/float64(shortest-len(skyline)+1))
		}
		bound = math.Ceil(bound - 1e-9) // containers are whole
		ratio := l.Peak() / bound
		worst[spread] = max(worst[spread], ratio)
		if ratio > 3*(1+math.Log2(float64(spread))) {
			t.Fatalf("Pmax/Pmin = %d: the peak is %v, the bound %v", spread, l.Peak(), bound)
		}
	})
	t.Logf("worst ratio by Pmax/Pmin: %v", worst)
}

func TestRequestsThatAreRefusedAsMalformed(t *testing.T) {
	l, _ := NewLoad(Amount{1, 1, 1}, 24)
	good := Request{Name: "r", Period: 6, Due: 6, Stages: containers(1), Elastic: oneCore}
	if _, err := l.Place(good, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(r *Request){
		"no name": func(r *Request) { r.Name = "" }, "no stages": func(r *Request) { r.Stages = nil },
		"odd period": func(r *Request) { r.Period = 7 }, "window above the period": func(r *Request) { r.Due = 7 },
		"empty window": func(r *Request) { r.Due = 0 }, "phase": func(r *Request) { r.Phase = 24 },
		"yield": func(r *Request) { r.MinYield = math.NaN() }, "gang": func(r *Request) { r.Elastic = &Elastic{Gang: 3, MaxParallel: 2} },
		"cores": func(r *Request) { r.Stages = []Stage{{1, math.Inf(1), 0}} }, "too long": func(r *Request) { r.Stages = containers(1, 1, 1, 1, 1, 1, 1) },
	} {
		r := good
		change(&r)
		if _, err := l.Place(r, Options{}); err == nil {
			t.Errorf("%s: placed", name)
		}
	}
}

func TestAlignRight(t *testing.T) {
	l, _ := NewLoad(Amount{100, 100, 100}, 24)
	r := Request{Name: "r", Period: 24, Due: 20, Stages: containers(3, 5), Elastic: oneCore}
	if s, err := l.Place(r, Options{AlignRight: true}); err != nil || s.Start != 18 || s.Amounts[1][VMs] != 5 {
		t.Errorf("%v, %v", s, err)
	}
}
