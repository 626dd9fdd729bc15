package forecast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// ErrPast is returned for a value of a step that is not after the last one.
var ErrPast = errors.New("forecast: a value of this step or a later one is known")

// Options of a Series.
type Options struct {
	// Period is how many steps a day has, 2 to 1,000,000; 0 is 1,440, steps of a minute.
	Period int

	// Max is the greatest value there can be, such as the cores or the memory of the VM; 0 is no bound. No value is
	// below 0 if Positive.
	Max      float64
	Positive bool

	// Workspace is scratch memory that any number of series of one goroutine share. nil: one of its own, of more
	// memory than the series itself.
	Workspace *Workspace
}

// Series is the forecaster of one series in production: one resource of one VM. It is not safe for concurrent use.
//
// Predictions wait for their values as float32, which has 24 bits. A spread below a millionth of the level is lost in
// rounding, as a kilobyte is in 100 GB, whatever the unit: such a series counts as constant.
type Series struct {
	o      Options
	m      Mixture
	last   int64 // step of the newest value
	begun  bool
	capped float32 // decayed share of values that were censored
}

const cappedRate = 0.05

// New is a series of which nothing is known. Options that make no sense count as their zero values.
func New(o Options) *Series {
	if o.Period < 2 || o.Period > 1e6 {
		o.Period = 1440
	}
	if !(o.Max > 0 && o.Max <= largest) {
		o.Max = 0
	}
	if o.Workspace == nil {
		o.Workspace = NewWorkspace()
	}
	return &Series{o: o, m: *NewMixture(o.Period, o.Workspace)}
}

// Observe takes the value of a step. Steps are counted by the caller, evenly in time, from any number on; those left
// out were not measured, nor was one whose y is not a number. A step that is not after the last one is refused with
// ErrPast. censored says that the true value is known to be no less than y, but not what it is: use at its cap.
//
// After a gap of more than 512 steps the series begins again: what was known then says little of now.
func (s *Series) Observe(step int64, y float64, censored bool) error {
	switch {
	case !s.begun:
		if !countable(y) {
			return nil
		}
	case step <= s.last:
		return fmt.Errorf("%w: step %d after %d", ErrPast, step, s.last)
	case uint64(step)-uint64(s.last) > window:
		*s = *New(s.o)
		return s.Observe(step, y, censored)
	default:
		s.m.skip(int(step - s.last - 1))
	}
	s.begun, s.last = true, step
	if censored = censored && countable(y); censored {
		s.m.ObserveCensored(y)
		s.capped += cappedRate * (1 - s.capped)
	} else {
		s.m.Observe(y)
		if countable(y) {
			s.capped -= cappedRate * s.capped
		}
	}
	return nil
}

// Last is the step of the newest value; false before there is one.
func (s *Series) Last() (step int64, ok bool) { return s.last, s.begun }

// Max is the bound that the series was made with; 0 = none.
func (s *Series) Max() float64 { return s.o.Max }

// Values is how many values were measured since it began.
func (s *Series) Values() int { return s.m.h.seen }

// Predict fills out with what is predicted of the steps after the last, the very next one first, within the bounds of
// the options. It is false, and out untouched, before three values or so.
func (s *Series) Predict(out []Prediction) bool {
	if !s.m.Predict(out) {
		return false
	}
	low, high := math.Inf(-1), math.Inf(1)
	if s.o.Positive {
		low = 0
	}
	if s.o.Max > 0 {
		high = s.o.Max
	}
	for i := range out {
		q := (*quantiles)(&out[i].Quantiles)
		if q[0] >= low && q[levels-1] <= high {
			continue
		}
		for l := range q {
			q[l] = max(low, min(high, q[l]))
		}
		out[i].Mean, out[i].Variance = q.moments()
	}
	return true
}

// Share is how much of the mixture one model makes up now, over all levels and horizons.
type Share struct {
	Model string
	Share float64 // 0 to 1
}

// ModelCalibration is how good one model has been. That of the model "mixture" is of what was stated in the end.
type ModelCalibration struct {
	Model    string
	Horizons []Calibration
}

// Forecast is all that is known of the next steps.
type Forecast struct {
	Step        int64 // of the newest value: Ahead[0] is of the step after it
	Ahead       []Prediction
	Shares      []Share
	Calibration []ModelCalibration // "mixture" first

	// Trusted says whether decisions may rest on Ahead. If not, the declared need counts, and Reason says why.
	Trusted bool
	Reason  string
}

// Forecast states the next steps, of which there are 1 to 1,000.
func (s *Series) Forecast(steps int) Forecast {
	f := Forecast{Step: s.last}
	if ahead := make([]Prediction, max(1, min(1000, steps))); s.Predict(ahead) {
		f.Ahead = ahead
		f.Shares = s.m.Shares()
	}
	f.Calibration = s.m.Calibration()
	f.Trusted, f.Reason = s.Trusted()
	return f
}

// The rule by which a series is trusted.
const (
	trustValues    = 60   // measured
	trustScored    = 30   // values that the calibration of each horizon rests on, faded ones in part
	trustCoverage  = 0.88 // of the 95% interval, least
	trustAbove     = 0.07 // of values above the 97.5% quantile, most
	trustNoBetter  = 1.05 // of the trivial model's pinball loss, most
	trustCapped    = 0.08 // of the latest values at their cap, most; see Trusted
	trustUnknown   = 5    // steps in a row without a value, most
	trustTrivially = 1e-9 // pinball loss, relative to the newest value, that is none
)

// Trusted says whether decisions may rest on what is predicted, and if not, why. They may if all of this holds:
//
//   - 60 values were measured, and 30 predictions of each of 1, 3 and 10 steps ahead were scored, made from the 20th step on;
//   - no more than 5 steps have passed since the last value;
//   - no more than 8% of the latest values (some 20) were at their cap, which is one now and then: calibration leaves
//     these out, so that it counts only the values that stayed below, and the 97.5% quantile of a need whose upper part
//     is hidden cannot be known;
//   - at each of these horizons the 95% interval held at least 88% of the values that came, and at most 7% of them
//     lay above its upper end. Ten steps ahead one event counts up to ten times, so that honest intervals fall short
//     of that now and then as well: of the mistakes that a rule can make this is the harmless one;
//   - the latest values do not say that the series has changed (changeTest): calibration finds that late, as it forgets slowly;
//   - over these horizons the pinball loss is at most 1.05 times that of the trivial model, which says that the value
//     stays as it is and moves as it lately did. A model that is worse than that is of no use.
func (s *Series) Trusted() (bool, string) {
	m := &s.m
	switch {
	case m.h.seen < trustValues:
		return false, fmt.Sprintf("only %d values were measured, %d are needed", m.h.seen, trustValues)
	case !m.ready:
		return false, "no model can predict"
	case m.unknown > trustUnknown:
		return false, fmt.Sprintf("nothing was measured in the last %d steps", m.unknown)
	case s.capped > trustCapped:
		return false, fmt.Sprintf("%.0f%% of the latest values were at their cap, more than %.0f%%: what is needed is not known", 100*s.capped, 100*trustCapped)
	}
	var loss, plain float64
	for i := range scored {
		c, base := m.record[len(m.experts)].of(i), m.record[trivial].of(i)
		steps := fmt.Sprintf("%d steps", c.Steps)
		if c.Steps == 1 {
			steps = "1 step"
		}
		switch {
		case c.Values < trustScored:
			return false, fmt.Sprintf("only %.0f predictions of %s ahead could be checked, %d are needed", c.Values, steps, trustScored)
		case c.Coverage[2] < trustCoverage:
			return false, fmt.Sprintf("the 95%% interval of %s ahead held %.0f%% of the values, %.0f%% are needed", steps, 100*c.Coverage[2], 100*trustCoverage)
		case c.Above > trustAbove:
			return false, fmt.Sprintf("%.0f%% of the values lay above the 97.5%% quantile of %s ahead, more than %.0f%%", 100*c.Above, steps, 100*trustAbove)
		}
		loss += c.Pinball
		plain += base.Pinball
	}
	if m.change.changed() {
		return false, "it has changed: too many of the latest values lay outside the 95% interval of 1 step ahead"
	}
	if loss > trustNoBetter*plain && loss > trustTrivially*math.Abs(m.h.at(0)) {
		return false, fmt.Sprintf("forecasts lose %.3g where saying that nothing changes loses %.3g", loss, plain)
	}
	return true, ""
}

// Shares are those of the models that have something to say now, in a fixed order.
func (m *Mixture) Shares() []Share {
	n := len(m.experts)
	able, sum := make([]bool, n), make([]float64, n)
	for k := range able {
		able[k] = m.able>>k&1 == 1
	}
	if m.able == 0 {
		return nil
	}
	m.weights.share(able, &m.w.share)
	for s := range m.w.share {
		for l := range m.w.share[s] {
			for k := range sum {
				sum[k] += m.w.share[s][l][k] / float64(scorings*levels)
			}
		}
	}
	var out []Share
	for k, e := range m.experts {
		if able[k] {
			out = append(out, Share{e.name(), sum[k]})
		}
	}
	return out
}

// Calibration is that of the mixture first, then of each model in a fixed order.
func (m *Mixture) Calibration() []ModelCalibration {
	out := make([]ModelCalibration, 0, len(m.record))
	add := func(name string, c *calibration) {
		mc := ModelCalibration{Model: name}
		for s := range scored {
			mc.Horizons = append(mc.Horizons, c.of(s))
		}
		out = append(out, mc)
	}
	add(m.Name(), &m.record[len(m.experts)])
	for k, e := range m.experts {
		add(e.name(), &m.record[k])
	}
	return out
}

// What stored series begin with, and the version of what follows.
const (
	seriesMagic   = "ekfc"
	seriesVersion = 3 // 1 had two experts more, 2 no test for changes: such series are learned again
)

// MarshalBinary is the whole state of the series, about 15 kB: it goes on elsewhere, or after a restart, with the
// same predictions as here.
func (s *Series) MarshalBinary() ([]byte, error) {
	a := &archive{buf: append([]byte(seriesMagic), seriesVersion)}
	s.archive(a)
	return binary.LittleEndian.AppendUint32(a.buf, crc32.ChecksumIEEE(a.buf)), nil
}

// Restore is the series that MarshalBinary was called on, with another workspace (nil: one of its own). It refuses bytes
// of another version, that are damaged, or whose forecasts no series would state.
func Restore(b []byte, w *Workspace) (*Series, error) {
	head := len(seriesMagic) + 1
	if len(b) < head+4 || string(b[:len(seriesMagic)]) != seriesMagic {
		return nil, fmt.Errorf("%w: not a series", errArchive)
	}
	if v := b[head-1]; v != seriesVersion {
		return nil, fmt.Errorf("%w: version %d, this is %d", errArchive, v, seriesVersion)
	}
	body := b[:len(b)-4]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, fmt.Errorf("%w: damaged", errArchive)
	}
	// The options come first, and say how the rest is made.
	a := &archive{buf: body, at: head, reading: true}
	o := Options{Workspace: w}
	o.archive(a)
	if a.err != nil {
		return nil, a.err
	}
	s := New(o)
	a.at = head
	s.archive(a)
	if a.err == nil && a.at != len(body) {
		a.fail("%d bytes too many", len(body)-a.at)
	}
	if a.err != nil {
		return nil, a.err
	}
	return s, nil
}

func (o *Options) archive(a *archive) {
	a.count(&o.Period, 1e6)
	a.float(&o.Max)
	a.flag(&o.Positive)
}

func (s *Series) archive(a *archive) {
	s.o.archive(a)
	last := uint64(s.last)
	a.uint64(&last)
	s.last = int64(last)
	a.flag(&s.begun)
	capped := []float32{s.capped}
	a.singles(capped, false)
	s.capped = capped[0]
	a.require(s.capped >= 0 && s.capped <= 1, "a share that is none")
	s.m.archive(a)
}
