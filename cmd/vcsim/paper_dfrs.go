package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"evenkeel/cmd/vcsim/dfrs"
	"evenkeel/sim/trace"
)

func dfrsCommand() *cli.Command {
	return &cli.Command{
		Name:  "dfrs",
		Usage: "Dynamic Fractional Resource Scheduling vs. Batch Scheduling (2011): tables 2 and 3",
		Description: `Draws workloads of the Lublin-Feitelson model, replays them under batch scheduling, the paper's fractional sharing and
Evenkeel, and writes DIR/dfrs.md and DIR/dfrs/*.svg. Equal seeds give equal figures, processor times apart.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "small", Usage: "two workloads and two loads, for a look"},
			&cli.IntFlag{Name: "instances", Usage: "`N` workloads, each unscaled and scaled to nine loads (the paper has 100)", Value: 4},
			&cli.StringSliceFlag{Name: "data", Usage: "a log in the standard workload format, `FILE`, besides; may be given several times"},
			&cli.IntFlag{Name: "weeks", Usage: "`N` weeks of each log, evenly spread; 0: all", Value: 8},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for the report", Value: filepath.Join("docs", "reproduction")},
			&cli.IntFlag{Name: "sweeps", Usage: "vary settings on `N` workloads; 0: do not", Value: 4},
			&cli.StringFlag{Name: "state", Usage: "remember replays in `FILE`, and go on with what it remembers (of the same build)"},
			&cli.IntFlag{Name: "workers", Usage: "`N` replays at once", Value: runtime.GOMAXPROCS(0)},
			&cli.StringFlag{Name: "csv", Usage: "`FILE` for the figures of every replay"},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of all that is drawn", Value: 1},
		},
		Action: func(c *cli.Context) error {
			if c.Int("instances") < 1 || c.Int("weeks") < 0 || c.Int("workers") < 1 || c.Args().Present() {
				return cli.Exit("there are 1 or more instances and workers, 0 or more weeks, and no arguments", 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return repeatDFRS(ctx, c)
		},
	}
}

func repeatDFRS(ctx context.Context, c *cli.Context) error {
	n, loads := c.Int("instances"), []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
	command := []string{"vcsim paper dfrs"}
	if c.Bool("small") {
		n, loads = 2, []float64{0.3, 0.7}
		command = append(command, "--small")
	} else {
		command = append(command, fmt.Sprintf("--instances %d", n))
	}
	command = append(command, fmt.Sprintf("--seed %d", c.Uint64("seed")))
	instances, err := dfrs.Synthetic(c.Uint64("seed"), n, dfrs.Jobs, loads)
	if err != nil {
		return err
	}
	var notes []string
	for _, file := range c.StringSlice("data") {
		l, err := trace.LoadSWF(trace.Options{}, trace.Source{FS: os.DirFS(filepath.Dir(file)), Name: filepath.Base(file)})
		if err != nil {
			return err
		}
		name := logName(file)
		weeks, output, err := dfrs.Weeks(name, l, c.Int("weeks"), c.Uint64("seed"))
		if err != nil {
			return err
		}
		for _, note := range l.Notes {
			notes = append(notes, name+": "+note)
		}
		notes = append(notes, output...)
		instances = append(instances, weeks...)
		command = append(command, "--data "+filepath.Base(file))
	}
	if len(c.StringSlice("data")) > 0 {
		command = append(command, fmt.Sprintf("--weeks %d", c.Int("weeks")))
	}
	var state *dfrs.State
	if file := c.String("state"); file != "" {
		if state, err = dfrs.OpenState(file); err != nil {
			return err
		}
		defer state.Close()
	}
	results, err := dfrs.Run(ctx, instances, dfrs.Policies(), c.Int("workers"), state, bar(c.App.ErrWriter, "replays"))
	if err != nil {
		return err
	}
	sweeps, err := dfrs.Run(ctx, dfrs.Swept(instances, c.Int("sweeps")), dfrs.Sweeps(), c.Int("workers"), state, bar(c.App.ErrWriter, "sweeps"))
	if err != nil {
		return err
	}
	if !c.Bool("small") {
		command = append(command, fmt.Sprintf("--sweeps %d", len(sweeps.Instances)))
	}
	report := dfrs.Report{Command: strings.Join(command, " "), Results: results, Sweeps: sweeps, Notes: notes}
	if err := report.Write(c.String("out")); err != nil {
		return err
	}
	if file := c.String("csv"); file != "" {
		if err := os.WriteFile(file, []byte(results.CSV()+sweeps.CSV()), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.App.Writer, "written: %s\n", filepath.Join(c.String("out"), "dfrs.md"))
	return nil
}

// logName is what a log is called: the beginning of its file's name.
func logName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	if parts := strings.Split(name, "-"); len(parts) > 2 {
		name = strings.Join(parts[:2], "-")
	}
	return name
}

// bar shows how far a run is: a bar on a terminal, elsewhere a line every 15 s.
func bar(w io.Writer, what string) func(done, all int) {
	f, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(f.Fd()))
	begin, last := time.Now(), time.Now()
	return func(done, all int) {
		every := 15 * time.Second
		if terminal {
			every = 200 * time.Millisecond
		}
		now := time.Now()
		if now.Sub(last) < every && !(terminal && done == all) {
			return
		}
		last = now
		left := time.Duration(float64(now.Sub(begin)) / float64(done) * float64(all-done)).Round(time.Second)
		if !terminal {
			fmt.Fprintf(w, "%d of %d %s, about %s left\n", done, all, what, left)
			return
		}
		const width = 30
		full := width * done / all
		fmt.Fprintf(w, "\r[%s%s] %d of %d %s, about %s left\x1b[K", strings.Repeat("#", full), strings.Repeat(".", width-full), done, all, what, left)
		if done == all {
			fmt.Fprintln(w)
		}
	}
}
