package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/forecast"
	"evenkeel/sim/score"
	"evenkeel/sim/trace"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests print as what is expected")

// walk is the last value, with the spread of the steps so far.
type walk struct {
	name   string
	lowest int // values before it predicts
	last   float64
	n      int
	sum    float64 // of squares
}

func (w *walk) Name() string { return w.name }

func (w *walk) Observe(y float64) {
	if math.IsNaN(y) {
		return
	}
	if w.n++; w.n > 1 {
		w.sum += (y - w.last) * (y - w.last)
	}
	w.last = y
}

func (w *walk) Predict(out []forecast.Prediction) bool {
	if w.n < w.lowest {
		return false
	}
	for i := range out {
		out[i] = forecast.Normal(w.last, float64(i+1)*w.sum/float64(w.n-1))
	}
	return true
}

func walks() []forecaster {
	return []forecaster{
		{"walk", "", func(trace.Series) forecast.Model { return &walk{name: "walk", lowest: 2} }},
		{"late", "", func(trace.Series) forecast.Model { return &walk{name: "late", lowest: 25} }},
	}
}

// madeUp is a folder of small traces in each format: saw teeth, a VM that is off for a while, one that stands still.
func madeUp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	for vm := 1; vm <= 3; vm++ {
		b.Reset()
		b.WriteString("Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage [%];\tMemory capacity provisioned [KB];\tMemory usage [KB]\n")
		for i := range 120 {
			cores := 1
			if vm == 2 && i > 50 && i < 60 {
				cores = 0
			}
			fmt.Fprintf(&b, "%d;\t%d;\t2600;\t%d;\t1;\t1000;\t%d\n", 1372629804+300*i, cores, 100*vm+i*7*vm%23, 500+i/100)
		}
		write(fmt.Sprintf("rnd/%d.csv", vm), b.String())
	}
	for _, day := range []int{1, 2} {
		b.Reset()
		for i := range 288 {
			fmt.Fprintf(&b, "%g %g\n", 10+float64(i*i%17)/2, 20+float64(i%30)/4)
		}
		write(fmt.Sprintf("gcd/vm_77_%d", day), b.String())
	}
	b.Reset()
	for i := range 100 {
		fmt.Fprintf(&b, "%d\n", i*i*i%5)
	}
	write("20110303/a b", b.String())
	write("20110303/short", "1\n2\n3\n")
	write("README", "made up\n")
	return dir
}

func madeUpOptions(dir string) forecastOptions {
	return forecastOptions{data: []string{dir}, models: walks(), seed: 1, jobs: 1, output: "table", score: score.Options{Steps: 3, Warmup: 20, Every: 1, Short: 30}}
}

func TestForecastGolden(t *testing.T) {
	dir := madeUp(t)
	for _, c := range []struct {
		name string
		set  func(*forecastOptions)
	}{
		{"table", func(*forecastOptions) {}},
		{"markdown", func(o *forecastOptions) { o.output, o.horizons, o.sets = "markdown", true, []string{"planetlab"} }},
		{"csv", func(o *forecastOptions) { o.output, o.use = "csv", trace.Memory }},
		{"json", func(o *forecastOptions) {
			o.output, o.vms, o.length, o.sets, o.score.Steps = "json", 1, 100, []string{"bitbrains"}, 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := madeUpOptions(dir)
			c.set(&o)
			var out, output bytes.Buffer
			if err := scoreForecasts(context.Background(), &out, &output, o); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(output.String(), filepath.Base(dir), "DIR") + out.String()
			file := filepath.Join("testdata", "forecast", c.name+".golden")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s\n(go test ./cmd/vcsim -run Golden -rewrite takes what it prints for right)", got, want)
			}
		})
	}
}

func TestForecastJobsChangeNothing(t *testing.T) {
	o := madeUpOptions(madeUp(t))
	o.output = "json"
	var want bytes.Buffer
	for jobs := 1; jobs <= 4; jobs += 3 {
		o.jobs = jobs
		o.times = jobs > 1
		var out bytes.Buffer
		if err := scoreForecasts(context.Background(), &out, io.Discard, o); err != nil {
			t.Fatal(err)
		}
		if jobs == 1 {
			want = out
		} else if out.String() != want.String() {
			t.Errorf("%d jobs:\n%s\none job:\n%s", jobs, out.String(), want.String())
		}
	}
}

// Which VMs are drawn does not depend on what else is in the data, and CPU and memory of a VM stay together.
func TestForecastDraws(t *testing.T) {
	var all []trace.Series
	for _, set := range []string{"a", "b"} {
		for vm := range 20 {
			for _, r := range []trace.Resource{trace.CPU, trace.Memory} {
				s := trace.Series{Set: set, VM: fmt.Sprintf("%02d", vm), Resource: r, Step: 1}
				for i := range 50 {
					s.Values = append(s.Values, float64(i))
				}
				all = append(all, s)
			}
		}
	}
	o := forecastOptions{vms: 5, length: 10, seed: 3}
	names := func(series []trace.Series) (b []string) {
		for _, s := range series {
			b = append(b, fmt.Sprint(s.Set, s.VM, s.Resource, s.Values))
		}
		return b
	}
	both, err := o.chosen(all)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := o.chosen(all[:40])
	if err != nil {
		t.Fatal(err)
	}
	if len(both) != 20 || !slices.Equal(names(both)[:10], names(alone)) {
		t.Errorf("both sets %v, one %v", names(both), names(alone))
	}
	for i := 0; i < len(both); i += 2 {
		c, m := both[i], both[i+1]
		if c.VM != m.VM || c.Values[0] != m.Values[0] || len(c.Values) != 10 {
			t.Errorf("%v and %v", c, m)
		}
	}
	o.seed = 4
	if other, err := o.chosen(all); err != nil || slices.Equal(names(other), names(both)) {
		t.Errorf("another seed draws the same (%v)", err)
	}
	o.sets = []string{"c"}
	if _, err := o.chosen(all); err == nil || !strings.Contains(err.Error(), `no set "c"`) {
		t.Errorf("a set that is not there: %v", err)
	}
}

func TestForecastIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	err := scoreForecasts(ctx, &out, io.Discard, madeUpOptions(madeUp(t)))
	if err == nil || !strings.Contains(err.Error(), "0 of ") || out.Len() > 0 {
		t.Errorf("error %v, printed %q", err, out.String())
	}
}

func TestSpreadData(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"vcsim forecast --data a b --vms 3 --data=c d -o csv", "vcsim forecast --data a --data b --vms 3 --data=c --data d -o csv"},
		{"vcsim forecast --vms 3 a", "vcsim forecast --vms 3 a"},
		{"vcsim cluster --data a b", "vcsim cluster --data a b"},
		{"vcsim", "vcsim"},
	} {
		if got := strings.Join(spreadData(strings.Fields(c.in)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

// The command from its arguments: it names what is wrong with them, and ends as for wrong usage.
func TestForecastArguments(t *testing.T) {
	dir := madeUp(t)
	for _, c := range []struct{ args, want string }{
		{"", "--data FILE is needed"},
		{"--data DIR --models last,magic", `there is no "magic": the models are last, peak,`},
		{"--data DIR --models last,last", "last is there twice"},
		{"--data DIR --models ,", "--models: none"},
		{"--data DIR --use disk", "--use disk: must be cpu or memory"},
		{"--data DIR --format xls", "--format xls: must be one of bitbrains, nab, google2011, planetlab"},
		{"--data DIR --steps 0", "steps must be 1 to 1000"},
		{"--data DIR --vms -1", "must not be negative"},
		{"--data DIR -o yaml", "-o yaml: must be table, markdown, json or csv"},
		{"--vms 3 DIR", "which flag is it for?"},
		{"--data DIR/rnd DIR/gcd --models last --warmup 30 --steps 2 -j 1 -o csv", ""},
	} {
		var out bytes.Buffer
		app := &cli.App{Name: "vcsim", HideHelpCommand: true, Commands: []*cli.Command{forecastCommand()}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
		args := append([]string{"vcsim", "forecast"}, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
		err := app.Run(spreadData(args))
		var exit cli.ExitCoder
		switch {
		case c.want == "" && (err != nil || !strings.Contains(out.String(), "google2011,memory") || !strings.Contains(out.String(), "bitbrains,cpu")):
			t.Errorf("%s: %v\n%s", c.args, err, out.String())
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &exit) || exit.ExitCode() != 2):
			t.Errorf("%s: %v, want status 2 and %q", c.args, err, c.want)
		}
	}
}

// Each kind of model that is offered can be made, has its name, predicts a plain series, and gives the same again.
func TestForecasters(t *testing.T) {
	s := trace.Series{Set: "x", VM: "y", Resource: trace.CPU, Step: 300e9, Limit: math.NaN()}
	for i := range 150 {
		s.Values = append(s.Values, 10+math.Sin(float64(i)/3)+float64(i*i%7)/10)
	}
	for _, f := range forecasters {
		t.Run(f.name, func(t *testing.T) {
			var seen [2]string
			for k := range seen {
				r := score.Run(s.Values, []forecast.Model{f.start(s)}, score.Options{Steps: 10, Warmup: 60, Every: 10})
				if r.Models[0].Name != f.name || r.Origins == 0 || r.Origins != r.Asked {
					t.Fatalf("%+v", r)
				}
				raw, err := json.Marshal(r.Models)
				if err != nil {
					t.Fatal(err)
				}
				seen[k] = string(raw)
			}
			if seen[0] != seen[1] {
				t.Errorf("two runs differ:\n%s\n%s", seen[0], seen[1])
			}
		})
	}
}

// Use is never negative, and every model is helped to know it, not only what production states.
func TestForecastersAreNeverNegative(t *testing.T) {
	s := trace.Series{Set: "made-up", VM: "seldom used", Resource: trace.CPU, Step: 5 * time.Minute, Values: make([]float64, 150)}
	for i := range s.Values {
		s.Values[i] = float64(i*i%7) * float64(i%5/4)
	}
	for _, f := range forecasters {
		m, plain := f.start(s), f.make(s)
		if m.Name() != plain.Name() {
			t.Errorf("%s is called %s", plain.Name(), m.Name())
		}
		out, own := make([]forecast.Prediction, 10), make([]forecast.Prediction, 10)
		output, below := 0, 0
		for _, y := range s.Values {
			m.Observe(y)
			plain.Observe(y)
			if ok := m.Predict(out); ok != plain.Predict(own) {
				t.Fatalf("%s: it can predict: %v, by itself it is otherwise", f.name, ok)
			} else if !ok {
				continue
			}
			for h, p := range out {
				output++
				if p.Mean < 0 || p.Quantiles[0] < 0 {
					t.Fatalf("%s, %d ahead: %+v", f.name, h+1, p)
				}
				if own[h].Quantiles[0] < 0 {
					below++
				}
				if p.Quantiles[forecast.Median] != max(0, own[h].Quantiles[forecast.Median]) {
					t.Fatalf("%s, %d ahead: a median of %v, by itself of %v", f.name, h+1, p.Quantiles[forecast.Median], own[h].Quantiles[forecast.Median])
				}
			}
		}
		t.Logf("%s: %d of %d below 0 by itself", f.name, below, output)
		if output == 0 {
			t.Errorf("%s said nothing", f.name)
		}
	}
}
