package morpheus

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// attainments are how many times fewer avoidable misses there are to be than with the users' provisioning: as many, and a fifth as in the paper.
var attainments = []float64{1, 5}

// avoidable is the share of runs that missed though they would not have with all that they ask for, as a mean over jobs.
func (s *Study) avoidable(o *outcome) (share float64) {
	for i, missed := range o.ByJob {
		c := &s.learned[i]
		hopeless := 0.0
		for k := range c.future {
			if c.hopeless(&c.future[k]) {
				hopeless++
			}
		}
		share += (missed - hopeless/float64(max(1, len(c.future)))) / float64(len(o.ByJob))
	}
	return share
}

// part is a row of figure 10a: what is reserved and how. A scale is sought with which few enough avoidable deadlines are missed.
type part struct {
	name     string
	skylines func(scale float64) [][]float64
	how      placement
	free     bool   // runs have what their owners ask for from their start on, and no slot
	extra    *rules // of re-provisioning; nil: none
}

// parts is figure 10a: the least cluster with so much attainment, by the owners' or learned provisioning, packed or as it comes.
func (s *Study) parts() (*Table, error) {
	t := &Table{Title: "The least cluster on which as many, or a fifth as many, avoidable deadlines are missed as with the users' provisioning"}
	for _, a := range attainments {
		t.Columns = append(t.Columns, Column{Name: fmt.Sprintf("cluster, %g times fewer", a), Percent: true, Digits: 1}, Column{Name: "scaled by", Digits: 2},
			Column{Name: "avoidable misses", Percent: true, Digits: 2}, Column{Name: "seeds that reach it", Percent: true})
	}
	own, err := s.userPlan(1, atArrival)
	if err != nil {
		return nil, err
	}
	learned, err := s.skylines(alphaNamed(paperAlpha))
	if err != nil {
		return nil, err
	}
	owners := func(scale float64) [][]float64 {
		out := make([][]float64, len(s.learned))
		for i := range out {
			out[i] = s.learned[i].userSkyline(scale)
		}
		return out
	}
	served, err := s.skylines(borrowedName)
	if err != nil {
		return nil, err
	}
	times := func(skylines [][]float64) func(scale float64) [][]float64 {
		return func(scale float64) [][]float64 {
			out := make([][]float64, len(skylines))
			for i, v := range skylines {
				out[i] = make([]float64, len(v))
				floats.ScaleTo(out[i], scale, v)
			}
			return out
		}
	}
	model, borrowed := times(learned), times(served)
	paper, late := asInPaper(), forLateRuns()
	for _, row := range []part{
		{"users, at arrival", owners, atArrival, true, nil}, {"users, LowCost", owners, lowCost, false, nil},
		{"alpha 1%, at arrival", model, atArrival, false, nil}, {"alpha 1%, LowCost", model, lowCost, false, nil},
		{"users, LowCost, re-provisioned", owners, lowCost, false, &paper}, {"alpha 1%, LowCost, re-provisioned", model, lowCost, false, &paper},
		{"alpha 1%, LowCost, late runs only", model, lowCost, false, &late},
		{borrowedRow + ", LowCost", borrowed, lowCost, false, nil}, {borrowedRow + ", LowCost, late runs only", borrowed, lowCost, false, &late},
	} {
		var values []float64
		for _, a := range attainments {
			r, err := s.scaledTo(s.avoidable(&s.byOwners)/a, row)
			if err != nil {
				return nil, err
			}
			reached := 1.0
			if !r.reached {
				r.cluster, reached = math.NaN(), 0
			}
			values = append(values, r.cluster/own.peak, r.scale, r.missed, reached)
		}
		t.row(row.name, values...)
	}
	return t, nil
}

const (
	maxScale = 16.0 // of what is reserved
	scalings = 9    // steps of the search for the scale
)

type scaled struct {
	cluster, scale, missed float64
	reached                bool
}

// scaledTo finds the least scale with which no more than a share of avoidable deadlines is missed, from 1/maxScale to maxScale; the largest if none does.
func (s *Study) scaledTo(target float64, row part) (best scaled, err error) {
	try := func(x float64) (bool, error) {
		p, err := place(s.learned, row.skylines(x), row.how)
		if err != nil {
			return false, err
		}
		var o outcome
		switch {
		case row.free:
			o = byUsers(s.learned, x)
		case row.extra != nil:
			o = p.reprovisioned(s.learned, p.peak, *row.extra)
		default:
			o = p.onlyReserved(s.learned)
		}
		missed := s.avoidable(&o)
		if reached := missed <= target+1e-12; reached || !best.reached {
			best = scaled{p.peak, x, missed, reached}
		}
		return missed <= target+1e-12, nil
	}
	low, high := -math.Log(maxScale), math.Log(maxScale)
	if ok, err := try(math.Exp(high)); err != nil || !ok {
		return best, err
	}
	for range scalings {
		middle := (low + high) / 2
		ok, err := try(math.Exp(middle))
		if err != nil {
			return best, err
		}
		if ok {
			high = middle
		} else {
			low = middle
		}
	}
	return best, nil
}

// reprovisioning is figure 10b: misses for each alpha with and without re-provisioning, on a cluster in which the reservations just have room.
func (s *Study) reprovisioning() (*Table, error) {
	const (
		equal, equalRuns = "users at equal utilization", "users' of all runs"
		ours, theirs     = "avoidable", "users' avoidable"
		bound            = "a clairvoyant's"
	)
	t := &Table{Title: "Deadlines missed without and with re-provisioning", Columns: []Column{
		{Name: "cluster", Percent: true, Digits: 1}, {Name: "provisioned/used", Digits: 2}, {Name: "of it granted", Percent: true, Digits: 1},
		{Name: missedName, Percent: true, Digits: 2}, {Name: equal, Percent: true, Digits: 2}, {Name: "over missed", Digits: 1, Over: equal, Under: missedName},
		{Name: bound, Percent: true, Digits: 2}, {Name: "over a clairvoyant's", Digits: 1, Over: equal, Under: bound},
		{Name: ours, Percent: true, Digits: 2}, {Name: theirs, Percent: true, Digits: 2}, {Name: "over avoidable", Digits: 1, Over: theirs, Under: ours},
		{Name: runsName, Percent: true, Digits: 2}, {Name: equalRuns, Percent: true, Digits: 2}, {Name: "over them", Digits: 1, Over: equalRuns, Under: runsName},
		{Name: "unavoidable", Percent: true, Digits: 2}}}
	own, err := s.userPlan(1, atArrival)
	if err != nil {
		return nil, err
	}
	enter := func(name string, cluster float64, o outcome) {
		all := o.Reserved + o.Granted
		users, _ := s.usersWith(all)
		n := float64(o.Runs)
		avoidable := s.avoidable(&o)
		t.row(name, cluster/own.peak, all/o.Used, o.Granted/all, o.missShare(), users.missShare(), math.NaN(), o.missShare()-avoidable, math.NaN(),
			avoidable, s.avoidable(&users), math.NaN(), float64(o.Missed)/n, float64(users.Missed)/n, math.NaN(), float64(o.Hopeless)/n)
	}
	enter(byOwnersRow, own.peak, s.byOwners)
	rows := []struct {
		name, skylines string
		how            placement
	}{{borrowedRow, borrowedName, lowCost}}
	for _, alpha := range alphas {
		rows = append(rows, struct {
			name, skylines string
			how            placement
		}{"alpha " + percentOf(alpha), alphaNamed(alpha), lowCost})
	}
	rows = append(rows, struct {
		name, skylines string
		how            placement
	}{"p95, align-right", "p95", alignRight})
	for _, row := range rows {
		p, err := s.plan(row.skylines, row.how)
		if err != nil {
			return nil, err
		}
		name := row.name
		enter(name, p.peak, p.onlyReserved(s.learned))
		enter(name+", re-provisioned", p.peak, p.reprovisioned(s.learned, p.peak, asInPaper()))
		enter(name+", late runs only", p.peak, p.reprovisioned(s.learned, p.peak, forLateRuns()))
	}
	// On a cluster of equal size: what p95 misses less may be owed to the room that its peak leaves.
	right, err := s.plan("p95", alignRight)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{alphaNamed(paperAlpha), borrowedName} {
		p, err := s.plan(name, lowCost)
		if err != nil {
			return nil, err
		}
		size := max(p.peak, right.peak)
		if name == borrowedName {
			name = borrowedRow
		} else {
			name = "alpha " + percentOf(paperAlpha)
		}
		enter(name+", on the cluster of p95: re-provisioned", size, p.reprovisioned(s.learned, size, asInPaper()))
		enter(name+", on the cluster of p95: late runs only", size, p.reprovisioned(s.learned, size, forLateRuns()))
	}
	return t, nil
}
