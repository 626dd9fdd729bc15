package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/cmd/vcsim/casanova"
)

func paperCommand() *cli.Command {
	paper := &cli.Command{
		Name:  "paper",
		Usage: "repeat the simulations of a paper and draw its figures",
		Subcommands: []*cli.Command{{
			Name:  "casanova",
			Usage: "Resource Allocation using Virtual Clusters (2008), figures 2 to 22",
			Description: `Draws the instances of sections 4.1 and 5.2, runs the paper's algorithms and the exact solver on them, and writes
DIR/casanova.md and DIR/casanova/figNN.svg. Yields and failures are the same for the same seed; run times are not.
All of it takes some minutes, --small some seconds.`,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "small", Usage: "only the instances of 4 hosts"},
				&cli.BoolFlag{Name: "large", Usage: "only those of 64 hosts, parallel jobs included"},
				&cli.BoolFlag{Name: "best", Usage: "only DIR/casanova-best.md: what best leaves open of the instances of 64 hosts"},
				&cli.IntFlag{Name: "instances", Usage: "`N` instances of each specification (default: as many as the paper, 10 or 100)"},
				&cli.StringFlag{Name: "out", Usage: "`DIR` for the report", Value: filepath.Join("docs", "reproduction")},
				&cli.Uint64Flag{Name: "seed", Usage: "`S` of the instances and of the algorithms that draw", Value: 1},
			},
			Action: func(c *cli.Context) error {
				if c.Int("instances") < 0 || c.Args().Present() {
					return cli.Exit("instances must not be negative, and there are no arguments", 2)
				}
				ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
				defer stop()
				return repeatCasanova(ctx, c)
			},
		}, paceCommand(), dfrsCommand(), flexCommand(), haCommand(), morpheusCommand()},
	}
	for _, c := range paper.Subcommands {
		c.Before = makeFolder
	}
	return paper
}

// makeFolder makes the folder for the report before the time for it is spent.
func makeFolder(c *cli.Context) error {
	if c.String("out") == "" {
		return nil
	}
	if err := os.MkdirAll(c.String("out"), 0o755); err != nil {
		return fmt.Errorf("make the folder for the report (--out): %w", err)
	}
	return nil
}

func repeatCasanova(ctx context.Context, c *cli.Context) error {
	both := c.Bool("small") == c.Bool("large")
	report := casanova.Report{Command: "vcsim paper casanova"}
	for _, name := range []string{"small", "large"} {
		if !both && c.Bool(name) {
			report.Command += " --" + name
		}
	}
	if n := c.Int("instances"); n > 0 {
		report.Command += fmt.Sprintf(" --instances %d", n)
	}
	report.Command += fmt.Sprintf(" --seed %d", c.Uint64("seed"))
	run := func(into **casanova.Results, name string, set casanova.Set, how casanova.Truncation, only []string) error {
		begin := time.Now()
		r, err := casanova.Run(ctx, set, casanova.Options{
			Seed: c.Uint64("seed"), Instances: c.Int("instances"), How: how, Only: only,
			Workers: runtime.GOMAXPROCS(0), Progress: progress(c.App.ErrWriter, name),
		})
		if err != nil {
			return fmt.Errorf("%s instances: %w", name, err)
		}
		fmt.Fprintf(c.App.Writer, "%s instances: done in %s\n", name, time.Since(begin).Round(100*time.Millisecond))
		*into = r
		return nil
	}
	if c.Bool("best") {
		var r *casanova.Results
		if err := run(&r, "large", casanova.Large, casanova.Reject, []string{casanova.BestName}); err != nil {
			return err
		}
		return r.WriteOpen(c.String("out"), strings.Replace(report.Command, "casanova", "casanova --best", 1))
	}
	if both || c.Bool("small") {
		if err := run(&report.Small, "small", casanova.Small, casanova.Reject, nil); err != nil {
			return err
		}
		if err := run(&report.SmallClamped, "small, clamped", casanova.Small, casanova.Clamp, casanova.Small.Compared()); err != nil {
			return err
		}
	}
	if both || c.Bool("large") {
		if err := run(&report.Large, "large", casanova.Large, casanova.Reject, nil); err != nil {
			return err
		}
		if err := run(&report.LargeClamped, "large, clamped", casanova.Large, casanova.Clamp, casanova.Large.Compared()); err != nil {
			return err
		}
		if err := run(&report.Parallel, "parallel", casanova.Parallel, casanova.Reject, nil); err != nil {
			return err
		}
	}
	if err := report.Write(c.String("out")); err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "written: %s\n", filepath.Join(c.String("out"), "casanova.md"))
	return nil
}

// progress says every two seconds how far a run is and how long it will take.
func progress(w io.Writer, name string) func(done, all int) {
	begin := time.Now()
	last := begin
	return func(done, all int) {
		if now := time.Now(); now.Sub(last) >= 2*time.Second {
			last = now
			left := time.Duration(float64(now.Sub(begin)) / float64(done) * float64(all-done))
			fmt.Fprintf(w, "%s instances: %d of %d, about %s left\n", name, done, all, left.Round(time.Second))
		}
	}
}

// tablesFlag asks for the tables of what, of another seed.
func tablesFlag(what string) cli.Flag {
	return &cli.BoolFlag{Name: "tables", Usage: "play " + what + " alone, and write its tables to a page of their own, whose name has the seed"}
}

// writeTables writes DIR/PAPER-seed-S.md.
func writeTables(log io.Writer, dir, paper string, seed uint64, page []byte) error {
	name := filepath.Join(dir, fmt.Sprintf("%s-seed-%d.md", paper, seed))
	if err := os.WriteFile(name, append(bytes.TrimRight(page, "\n"), 10), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	fmt.Fprintf(log, "written: %s\n", name)
	return nil
}

// otherSeeds names the pages with tables of other seeds that are there.
func otherSeeds(dir, paper string) []byte {
	names, err := filepath.Glob(filepath.Join(dir, paper+"-seed-*.md"))
	if err != nil || len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	for i, n := range names {
		base := filepath.Base(n)
		names[i] = fmt.Sprintf("[%s](%s)", base, base)
	}
	return fmt.Appendf(nil, "\nThe tables of another draw, which served to choose nothing: %s.\n", listOf(names))
}
