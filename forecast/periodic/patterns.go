package periodic

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// MinRuns is how many runs make a pattern.
const MinRuns = 8

const (
	minCoverage = 0.7  // of the periods from the first run to the last, those that had a run
	maxCV       = 0.1  // MAD / median of the times between runs (sec. 4)
	chance      = 1e-3 // that arrivals without a pattern, at the same mean rate, show one anywhere in a group
	maxPatterns = 8    // of a group
	maxTimes    = 600  // the latest runs of a group that are considered
	maxPeriods  = 1e6  // from the first of them to the last
	rounding    = 1e-3 // seconds: more than what sums of times since 1970 lose
)

// Pattern is a period in which runs begin.
type Pattern struct {
	Period time.Duration
	// Wall: the wall clock of the zone keeps the period, so that a daily run moves by an hour in UTC when summer time begins.
	// Otherwise the time that passes does.
	Wall bool
	// Anchor is when a typical run begins in the pattern's first period, on that clock; its location, UTC, says nothing.
	Anchor time.Time
	// Runs are the positions of its runs in the input, in order of time, at most one of a period.
	Runs []int
	// Periods are those from the first run to the last; some may have no run.
	Periods int
	// CV is MAD/median of the times between successive runs, each divided by its number of periods.
	CV float64
}

// Clock is the zone on whose clock a pattern that was found in a zone has its times: that zone, or UTC.
func (p Pattern) Clock(zone *time.Location) *time.Location {
	if p.Wall {
		return zone
	}
	return time.UTC
}

// natural periods: most jobs have one (fig. 1b).
var natural = []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// windows are the shares of a period in which the runs of a pattern begin. The widest has runs with a jitter of 5%.
var windows = []float64{0.02, 0.05, 0.1, 0.2}

// Patterns finds in which periods runs begin that bear one name, the pattern with most runs first. Runs that one pattern
// explains are no evidence for the next, so that jobs of one name are kept apart.
func Patterns(times []time.Time, zone *time.Location) (out []Pattern) {
	rest := make([]int, len(times))
	for i := range rest {
		rest[i] = i
	}
	slices.SortStableFunc(rest, func(a, b int) int { return times[a].Compare(times[b]) })
	rest = rest[max(0, len(rest)-maxTimes):]
	for len(out) < maxPatterns && len(rest) >= MinRuns {
		p, found := best(times, rest, zone)
		if !found {
			break
		}
		out = append(out, p)
		rest = slices.DeleteFunc(rest, func(i int) bool { return slices.Contains(p.Runs, i) })
	}
	return out
}

// seconds of a clock since 1970-01-01 00:00 of it.
func seconds(t time.Time, zone *time.Location, wall bool) float64 {
	s := float64(t.Unix()) + float64(t.Nanosecond())*1e-9
	if wall {
		_, offset := t.In(zone).Zone()
		s += float64(offset)
	}
	return s
}

// steady says whether the zone's clock is not put forward or back between some runs.
func steady(times []time.Time, runs []int, zone *time.Location) bool {
	_, first := times[runs[0]].In(zone).Zone()
	return !slices.ContainsFunc(runs, func(i int) bool { _, offset := times[i].In(zone).Zone(); return offset != first })
}

// best finds the pattern that explains most of some runs, in order of time.
func best(times []time.Time, runs []int, zone *time.Location) (Pattern, bool) {
	var top Pattern
	score := math.Inf(-1)
	for _, wall := range []bool{true, false} {
		if !wall && steady(times, runs, zone) {
			break // one clock
		}
		runs := slices.Clone(runs) // in the order of this clock, which shows an hour twice when it is put back
		slices.SortStableFunc(runs, func(a, b int) int { return cmp.Compare(seconds(times[a], zone, wall), seconds(times[b], zone, wall)) })
		x := make([]float64, len(runs))
		for i, r := range runs {
			x[i] = seconds(times[r], zone, wall)
		}
		periods := candidates(x)
		for _, period := range periods {
			w := scan(x, period, len(periods)*2*len(windows))
			if w.score <= score {
				continue // -Inf where there is none
			}
			if p, ok := w.pattern(x, runs, period, wall); ok {
				top, score = p, w.score
			}
		}
	}
	return top, !math.IsInf(score, -1)
}

// candidates returns the periods that sorted times may have, in seconds: the natural ones that fit in often enough, and those
// that the times between runs suggest.
func candidates(x []float64) (out []float64) {
	span := x[len(x)-1] - x[0]
	add := func(p float64) {
		for _, q := range out {
			if math.Abs(p-q) < 1e-2*q/float64(len(x)) {
				return
			}
		}
		if p >= 60 && p*(MinRuns-1) <= span*1.1 && span <= maxPeriods*p {
			out = append(out, p)
		}
	}
	for _, p := range natural {
		add(p.Seconds())
	}
	for lag := 1; lag <= 3 && lag < len(x); lag++ {
		between := make([]float64, len(x)-lag)
		for i := range between {
			between[i] = x[i+lag] - x[i]
		}
		rough := median(between)
		if rough < 0.9*60 { // the median of runs each minute may be just below
			continue
		}
		fitted := slope(x, rough)
		for _, step := range []float64{3600, 1800, 900, 300, 60} { // of periods that explain as much, the roundest
			if near := math.Round(fitted/step) * step; math.Abs(near-fitted) < 0.01*fitted {
				add(near)
			}
		}
		add(fitted)
	}
	return out
}

// slope fits the period to sorted times of which most are one rough period apart: least squares of the times over the number
// of periods before each.
func slope(x []float64, rough float64) float64 {
	var n, sn, sx, snn, snx, k float64
	for i := range x {
		if i > 0 {
			k += math.Round((x[i] - x[i-1]) / rough)
		}
		at := x[i] - x[0]
		n, sn, sx, snn, snx = n+1, sn+k, sx+at, snn+k*k, snx+k*at
	}
	if d := n*snn - sn*sn; d > 0 {
		return (n*snx - sn*sx) / d
	}
	return rough
}

// folded is a time modulo a period.
type folded struct {
	phase  float64 // seconds, in [0, 2 periods): each time stands there twice
	period int     // number of the period
	at     int     // position of the time
}

// window is an interval of phases, and the times in it.
type window struct {
	score       float64 // -Inf: there is none
	in          []folded
	first, last int // periods of the pattern
}

// scan finds the interval of phases with the best score: the periods with a run in it, less the periods without, less a little
// for its width. tests is the number of scans among which the chance of a false pattern is divided.
func scan(x []float64, period float64, tests int) (top window) {
	all := make([]folded, 0, 2*len(x))
	for i, v := range x {
		k := math.Floor(v / period)
		all = append(all, folded{v - k*period, int(k), i})
	}
	slices.SortFunc(all, func(a, b folded) int { return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.at, b.at)) })
	for _, f := range all[:len(x)] {
		all = append(all, folded{f.phase + period, f.period - 1, f.at})
	}
	top.score = math.Inf(-1)
	low := int(math.Floor(x[0]/period)) - 1
	count := make([]int, int(math.Floor(x[len(x)-1]/period))-low+1) // runs in the window, by period from low on
	for _, share := range windows {
		right, with, peak := 0, 0, 0
		for left := range x {
			for right < len(all) && right < left+len(x) && all[right].phase < all[left].phase+share*period {
				if count[all[right].period-low]++; count[all[right].period-low] == 1 {
					with++
				}
				right++
			}
			if peak = max(peak, with); with >= MinRuns && 10*with >= 9*peak && float64(with)*(1-0.1*share) > top.score {
				w := window{in: all[left:right]}
				var with int
				w.first, w.last, with = stretch(w.in)
				periods := float64(w.last - w.first + 1)
				w.score = float64(2*with) - periods - 0.1*share*float64(with)
				if w.score > top.score && with >= MinRuns && float64(with) >= minCoverage*periods &&
					w.significant(x, with, share, tests*len(x)) {
					top = w
				}
			}
			if count[all[left].period-low]--; count[all[left].period-low] == 0 {
				with--
			}
		}
		clear(count)
	}
	return top
}

// stretch returns the first and the last of the successive periods in which the periods with a run exceed those without by
// most, and how many have one: a job has a life, and a stray run long before or after is no part of it.
func stretch(in []folded) (first, last, with int) {
	periods := make([]int, len(in))
	for i, f := range in {
		periods[i] = f.period
	}
	slices.Sort(periods)
	periods = slices.Compact(periods)
	sum, from, top := 0, 0, 0
	for i, k := range periods {
		if i > 0 {
			sum -= k - periods[i-1] - 1
		}
		if sum <= 0 {
			sum, from = 0, i
		}
		if sum++; sum > top {
			top, first, last, with = sum, periods[from], k, i-from+1
		}
	}
	return first, last, with
}

// significant reports whether chance hardly explains that so many periods have a run in this share of the period. By chance,
// runs come at their mean rate of that time, but at any moment: a period has one with probability q, independently of others.
// The bound is Chernoff's; tests is the number of intervals tried.
func (w window) significant(x []float64, with int, share float64, tests int) bool {
	begin, end := math.Inf(1), math.Inf(-1)
	for _, f := range w.in {
		if f.period >= w.first && f.period <= w.last {
			begin, end = min(begin, x[f.at]), max(end, x[f.at])
		}
	}
	periods := w.last - w.first + 1
	from, _ := slices.BinarySearch(x, begin)
	to, _ := slices.BinarySearch(x, end)
	q := 1 - math.Exp(-share*float64(to-from+1)/float64(periods))
	p := float64(with) / float64(periods)
	if p <= q {
		return false
	}
	divergence := p * math.Log(p/q)
	if p < 1 {
		divergence += (1 - p) * math.Log((1-p)/(1-q))
	}
	return -float64(periods)*divergence+math.Log(float64(tests)) < math.Log(chance)
}

// pattern makes a pattern of a window: of several runs in a period the one next to the middle, and runs of other periods a
// little outside of the window.
func (w window) pattern(x []float64, runs []int, period float64, wall bool) (Pattern, bool) {
	var phases []float64
	for _, f := range w.in {
		if f.period >= w.first && f.period <= w.last {
			phases = append(phases, f.phase)
		}
	}
	middle := median(phases)
	reach := rounding + min(0.25*period, max(4*1.4826*deviation(phases), middle-slices.Min(phases), slices.Max(phases)-middle))
	chosen := map[int]int{} // by period, the position of its run
	for i, v := range x {
		k := math.Round((v - middle) / period)
		off := math.Abs(v - middle - k*period)
		if off > reach || int(k) < w.first || int(k) > w.last {
			continue
		}
		other, taken := chosen[int(k)]
		if !taken || off < math.Abs(x[other]-middle-k*period) {
			chosen[int(k)] = i
		}
	}
	order := slices.Sorted(maps.Keys(chosen))
	p := Pattern{Period: time.Duration(math.Round(period)) * time.Second, Wall: wall, Periods: order[len(order)-1] - order[0] + 1}
	p.Anchor = time.Unix(int64(math.Round(middle+float64(order[0])*period)), 0).UTC()
	between := make([]float64, 0, len(order))
	for i, k := range order {
		p.Runs = append(p.Runs, runs[chosen[k]])
		if i > 0 {
			between = append(between, (x[chosen[k]]-x[chosen[order[i-1]]])/float64(k-order[i-1]))
		}
	}
	p.CV = deviation(between) / median(between)
	return p, p.CV <= maxCV && len(p.Runs) >= MinRuns && float64(len(p.Runs)) >= minCoverage*float64(p.Periods)
}

// median of values, which it sorts; the mean of the middle two.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
