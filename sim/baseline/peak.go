package baseline

import (
	"math"

	"evenkeel/forecast"
)

// Peak forecasts the greatest value of the latest window, as operators do who reserve for the peak. From the latest 128 values
// it takes how far below or above that peak the values were that followed, 1, 2, ... steps ahead. Its quantiles are
// the peak plus those of these errors, its mean the peak plus their mean (it lies far below the peak where peaks are
// rare); intervals never narrow with the horizon. For all else see Last.
//
// 3.7 kB with a window of 60; a step costs a scan of the window, a prediction one sort of at most 127 numbers per horizon.
type Peak struct {
	track  track
	window []float64 // a ring, NaN where not measured
	next   int
}

// PeakWindow is the usual window of a Peak: an hour of minutes.
const PeakWindow = 60

// NewPeak is a Peak of the latest window steps that has seen nothing; a window below 1 counts as 1.
func NewPeak(window int) *Peak {
	p := &Peak{window: make([]float64, max(1, window))}
	for i := range p.window {
		p.window[i] = math.NaN()
	}
	p.track.values = make([]float64, trackLength)
	p.track.stated = make([]float64, trackLength)
	p.track.sorted = make([]float64, 0, trackLength)
	return p
}

// Name implements Model.
func (p *Peak) Name() string { return "peak" }

// Observe implements Model. Magnitudes above 1e100 count as not measured.
func (p *Peak) Observe(y float64) {
	y = usable(y)
	p.window[p.next] = y
	p.next = (p.next + 1) % len(p.window)
	p.track.add(y, p.peak())
}

// Predict implements Model. It cannot where all of the window is a gap.
func (p *Peak) Predict(out []forecast.Prediction) bool {
	peak := p.peak()
	return !math.IsNaN(peak) && p.track.predict(out, peak, 0, false)
}

// peak is the greatest value of the window, NaN if there is none.
func (p *Peak) peak() float64 {
	peak := math.NaN()
	for _, y := range p.window {
		if !(y <= peak) && !math.IsNaN(y) {
			peak = y
		}
	}
	return peak
}
