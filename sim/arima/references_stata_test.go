package arima

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var stataCommand = regexp.MustCompile(`^arima (\S+)((?: [a-z0-9]+)*), (.*)$`)

// stataCase reads a command of Stata's arima on the wholesale price index: its data and its structure. diffuse is
// another likelihood than ours: every state, the stationary ones too, has a prior of variance 1e9.
func stataCase(t *testing.T, command string, wpi []float64) (s Spec, y []float64, x [][]float64, diffuse bool) {
	t.Helper()
	parts := stataCommand.FindStringSubmatch(command)
	if parts == nil {
		t.Fatalf("cannot read %q", command)
	}
	y = append([]float64(nil), wpi...)
	from := 0
	if parts[1] == "D.wpi2" {
		for i := 9; i < 19; i++ {
			y[i] = math.NaN()
		}
		y = lagged(y, 1)
		from = 1
	}
	column := func(f func(i int) float64) {
		var col []float64
		for i := from; i < len(wpi); i++ {
			col = append(col, f(i))
		}
		x = append(x, col)
	}
	for _, name := range strings.Fields(parts[2]) {
		switch name {
		case "c":
			s.Mean = true
		case "t":
			column(func(i int) float64 { return float64(i + 1) })
		case "t3":
			column(func(i int) float64 { return math.Pow(float64(i+1), 3) })
		case "t32":
			column(func(i int) float64 { return math.Pow(float64(i), 3) })
		case "x":
			column(func(i int) float64 { f := wpi[i] - math.Floor(wpi[i]); return f * f })
		default:
			t.Fatalf("a regressor %q in %q", name, command)
		}
	}
	numbers := func(option string) (out []int) {
		m := regexp.MustCompile(`(?:^| )` + option + `\(([\d,]+)\)`).FindStringSubmatch(parts[3])
		if m == nil {
			return make([]int, 4)
		}
		for _, f := range strings.Split(m[1], ",") {
			n, _ := strconv.Atoi(f)
			out = append(out, n)
		}
		return out
	}
	a, b := numbers("arima"), numbers("sarima")
	s.P, s.D, s.Q, s.SP, s.SD, s.SQ, s.Period = a[0], a[1], a[2], b[0], b[1], b[2], b[3]
	return s, y, x, strings.Contains(parts[3], "diffuse")
}

type stataSet map[string]json.RawMessage

func (s stataSet) floats(t *testing.T, name string) (out []float64) {
	t.Helper()
	if err := json.Unmarshal(s[name], &out); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

func readStata(t *testing.T) stataSet {
	var set stataSet
	if err := json.Unmarshal(reference(t, "statsmodels/results_sarimax.json"), &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// TestReferencesStata fits 53 models as Stata did: whatever the optimum that was found there, ours must be as good.
func TestReferencesStata(t *testing.T) {
	wpi := readStata(t).floats(t, "wpi1_data")
	column := table(t, "statsmodels/results_sarimax_coverage.csv")
	logliks := column("llf")
	commands := columnText(t, "statsmodels/results_sarimax_coverage.csv", "mod")
	parameters := columnText(t, "statsmodels/results_sarimax_coverage.csv", "parameters")
	met, better, all := 0, 0, 0
	diffuseAll := 0
	for i, command := range commands {
		s, y, x, diffuse := stataCase(t, command, wpi)
		var params []float64
		for _, f := range strings.Split(parameters[i], ",") {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			params = append(params, v)
		}
		m, err := Fit(y, s, Options{X: x})
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		if diffuse {
			// At Stata's parameters our likelihood can be no greater than at ours.
			diffuseAll++
			if theirs, err := At(s, stataParams(s, params), y, x); err != nil {
				t.Logf("%s: not stationary, so that ours has no value there: %v", command, err)
			} else if m.LogLik < theirs.LogLik {
				t.Errorf("%s: log-likelihood %v, at Stata's parameters %v", command, m.LogLik, theirs.LogLik)
			}
			continue
		}
		all++
		t.Logf("%-70s %10.4f (%+8.4f) %4d evaluations", command, m.LogLik, m.LogLik-logliks[i], m.Evaluations)
		switch d := m.LogLik - logliks[i]; {
		case d < -1e-4: // a unit of the last place
			t.Errorf("%s: log-likelihood %.4f, Stata %v at %v; ours %+v", command, m.LogLik, logliks[i], params, m.Params)
		case d > 1e-3:
			better++
			fallthrough
		default:
			met++
		}
	}
	t.Logf("Stata: %d of %d models at Stata's likelihood or better (%d better by over 0.001); %d more that Stata fitted by another likelihood", met, all, better, diffuseAll)
}

// stataParams are parameters in Stata's order: regressors (a constant first), ar, ma, sar, sma, standard deviation.
func stataParams(s Spec, x []float64) (p Params) {
	n := len(x) - 1
	p.Sigma2 = x[n] * x[n]
	k := n - s.coefficients()
	p.AR, p.MA, p.SAR, p.SMA = s.parts(x[k:n])
	p.Beta = x[:k]
	if s.Mean {
		p.Mean, p.Beta = x[0], x[1:k]
	}
	return p
}

// TestReferencesStataDetail compares estimates, standard errors and predictions where Stata's were recorded in full.
func TestReferencesStataDetail(t *testing.T) {
	set := readStata(t)
	wpi := set.floats(t, "wpi1_data")
	air := mapped(set.floats(t, "air2_data"), math.Log)
	var friedman struct{ Consump, M2 []float64 }
	if err := json.Unmarshal(set["friedman2_data"], &friedman); err != nil {
		t.Fatal(err)
	}
	type detail struct {
		Exog   []float64 `json:"params_exog"`
		AR     []float64 `json:"params_ar"`
		MA     []float64 `json:"params_ma"`
		SMA    []float64 `json:"params_seasonal_ma"`
		Mean   []float64 `json:"params_mean"`
		Sigma2 []float64 `json:"params_variance"`

		ExogSE []float64 `json:"se_exog_oim"`
		ARSE   []float64 `json:"se_ar_oim"`
		MASE   []float64 `json:"se_ma_oim"`
		SMASE  []float64 `json:"se_seasonal_ma_oim"`
		MeanSE []float64 `json:"se_mean_oim"`

		LogLik   float64 `json:"loglike"`
		AIC, BIC float64
	}
	to1981q4 := 4 * (1982 - 1959)
	counts := tally{t: t}
	for _, c := range []struct {
		name string
		spec Spec
		y    []float64
		x    [][]float64
		// Stata counts the same parameters in the AIC as we do, but a constant regressor is our mean.
		constant bool
	}{
		{name: "wpi1_ar3", spec: Spec{P: 3}, y: lagged(append([]float64(nil), wpi...), 1)},
		{name: "wpi1_stationary", spec: Spec{P: 1, D: 1, Q: 1, Mean: true}, y: wpi},
		{name: "air2_stationary", spec: Spec{D: 1, Q: 1, SD: 1, SQ: 1, Period: 12}, y: air},
		{name: "friedman2_mle", spec: Spec{P: 1, Q: 1, Mean: true}, y: friedman.Consump[:to1981q4], x: [][]float64{friedman.M2[:to1981q4]}, constant: true},
	} {
		var d detail
		if err := json.Unmarshal(set[c.name], &d); err != nil {
			t.Fatal(err)
		}
		if c.name == "wpi1_ar3" { // of d.wpi about no mean; the errors were recorded without saying which
			d.ARSE = nil
		}
		m, err := Fit(c.y, c.spec, Options{X: c.x, StdErr: true})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.constant {
			d.Mean, d.MeanSE, d.Exog, d.ExogSE = d.Exog[:1], d.ExogSE[:1], d.Exog[1:], d.ExogSE[1:]
		}
		got := append(append(append(append(append([]float64(nil), m.Params.AR...), m.Params.MA...), m.Params.SMA...), m.Params.Beta...), m.Params.Sigma2)
		want := append(append(append(append(append([]float64(nil), d.AR...), d.MA...), d.SMA...), d.Exog...), d.Sigma2...)
		if c.spec.Mean {
			got, want = append(got, m.Params.Mean), append(want, d.Mean...)
		}
		counts.check(c.name+" log-likelihood", m.LogLik > d.LogLik-1e-4, "%.5f, Stata %v", m.LogLik, d.LogLik)
		counts.check(c.name+" estimates", closeAll(got, want, func(v float64) float64 { return 2e-3*math.Abs(v) + 1e-6 }), "%v, Stata %v", got, want)
		counts.check(c.name+" criteria", math.Abs(m.AIC-d.AIC) < 2e-3, "aic %.4f, Stata %v", m.AIC, d.AIC)
		se := append(append(append(append(append([]float64(nil), d.ARSE...), d.MASE...), d.SMASE...), d.MeanSE...), d.ExogSE...)
		if len(se) > 0 {
			counts.check(c.name+" standard errors", closeAll(m.StdErr, se, percent), "%v, Stata %v", m.StdErr, se)
		}
	}

	// Predictions at given parameters: one step ahead, and many steps ahead from 1978.
	var d detail
	if err := json.Unmarshal(set["friedman2_predict"], &d); err != nil {
		t.Fatal(err)
	}
	p := Params{AR: d.AR, MA: d.MA, Mean: d.Exog[0], Beta: d.Exog[1:], Sigma2: d.Sigma2[0]}
	s := Spec{P: 1, Q: 1, Mean: true}
	y, m2 := friedman.Consump, friedman.M2
	const q1978 = 4 * (1978 - 1959)
	for _, c := range []struct {
		name    string
		dynamic int
	}{{"friedman2_prediction", len(y)}, {"friedman2_dynamic_prediction", q1978}} {
		want := set.floats(t, c.name)
		got, v := make([]float64, len(y)), make([]float64, len(y))
		at, err := At(s, p, y[:1], [][]float64{m2[:1]})
		if err != nil {
			t.Fatal(err)
		}
		i := 1
		for ; i < c.dynamic; i++ {
			if err := at.Forecast(got[i:i+1], v[i:i+1], m2[i:i+1]); err != nil {
				t.Fatal(err)
			}
			if err := at.Update(y[i], m2[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := at.Forecast(got[i:], v[i:], m2[i:]); err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for i := 1; i < len(y); i++ {
			worst = math.Max(worst, math.Abs(got[i]-want[i])/want[i])
		}
		t.Logf("%s: greatest difference %.5f%%", c.name, 100*worst)
		counts.check(c.name, worst < 1e-4, "differs by up to %.4f%%", 100*worst)
	}
	t.Logf("Stata in detail: %d of %d checks met", counts.met, counts.all)
}
