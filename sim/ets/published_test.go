package ets

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// entry is one fit in testdata/r_ets.json, which names its source.
type entry struct {
	Model, Series           string
	Period                  int
	Alpha, Beta, Gamma, Phi float64
	Initial                 []float64
	Sigma2, Loglik          float64
	Forecast                []float64 // means of the steps after the series
	Mean, Lower, Upper      []float64 // the same, with 95% intervals
}

func (e entry) run(t *testing.T, ys []float64) *Model {
	t.Helper()
	s := spec(e.Model, e.Period)
	var initial []number
	for _, x := range e.Initial {
		initial = append(initial, number(x))
	}
	m, err := New(s, Params{e.Alpha, e.Beta, e.Gamma, e.Phi}, state(s, initial))
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range ys {
		m.Update(y)
	}
	return m
}

func readPublished(t *testing.T) (all struct {
	Series          map[string][]float64
	Fits, Intervals []entry
}) {
	t.Helper()
	b, err := os.ReadFile("testdata/r_ets.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Fits) != 19 || len(all.Intervals) != 5 {
		t.Fatalf("%d fits and %d with intervals", len(all.Fits), len(all.Intervals))
	}
	return all
}

func TestPublishedFits(t *testing.T) {
	all := readPublished(t)
	for _, e := range all.Fits {
		t.Run(e.Model, func(t *testing.T) {
			ys := all.Series[e.Series]
			m := e.run(t, ys)
			if !near(m.LogLikelihood(), e.Loglik, 1e-7) || !near(m.Sigma2(), e.Sigma2, 1e-6) {
				t.Errorf("log-likelihood %v and variance %v, R has %v and %v", m.LogLikelihood(), m.Sigma2(), e.Loglik, e.Sigma2)
			}
			mean, variance := make([]float64, 4), make([]float64, 4)
			m.Forecast(mean, variance)
			for h := range mean {
				if got := meanAsR(m, mean[h], h+1); !near(got, e.Forecast[h], 1e-6) {
					t.Errorf("%d ahead: %v, R has %v", h+1, got, e.Forecast[h])
				}
			}
			own, err := Fit(ys, m.Spec())
			if err != nil {
				t.Fatal(err)
			}
			if own.LogLikelihood() < e.Loglik-1e-4 {
				t.Errorf("log-likelihood of the own fit %v, R's %v", own.LogLikelihood(), e.Loglik)
			}
		})
	}
}

func TestPublishedIntervals(t *testing.T) {
	all := readPublished(t)
	for _, e := range all.Intervals {
		ys := all.Series[e.Series]
		m := e.run(t, ys)
		if !near(m.LogLikelihood(), e.Loglik, 1e-10) || !near(m.Sigma2(), e.Sigma2, 1e-10) {
			t.Errorf("%s: log-likelihood %v and variance %v, R has %v and %v", e.Model, m.LogLikelihood(), m.Sigma2(), e.Loglik, e.Sigma2)
		}
		mean, variance := make([]float64, len(e.Mean)), make([]float64, len(e.Mean))
		m.Forecast(mean, variance)
		for h := range mean {
			v := variance[h]
			if e.Model == "ANA" && h+1 == e.Period {
				// R counts the season's error one step early here and nowhere else; equation 6.9, its own next
				// step and its figures for models with a trend do not.
				v += e.Sigma2 * ((e.Alpha+e.Gamma)*(e.Alpha+e.Gamma) - e.Alpha*e.Alpha)
			}
			reach := 1.959963984540054 * math.Sqrt(v)
			if !near(mean[h], e.Mean[h], 1e-10) || !near(mean[h]-reach, e.Lower[h], 1e-9) || !near(mean[h]+reach, e.Upper[h], 1e-9) {
				t.Errorf("%s, %d ahead: %v -+ %v, R has %v to %v about %v", e.Model, h+1, mean[h], reach, e.Lower[h], e.Upper[h], e.Mean[h])
			}
		}
	}
}
