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
