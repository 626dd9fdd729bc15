package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/forecast/periodic"
	"evenkeel/forecast/skyline"
	"evenkeel/forecast/skyline/runfile"
)

func (t *tool) periodicCommand() *cli.Command {
	return &cli.Command{
		Name: "periodic", Usage: "work that comes again: what its runs need, and reserving for it",
		Description: "Lists jobs whose runs the cluster knows, and reserves for those that their owner accepts. find and fit read past runs from files, and\nneed no server.",
		Subcommands: append(t.periodicJobCommands(), t.periodicFindCommand(), &cli.Command{
			Name: "fit", Usage: "fit a skyline to past runs, without a server", ArgsUsage: "[FILE|-]",
			Description: "Reads runs from FILE or, with - or no FILE, from standard input: one JSON object a line,\n" +
				"{\"run\": NAME, \"step\": SECONDS, \"usage\": [...]}, with the use of each step in any unit, and where known\n" +
				"\"throttled\": [...], the steps, from 0 on, in which something held the run back: it needed at least what it used. Prints one\n" +
				"JSON object: the skyline to reserve per step, and how good it is. Starts are aligned; a shorter run uses nothing behind its end.\n" +
				"Exit status: 0 done; 2 bad input.\n\n" +
				"With --miss the weights are chosen so that least is reserved for that chance, and what is reserved is scaled until runs\n" +
				"that were left out show the chance. Of n runs no chance below 1/(n+1) follows: \"miss\" is what is promised, and \"support\" says how many\n" +
				"runs would support what was asked. With --peer the skyline also serves a run as heavy as those of other jobs that are as steady were;\n" +
				"that comes nearer to what was asked, and promises nothing more.\n\n" +
				"Example: vcctl periodic fit --alpha 0.1 --beta 0.1V runs.jsonl; vcctl periodic fit --miss 0.05 --peer other.jsonl runs.jsonl",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "alpha", Value: "0.01", Usage: "`WEIGHT` of over-allocation, 0 to 1; the rest is that of under-allocation"},
				&cli.StringFlag{Name: "beta", Value: "0.1V", Usage: "`WEIGHT` of falling short early in a run: a number, or with a V a share of the objective without this term"},
				&cli.StringFlag{Name: "miss", Usage: "instead of the weights the `CHANCE`, between 0 and 1, that a run needs more than is reserved; of at least 8 runs, in order of time"},
				&cli.StringSliceFlag{Name: "peer", Usage: "with --miss: runs of another job of the same owner, from a `FILE` of the same form, in order of time; can be given again"},
				&cli.BoolFlag{Name: "debts", Value: true, Usage: "later steps can make up for what earlier ones fell short of (CPU); --debts=false: they cannot (memory)"},
			},
			Action: t.periodicFit,
		}),
	}
}

// fitted is the output of periodic fit.
type fitted struct {
	Skyline   []float64 `json:"skyline"`
	Step      float64   `json:"step"`
	Objective float64   `json:"objective"`
	Over      float64   `json:"over"`
	Under     float64   `json:"under"`
	Eps       float64   `json:"eps"`
	Gap       float64   `json:"gap"`
}

func (t *tool) periodicFit(c *cli.Context) error {
	if c.NArg() > 1 {
		return usage("periodic fit: one FILE at most, got %q", c.Args().Slice())
	}
	o := skyline.Options{Debts: c.Bool("debts")}
	var err error
	if o.Alpha, err = strconv.ParseFloat(c.String("alpha"), 64); err != nil || !(o.Alpha >= 0 && o.Alpha <= 1) {
		return usage("periodic fit: --alpha %q is not a number from 0 to 1", c.String("alpha"))
	}
	text, share := strings.CutSuffix(c.String("beta"), "V")
	o.BetaOfV = share
	if o.Beta, err = strconv.ParseFloat(text, 64); err != nil || !(o.Beta >= 0) || math.IsInf(o.Beta, 1) {
		return usage("periodic fit: --beta %q is not a number from 0 on, with or without a V", c.String("beta"))
	}
	miss := 0.0
	if c.IsSet("miss") {
		if c.IsSet("alpha") || c.IsSet("beta") {
			return usage("periodic fit: --miss chooses the weights: --alpha and --beta cannot be given with it")
		}
		if miss, err = strconv.ParseFloat(c.String("miss"), 64); err != nil || !(miss > 0 && miss < 1) {
			return usage("periodic fit: --miss %q is not a number between 0 and 1", c.String("miss"))
		}
	}
	var peers []periodic.Peer
	for _, file := range c.StringSlice("peer") {
		if miss == 0 {
			return usage("periodic fit: --peer goes with --miss")
		}
		p, err := peerOf(file)
		if err != nil {
			return usage("periodic fit: --peer %s: %v", file, err)
		}
		peers = append(peers, p)
	}
	in, closeInput, err := openInput(c)
	if err != nil {
		return usage("periodic fit: %v", err)
	}
	defer closeInput()
	out, err := fitRuns(in, o, miss, peers)
	if err != nil {
		return usage("periodic fit: %v", err)
	}
	if _, err := fmt.Fprintf(c.App.Writer, "%s\n", out); err != nil {
		return failed(statusFailed, "periodic fit: writing the answer: %v", err)
	}
	return nil
}

// promised is the output of periodic fit --miss.
type promised struct {
	Skyline []float64 `json:"skyline"`
	Step    float64   `json:"step"`
	Miss    float64   `json:"miss"`
	Alpha   float64   `json:"alpha"`
	Factor  float64   `json:"factor"`
	Runs    int       `json:"runs"`
	Support string    `json:"support,omitempty"`
	// Borrowed: the skyline serves a run of other jobs, too.
	Borrowed bool `json:"borrowed,omitempty"`
}

// peerOf reads the runs of another job.
func peerOf(file string) (p periodic.Peer, err error) {
	f, err := os.Open(file)
	if err != nil {
		return p, err
	}
	defer func() { _ = f.Close() }()
	runs, err := readRuns(f)
	if err != nil {
		return p, err
	}
	use := make([][]float64, len(runs))
	for i, r := range runs {
		use[i] = r.Usage
	}
	p, ok := periodic.NewPeer(use)
	if !ok {
		return p, fmt.Errorf("%d runs, of which at least %d must use something", len(runs), periodic.MinRuns)
	}
	return p, nil
}

func readRuns(in io.Reader) ([]runfile.Run, error) {
	data, err := io.ReadAll(io.LimitReader(in, runfile.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return runfile.Parse(data)
}

// fitRuns fits a skyline to the runs of a file; miss is the chance to miss that is asked for, 0 = the weights of o hold.
func fitRuns(in io.Reader, o skyline.Options, miss float64, peers []periodic.Peer) ([]byte, error) {
	runs, err := readRuns(in)
	if err != nil {
		return nil, err
	}
	use := make([][]float64, len(runs))
	for i, r := range runs {
		use[i] = r.Usage
		o.Censored = append(o.Censored, r.Throttled)
	}
	if miss > 0 {
		m, err := periodic.Learn(use, periodic.Options{Miss: miss, Debts: o.Debts, Censored: o.Censored, Peers: peers})
		if err != nil {
			return nil, err
		}
		return json.Marshal(promised{m.Skyline, runs[0].Step, m.Miss, m.Alpha, m.Factor, m.Runs, m.Support(0), m.Borrowed})
	}
	m, err := skyline.Fit(use, o)
	if err != nil {
		return nil, err
	}
	return json.Marshal(fitted{m.Skyline, runs[0].Step, m.Objective, m.Over, m.Under, m.Eps, m.Gap})
}
