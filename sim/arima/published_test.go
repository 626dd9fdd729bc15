package arima

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// TestPublished compares with the figures of testdata/published.json, which this repository holds itself.
func TestPublished(t *testing.T) {
	data, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Series map[string]struct{ Values []*float64 }
		Cases  []struct {
			Series, By     string
			Log, CSS       bool
			Spec           Spec
			Coef, SE       []float64
			Sigma2, LogLik float64
			Mean, Error    []float64
		}
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	counts := tally{t: t}
	for _, c := range all.Cases {
		var y []float64
		for _, v := range all.Series[c.Series].Values {
			switch {
			case v == nil:
				y = append(y, math.NaN())
			case c.Log:
				y = append(y, math.Log(*v))
			default:
				y = append(y, *v)
			}
		}
		name := c.Series + " " + c.Spec.String() + " by " + c.By
		opts := Options{StdErr: true}
		if c.CSS {
			opts.Method = CSS
		}
		m, err := Fit(y, c.Spec, opts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := m.Params
		got := append(append(append(append([]float64(nil), p.AR...), p.MA...), p.SAR...), p.SMA...)
		if c.Spec.Mean {
			got = append(got, p.Mean)
		}
		for i, w := range c.Coef {
			counts.check(name, math.Abs(got[i]-w) <= 0.01*c.SE[i]+printed(w), "coefficient %d is %.5f, want %v", i, got[i], w)
		}
		counts.check(name, closeAll(m.StdErr, c.SE, func(v float64) float64 { return 0.01*v + printed(v) }), "standard errors %.4f, want %v", m.StdErr, c.SE)
		counts.check(name, near(p.Sigma2, c.Sigma2, 1e-3), "sigma2 %v, want %v", p.Sigma2, c.Sigma2)
		counts.check(name, math.Abs(m.LogLik-c.LogLik) <= printed(c.LogLik), "log-likelihood %.5f, want %v", m.LogLik, c.LogLik)
		if len(c.Mean) > 0 {
			counts.forecast(name, m, c.Mean, c.Error)
		}
	}
	t.Logf("%d of %d checks met on %d fits", counts.met, counts.all, len(all.Cases))
}
