package batch

import (
	"math"
	"slices"
)

// FCFS starts jobs in the order of submission, each on nodes of its own.
func FCFS() Policy { return whole{backfill: false} }

// EASY is FCFS with aggressive backfilling: the first job that waits has a reservation, and a later one may start if it does not
// put it off. Run times are known exactly.
func EASY() Policy { return whole{backfill: true} }

type whole struct{ backfill bool }

func (w whole) Name() string {
	if w.backfill {
		return "EASY"
	}
	return "FCFS"
}

func (w whole) start(s *state) scheduler { return &wholeNodes{whole: w, state: s} }

// wholeNodes never lifts a job.
type wholeNodes struct {
	whole
	*state
}

func (w *wholeNodes) wake() float64 { return math.Inf(1) }

func (w *wholeNodes) share() error {
	for _, j := range w.jobs {
		j.yield = 1
	}
	return nil
}

func (w *wholeNodes) decide(event) error {
	free := 0
	for n := range w.tasks {
		if w.tasks[n] == 0 {
			free++
		}
	}
	// While reserved is true the job in front can begin at shadow, and leaves unused nodes free then.
	reserved, shadow, unused := false, 0.0, 0
	for _, j := range w.jobs {
		if placed(j) {
			continue
		}
		want := j.wholeNodes()
		switch {
		case want <= free && !reserved:
		case !w.backfill:
			return nil
		case !reserved:
			reserved = true
			shadow, unused = w.reserve(want, free)
			continue
		case want <= free && w.now+j.Run <= shadow+slack:
		case want <= free && want <= unused:
			unused -= want
		default:
			continue
		}
		free -= want
		w.startOn(j)
	}
	return nil
}

// reserve is when so many nodes will be free, and how many more will.
func (w *wholeNodes) reserve(want, free int) (at float64, unused int) {
	running := slices.DeleteFunc(slices.Clone(w.jobs), waiting)
	end := func(j *job) float64 { return w.now + j.Run - j.done }
	slices.SortStableFunc(running, func(a, b *job) int {
		if ea, eb := end(a), end(b); ea != eb {
			if ea < eb {
				return -1
			}
			return 1
		}
		return 0
	})
	for i, j := range running {
		free += j.wholeNodes()
		// All that end at that instant leave.
		if free >= want && (i+1 == len(running) || end(running[i+1]) > end(j)+slack) {
			return end(j), free - want
		}
	}
	return math.Inf(1), 0
}

// startOn puts a job on the first nodes that are free.
func (w *wholeNodes) startOn(j *job) {
	nodes, per := make([]int, 0, j.Tasks), j.perNode()
	for n := 0; len(nodes) < j.Tasks; n++ {
		if w.tasks[n] > 0 {
			continue
		}
		for k := 0; k < per && len(nodes) < j.Tasks; k++ {
			nodes = append(nodes, n)
		}
	}
	w.place(j, nodes)
}
