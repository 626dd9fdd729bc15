package batch

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

type fataler interface {
	Helper()
	Fatal(...any)
}

func policy(t fataler, name string) Policy {
	t.Helper()
	if name == "Evenkeel" {
		return DefaultEvenkeel()
	}
	p, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Cases whose ends were worked out by hand. The penalty is 300 s, a node has 100 bytes.
func TestByHand(t *testing.T) {
	whole := func(submit, run float64, tasks int) Job { return Job{submit, run, tasks, 1, 0.1} }
	threeJobs := []Job{whole(0, 100, 1), whole(1, 50, 2), whole(2, 30, 1)}
	longLast := []Job{whole(0, 100, 1), whole(1, 50, 2), whole(2, 200, 1)}
	halves := []Job{whole(0, 100, 1), whole(50, 100, 1)}
	squeeze := []Job{{0, 1000, 1, 1, 0.6}, {500, 100, 1, 1, 0.6}}
	// The first two have a node each; where the third goes one of them must go, and fits beside the other.
	shift := []Job{{0, 10000, 1, 0.25, 0.4}, {0, 10000, 1, 0.25, 0.4}, {1000, 100, 1, 0.25, 0.7}}
	for _, c := range []struct {
		policy        string
		nodes         int
		jobs          []Job
		ends          []float64
		paused, moved float64 // bytes
	}{
		{"FCFS", 2, threeJobs, []float64{100, 150, 180}, 0, 0},
		// The third ends before the second can begin.
		{"EASY", 2, threeJobs, []float64{100, 150, 32}, 0, 0},
		// It would put the second off.
		{"EASY", 2, longLast, []float64{100, 150, 350}, 0, 0},
		// With three nodes the second starts at once, and the third waits for one of its nodes.
		{"EASY", 3, longLast, []float64{100, 51, 251}, 0, 0},
		// With four there is one left for the third.
		{"EASY", 4, longLast, []float64{100, 51, 202}, 0, 0},
		// A reservation of 3 of 4 nodes at 100 s leaves one: the third may run beyond it, on that one only.
		{"EASY", 4, []Job{whole(0, 100, 2), whole(1, 50, 3), whole(2, 200, 1), whole(3, 200, 1)}, []float64{100, 150, 202, 350}, 0, 0},
		// Jobs of four tasks with half a node each take two nodes.
		{"FCFS", 2, []Job{{0, 10, 4, 0.5, 0.5}, {0, 10, 1, 0.5, 0.5}}, []float64{10, 20}, 0, 0},
		// Alone for 50 s, then at half speed until the first has its other 50 s.
		{"Greedy*", 1, halves, []float64{150, 200}, 0, 0},
		{"GreedyP*/per/MINVT=600", 1, halves, []float64{150, 200}, 0, 0},
		{"Greedy*", 1, squeeze, []float64{1000, 1100}, 0, 0},
		// 500 s done, 100 s of pause, 300 s of penalty, the other 500 s; 60 bytes out and in.
		{"GreedyP*", 1, squeeze, []float64{1400, 600}, 120, 0},
		{"GreedyPM*", 1, squeeze, []float64{1400, 600}, 120, 0},
		{"MCB8*", 1, squeeze, []float64{1400, 600}, 120, 0},
		{"Evenkeel", 1, squeeze, []float64{1400, 600}, 120, 0},
		// The second waits until the third has ended: 100 s and the penalty.
		{"GreedyP*", 2, shift, []float64{10000, 10400, 1100}, 80, 0},
		// It goes to the other node at once: only the penalty.
		{"GreedyPM*", 2, shift, []float64{10000, 10300, 1100}, 0, 40},
		// 200 old jobs of half a percent of the memory each, and a young one: the old ones keep half the node between them.
		{"Evenkeel", 1, append(slices.Repeat([]Job{{0, 1000, 1, 1, 0.001}}, 200), Job{100000, 10, 1, 1, 0.1}), append(slices.Repeat([]float64{200010}, 200), 100020), 0, 0},
		// Nothing happens on submission; the period ends at 600 s.
		{"/per", 1, []Job{whole(0, 100, 1)}, []float64{700}, 0, 0},
		{"Greedy/per", 1, squeeze[:1], []float64{1000}, 0, 0},
		// The young one is served first: it gets 99% of the node, the old one the rest, and again all from 500 + 100/0.99 on.
		{"Evenkeel", 1, []Job{{0, 1000, 1, 1, 0.1}, {500, 50, 1, 1, 0.1}}, []float64{1050, 500 + 50/0.99}, 0, 0},
	} {
		t.Run(fmt.Sprintf("%s on %d", c.policy, c.nodes), func(t *testing.T) {
			r, err := Run(Cluster{c.nodes, 100, 300}, c.jobs, policy(t, c.policy))
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.ends {
				if got := r.Jobs[i].End; math.Abs(got-want) > 1e-3 {
					t.Errorf("job %d ends at %g s, wanted %g", i, got, want)
				}
			}
			if math.Abs(r.PausedBytes-c.paused) > 1e-6 || math.Abs(r.MovedBytes-c.moved) > 1e-6 {
				t.Errorf("%g bytes for pauses and %g for moves, wanted %g and %g", r.PausedBytes, r.MovedBytes, c.paused, c.moved)
			}
		})
	}
}

// What a result adds up, for two jobs that share a node: 50 s alone, 100 s at half speed, 50 s alone.
func TestKnownResults(t *testing.T) {
	r, err := Run(Cluster{1, 100, 300}, []Job{{0, 100, 1, 1, 0.1}, {50, 100, 1, 1, 0.1}}, policy(t, "Greedy*"))
	if err != nil {
		t.Fatal(err)
	}
	// 200 s of work in 300 s of jobs that are placed; what is wanted is never more than the node, which is never idle.
	want := Result{MaxStretch: 1.5, AvgStretch: 1.5, Makespan: 200, Idle: 0, MeanYield: 2.0 / 3, MinYield: 0.5, Decisions: 3, Live: 2}
	r.Jobs = nil
	if fmt.Sprintf("%.9v", r) != fmt.Sprintf("%.9v", want) {
		t.Errorf("%+v\nwanted %+v", r, want)
	}
	// A pause of 100 s and a penalty of 300 s, in which the CPU is wanted and not used, of 1,100 s of work.
	r, err = Run(Cluster{1, 100, 300}, []Job{{0, 1000, 1, 1, 0.6}, {500, 100, 1, 1, 0.6}}, policy(t, "GreedyP*"))
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.Idle-300.0/1100) > 1e-9 || r.Pauses != 1 || r.Jobs[0].Pauses != 1 || math.Abs(r.MeanYield-1100.0/1400) > 1e-9 {
		t.Errorf("%+v", r)
	}
}

func TestStretch(t *testing.T) {
	for _, c := range [][3]float64{{100, 50, 2}, {20, 1, 2}, {5, 1, 1}, {100, 10, 10}, {100, 100, 1}} {
		if got := Stretch(c[0], c[1]); got != c[2] {
			t.Errorf("stretch of %g s for %g s is %g, wanted %g", c[0], c[1], got, c[2])
		}
	}
}

// Yields that rise together until a node is full: the first node has three tasks, the second one of the same job and one more.
func TestFillEvenly(t *testing.T) {
	s := &state{Cluster: Cluster{Nodes: 3}}
	for _, j := range []Job{{0, 1, 2, 1, 0.1}, {0, 1, 2, 0.5, 0.1}, {0, 1, 1, 1, 0.1}, {0, 1, 1, 0.25, 0.1}} {
		s.jobs = append(s.jobs, &job{Job: j})
	}
	for i, nodes := range [][]int{{0, 1}, {0, 0}, {1}, {2}} {
		s.jobs[i].nodes = nodes
	}
	s.fillEvenly()
	// Node 0: 1 + 0.5 + 0.5 at 1/2; node 1 then has half left for the third job.
	for i, want := range []float64{0.5, 0.5, 0.5, 1} {
		if math.Abs(s.jobs[i].yield-want) > 1e-9 {
			t.Errorf("job %d has yield %g, wanted %g", i, s.jobs[i].yield, want)
		}
	}
	s.jobs[1].nodes = []int{0, 0}
	s.jobs[1].CPU = 1 // node 0 at 1/3, node 1 has two thirds left
	s.fillEvenly()
	for i, want := range []float64{1.0 / 3, 1.0 / 3, 2.0 / 3, 1} {
		if math.Abs(s.jobs[i].yield-want) > 1e-9 {
			t.Errorf("job %d has yield %g, wanted %g", i, s.jobs[i].yield, want)
		}
	}
}

func TestBound(t *testing.T) {
	one := func(submit, run, cpu float64, tasks int) Job { return Job{submit, run, tasks, cpu, 0.1} }
	for _, c := range []struct {
		jobs []Job
		want float64
	}{
		{[]Job{one(0, 100, 1, 1), one(0, 100, 0.5, 1)}, 1},                                           // a node each
		{[]Job{one(0, 100, 1, 2), one(0, 100, 1, 2)}, 2},                                             // 400 node seconds on two nodes
		{[]Job{one(0, 100, 1, 2), one(0, 50, 1, 2)}, 1.5},                                            // the short one first: 50 and 150
		{[]Job{one(0, 5, 1, 2), one(0, 5, 1, 2)}, 1},                                                 // both before 10 s
		{[]Job{one(0, 1000, 1, 2), one(900, 100, 1, 2)}, 1.1},                                        // 1,100 s of work by 1000 S
		{[]Job{one(0, 1000, 1, 2), one(900, 100, 1, 2), one(900, 100, 1, 2)}, 2},                     // the last two, by themselves
		{[]Job{one(0, 100, 1, 2), one(0, 100, 1, 2), one(1000, 100, 1, 2), one(1000, 100, 1, 2)}, 2}, // twice
	} {
		got, err := Bound(Cluster{2, 1, 300}, c.jobs)
		if err != nil || got > c.want*(1+1e-6) || got < c.want*(1-2*boundPrecision) {
			t.Errorf("%v: %g (%v), wanted %g", c.jobs, got, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, name := range []string{
		"FCFS", "EASY", "Greedy*/OPT=MIN", "GreedyP*/OPT=MIN", "GreedyPM*/per/OPT=MIN/MINVT=600", "MCB8*/OPT=MIN/MINFT=300",
		"/per/OPT=MIN/MINVT=600", "GreedyPM*/per=3600/OPT=MIN",
	} {
		if got := policy(t, name).Name(); got != name {
			t.Errorf("%q is called %q", name, got)
		}
	}
	for name, want := range map[string]string{
		"": "never starts", "LIFO": `"LIFO"`, "Greedy": "never starts", "Greedy*/per=0": `"per=0"`, "Greedy*/OPT=AVG": `"OPT=AVG"`,
		"Greedy*/MINVT=1/MINFT=1": `"MINFT=1"`, "MCB8*/MINVT=NaN": `"MINVT=NaN"`,
	} {
		if _, err := Parse(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, wanted %s", name, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	good := Job{0, 1, 1, 1, 0.1}
	for _, c := range []struct {
		cluster Cluster
		jobs    []Job
		want    string
	}{
		{Cluster{}, []Job{good}, "0 nodes"},
		{Cluster{Nodes: 1}, nil, "no jobs"},
		{Cluster{Nodes: 1}, []Job{{0, 0, 1, 1, 0.1}}, "job 0"},
		{Cluster{Nodes: 1}, []Job{{0, math.NaN(), 1, 1, 0.1}}, "job 0"},
		{Cluster{Nodes: 1}, []Job{good, {0, 1, 1, 1.1, 0.1}}, "job 1"},
		{Cluster{Nodes: 1}, []Job{{5, 1, 1, 1, 0.1}, good}, "before"},
		{Cluster{Nodes: 1}, []Job{{0, 1, 3, 0.1, 0.4}}, "of 3 tasks 2"},
		{Cluster{Nodes: 2}, []Job{{0, 1, 3, 1, 0.1}}, "wants 3 nodes"},
	} {
		if _, err := Run(c.cluster, c.jobs, FCFS()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, wanted %q", c.jobs, err, c.want)
		}
		if _, err := Bound(c.cluster, c.jobs); err == nil {
			t.Errorf("%+v have a bound", c.jobs)
		}
	}
}
