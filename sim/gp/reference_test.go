package gp

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// These tests compare with values that others published. The points of the GPML toolbox's examples are in testdata;
// other published values are read from a checkout of the reference data beside this one, where there is one.

// reference is a file of the reference data; the test is skipped if it is not there.
func reference(t testing.TB, name string) string {
	path := filepath.Join("..", "..", "..", "shared", "data", "forecast-reference", name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no reference data: %v", err)
	}
	return path
}

// columns reads two columns of numbers after a line of names; what is no number is NaN.
func columns(t testing.TB, path string) (names []string, rows [][]string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := csv.NewReader(file)
	r.Comment = '#'
	rows, err = r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[0], rows[1:]
}

func points(t testing.TB, path string) (x, y []float64) {
	_, rows := columns(t, path)
	for _, row := range rows {
		x, y = append(x, number(row[0])), append(y, number(row[1]))
	}
	return x, y
}

func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// free leaves a hyper-parameter to the evidence alone.
var free = Prior{Deviation: math.Inf(1), Low: -20, High: 20}

// near fails the test if got is further than within from want.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %.12g, want %.12g within %g", what, got, want, within)
	}
}

func evidence(t *testing.T, k Kernel, x, y []float64, h Hyper) float64 {
	t.Helper()
	var r Regression
	if err := r.Load(k, x, y); err != nil {
		t.Fatal(err)
	}
	v, err := r.Evidence(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestUsageExampleOfGPML(t *testing.T) {
	x, y := points(t, "testdata/gpml_usage.csv")
	k := Kernel{Shape: SquaredExponential, Groups: []int{1}}
	near(t, "log evidence at the start", evidence(t, k, x, y, Hyper{0, 0, -1}), -16.457002029935346, 1e-6)

	var r Regression
	if err := r.Load(k, x, y); err != nil {
		t.Fatal(err)
	}
	h, value, err := r.Maximize([]Hyper{{0, 0, -1}}, []Prior{free, free, free}, Effort{100, 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-0.6352157593, -0.1044635773, -2.3823719025} {
		near(t, "optimum "+strconv.Itoa(i), h[i], want, 1e-6)
	}
	for i, published := range []float64{-0.6352, -0.1045, -2.3824} {
		near(t, "published optimum "+strconv.Itoa(i), h[i], published, 0.5e-4)
	}
	near(t, "log evidence at the optimum", value, 2.7821295899, 1e-6)
}

func TestDemoOfGPML(t *testing.T) {
	x, y := points(t, "testdata/gpml_demo_regression.csv")

	rest := make([]float64, len(y)) // after the mean x/2 + 1
	for i := range y {
		rest[i] = y[i] - (0.5*x[i] + 1)
	}
	fixed := evidence(t, Kernel{Shape: Matern32, Groups: []int{1}}, x, rest, Hyper{math.Log(0.25), 0, math.Log(0.1)})
	near(t, "log evidence of Matern 3/2", fixed, -11.970631724666065, 1e-6)
	near(t, "published", fixed, -11.97, 0.5e-2)

	var r Regression
	if err := r.Load(Kernel{Shape: SquaredExponential, Groups: []int{1}}, x, y); err != nil {
		t.Fatal(err)
	}
	h, value, err := r.Maximize([]Hyper{{0, 0, math.Log(0.1)}}, []Prior{free, free, free}, Effort{100, 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "log evidence of the squared exponential", value, -14.131090784943764, 1e-6)
	near(t, "published", value, -14.13, 0.5e-2)
	for i, want := range []float64{0.3703166757, 1.9856446131, 0.1491881038} {
		near(t, "optimum "+strconv.Itoa(i), math.Exp(h[i]), want, 1e-6)
	}
}

// TestReferenceFile checks that what was taken over into this package is what the whole set says.
func TestReferenceFile(t *testing.T) {
	text, err := os.ReadFile(reference(t, "gp/gp_reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID         string
			Recomputed struct {
				Start     float64 `json:"nlml_at_start"`
				Fixed     float64 `json:"fixed_nlml"`
				SE        float64 `json:"se_nlml"`
				SEOptimum struct {
					Length    float64 `json:"ell"`
					Amplitude float64 `json:"sf"`
					Noise     float64 `json:"sn"`
				} `json:"se_optimum"`
				Optimum struct {
					Length    float64 `json:"log_ell"`
					Amplitude float64 `json:"log_sf"`
					Noise     float64 `json:"log_sn"`
				}
				LogLikelihood float64 `json:"log_likelihood"`
			} `json:"recomputed_here"`
			LogLikelihood float64   `json:"published_log_likelihood"`
			Gradient      []float64 `json:"published_gradient"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, c := range file.Cases {
		r := c.Recomputed
		switch c.ID {
		case "gpml_usage":
			x, y := points(t, reference(t, "gp/gpml_usage.csv"))
			k := Kernel{Shape: SquaredExponential, Groups: []int{1}}
			near(t, c.ID, -evidence(t, k, x, y, Hyper{0, 0, -1}), r.Start, 1e-6)
			sameTable(t, "testdata/gpml_usage.csv", x, y)
		case "gpml_demo_regression":
			x, y := points(t, reference(t, "gp/gpml_demo_regression.csv"))
			k := Kernel{Shape: SquaredExponential, Groups: []int{1}}
			o := r.SEOptimum
			near(t, c.ID, -evidence(t, k, x, y, Hyper{math.Log(o.Length), math.Log(o.Amplitude), math.Log(o.Noise)}), r.SE, 1e-6)
			sameTable(t, "testdata/gpml_demo_regression.csv", x, y)
		case "george_mauna_loa":
			maunaLoa(t, c.LogLikelihood, c.Gradient)
		default:
			continue
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("found %d of 3 cases", seen)
	}
}

func sameTable(t *testing.T, path string, x, y []float64) {
	t.Helper()
	u, v := points(t, path)
	if len(u) != len(x) {
		t.Fatalf("%s has %d points, the reference %d", path, len(u), len(x))
	}
	for i := range x {
		if u[i] != x[i] || v[i] != y[i] {
			t.Errorf("%s: point %d is (%v, %v), the reference says (%v, %v)", path, i, u[i], v[i], x[i], y[i])
		}
	}
}

// maunaLoa holds the evidence and its gradient, by the sums that Regression uses, against those that the tutorial of
// george 0.3.1 prints for carbon dioxide at Mauna Loa, whose kernel has products and sums that Kernel has not.
func maunaLoa(t *testing.T, published float64, gradient []float64) {
	_, rows := columns(t, reference(t, "series/mauna_loa_weekly_statsmodels.csv"))
	var years, values []float64
	kept := 0
	for _, row := range rows {
		day, err := time.Parse("20060102", row[0])
		if err != nil {
			t.Fatal(err)
		}
		// Years since noon of the first of January 2000.
		year := 2000 + day.Sub(time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)).Hours()/24/365.25
		value := number(row[1])
		if math.IsNaN(value) || year >= 1996 {
			continue
		}
		if kept%4 == 0 {
			years, values = append(years, year), append(values, value)
		}
		kept++
	}
	n := len(values)
	if n != 478 {
		t.Fatalf("%d points, want 478", n)
	}
	mean := 0.0
	for _, v := range values {
		mean += v / float64(n)
	}
	near(t, "mean", mean, 335.7135983263599, 1e-9)
	for i := range values {
		values[i] -= mean
	}

	// The four terms of the kernel at two times, and their derivatives in the order of george's gradient after mean
	// and noise: by the logarithms of each variance and squared length, of the period, of the exponent alpha; and by
	// gamma itself.
	const gamma, period, alpha = 2 / (1.3 * 1.3), 1, 0.78
	covariance := func(a, b float64) (sum float64, by [11]float64) {
		r := a - b
		exponential := func(variance, metric float64) (k, byVariance, byMetric float64) {
			u := r * r / (2 * metric)
			k = variance * math.Exp(-u)
			return k, k, k * u
		}
		k1, v1, m1 := exponential(66*66, 67*67)
		k2, v2, m2 := exponential(2.4*2.4, 90*90)
		sin, cos := math.Sincos(math.Pi * r / period)
		wave := math.Exp(-gamma * sin * sin)
		u := r * r / (2 * alpha * 1.2 * 1.2)
		k3 := 0.66 * 0.66 * math.Pow(1+u, -alpha)
		k4, v4, m4 := exponential(0.18*0.18, 1.6*1.6)
		return k1 + k2*wave + k3 + k4, [11]float64{
			v1, m1,
			v2 * wave, m2 * wave, -k2 * wave * sin * sin, k2 * wave * gamma * 2 * sin * cos * math.Pi * r / period,
			k3, alpha * k3 * (u/(1+u) - math.Log1p(u)), k3 * alpha * u / (1 + u),
			v4, m4,
		}
	}
	k := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			k[i*n+j], _ = covariance(years[i], years[j])
		}
		k[i*n+i] += 0.19 * 0.19
	}
	var f factor
	if err := f.set(n, k, values); err != nil {
		t.Fatal(err)
	}
	if f.jitter != 0 {
		t.Errorf("jitter %v was needed", f.jitter)
	}
	near(t, "log likelihood of Mauna Loa", f.evidence(values), published, 1e-6)

	f.invert()
	got := make([]float64, len(gradient))
	for i, a := range f.alpha {
		got[0] += a
		got[1] += 0.19 * 0.19 * f.weight(i, i)
	}
	for i := range n {
		for j := range i + 1 {
			_, by := covariance(years[i], years[j])
			for c, d := range by {
				got[2+c] += d * f.weight(i, j)
			}
		}
	}
	for i, want := range gradient {
		near(t, "derivative "+strconv.Itoa(i)+" of Mauna Loa", got[i], want, 1e-6*max(1, math.Abs(want)))
	}
}
