package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/sim/replay"
)

func whatifCommand() *cli.Command {
	return &cli.Command{
		Name:      "whatif",
		Usage:     "play a cluster's own history under other settings",
		UsageText: "vcsim whatif [--settings NAME...] [--more 30] [--without HOST...] [--add N] FILE\nvcsim whatif --sign-off [--runs RUNS] [--miss 0.05] [--deadline JOB=2h...] [--without HOST...] [--add N] FILE",
		Description: `FILE is what 'vcctl cluster history FILE' wrote: hosts, virtual clusters, and what their VMs used. It is played on simulated hosts as if
everything had been decided by other settings: who would have been admitted, what would have gone short, who would have given way.

  vcsim whatif history.json                       as declared, and with needs estimated, cautiously or boldly
  vcsim whatif --more 30 history.json             with 30% more virtual clusters like those that there are
  vcsim whatif --without h3 --more 10 history.json

Settings: declared (needs: declared), conservative, balanced, aggressive (needs: estimated), or a policy that 'vcsim run --help' lists.

How to read the table
  RAN        virtual clusters that were started, of all. WAITED: hours until then, mean of those that ran.
  QOS        share of the time of VMs in which a VM got the CPU it wanted, or what it declared.
  FAILED     virtual clusters that memory ran out for. EVICTED: VMs that were stopped for others.
  MOVES      VMs that were moved by live migration, and MOVED: bytes of memory that were sent for it.
  GIVEN      of all hosts' CPU and memory; USED: likewise.
  YIELD      least of all virtual clusters, mean over time; and the mean of all.

Under declared, conservative, balanced and aggressive VMs are moved as in production, with the settings that a cluster begins with: where some get less than they need,
or the first that waits has no room, a plan is looked for within a budget of bytes (--max-bytes), and carried out if it is worth it. No VM is given less than its
memoryMin.

What the file does not have, and is not played: which affinities and least yields were asked for; how fast memory changes, so that a move sends what is in use
once and takes no time; which moves settings the cluster had; virtual clusters that were deleted meanwhile. What a VM would have used beyond its cap no record
measured: where caps held VMs back, use counts too low, and that is said.
` + signOffHelp,
		Flags: append(signOffFlags(),
			&cli.StringSliceFlag{Name: "settings", Aliases: []string{"s"}, Usage: "`NAMES`, with commas between", Value: cli.NewStringSlice("declared", state.Conservative, state.Balanced, state.Aggressive)},
			&cli.Float64Flag{Name: "more", Usage: "`PERCENT` more virtual clusters, each like one that there is, at another time of its history"},
			&cli.StringSliceFlag{Name: "without", Usage: "without these `HOSTS`"},
			&cli.IntFlag{Name: "add", Usage: "`N` more hosts like the average one"},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of which virtual clusters there are more of", Value: 1},
			&cli.BoolFlag{Name: "no-moves", Usage: "VMs stay where they are placed"},
			&cli.StringFlag{Name: "max-bytes", Usage: "a plan moves at most `SIZE` (default: what 1 Gbit/s sends in ten minutes)"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`table|json|csv|series|apps`; with --sign-off table or json", Value: "table"},
		),
		Action: func(c *cli.Context) error {
			if err := signOffAlone(c); err != nil {
				return cli.Exit(err.Error(), 2)
			}
			if c.Bool("sign-off") {
				return signOff(c)
			}
			h, hosts, err := historyOf(c)
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return whatif(ctx, c, h, hosts)
		},
	}
}

// historyOf reads the file, and says which hosts there are to be.
func historyOf(c *cli.Context) (v1.ClusterHistory, []replay.Host, error) {
	fail := func(format string, args ...any) (v1.ClusterHistory, []replay.Host, error) {
		return v1.ClusterHistory{}, nil, fmt.Errorf(format, args...)
	}
	switch {
	case c.NArg() != 1:
		return fail("one FILE is wanted, as 'vcctl cluster history FILE' writes it")
	case !slices.Contains([]string{"table", "json", "csv", "series", "apps"}, c.String("output")):
		return fail("-o %s: must be table, json, csv, series or apps", c.String("output"))
	case !(c.Float64("more") >= 0 && c.Float64("more") <= 10_000):
		return fail("--more %v: must be from 0 to 10,000 percent", c.Float64("more"))
	case c.Int("add") < 0 || c.Int("add") > 10_000:
		return fail("--add %d: must be from 0 to 10,000", c.Int("add"))
	}
	for _, name := range namedPolicies(c.StringSlice("settings")) {
		if _, err := settingsNamed(name, 60, nil); err != nil {
			return fail("%w", err)
		}
		switch baseOf(name) {
		case "fcfs", "easy":
			return fail("policy %s gives hosts to what ends by itself, and virtual clusters are there until they are deleted", name)
		case "leastfit", "oversub", "flexf", "flexl", "ha", "morpheus":
			return fail("policy %s starts no elastic groups, and moves nothing: it plays no history", name)
		}
	}
	if text := c.String("max-bytes"); text != "" {
		if size, err := v1.ParseSize(text); err != nil || size == 0 {
			return fail("--max-bytes %s: must be a size above 0, as 64GiB", text)
		}
	}
	return readHistory(c)
}

func readHistory(c *cli.Context) (h v1.ClusterHistory, hosts []replay.Host, err error) {
	f, err := os.Open(c.Args().First())
	if err != nil {
		return h, nil, err
	}
	defer f.Close()
	if h, err = decodeHistory(f); err != nil {
		return h, nil, fmt.Errorf("%s: %w", c.Args().First(), err)
	}
	hosts, err = hostsOf(h, c.StringSlice("without"), c.Int("add"))
	return h, hosts, err
}

// hostsOf a history, less some, and with so many more like the average of those that stay.
func hostsOf(h v1.ClusterHistory, without []string, add int) ([]replay.Host, error) {
	for _, name := range without {
		if !slices.ContainsFunc(h.Hosts, func(x v1.HistoryHost) bool { return x.Name == name }) {
			return nil, fmt.Errorf("--without %s: there is no such host", name)
		}
	}
	var hosts []replay.Host
	var sum replay.Host
	for _, x := range h.Hosts {
		if !slices.Contains(without, x.Name) {
			hosts = append(hosts, replay.Host{CPU: x.CPU, Memory: x.Memory})
			sum.CPU, sum.Memory = sum.CPU+x.CPU, sum.Memory+x.Memory
		}
	}
	n := float64(len(hosts))
	if n == 0 {
		return nil, errors.New("no host is left")
	}
	for range add {
		hosts = append(hosts, replay.Host{CPU: sum.CPU / n, Memory: sum.Memory / n})
	}
	return hosts, nil
}

// isSetting says whether a policy is what a cluster can be set to.
func isSetting(name string) bool {
	return slices.Contains([]string{"declared", state.Conservative, state.Balanced, state.Aggressive}, name)
}

// settingsNamed makes the policy that cluster settings of that name stand for, or else the policy of vcsim run. It decides every step
// seconds. floors is the memory that no VM has less of, by group of the workload.
func settingsNamed(name string, step float64, floors []float64) (replay.Policy, error) {
	switch name {
	case "declared":
		return &named{Policy: &replay.Reservation{Passing: true}, name: name}, nil
	case state.Conservative, state.Balanced, state.Aggressive:
		p := &replay.Rightsizing{Label: name, Trust: 3, OnUse: true, Passing: true, Floors: floors, Together: &replay.Together{},
			Foresight: &replay.Series{Steps: max(1, int(600/step))}} // the next ten minutes, as production looks ahead
		ownSettings(p)
		cpu := rightsizing.CPUBufferFor(name)
		p.Buffer, p.CPUBuffer, p.Options.MinAge = rightsizing.BufferFor(name), &cpu, 600
		p.Once = name != state.Conservative
		p.Yield = 0 // in production CPU evicts no VM
		return p, nil
	}
	p, err := policyOn(name, nil)
	if rightsizing, ok := p.(*replay.Rightsizing); ok {
		rightsizing.Floors = floors
	}
	return p, err
}

// named is a policy by another name.
type named struct {
	replay.Policy
	name string
}

func (n *named) Name() string { return n.name }

func whatif(ctx context.Context, c *cli.Context, h v1.ClusterHistory, hosts []replay.Host) error {
	w, floors, notes, err := pastOf(h, c.Float64("more")/100, c.Uint64("seed"))
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(c.App.ErrWriter, "vcsim:", n)
	}
	var budget v1.Size
	if text := c.String("max-bytes"); text != "" {
		budget, _ = v1.ParseSize(text) // historyOf has seen it
	}
	moves := state.MoveSettings{MaxBytes: int64(budget)}
	var results []*replay.Result
	step := max(60, float64(h.StepSeconds)) // between two of its steps a history says nothing
	for _, name := range namedPolicies(c.StringSlice("settings")) {
		p, err := settingsNamed(name, step, floors)
		if err != nil {
			return err
		}
		var m *moving
		if !c.Bool("no-moves") && isSetting(name) {
			m = withMoves(p, moves)
			p = m
		}
		var done atomic.Int64
		stop := showProgress(c.App.ErrWriter, &done, int64(len(w.Apps)), fmt.Sprintf("%d virtual clusters, %s", len(w.Apps), name))
		r, err := replay.Run(w, hosts, p, replay.Options{Tick: step, Until: float64(h.Steps * h.StepSeconds),
			Progress: func(n int) { done.Store(int64(n)) }, Stop: func() bool { return ctx.Err() != nil }})
		stop()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if m != nil && m.err != nil {
			fmt.Fprintf(c.App.ErrWriter, "vcsim: %s: some moves could not be planned: %v\n", name, m.err)
		}
		results = append(results, r)
	}
	if format := c.String("output"); format != "table" {
		return writeRuns(c.App.Writer, format, results)
	}
	return whatifTable(c.App.Writer, results)
}

func whatifTable(w io.Writer, results []*replay.Result) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"settings", "hosts", "ran", "waited", "qos", "failed", "evicted", "moves", "moved", "given cpu", "memory", "used cpu", "memory", "yield", "mean"})
	for _, r := range results {
		ran := 0
		for _, a := range r.PerApp {
			if a.Start >= 0 {
				ran++
			}
		}
		t.AppendRow(table.Row{r.Policy, r.Hosts, fmt.Sprintf("%d of %d", ran, r.Apps), fmt.Sprintf("%.1f", r.Wait.Mean/3600), fmt.Sprintf("%.2f%%", 100*r.QoS),
			r.Failures, r.Preempted, r.Moves, bytesText(r.BytesMoved), percent(r.AllocatedCPU), percent(r.AllocatedMemory), percent(r.UsedCPU), percent(r.UsedMemory),
			fmt.Sprintf("%.3f", r.MinYield), fmt.Sprintf("%.3f", r.MeanYield)})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}
