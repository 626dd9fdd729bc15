// Package solvers compares Exact of package allocator, and the plans of package
// migration, with what others find: the solvers of mixed integer programs that Debian
// has, GLPK (glpsol) and CBC (cbc), and Ganeti's balancer (hbal). It writes problems
// as the programs of Casanova et al. 2008, sec. 2.3 and 6.1, or as hbal reads
// them, and runs these on it. It is used by benchmarks only, make bench-solvers and make bench-migration.
package solvers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"evenkeel/allocator"
)

// WriteLP writes a problem of groups of one VM on hosts of any kind in CPLEX's
// LP format: equations (3) to (11), with e_ij = 1 where task i is on host j, a_ij
// the CPU it gets there, and the minimum yield y to be maximized. The hosts'
// capacities stand where the paper has 1. budget bounds the memory of the tasks
// that leave the host they have (sec. 6.1, equation (31)); math.Inf(1): no bound.
func WriteLP(w io.Writer, p allocator.Problem, budget float64) error {
	b := bufio.NewWriter(w)
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }
	fmt.Fprintln(b, "Maximize\n obj: y\nSubject To")
	for i := range p.Groups {
		fmt.Fprintf(b, " one%d:", i)
		for j := range p.Hosts {
			fmt.Fprintf(b, " + e%d_%d", i, j)
		}
		fmt.Fprintln(b, " = 1")
		if need := p.Groups[i].CPU; need > 0 {
			for j := range p.Hosts {
				fmt.Fprintf(b, " on%d_%d: a%d_%d - %s e%d_%d <= 0\n", i, j, i, j, number(need), i, j)
			}
			fmt.Fprintf(b, " yield%d:", i)
			for j := range p.Hosts {
				fmt.Fprintf(b, " + a%d_%d", i, j)
			}
			fmt.Fprintf(b, " - %s y >= 0\n", number(need))
		}
	}
	for j := range p.Hosts {
		fmt.Fprintf(b, " cpu%d:", j)
		for i := range p.Groups {
			fmt.Fprintf(b, " + a%d_%d", i, j)
		}
		fmt.Fprintf(b, " <= %s\n mem%d:", number(p.Hosts[j].CPU), j)
		for i := range p.Groups {
			fmt.Fprintf(b, " + %s e%d_%d", number(p.Groups[i].Memory), i, j)
		}
		fmt.Fprintf(b, " <= %s\n", number(p.Hosts[j].Memory))
	}
	if !math.IsInf(budget, 1) {
		fmt.Fprint(b, " moved:")
		for i := range p.Groups {
			for j := range p.Hosts {
				if home := p.Groups[i].Hosts; home != nil && home[0] >= 0 && home[0] != j {
					fmt.Fprintf(b, " + %s e%d_%d", number(p.Groups[i].Memory), i, j)
				}
			}
			fmt.Fprintln(b)
		}
		fmt.Fprintf(b, " <= %s\n", number(budget))
	}
	fmt.Fprintln(b, "Bounds\n 0 <= y <= 1\nBinary")
	for i := range p.Groups {
		for j := range p.Hosts {
			fmt.Fprintf(b, " e%d_%d\n", i, j)
		}
	}
	fmt.Fprintln(b, "End")
	return b.Flush()
}

// Answer is what a solver says of a program.
type Answer struct {
	Optimal    bool // proved
	Infeasible bool // proved
	Yield      float64
	Took       time.Duration
}

// Solver is a program that is run.
type Solver struct {
	Program, Package string
	arguments        func(in, out string, seconds int) []string
	optimal, none    *regexp.Regexp
	value            *regexp.Regexp
}

// Solvers are those that are compared.
var Solvers = []Solver{
	{
		Program: "glpsol", Package: "glpk-utils",
		arguments: func(in, out string, seconds int) []string {
			return []string{"--lp", in, "--mipgap", "0", "--cuts", "--tmlim", strconv.Itoa(seconds), "-o", out}
		},
		optimal: regexp.MustCompile(`(?m)^Status: +INTEGER OPTIMAL`),
		none:    regexp.MustCompile(`(?m)^Status: +INTEGER EMPTY`),
		value:   regexp.MustCompile(`(?m)^Objective: +obj = ([-+.e0-9]+)`),
	},
	{
		Program: "cbc", Package: "coinor-cbc",
		arguments: func(in, out string, seconds int) []string {
			return []string{in, "sec", strconv.Itoa(seconds), "ratio", "0", "solve", "solution", out}
		},
		optimal: regexp.MustCompile(`^Optimal - objective`),
		none:    regexp.MustCompile(`(?m)^(Integer i|I)nfeasible|proven infeasible|linear relaxation infeasible`),
		value:   regexp.MustCompile(`objective value +([-+.e0-9]+)`),
	},
}

// Found says whether the solver is installed.
func (s *Solver) Found() bool {
	_, err := exec.LookPath(s.Program)
	return err == nil
}

// Solve runs the solver on a problem, moves being bounded by budget, for some
// seconds at most, its files being in dir. An answer that is neither optimal nor infeasible is one of no proof.
func (s *Solver) Solve(ctx context.Context, dir string, p allocator.Problem, budget float64, seconds int) (Answer, error) {
	return s.SolveProgram(ctx, dir, func(w io.Writer) error { return WriteLP(w, p, budget) }, seconds)
}

// SolveProgram is Solve for any program in CPLEX's LP format. The answer's yield is the size of its objective.
func (s *Solver) SolveProgram(ctx context.Context, dir string, write func(io.Writer) error, seconds int) (Answer, error) {
	in, out := filepath.Join(dir, "problem.lp"), filepath.Join(dir, "answer.txt")
	f, err := os.Create(in)
	if err != nil {
		return Answer{}, fmt.Errorf("problem for %s: %w", s.Program, err)
	}
	err = write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return Answer{}, fmt.Errorf("problem for %s: %w", s.Program, err)
	}
	_ = os.Remove(out)
	begin := time.Now()
	output, err := exec.CommandContext(ctx, s.Program, s.arguments(in, out, seconds)...).CombinedOutput()
	a := Answer{Took: time.Since(begin)}
	if err != nil {
		return a, fmt.Errorf("%s: %w: %s", s.Program, err, output)
	}
	text, err := os.ReadFile(out)
	if err != nil && !os.IsNotExist(err) {
		return a, fmt.Errorf("answer of %s: %w", s.Program, err)
	}
	switch {
	case s.optimal.Match(text):
		value := s.value.FindSubmatch(text)
		if value == nil {
			return a, fmt.Errorf("%s: no value in its answer: %.200s", s.Program, text)
		}
		a.Optimal = true
		if a.Yield, err = strconv.ParseFloat(string(value[1]), 64); err != nil {
			return a, fmt.Errorf("%s: value %q: %w", s.Program, value[1], err)
		}
		if a.Yield < 0 {
			a.Yield = -a.Yield // cbc minimizes
		}
	case s.none.Match(output) || s.none.Match(text):
		a.Infeasible = true
	}
	return a, nil
}
