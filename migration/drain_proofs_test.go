package migration_test

import (
	"math"
	"strings"
	"testing"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// TestWhatIsProvedOfBlockers: each proof by the smallest cluster that needs it, and what proves nothing.
func TestWhatIsProvedOfBlockers(t *testing.T) {
	hosts := func(memory ...float64) (out []migration.Host) {
		for i, m := range memory {
			out = append(out, migration.Host{Name: string(rune('a' + i)), CPU: 8, Memory: m})
		}
		return out
	}
	group := func(memory float64, on ...int) migration.Group {
		return migration.Group{Name: "g" + strings.Repeat("x", len(on)), Count: len(on), CPU: 0.1, Memory: memory, Hosts: on}
	}
	cannotMove := group(5, 1)
	cannotMove.Pinned = []int{0}
	takesBack := group(3, 0)
	takesBack.Reclaimable = 2
	for _, c := range []struct {
		name   string
		p      migration.Problem
		budget float64
		proved bool
		why    string
	}{
		{"too little memory in all", migration.Problem{Hosts: hosts(8, 8, 8), Groups: []migration.Group{group(4, 0), group(5, 1), group(8, 2)}}, math.Inf(1), true,
			"all other hosts together lack 1 B of memory"},
		{"sums of sizes leave gaps", migration.Problem{Hosts: hosts(8, 7, 7), Groups: []migration.Group{group(3, 0, 0), group(3, 1), group(5, 2)}}, math.Inf(1), true,
			"no sets of VMs fill the other hosts far enough"},
		{"beside what cannot be moved", migration.Problem{Hosts: hosts(8, 8, 3), Groups: []migration.Group{group(4, 0), cannotMove}}, math.Inf(1), true,
			"no host that takes VMs could have it"},
		{"all states", migration.Problem{Hosts: hosts(8, 8), Groups: []migration.Group{group(1, 0, 1)},
			Rules: &allocator.Rules{Affinity: []*allocator.Affinity{{Spread: "host"}}}}, math.Inf(1), true, "all states that moves lead to were searched"},
		{"packed, and no move fits", migration.Problem{Hosts: hosts(4, 7, 7), Groups: []migration.Group{group(2, 0), group(3, 1, 1), group(2, 2), group(4, 2)}}, math.Inf(1), true,
			"all states that moves lead to were searched"},
		{"a VM that takes memory back", migration.Problem{Hosts: hosts(8, 4, 4), Groups: []migration.Group{takesBack, group(1, 1, 2)}}, math.Inf(1), false, "which proves nothing"},
		{"the budget", migration.Problem{Hosts: hosts(8, 8), Groups: []migration.Group{group(3, 0)}}, 2, false, "the budget is 2 B"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := drained(t, c.p, migration.DrainRequest{Hosts: []int{0}, Budget: c.budget, Partial: true})
			if len(out.Blockers) == 0 {
				t.Fatalf("it can be emptied: %+v", out)
			}
			if b := out.Blockers[0]; b.Proved != c.proved || !strings.Contains(b.Why, c.why) {
				t.Errorf("proved: %v: %s", b.Proved, b.Why)
			}
		})
	}
}
