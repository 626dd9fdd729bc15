package ets

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// published is one fit of R's forecast::ets.
type published struct {
	Alpha, Beta, Gamma, Phi, Initstate []number
	States                             rows
	Residuals, Fitted                  []number
	Sigma2, Loglik, Forecast           []number
}

// rows are states over time; where a model has one, it is written without its brackets.
type rows [][]number

func (r *rows) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*[][]number)(r)) == nil {
		return nil
	}
	var single []number
	err := json.Unmarshal(b, &single)
	*r = nil
	for _, n := range single {
		*r = append(*r, []number{n})
	}
	return err
}

// number is one that may be written "NaN".
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	if string(b) == `"NaN"` {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

// full is where the whole published sets lie, beside the checkout, on machines that have them.
var full = filepath.Join("..", "..", "..", "shared", "data", "forecast-reference")

func series(t *testing.T, path string) []float64 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Skip("not on this machine: ", err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var ys []float64
	for _, row := range rows[1:] {
		y, err := strconv.ParseFloat(row[len(row)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		ys = append(ys, y)
	}
	return ys
}

func results(t *testing.T, path string) map[string]published {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Skip("not on this machine: ", err)
	}
	var sets map[string]map[string]json.RawMessage
	if err := json.Unmarshal(b, &sets); err != nil {
		t.Fatal(err)
	}
	all := map[string]published{}
	for damped, models := range sets {
		for name, raw := range models {
			var p published
			if json.Unmarshal(raw, &p) != nil || len(p.Alpha) == 0 {
				continue // R refused the model
			}
			if damped == "TRUE" {
				name = name[:2] + "d" + name[2:]
			}
			all[name] = p
		}
	}
	return all
}

func spec(name string, period int) Spec {
	s := Spec{Error: Component(name[0]), Trend: Component(name[1]), Season: Component(name[len(name)-1]), Damped: len(name) == 4}
	if s.Season != None {
		s.Period = period
	}
	return s
}

func (p published) model(t *testing.T, s Spec) *Model {
	t.Helper()
	first := func(n []number) float64 { return float64(n[0]) }
	par := Params{first(p.Alpha), first(p.Beta), first(p.Gamma), first(p.Phi)}
	m, err := New(s, clean(par), state(s, p.Initstate))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func clean(p Params) Params {
	for _, x := range []*float64{&p.Beta, &p.Gamma, &p.Phi} {
		if math.IsNaN(*x) {
			*x = 0
		}
	}
	return p
}

func state(s Spec, x []number) (out State) {
	out.Level = float64(x[0])
	x = x[1:]
	if s.Trend != None {
		out.Growth = float64(x[0])
		x = x[1:]
	}
	for _, v := range x {
		out.Season = append(out.Season, float64(v))
	}
	return out
}

// near says whether got is want as far as want was printed: to digits after the point, or as many significant ones.
func near(got, want, tolerance float64) bool {
	return math.Abs(got-want) <= tolerance*max(1, math.Abs(want))
}

// compare runs R's parameters through ys and compares all that R printed, to 8 decimals. What rounding of the
// parameters does adds up over the series.
func compare(t *testing.T, m *Model, p published, ys []float64) (worst float64) {
	t.Helper()
	s := m.Spec()
	check := func(what string, got float64, want number, tolerance float64) {
		worst = max(worst, math.Abs(got-float64(want))/max(1, math.Abs(float64(want))))
		if !near(got, float64(want), tolerance) {
			t.Errorf("%s is %v, R has %v", what, got, want)
		}
	}
	for i, y := range ys {
		fitted, e := m.Update(y)
		check(fmt.Sprint("fitted ", i), fitted, p.Fitted[i], 1e-6)
		check(fmt.Sprint("error ", i), e, p.Residuals[i], 1e-6)
		got, want := m.State(), state(s, p.States[i+1])
		check(fmt.Sprint("level ", i), got.Level, number(want.Level), 1e-6)
		check(fmt.Sprint("growth ", i), got.Growth, number(want.Growth), 1e-6)
		for j := range want.Season {
			check(fmt.Sprint("season ", i), got.Season[j], number(want.Season[j]), 1e-6)
		}
	}
	check("log-likelihood", m.LogLikelihood(), p.Loglik[0], 1e-7)
	check("variance", m.Sigma2(), p.Sigma2[0], 1e-6)
	mean, variance := make([]float64, len(p.Forecast)), make([]float64, len(p.Forecast))
	m.Forecast(mean, variance)
	for h := range mean {
		check(fmt.Sprint("forecast ", h+1), meanAsR(m, mean[h], h+1), p.Forecast[h], 1e-6)
	}
	return worst
}

// meanAsR is the mean of step h, or for damped models of class 3 and 4 what the version of R that made the references
// states of them in its place. That is not what their equations say (a growth b adds phi+...+phi^h of itself in h steps): it is
// 1+...+phi^(h-1) for class 3, and phi+(phi+...+phi^(h-1)) for class 4. The states it comes from do agree.
func meanAsR(m *Model, mean float64, h int) float64 {
	if s := m.spec; !s.Damped || s.Error == Additive || s.Trend != Multiplicative && s.Season != Multiplicative {
		return mean
	}
	phi, p := 1.0, m.par.Phi
	if m.spec.Trend == Multiplicative {
		phi = p
	}
	for range h - 1 {
		phi += p
		p *= m.par.Phi
	}
	return m.stated(h, phi)
}

// TestAgainstR holds every model that R fitted to two series against R's own figures, and then against R's own fits.
func TestAgainstR(t *testing.T) {
	for _, c := range []struct {
		series, results string
		period, models  int
	}{
		{"oil_fpp2.csv", "fit_ets_results_nonseasonal.json", 0, 8},
		{"austourists_fpp2.csv", "fit_ets_results_seasonal.json", 4, 11},
	} {
		ys := series(t, filepath.Join(full, "series", c.series))
		all := results(t, filepath.Join(full, "statsmodels", c.results))
		if len(all) != c.models {
			t.Errorf("%d models of %s, want %d", len(all), c.results, c.models)
		}
		for name, p := range all {
			t.Run(name, func(t *testing.T) {
				s := spec(name, c.period)
				ys := ys[:len(p.Fitted)]
				worst := compare(t, p.model(t, s), p, ys)
				m, err := Fit(ys, s)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%v: at R's parameters all within %.1e; log-likelihood of the own fit %.6f, R's %.6f: %+.2g", s, worst, m.LogLikelihood(), p.Loglik[0], m.LogLikelihood()-float64(p.Loglik[0]))
				if m.LogLikelihood() < float64(p.Loglik[0])-1e-4 {
					t.Errorf("R's fit is better: %.6f, own %.6f with %+v", p.Loglik[0], m.LogLikelihood(), m.Params())
				}
			})
		}
	}
}
