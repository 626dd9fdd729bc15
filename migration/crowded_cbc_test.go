package migration_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"evenkeel/migration"
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

// askCBC says whether Debian's cbc proves that no placement leaves a host empty. found: it has one.
func askCBC(dir string, p migration.Problem, empty int, limit time.Duration) (none, found bool, err error) {
	in, out := filepath.Join(dir, "problem.lp"), filepath.Join(dir, "answer.txt")
	if err := os.WriteFile(in, []byte(placementProgram(p, empty)), 0o600); err != nil {
		return false, false, err
	}
	_ = os.Remove(out)
	seconds := fmt.Sprintf("%.0f", max(1, limit.Seconds()))
	printed, err := exec.Command("cbc", in, "sec", seconds, "solve", "solution", out).CombinedOutput()
	if err != nil {
		return false, false, fmt.Errorf("cbc: %w: %s", err, printed)
	}
	f, err := os.Open(out)
	if err != nil {
		return false, false, fmt.Errorf("answer of cbc: %w: %s", err, printed)
	}
	defer f.Close()
	first, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return false, false, fmt.Errorf("answer of cbc: %w", err)
	}
	first = strings.ToLower(first)
	return strings.Contains(first, "infeasible"), strings.HasPrefix(first, "optimal"), nil
}
