// Package pace lays out the experiments of Pace, Milios, Carra and Michiardi, "Dynamic Resource Shaping for Compute Clusters", and writes the report
// on them: published figures beside ours, and plots. It runs nothing: a Player does.
package pace

import (
	"fmt"
	"math"

	"evenkeel/sim/replay"
	"evenkeel/sim/workload"
)

// Size of the experiments.
type Size struct {
	Seed  uint64
	Seeds int // workloads that the oracle is tried on

	Oracle     workload.Pace // what the oracle is tried on
	Maps       workload.Pace // for the heat maps, and for what they depend on
	Own        workload.Pace // for the comparison with Evenkeel's settings
	Validation uint64        // seed of that comparison: none that a setting was chosen on
	Loads      []float64
	K1, K2     []float64
	Causes     []Cause
	Draws      int // of the causes, from Seed on

	Long     workload.Pace // for what is played at length
	AtLength []string      // under which policies, besides reservation; nil: that is not played
}

// Cause is one setting that the gains over reservation may depend on, changed alone or with others.
type Cause struct {
	Name    string
	Sampled float64 // of the workload
	Load    float64
	Policy  string
	Times   int // so many times the hosts, in so many times the days
}

// causes that were tried. A policy may be followed by what else is different: see Player.
func causes(load float64) (out []Cause) {
	const hard, soft = "pessimistic-hard:persist:0.05:0", "pessimistic:persist:0.05:0"
	add := func(name string, sampled, load float64, policy string) {
		out = append(out, Cause{name, sampled, load, policy, 1})
	}
	add("none: memory passes all of its shape in each life, hard limits, measured each minute, 10 minutes of grace", 0, load, hard)
	add("soft limits", 0, load, soft)
	add("2 minutes of grace", 0, load, hard+"@grace=120")
	add("measured every 10 s", 0, load, hard+"@tick=10")
	add("who failed is never given its request, 10 failures apart", 0, load, hard+"@trust=10")
	add("load 2", 0, 2, hard)
	add("memory changes every 30 s at most", 30, load, hard)
	add("every 60 s", 60, load, hard)
	add("every 300 s", workload.TraceSampling, load, hard)
	add("every 300 s, soft limits", workload.TraceSampling, load, soft)
	add("every 300 s, 2 minutes of grace", workload.TraceSampling, load, hard+"@grace=120")
	add("every 300 s, load 2", workload.TraceSampling, 2, hard)
	add("every 300 s, load 2, 2 minutes of grace", workload.TraceSampling, 2, hard+"@grace=120")
	for _, load := range []float64{load, 2} {
		name := fmt.Sprintf("every 300 s, load %v, 2 minutes of grace, twice the hosts and the days", load)
		out = append(out, Cause{name, workload.TraceSampling, load, hard + "@grace=120", 2})
	}
	return out
}

// DefaultSize is 10 hosts and 6,000 applications for the oracle, fewer for what forecasts: a quarter of an hour of a processor in all.
func DefaultSize() Size {
	scaled := workload.PaceDefault.Scaled
	s := Size{Seed: 1, Seeds: 2, Oracle: scaled(10, 6000, 7), Validation: 11, Draws: 2,
		Loads: []float64{1.1, 1.3, 1.5, 2}, K1: []float64{0, 0.05, 0.25, 1}, K2: []float64{0, 1, 2, 3}, Causes: causes(workload.PaceDefault.Load)}
	s.Forecasting(4, 600, 1)
	s.Lengthen(workload.PaceDefault.Days)
	return s
}

// Lengthen sets the days of what is played at length, with as many applications a day.
func (s *Size) Lengthen(days float64) {
	const hosts = 10
	p := workload.PaceDefault
	s.Long = p.Scaled(hosts, int(float64(p.Apps)*hosts/float64(p.Hosts)*days/p.Days), days)
	s.Long.Sampled = workload.TraceSampling
}

// Forecasting sets the size of what is played with forecasts.
func (s *Size) Forecasting(hosts, apps int, days float64) {
	s.Maps = workload.PaceDefault.Scaled(hosts, apps, days)
	s.Maps.Sampled = workload.TraceSampling
	s.Own = s.Maps
}

// SmallSize is for a look, in seconds.
func SmallSize() Size {
	s := DefaultSize()
	s.Seeds = 1
	scaled := workload.PaceDefault.Scaled
	s.Oracle, s.Causes, s.Draws = scaled(4, 400, 0.5), causes(workload.PaceDefault.Load)[:2], 1
	s.Forecasting(2, 60, 0.3)
	s.Own = scaled(2, 20, 0.1)
	s.Loads, s.K1, s.K2 = []float64{1.2, 1.5}, []float64{0.05, 1}, []float64{0, 3}
	return s
}

// Player plays a workload under a policy: see the policies of vcsim run. One may be followed by @ and what is different, with commas between: grace=SECONDS,
// trust=FAILURES, tick=SECONDS.
type Player func(w workload.Pace, seed uint64, policy string) (*replay.Result, error)

// Results of all experiments.
type Results struct {
	Size   Size
	Oracle map[string][]*replay.Result // [policy], by seed
	Sweep  map[string][]*replay.Result // [policy], by load
	Base   *replay.Result              // of the heat maps
	Soft   map[string]*replay.Result   // of the same workload, with memory limits that a component may exceed while its host has memory
	Maps   map[string][][]*replay.Result
	Own    []*replay.Result
	Causes [][]Tried // by cause, by draw
	Long   []*replay.Result
}

// Tried is a cause's play, and that of reservation on the same workload.
type Tried struct{ Base, Play *replay.Result }

// What is compared.
var (
	Oracles  = []string{"reservation", "optimistic", "pessimistic"}
	Mapped   = []string{"arima10", "gp10"}
	OwnLists = []string{"reservation", "pessimistic-hard:arima10:0.05:0", "pessimistic-hard:gp10:0.05:3", "pessimistic:arima10:0.05:0", "pessimistic:gp10:0.05:3", "pessimistic:oracle",
		"evenkeel:oracle", "evenkeel:last", Ours}
)

// Ours is the setting of Evenkeel that is compared with Pace's.
const Ours = "evenkeel:persist:0.05:0@grace=60"

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
		one, err := play(s.Own, s.Validation, p)
		if err != nil {
			return nil, err
		}
		r.Own = append(r.Own, one)
	}
	for _, c := range s.Causes {
		var tried []Tried
		w := workload.PaceDefault.Scaled(c.Times*s.Maps.Hosts, c.Times*c.Times*s.Maps.Apps, float64(c.Times)*s.Maps.Days)
		w.Sampled, w.Load = c.Sampled, c.Load
		for i := range s.Draws {
			base, err := play(w, s.Seed+uint64(i), "reservation")
			if err != nil {
				return nil, err
			}
			one, err := play(w, s.Seed+uint64(i), c.Policy)
			if err != nil {
				return nil, err
			}
			tried = append(tried, Tried{base, one})
		}
		r.Causes = append(r.Causes, tried)
	}
	return r, r.atLength(play)
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
