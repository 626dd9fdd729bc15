package score

import "math"

// The 95% interval of a series is calibrated if it covers this share of its values.
const (
	BandLow  = 0.90
	BandHigh = 0.98

	bandInterval = 2 // the place of 95% in Coverages
)

// Summary is how one model did on several series: means over series. Figures of no series are NaN.
type Summary struct {
	Series    int // with at least one value that was scored
	Constant  int // of them without a scale: no MASE, no pinball loss
	MASE      float64
	Pinball   float64
	Coverage  [len(Coverages)]float64 // values on a bound are within
	Strict    [len(Coverages)]float64 // values on a bound are outside
	InBand    float64                 // share of series whose 95% interval covers 90..98%
	InBandTie float64                 // the same, but series with values on a bound have to pass only where they may count either way
	Origins   int                     // that counted
	Asked     int
	Unable    int // origins at which this model could not predict
	Broken    int
}

// Summarize model number m of results. Horizon h counts steps ahead from 1; 0 takes all together.
func Summarize(results []Result, m, h int) Summary {
	var s Summary
	var mase, pinball, inBand, inBandTie mean
	var covered, strict [len(Coverages)]mean
	for _, r := range results {
		s.Origins += r.Origins
		s.Asked += r.Asked
		s.Unable += r.Models[m].Unable
		s.Broken += r.Models[m].Broken
		var t Tally
		if h == 0 {
			t = r.Models[m].Total()
		} else {
			t = r.Models[m].Horizons[h-1]
		}
		if t.N == 0 {
			continue
		}
		s.Series++
		n := float64(t.N)
		if r.Scale > 0 {
			mase.add(t.AbsError / n / r.Scale)
			pinball.add(t.Pinball / n / r.Scale)
		} else {
			s.Constant++
		}
		for i := range Coverages {
			covered[i].add(float64(t.Inside[i]+t.OnBound[i]) / n)
			strict[i].add(float64(t.Inside[i]) / n)
		}
		highest := float64(t.Inside[bandInterval]+t.OnBound[bandInterval]) / n
		lowest := float64(t.Inside[bandInterval]) / n
		inBand.add(indicator(highest >= BandLow && highest <= BandHigh))
		inBandTie.add(indicator(highest >= BandLow && lowest <= BandHigh))
	}
	s.MASE, s.Pinball, s.InBand, s.InBandTie = mase.value(), pinball.value(), inBand.value(), inBandTie.value()
	for i := range Coverages {
		s.Coverage[i], s.Strict[i] = covered[i].value(), strict[i].value()
	}
	return s
}

// mean of what was added; NaN of nothing.
type mean struct {
	n   int
	sum float64
}

func (m *mean) add(v float64) { m.n, m.sum = m.n+1, m.sum+v }

func (m *mean) value() float64 {
	if m.n == 0 {
		return math.NaN()
	}
	return m.sum / float64(m.n)
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
