package batch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/sim/workload"
)

var allPolicies = []string{
	"FCFS", "EASY", "Greedy*", "Greedy/per", "GreedyP*", "GreedyP/per", "GreedyPM*", "GreedyPM*/per/MINVT=600", "GreedyPM*/per/MINFT=300",
	"MCB8*", "MCB8*/per/MINVT=600", "/per", "/per/MINVT=600", "Evenkeel",
}

func drawJobs(t *rapid.T, nodes int) []Job {
	n := rapid.IntRange(1, 25).Draw(t, "jobs")
	jobs, at := make([]Job, n), 0.0
	for i := range jobs {
		at += float64(rapid.IntRange(0, 400).Draw(t, "gap"))
		jobs[i] = Job{
			Submit: at, Run: float64(rapid.IntRange(1, 3000).Draw(t, "run")), Tasks: rapid.IntRange(1, nodes).Draw(t, "tasks"),
			CPU: rapid.SampledFrom([]float64{0.25, 0.5, 1}).Draw(t, "cpu"), Memory: float64(rapid.IntRange(1, 10).Draw(t, "memory")) / 10,
		}
	}
	return jobs
}

// observer computes the work done in a replay a second time, only from where tasks are and what they are given.
type observer struct {
	t      *rapid.T
	done   map[int]float64
	budget float64 // of moves in one decision, bytes
	moved  float64 // bytes, so far
	young  float64 // progress below which no job is paused, seconds
	runs   map[int]bool
}

func (o *observer) watch(s *state, until float64) {
	if until < s.now {
		o.t.Fatalf("time goes back from %g to %g", s.now, until)
	}
	cpu, memory := make([]float64, s.Nodes), make([]float64, s.Nodes)
	for _, j := range s.jobs {
		if s.now < j.Submit {
			o.t.Fatalf("job %d is there before it is submitted", j.number)
		}
		if o.runs[j.number] && j.nodes == nil && j.done < o.young {
			o.t.Fatalf("job %d is paused after %g s of progress", j.number, j.done)
		}
		if o.runs[j.number] = j.nodes != nil; j.nodes == nil {
			continue
		}
		if !slices.IsSorted(j.nodes) || len(j.nodes) != j.Tasks {
			o.t.Fatalf("job %d on nodes %v", j.number, j.nodes)
		}
		for _, n := range j.nodes {
			cpu[n] += j.CPU * j.yield
			memory[n] += j.Memory
		}
		o.done[j.number] += max(0, until-s.now-j.penalty) * j.yield
	}
	for n := range cpu {
		if cpu[n] > 1+1e-6 || memory[n] > 1+1e-6 {
			o.t.Fatalf("node %d has %g of its CPU and %g of its memory given away", n, cpu[n], memory[n])
		}
	}
	if o.budget > 0 && s.result.MovedBytes-o.moved > o.budget+1e-6 {
		o.t.Fatalf("one decision moved %g bytes, more than %g", s.result.MovedBytes-o.moved, o.budget)
	}
	o.moved = s.result.MovedBytes
}

// Whatever the jobs and the policy: no node beyond its memory or CPU at any instant, no job before its submission, all work done
// and no more, no stretch below the bound, and the same again if it is done again.
func TestLaws(t *testing.T) {
	for _, name := range allPolicies {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := Cluster{Nodes: rapid.IntRange(2, 8).Draw(t, "nodes"), Memory: 100, Penalty: float64(rapid.SampledFrom([]int{0, 300}).Draw(t, "penalty"))}
				jobs := drawJobs(t, c.Nodes)
				var p Policy = DefaultEvenkeel()
				o := observer{t: t, done: map[int]float64{}, runs: map[int]bool{}}
				if e := DefaultEvenkeel(); name == "Evenkeel" {
					e.MoveBytes, e.CoolDown, e.MinResidency = 0.3, 600, 60
					p, o.budget, o.young = e, e.MoveBytes*c.Memory*float64(c.Nodes), e.Young
				} else {
					p = policy(t, name)
				}
				r, err := replay(c, jobs, p, o.watch)
				if err != nil {
					t.Fatal(err)
				}
				for i, j := range jobs {
					out := r.Jobs[i]
					if out.Begin < j.Submit || out.End < out.Begin+j.Run-1e-6 || math.Abs(o.done[i]-j.Run) > 1e-6*(1+j.Run) {
						t.Fatalf("job %d %+v: %+v, %g s done", i, j, out, o.done[i])
					}
					lowest := j.Run + c.Penalty*float64(min(1, out.Moves+out.Pauses))
					if out.End-out.Begin < lowest-1e-6 {
						t.Fatalf("job %d %+v: %+v, in spite of penalties", i, j, out)
					}
				}
				bound, err := Bound(c, jobs)
				if err != nil || r.MaxStretch < bound*(1-1e-6) {
					t.Fatalf("the greatest stretch is %g, below the bound %g (%v)", r.MaxStretch, bound, err)
				}
				again, err := Run(c, jobs, p)
				if err != nil || fmt.Sprintf("%v", again) != fmt.Sprintf("%v", r) {
					t.Fatalf("%v, and again %v (%v)", r, again, err)
				}
				if whole := name == "FCFS" || name == "EASY"; whole && (r.Pauses+r.Moves > 0 || r.MinYield < 1) {
					t.Fatalf("%+v", r)
				}
				if p, ok := p.(Sharing); ok && p.On != GreedyPM && p.On != RepackAll && p.Period == 0 && r.Moves > 0 {
					t.Fatalf("%d moves", r.Moves)
				}
			})
		})
	}
}

// A job that is pinned while others are placed again stays where it is, or is paused.
func TestRepackKeepsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Cluster{Nodes: 4, Memory: 100}
		s := &state{Cluster: c, now: 10000, cpu: make([]float64, 4), memory: make([]float64, 4), tasks: make([]int, 4)}
		s.rank = s.paperRank
		before := map[int][]int{}
		for i, j := range drawJobs(t, 4) {
			one := &job{Job: j, number: i, done: float64(rapid.IntRange(0, 10).Draw(t, "done"))}
			s.jobs = append(s.jobs, one)
			s.startGreedily(one)
			before[i] = one.nodes
		}
		pinned := func(j *job) bool { return j.done < 5 }
		s.repack(pinned)
		some := false
		for _, j := range s.jobs {
			some = some || placed(j)
			if before[j.number] != nil && pinned(j) && placed(j) && !slices.Equal(before[j.number], j.nodes) {
				t.Fatalf("job %d went from %v to %v", j.number, before[j.number], j.nodes)
			}
		}
		if !some {
			t.Fatal("no job runs")
		}
		for n, m := range s.memory {
			if m > 1+1e-6 {
				t.Fatalf("node %d has %g of its memory given away", n, m)
			}
		}
	})
}

// lublin is an instance as in the paper.
func lublin(t testing.TB, seed uint64, jobs int, load float64) []Job {
	drawn, err := workload.NewLublin(128).Draw(seed, jobs)
	if err != nil {
		t.Fatal(err)
	}
	workload.DrawNeeds(seed, drawn)
	if load > 0 {
		if drawn, err = workload.ScaleLoad(128, drawn, load); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]Job, len(drawn))
	for i, j := range drawn {
		out[i] = Job(j)
	}
	return out
}

// What the paper is about, and what Evenkeel adds, on one of its instances.
func TestOrderOfPolicies(t *testing.T) {
	jobs, c := lublin(t, 2, 300, 0.7), Cluster{128, 8e9, 300}
	got := map[string]Result{}
	for _, name := range []string{"FCFS", "EASY", "Greedy*", "GreedyPM*/per/MINVT=600", "Evenkeel"} {
		r, err := Run(c, jobs, policy(t, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = r
		t.Logf("%s: greatest stretch %.1f, %.3g bytes/s", name, r.MaxStretch, r.BytesPerSecond())
	}
	best, ours := got["GreedyPM*/per/MINVT=600"], got["Evenkeel"]
	if got["FCFS"].MaxStretch < got["EASY"].MaxStretch || got["EASY"].MaxStretch < 10*best.MaxStretch {
		t.Error("fractional sharing is not better than batch scheduling by far")
	}
	if ours.MaxStretch > best.MaxStretch || ours.BytesPerSecond() > best.BytesPerSecond()/2 {
		t.Error("Evenkeel is not better than the paper's best at fewer bytes")
	}
}

func BenchmarkReplay(b *testing.B) {
	jobs := lublin(b, 2, 1000, 0.7)
	for _, name := range []string{"EASY", "GreedyP*", "GreedyPM*/per/MINVT=600", "MCB8*/MINVT=600", "Evenkeel"} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := Run(Cluster{128, 8e9, 300}, jobs, policy(b, name)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Bound", func(b *testing.B) {
		for range b.N {
			if _, err := Bound(Cluster{128, 8e9, 300}, jobs); err != nil {
				b.Fatal(err)
			}
		}
	})
}
