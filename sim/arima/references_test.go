package arima

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// references is the complete set of published fits: it is not part of this repository, but is read where it lies beside
// the checkout. What the repository holds itself of them is in testdata (TestPublished).
const references = "../../../shared/data/forecast-reference"

func reference(t *testing.T, name string) []byte {
	t.Helper()
	if _, err := os.Stat(references); os.IsNotExist(err) {
		t.Skipf("the complete references are not beside the checkout (%s): only testdata was compared", references)
	}
	data, err := os.ReadFile(filepath.Join(references, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// table reads a CSV; column returns one of its columns, an empty field as NaN.
func table(t *testing.T, name string) (column func(string) []float64) {
	t.Helper()
	r := csv.NewReader(strings.NewReader(string(reference(t, name))))
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return func(title string) []float64 {
		for j, h := range rows[0] {
			if strings.TrimSpace(h) != title {
				continue
			}
			var out []float64
			for _, row := range rows[1:] {
				v := math.NaN()
				if j < len(row) {
					if x, err := strconv.ParseFloat(strings.TrimSpace(row[j]), 64); err == nil {
						v = x
					}
				}
				out = append(out, v)
			}
			return out
		}
		t.Fatalf("%s has no column %s", name, title)
		return nil
	}
}

func mapped(x []float64, f func(float64) float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = f(v)
	}
	return out
}

// rCase is one fit as R prints it.
type rCase struct {
	Series   string
	Order    [3]int
	Seasonal struct {
		Order  [3]int
		Period int
	}
	Transform            string
	AR, MA, SAR, SMA, SE []float64
	Intercept            *float64
	XregCoef             []float64 `json:"xreg_coef"`
	Missing              any       `json:"missing_values"`
	Sigma2               float64
	LogLik               float64
	PartLL               float64 `json:"part_loglik"`
	AIC, BIC             float64
	Forecast             struct {
		H        int
		Mean, SE []float64
	}
	H    int
	Mean []float64
	// The standard errors of arima0's forecasts share the key se.
}

func (c rCase) String() string {
	return fmt.Sprintf("%s %v%v%d %s", c.Series, c.Order, c.Seasonal.Order, c.Seasonal.Period, c.Transform)
}

// data of a case: the series, its regressors and those of the future, if it has any.
func (c rCase) data(t *testing.T) (y []float64, x [][]float64) {
	name, column := c.Series, "value"
	if name == "Seatbelts.drivers" {
		name, column = "Seatbelts", "drivers"
	}
	col := table(t, "series/"+name+".csv")
	y = col(column)
	if strings.HasPrefix(c.Transform, "log10") {
		y = mapped(y, math.Log10)
	}
	switch {
	case strings.Contains(c.Transform, "start 1954"): // of 1949-1960
		y = y[60:]
	case strings.Contains(c.Transform, "end 1982-12"): // of 1969-1984
		y = y[:14*12]
	}
	if s, ok := c.Missing.(string); ok && strings.HasPrefix(s, "observations 21..40") {
		for i := 20; i < 40; i++ {
			y[i], y[i+40] = math.NaN(), math.NaN()
		}
	}
	switch {
	case c.Series == "LakeHuron":
		x = [][]float64{mapped(col("time"), func(v float64) float64 { return v - 1920 })}
	case c.Series == "Seatbelts.drivers":
		x = [][]float64{mapped(col("kms"), func(v float64) float64 { return math.Log10(v) - 4 }), col("PetrolPrice"), col("law")}
	}
	return y, x
}

func (c rCase) spec() Spec {
	s := Spec{P: c.Order[0], D: c.Order[1], Q: c.Order[2], SP: c.Seasonal.Order[0], SD: c.Seasonal.Order[1], SQ: c.Seasonal.Order[2], Period: c.Seasonal.Period}
	s.Mean = s.lags() == 0 // as R does
	return s
}

// near says whether got is want to tol, relative.
func near(got, want, tol float64) bool {
	return math.Abs(got-want) <= tol*math.Max(math.Abs(want), 1e-12)
}

// printed is the half unit of the last place that a decimal was printed to, and a little more.
func printed(v float64) float64 {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	places := 0
	if i := strings.IndexByte(s, '.'); i >= 0 {
		places = len(s) - i - 1
	}
	return 0.501 * math.Pow(10, -float64(places))
}

// tally counts what met its bar.
type tally struct {
	t        *testing.T
	met, all int
}

func (c *tally) check(name string, ok bool, format string, args ...any) {
	c.all++
	if ok {
		c.met++
		return
	}
	c.t.Errorf("%s: %s", name, fmt.Sprintf(format, args...))
}

func closeAll(got, want []float64, tol func(float64) float64) bool {
	if len(got) < len(want) {
		return false
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= tol(w)) {
			return false
		}
	}
	return true
}

func percent(v float64) float64 { return 0.01*math.Abs(v) + 1e-9 }

func TestReferencesR(t *testing.T) {
	var all struct {
		ML    []rCase `json:"arima_ml"`
		CSS   []rCase `json:"arima_css"`
		ARMA0 []rCase `json:"arima0_forecast"`
		YW    []rCase `json:"ar_yule_walker"`
	}
	if err := json.Unmarshal(reference(t, "arima_r_reference.json"), &all); err != nil {
		t.Fatal(err)
	}
	fits, forecasts := tally{t: t}, tally{t: t}
	run := func(c rCase, method Method) {
		y, x := c.data(t)
		m, err := Fit(y, c.spec(), Options{X: x, Method: method, StdErr: true})
		if err != nil {
			t.Errorf("%s: %v", c, err)
			return
		}
		ll := c.LogLik
		if method == CSS {
			ll = c.PartLL
		}
		if ll == 0 && c.AIC != 0 { // only the criterion was printed
			fits.check(c.String(), m.AIC <= c.AIC+2*printed(c.AIC), "aic %v, want %v", m.AIC, c.AIC)
			return
		}
		got := append(append(append(append([]float64(nil), m.Params.AR...), m.Params.MA...), m.Params.SAR...), m.Params.SMA...)
		want := append(append(append(append([]float64(nil), c.AR...), c.MA...), c.SAR...), c.SMA...)
		if c.Intercept != nil {
			got, want = append(got, m.Params.Mean), append(want, *c.Intercept)
		}
		got, want = append(got, m.Params.Beta...), append(want, c.XregCoef...)
		better := m.LogLik > ll+printed(ll)
		slack := printed(ll)
		if m.Spec.lags() > 0 {
			// R gives the values before the first a prior of large but finite variance. Stata, without one, has our
			// figures to all its digits (air2_stationary).
			slack += 0.005
		}
		same := m.LogLik >= ll-slack
		// R's optimiser rests early: its coefficients are good to some thousandths of their standard errors.
		for i, w := range want {
			slack := printed(w)
			if len(c.SE) == len(want) {
				slack += 0.01 * c.SE[i]
			}
			if math.Abs(got[i]-w) > slack {
				same = false
				t.Logf("%s: coefficient %d is %.5f, R has %v", c, i, got[i], w)
			}
		}
		fits.check(c.String(), better || same, "log-likelihood %.4f, R %v; %+v", m.LogLik, ll, m.Params)
		if len(c.SE) == len(want) && !better {
			fits.check(c.String()+" standard errors", closeAll(m.StdErr, c.SE, func(v float64) float64 { return 0.01*v + printed(v) }), "%.4f, R %v", m.StdErr, c.SE)
		}
		if c.Sigma2 > 0 && !better {
			fits.check(c.String()+" sigma2", near(m.Params.Sigma2, c.Sigma2, 1e-3), "%v, R %v", m.Params.Sigma2, c.Sigma2)
		}
		if c.BIC > 0 {
			fits.check(c.String()+" bic", math.Abs(m.BIC-c.BIC) < 2e-2, "%v, R %v", m.BIC, c.BIC)
		}
		if c.Forecast.H > 0 {
			forecasts.forecast(c.String(), m, c.Forecast.Mean, c.Forecast.SE)
		}
	}
	for _, c := range all.ML {
		run(c, ML)
	}
	for _, c := range all.CSS {
		run(c, CSS)
	}
	for _, c := range all.ARMA0 {
		y, _ := c.data(t)
		m, err := Fit(y, c.spec(), Options{})
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		forecasts.forecast(c.String()+" by arima0", m, c.Mean, c.SE)
	}
	// Forecasts at coefficients that were found in another way.
	for _, c := range all.YW {
		if c.Forecast.H == 0 {
			continue
		}
		y, _ := c.data(t)
		m, err := At(Spec{P: len(c.AR), Mean: true}, Params{AR: c.AR, Mean: average(y), Sigma2: c.Sigma2}, y, nil)
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		forecasts.forecast(c.String()+" at Yule-Walker's coefficients", m, c.Forecast.Mean, c.Forecast.SE)
	}
	t.Logf("R: %d of %d checks of fits met (%d models), %d of %d of forecasts", fits.met, fits.all, len(all.ML)+len(all.CSS), forecasts.met, forecasts.all)
}

func (c *tally) forecast(name string, m *Model, mean, se []float64) {
	got, variance := make([]float64, len(mean)), make([]float64, len(mean))
	if err := m.Forecast(got, variance); err != nil {
		c.t.Error(err)
		return
	}
	c.check(name+" forecast", closeAll(got, mean, percent), "%.5f, want %v", got, mean)
	c.check(name+" forecast error", closeAll(mapped(variance, math.Sqrt), se, percent), "%.5f, want %v", mapped(variance, math.Sqrt), se)
}

// columnText is a column of a CSV as text.
func columnText(t *testing.T, name, title string) (out []string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(string(reference(t, name)))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for j, h := range rows[0] {
		if h == title {
			for _, row := range rows[1:] {
				out = append(out, row[j])
			}
		}
	}
	return out
}
