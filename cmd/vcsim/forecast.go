package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/sim/score"
	"evenkeel/sim/trace"
)

func forecasterNames() []string {
	var names []string
	for _, f := range forecasters {
		names = append(names, f.name)
	}
	return names
}

func forecastCommand() *cli.Command {
	var models strings.Builder
	for _, f := range forecasters {
		fmt.Fprintf(&models, "\n  %-10s %s", f.name, f.usage)
	}
	return &cli.Command{
		Name:      "forecast",
		Usage:     "score forecasts on measured use: how far off, how honest their intervals are",
		UsageText: "vcsim forecast --data FILE... [--models last,mixture] [--vms 40] [-o table|markdown|json|csv]",
		Description: `Each series of the data is given to the models value by value, as in production. At every value after the first --warmup
each model says how the next --steps values are distributed; what it said is scored when they come. All models are scored at
exactly the same places.

FILE is a folder, an archive (.tar.gz) or a file as it was published: Bitbrains GWA-T-12, VM days of Google 2011, PlanetLab, NAB.
The format is seen from the content.

  vcsim forecast --data rnd-2013-07.tar.gz gcd-vms.tar.gz --vms 20
  vcsim forecast --data traces/ --models last,smooth --length 1000 -o csv > scores.csv

How to read the table, per set and use (CPU, memory, both):
  MASE       error of the median, over the mean change from one value to the next: the last value has 1 one step ahead.
             The farther ahead, the larger it is for every model; the table takes all steps together.
  PINBALL    the same scale for the whole distribution, wide or lopsided intervals included. The figure to judge by;
             lower is better, * is the lowest of the block.
  50% .. 99% how much of what came lay within the interval of that name. 95% should be 95: less is too sure, more too wide.
  VMS 90-98  share of series for which the 95% interval covered 90 to 98%. WITH TIES: values exactly on a bound may count
             as within or not, whichever is kinder; use that stands still or is measured in whole numbers needs that.
  UNABLE     places at which the model could not predict. They count for no model.
Means are over series, every series counting the same. Still series, 95% of whose values repeat, are apart: no interval covers
95% of a constant.` + "\n\nModels:" + models.String(),
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "data", Usage: "read `FILE`, a folder, archive or file; several may follow each other"},
			&cli.StringFlag{Name: "format", Usage: "files are in format `F`: " + joined(trace.Formats()) + " (default: by their content)"},
			&cli.StringFlag{Name: "models", Usage: "score `NAMES`, with commas between", Value: strings.Join(forecasterNames(), ",")},
			&cli.StringFlag{Name: "sets", Usage: "only sets `NAMES`, with commas between"},
			&cli.StringFlag{Name: "use", Usage: "only `cpu|memory`"},
			&cli.IntFlag{Name: "vms", Usage: "only `N` VMs of each set, drawn by --seed (0: all)"},
			&cli.IntFlag{Name: "length", Usage: "of each series only a stretch of `N` values, drawn by --seed (0: all of it)"},
			&cli.IntFlag{Name: "steps", Usage: "predict 1 to `N` steps ahead", Value: 10},
			&cli.IntFlag{Name: "warmup", Usage: "predict after `N` values", Value: 60},
			&cli.IntFlag{Name: "every", Usage: "predict at every `N`th value only, to save time", Value: 1},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of what is drawn", Value: 1},
			&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "`N` series at a time; changes nothing but the time", Value: runtime.GOMAXPROCS(0)},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`table|markdown|json|csv`; json and csv have every horizon, json every series", Value: "table"},
			&cli.StringFlag{Name: "predictions", Usage: "write each prediction that is scored, and what came, to `FILE` as CSV; series in the order in which they end"},
			&cli.BoolFlag{Name: "horizons", Usage: "table and markdown: a line per number of steps ahead too"},
			&cli.BoolFlag{Name: "times", Usage: "say at the end how long each model took per value"},
		},
		Action: func(c *cli.Context) error {
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			o, err := forecastOptionsOf(c)
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			if name := c.String("predictions"); name != "" {
				f, err := os.Create(name)
				if err != nil {
					return cli.Exit(fmt.Sprintf("--predictions: %v", err), 2)
				}
				w := bufio.NewWriter(f)
				o.predictions = newPredictionFile(w)
				err = scoreForecasts(ctx, c.App.Writer, c.App.ErrWriter, o)
				return errors.Join(err, w.Flush(), f.Close())
			}
			return scoreForecasts(ctx, c.App.Writer, c.App.ErrWriter, o)
		},
	}
}

// manyFiles are the flags that several files may follow, by command.
var manyFiles = map[string][]string{"forecast": {"data"}, "run": {"trace", "use"}}

// spreadData lets several files follow one --data, with other flags after them: "--data a b" becomes "--data a --data b".
func spreadData(args []string) []string {
	if len(args) < 2 || manyFiles[args[1]] == nil {
		return args
	}
	out := slices.Clone(args[:2])
	flag, follows := "", 0 // files seen of a flag
	for _, a := range args[2:] {
		name, _, equals := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-"), "=")
		switch {
		case strings.HasPrefix(a, "-") && slices.Contains(manyFiles[args[1]], name):
			if flag, follows = "--"+name, 1; equals {
				follows = 2
			}
		case strings.HasPrefix(a, "-"):
			follows = 0
		case follows == 1:
			follows = 2
		case follows == 2:
			out = append(out, flag)
		}
		out = append(out, a)
	}
	return out
}

// forecastOptions is what vcsim forecast was asked.
type forecastOptions struct {
	data     []string
	format   trace.Format
	models   []forecaster
	sets     []string // empty: all
	use      trace.Resource
	vms      int
	length   int
	score    score.Options
	seed     uint64
	jobs     int
	output   string
	horizons bool
	times    bool

	predictions *predictionFile // nil: none is written
}

func forecastOptionsOf(c *cli.Context) (forecastOptions, error) {
	o := forecastOptions{data: c.StringSlice("data"), format: trace.Format(c.String("format")), sets: list(c.String("sets")),
		use: trace.Resource(c.String("use")), vms: c.Int("vms"), length: c.Int("length"), seed: c.Uint64("seed"), jobs: c.Int("jobs"),
		score:  score.Options{Steps: c.Int("steps"), Warmup: c.Int("warmup"), Every: c.Int("every"), Short: 30},
		output: c.String("output"), horizons: c.Bool("horizons"), times: c.Bool("times")}
	for _, name := range list(c.String("models")) {
		i := slices.IndexFunc(forecasters, func(f forecaster) bool { return f.name == name })
		if i < 0 {
			return o, fmt.Errorf("--models: there is no %q: the models are %s", name, strings.Join(forecasterNames(), ", "))
		}
		if slices.ContainsFunc(o.models, func(f forecaster) bool { return f.name == name }) {
			return o, fmt.Errorf("--models: %s is there twice", name)
		}
		o.models = append(o.models, forecasters[i])
	}
	switch {
	case c.Args().Present():
		return o, fmt.Errorf("%q: which flag is it for?", c.Args().First())
	case len(o.data) == 0:
		return o, fmt.Errorf("--data FILE is needed: a trace to score on; vcsim forecast --help says which")
	case len(o.models) == 0:
		return o, fmt.Errorf("--models: none")
	case o.use != "" && o.use != trace.CPU && o.use != trace.Memory:
		return o, fmt.Errorf("--use %s: must be cpu or memory", o.use)
	case o.format != "" && !slices.Contains(trace.Formats(), o.format):
		return o, fmt.Errorf("--format %s: must be one of %s", o.format, joined(trace.Formats()))
	case o.score.Steps < 1 || o.score.Steps > 1000 || o.score.Warmup < 1 || o.score.Every < 1 || o.jobs < 1:
		return o, fmt.Errorf("steps must be 1 to 1000; warmup, every and jobs at least 1")
	case o.vms < 0 || o.length < 0:
		return o, fmt.Errorf("vms and length must not be negative")
	case !slices.Contains([]string{"table", "markdown", "json", "csv"}, o.output):
		return o, fmt.Errorf("-o %s: must be table, markdown, json or csv", o.output)
	}
	return o, nil
}

// list of what stands between commas.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func joined[S ~string](names []S) string {
	var b []string
	for _, n := range names {
		b = append(b, string(n))
	}
	return strings.Join(b, ", ")
}

// scoreForecasts does what vcsim forecast was asked: results to out, all else to say.
func scoreForecasts(ctx context.Context, out, say io.Writer, o forecastOptions) error {
	var sources []trace.Source
	for _, p := range o.data {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("read the data: %w", err)
		}
		abs, err := filepath.Abs(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		sources = append(sources, trace.Source{FS: os.DirFS(filepath.Dir(abs)), Name: filepath.Base(abs)})
	}
	data, err := trace.Load(trace.Options{Format: o.format}, sources...)
	if err != nil {
		return fmt.Errorf("read the data: %w", err)
	}
	const top = 12
	for i, n := range data.Notes {
		if i == top && len(data.Notes) > top+1 {
			fmt.Fprintf(say, "note: and %d more\n", len(data.Notes)-top)
			break
		}
		fmt.Fprintf(say, "note: %s\n", n)
	}
	all, err := o.chosen(data.Series)
	if err != nil {
		return err
	}
	results, took, err := o.run(ctx, say, all)
	if err != nil {
		return err
	}
	if o.times {
		writeTimes(say, took)
	}
	return newForecastReport(o, all, results).write(out, o)
}

// chosen is the part of all series that was asked for.
func (o forecastOptions) chosen(all []trace.Series) ([]trace.Series, error) {
	bySet := map[string][]string{} // VMs
	for _, s := range all {
		if vms := bySet[s.Set]; len(vms) == 0 || vms[len(vms)-1] != s.VM {
			bySet[s.Set] = append(vms, s.VM)
		}
	}
	for _, name := range o.sets {
		if bySet[name] == nil {
			return nil, fmt.Errorf("--sets: there is no set %q in the data", name)
		}
	}
	drawn := map[string]map[string]bool{}
	for set, vms := range bySet {
		if o.vms > 0 && o.vms < len(vms) {
			rng := o.draw(set)
			rng.Shuffle(len(vms), func(i, j int) { vms[i], vms[j] = vms[j], vms[i] })
			vms = vms[:o.vms]
		}
		drawn[set] = map[string]bool{}
		for _, vm := range vms {
			drawn[set][vm] = true
		}
	}
	var chosen []trace.Series
	for _, s := range all {
		if len(o.sets) > 0 && !slices.Contains(o.sets, s.Set) || o.use != "" && s.Resource != o.use || !drawn[s.Set][s.VM] {
			continue
		}
		if n := len(s.Values); o.length > 0 && o.length < n {
			// CPU and memory of a VM are taken at the same time.
			at := o.draw(s.Set + "\x00" + s.VM).IntN(n - o.length + 1)
			s.Values, s.Start = s.Values[at:at+o.length], s.Start.Add(time.Duration(at)*s.Step)
		}
		chosen = append(chosen, s)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no series of the data was asked for")
	}
	return chosen, nil
}

// draw is a source of random numbers for one thing, the same whatever else is drawn.
func (o forecastOptions) draw(what string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, what) // a hash takes everything
	return rand.New(rand.NewPCG(o.seed, h.Sum64()))
}

// finite is v for JSON, which knows no NaN.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
