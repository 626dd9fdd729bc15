// Package pace lays out the experiments of Pace, Milios, Carra and Michiardi, "Dynamic Resource Shaping for Compute Clusters", and writes the report
// on them: published figures beside ours, and plots. It runs nothing: a Player does.
package pace

import (
	"fmt"
	"math"

	"evenkeel/replay"
	"evenkeel/workload"
)

// Size of the experiments.
type Size struct {
	Seed  uint64
	Seeds int // workloads that the oracle is tried on

	Oracle workload.Pace // what the oracle is tried on
	Maps   workload.Pace // for the heat maps
	Own    workload.Pace // for the comparison with Evenkeel's settings, which forecast as production does
	Loads  []float64
	K1, K2 []float64
}

// DefaultSize is 10 hosts and 6,000 applications for the oracle, fewer for what forecasts: two minutes of a processor in all.
func DefaultSize() Size {
	scaled := workload.PaceDefault.Scaled
	return Size{Seed: 1, Seeds: 2, Oracle: scaled(10, 6000, 7), Maps: scaled(2, 150, 0.5), Own: scaled(1, 75, 0.25),
		Loads: []float64{1.1, 1.3, 1.5, 2}, K1: []float64{0, 0.05, 0.25, 1}, K2: []float64{0, 1, 2, 3}}
}

// SmallSize is for a look, in seconds.
func SmallSize() Size {
	s := DefaultSize()
	s.Seeds = 1
	scaled := workload.PaceDefault.Scaled
	s.Oracle, s.Maps, s.Own = scaled(4, 400, 0.5), scaled(2, 60, 0.3), scaled(2, 20, 0.1)
	s.Loads, s.K1, s.K2 = []float64{1.2, 1.5}, []float64{0.05, 1}, []float64{0, 3}
	return s
}

// Player plays a workload under a policy: see the policies of vcsim run.
type Player func(w workload.Pace, seed uint64, policy string) (*replay.Result, error)

// Results of all experiments.
type Results struct {
	Size   Size
	Oracle map[string][]*replay.Result // [policy], by seed
	Sweep  map[string][]*replay.Result // [policy], by load
	Base   *replay.Result              // of the heat maps
	Soft   map[string]*replay.Result   // of the same workload, memory limits that give way where there is memory
	Maps   map[string][][]*replay.Result
	Own    []*replay.Result
}

// What is compared.
var (
	Oracles  = []string{"reservation", "optimistic", "pessimistic"}
	Mapped   = []string{"arima10", "gp10"}
	OwnLists = []string{"reservation", "pessimistic:oracle", "pessimistic-hard:arima10:0.05:0", "pessimistic-hard:gp10:0.05:3", "pessimistic:arima10:0.05:0", "pessimistic:gp10:0.05:3",
		"evenkeel:oracle", "evenkeel:last", "evenkeel:mixture"}
)

// Run does all experiments.
func Run(s Size, play Player) (*Results, error) {
	r := &Results{Size: s, Oracle: map[string][]*replay.Result{}, Sweep: map[string][]*replay.Result{}, Soft: map[string]*replay.Result{}, Maps: map[string][][]*replay.Result{}}
	for _, p := range Oracles {
		for i := range s.Seeds {
			one, err := play(s.Oracle, s.Seed+uint64(i), p)
			if err != nil {
				return nil, err
			}
			r.Oracle[p] = append(r.Oracle[p], one)
		}
		for _, load := range s.Loads {
			w := s.Oracle
			w.Load = load
			one, err := play(w, s.Seed, p)
			if err != nil {
				return nil, err
			}
			r.Sweep[p] = append(r.Sweep[p], one)
		}
	}
	var err error
	if r.Base, err = play(s.Maps, s.Seed, "reservation"); err != nil {
		return nil, err
	}
	for _, f := range Mapped {
		for _, k1 := range s.K1 {
			var row []*replay.Result
			for _, k2 := range s.K2 {
				if k1 == 1 && len(row) > 0 { // all of the request, whatever K2 is
					row = append(row, row[0])
					continue
				}
				one, err := play(s.Maps, s.Seed, fmt.Sprintf("pessimistic-hard:%s:%v:%v", f, k1, k2))
				if err != nil {
					return nil, err
				}
				row = append(row, one)
			}
			r.Maps[f] = append(r.Maps[f], row)
		}
		for _, k2 := range []float64{0, 3} {
			name := fmt.Sprintf("pessimistic:%s:0.05:%v", f, k2)
			if r.Soft[name], err = play(s.Maps, s.Seed, name); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range OwnLists {
		one, err := play(s.Own, s.Seed, p)
		if err != nil {
			return nil, err
		}
		r.Own = append(r.Own, one)
	}
	return r, nil
}

// cell is the result of a heat map's cell; nil where it was not asked for.
func (r *Results) cell(model string, k1, k2 float64) *replay.Result {
	for i, a := range r.Size.K1 {
		for j, b := range r.Size.K2 {
			if a == k1 && b == k2 {
				return r.Maps[model][i][j]
			}
		}
	}
	return nil
}

// mean of a metric over results.
func mean(rs []*replay.Result, of func(*replay.Result) float64) float64 {
	s := 0.0
	for _, r := range rs {
		s += of(r) / float64(len(rs))
	}
	return s
}

func turnaround(r *replay.Result) float64 { return r.Turnaround.Mean }

// ratio is how many times shorter b is than a.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}
