package migration_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"evenkeel/migration"
	"evenkeel/test/solvers"
)

// placementProgram is the integer program, in CPLEX's LP format, of all placements that leave a host empty: x_c_j VMs of class c
// on host j, within its memory. Counts are whole, memory is in MiB. VMs of one size are a class, but a spread group is a class of its own
// with at most one VM on a host.
func placementProgram(p migration.Problem, empty int) string {
	const mebi = 1 << 20
	type class struct {
		memory float64
		group  int // that is spread; -1
	}
	var classes []class
	count := map[class]int{}
	for g, q := range p.Groups {
		c := class{q.Memory / mebi, -1}
		if p.Rules != nil && p.Rules.Affinity[g] != nil {
			c.group = g
		}
		if count[c] == 0 {
			classes = append(classes, c)
		}
		count[c] += q.Count
	}
	var b, bounds, general strings.Builder
	fmt.Fprintln(&b, "Minimize\n obj: 0 x_0_0\nSubject To")
	for n, c := range classes {
		fmt.Fprintf(&b, " all_%d:", n)
		for j := range p.Hosts {
			fmt.Fprintf(&b, " + x_%d_%d", n, j)
			limit := count[c]
			switch {
			case j == empty:
				limit = 0
			case c.group >= 0:
				limit = 1
			}
			fmt.Fprintf(&bounds, " 0 <= x_%d_%d <= %d\n", n, j, limit)
			fmt.Fprintf(&general, " x_%d_%d\n", n, j)
		}
		fmt.Fprintf(&b, " = %d\n", count[c])
	}
	for j, h := range p.Hosts {
		fmt.Fprintf(&b, " memory_%d:", j)
		for n, c := range classes {
			fmt.Fprintf(&b, " + %.0f x_%d_%d", c.memory, n, j)
		}
		fmt.Fprintf(&b, " <= %.0f\n", h.Memory/mebi)
	}
	return b.String() + "Bounds\n" + bounds.String() + "General\n" + general.String() + "End\n"
}

// askCBC says what Debian's cbc finds: optimal, there is a placement that leaves the host empty; infeasible, there is none.
func askCBC(ctx context.Context, dir string, p migration.Problem, empty int, limit time.Duration) (solvers.Answer, error) {
	cbc := slices.IndexFunc(solvers.Solvers, func(s solvers.Solver) bool { return s.Program == "cbc" })
	return solvers.Solvers[cbc].SolveProgram(ctx, dir, func(w io.Writer) error {
		_, err := io.WriteString(w, placementProgram(p, empty))
		return err
	}, max(1, int(limit.Seconds())))
}
