package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/allocator"
	"evenkeel/allocator/solvefile"
)

// maxInstance is the size of the largest instance that solve reads, bytes.
const maxInstance = 256 << 20

// Exit statuses of solve.
const (
	exitNoPlacement = 3
	exitBadInput    = 2
)

// solver is an algorithm of the offline solver.
type solver struct {
	name string
	// options: it takes current, maxMigrationBytes, minYield and affinity.
	options bool
	// solve fills in the status, the figures and the placement.
	solve func(*solvefile.Instance, *solvefile.Result, settings)
}

// settings are what the flags say of the search; zero: not given.
type settings struct {
	timeLimit time.Duration // per instance
	effort    int64         // steps per instance
	seed      int64
	placement string // instead of the file's
}

// solvers are the known algorithms. The first is the default.
var solvers = append([]solver{
	{name: "best", options: true, solve: solveBest},
	{name: "exact", options: true, solve: solveExact},
	{name: "mcb8", solve: solveMCB8},
	{name: "lp", solve: solveLP},
}, paperSolvers()...)

func solverNames() string {
	names := make([]string, len(solvers))
	for i := range solvers {
		names[i] = solvers[i].name
	}
	return strings.Join(names, ", ")
}

// solveCommand is the offline solver: it reads problems, writes answers, and
// needs no server.
func solveCommand() *cli.Command {
	return &cli.Command{
		Name:      "solve",
		Usage:     "place the VMs of a problem file and divide the CPU, without a server",
		ArgsUsage: "[FILE|-]",
		Description: "Reads one JSON object from FILE or, with - or no FILE, from standard input;\n" +
			"with --batch one per line. Writes one line of JSON per object.\n" +
			"Exit status: 0 placed; 3 no placement; 2 bad input. Of a batch: 0, or 2 if any line was bad.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "algorithm", Value: solvers[0].name, Usage: "one of " + solverNames()},
			&cli.DurationFlag{Name: "time-limit", Usage: "wall `TIME` per instance for best and exact: the best so far is the answer"},
			&cli.Int64Flag{Name: "effort", Usage: "`STEPS` of work per instance for best and exact, about 10 ns each: answers can be repeated exactly; for gb and sgb: placement attempts"},
			&cli.Int64Flag{Name: "seed", Usage: "seed of algorithms that draw"},
			&cli.StringFlag{Name: "placement", Usage: "for best and exact, of placements with equal yields: spread, the largest least headroom on hosts, or pack, most capacity on hosts without VMs; not given: the file's, or the one found"},
			&cli.BoolFlag{Name: "batch", Usage: "one object per line"},
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return badInput(err) },
		Action:       runSolve,
	}
}

func badInput(err error) error { return cli.Exit(fmt.Sprintf("solve: %v", err), exitBadInput) }

func runSolve(c *cli.Context) error {
	s, err := chosenSolver(c)
	if err != nil {
		return badInput(err)
	}
	in, closeInput, err := openInput(c)
	if err != nil {
		return badInput(err)
	}
	defer closeInput()
	out := bufio.NewWriter(c.App.Writer)
	set := settings{timeLimit: c.Duration("time-limit"), effort: c.Int64("effort"), seed: c.Int64("seed"), placement: c.String("placement")}
	if c.Bool("batch") {
		err = solveBatch(s, set, bufio.NewReaderSize(in, 1<<16), out)
	} else {
		err = solveOne(s, set, in, out)
	}
	if ferr := out.Flush(); ferr != nil {
		return cli.Exit(fmt.Sprintf("solve: writing the answer: %v", ferr), 1)
	}
	return err
}

// chosenSolver checks the flags and arguments.
func chosenSolver(c *cli.Context) (*solver, error) {
	if c.NArg() > 1 {
		return nil, fmt.Errorf("one FILE at most, got %q", c.Args().Slice())
	}
	if f := c.Args().First(); len(f) > 1 && f[0] == '-' {
		return nil, fmt.Errorf("unknown flag %s", f)
	}
	if c.IsSet("time-limit") && c.Duration("time-limit") <= 0 {
		return nil, errors.New("--time-limit must be greater than 0")
	}
	if c.IsSet("effort") && c.Int64("effort") <= 0 {
		return nil, errors.New("--effort must be greater than 0")
	}
	if by := c.String("placement"); c.IsSet("placement") && by != "spread" && by != "pack" {
		return nil, fmt.Errorf("unknown --placement %q (known: spread, pack)", by)
	}
	name := c.String("algorithm")
	for i := range solvers {
		if solvers[i].name == name {
			if c.IsSet("placement") && !solvers[i].options {
				return nil, fmt.Errorf("algorithm %s does not take --placement", name)
			}
			return &solvers[i], nil
		}
	}
	return nil, fmt.Errorf("unknown algorithm %q (known: %s)", name, solverNames())
}

func openInput(c *cli.Context) (io.Reader, func(), error) {
	name := c.Args().First()
	if name == "" || name == "-" {
		return c.App.Reader, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil
}

func solveOne(s *solver, set settings, in io.Reader, out *bufio.Writer) error {
	data, err := io.ReadAll(io.LimitReader(in, maxInstance+1))
	if err != nil {
		return badInput(fmt.Errorf("reading: %w", err))
	}
	r := s.answer(data, set)
	if r.Status == solvefile.Invalid {
		return badInput(errors.New(r.Error))
	}
	if err := write(r, out); err != nil {
		return err
	}
	switch r.Status {
	case solvefile.Infeasible, solvefile.Failed, solvefile.Timeout:
		return cli.Exit("", exitNoPlacement)
	}
	return nil
}

// solveBatch answers line by line, each before the next is read, so that it can
// serve as a filter. A bad line does not end it.
func solveBatch(s *solver, set settings, in *bufio.Reader, out *bufio.Writer) error {
	bad := 0
	for n := 1; ; n++ {
		line, err := readLine(in, maxInstance)
		if err == io.EOF {
			break
		}
		if err != nil {
			return badInput(fmt.Errorf("reading line %d: %w", n, err))
		}
		r := s.answer(line, set)
		if r.Status == solvefile.Invalid {
			bad++
		}
		if err := write(r, out); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return cli.Exit(fmt.Sprintf("solve: writing the answer: %v", err), 1)
			}
		}
	}
	if bad > 0 {
		return cli.Exit(fmt.Sprintf("solve: %d bad lines", bad), exitBadInput)
	}
	return nil
}

// readLine returns the next line without its end; io.EOF if there is none. Of a
// longer line it returns limit+1 bytes and skips the rest.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if room := limit + 1 - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// answer solves one instance. What is wrong with the input is in the result.
func (s *solver) answer(data []byte, set settings) *solvefile.Result {
	r := &solvefile.Result{Algorithm: s.name}
	in, err := s.read(data)
	r.Name = in.Name
	if err != nil {
		r.Status, r.Error = solvefile.Invalid, err.Error()
		return r
	}
	r.Instance = in
	in.Placement = cmp.Or(set.placement, in.Placement)
	start := time.Now()
	s.solve(in, r, set)
	r.ElapsedSeconds = time.Since(start).Seconds()
	return r
}

func (s *solver) read(data []byte) (*solvefile.Instance, error) {
	if len(data) > maxInstance {
		return &solvefile.Instance{}, fmt.Errorf("larger than %d MiB", maxInstance>>20)
	}
	in, err := solvefile.Parse(data)
	if err != nil {
		return in, err
	}
	if o := in.Options(); len(o) > 0 && !s.options {
		return in, fmt.Errorf("algorithm %s does not take %s", s.name, strings.Join(o, ", "))
	}
	return in, nil
}

func write(r *solvefile.Result, out *bufio.Writer) error {
	err := r.Encode(func(b []byte) error {
		_, err := out.Write(b)
		return err
	})
	if err != nil {
		return cli.Exit(fmt.Sprintf("solve: writing the answer: %v", err), 1)
	}
	return nil
}

// provedAt is how near the bound a minimum yield must be to count as optimal.
const provedAt = 1e-9

func solveMCB8(in *solvefile.Instance, r *solvefile.Result, _ settings) {
	solveHeuristic(in, r, allocator.MCB8)
}

func solveLP(in *solvefile.Instance, r *solvefile.Result, _ settings) {
	p := in.Problem()
	if proof := allocator.ProveInfeasible(p); proof != "" {
		r.Status = solvefile.Infeasible
		return
	}
	r.Status, r.UpperBound = solvefile.Bound, allocator.Bound(p)
}
