package migration_test

import (
	"math"
	"strings"
	"testing"

	"evenkeel/migration"
)

// fourHosts has two VMs on the first of four hosts. noRoute is by the indexes of two hosts.
func fourHosts(noRoute map[[2]int]string) migration.Problem {
	p := migration.Problem{Groups: []migration.Group{{Name: "g", Count: 2, CPU: 1, Memory: 4, Hosts: []int{0, 0}}},
		NoRoute: func(from, to int) string { return noRoute[[2]int{from, to}] }}
	for _, name := range []string{"h1", "h2", "h3", "h4"} {
		p.Hosts = append(p.Hosts, migration.Host{Name: name, CPU: 4, Memory: 8})
	}
	return p
}

// A host without a route from the source takes none of its VMs; one with a route takes them all.
func TestDrainWhereHostsAreNotReached(t *testing.T) {
	const cut = "no answer"
	for _, tc := range []struct {
		name    string
		noRoute map[[2]int]string
		to      []int  // where VMs may end
		why     string // of each blocker; "" = there are none
	}{
		{"all are", nil, []int{1, 2, 3}, ""},
		{"one is not", map[[2]int]string{{0, 1}: cut}, []int{2, 3}, ""},
		{"one is", map[[2]int]string{{0, 1}: cut, {0, 3}: cut}, []int{2}, ""},
		{"the other way round", map[[2]int]string{{1, 0}: cut, {2, 0}: cut, {3, 0}: cut}, []int{1, 2, 3}, ""},
		{"none is", map[[2]int]string{{0, 1}: cut, {0, 2}: "its certificate has expired", {0, 3}: cut}, nil,
			"host h1 cannot send VMs to h2 and h4: no answer; host h1 cannot send VMs to h3: its certificate has expired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := migration.Drain(fourHosts(tc.noRoute), migration.DrainRequest{Hosts: []int{0}, Budget: math.Inf(1), Partial: true})
			if err != nil {
				t.Fatal(err)
			}
			may := map[int]bool{}
			for _, j := range tc.to {
				may[j] = true
			}
			for _, s := range d.Steps {
				if s.Kind == migration.Move && (!may[s.To] || tc.noRoute[[2]int{s.From, s.To}] != "") {
					t.Errorf("a VM goes from host %d to host %d", s.From, s.To)
				}
			}
			if tc.why == "" {
				if d.Moves != 2 || len(d.Blockers) > 0 {
					t.Errorf("%d moves, blockers %+v", d.Moves, d.Blockers)
				}
				return
			}
			if d.Moves != 0 || len(d.Blockers) != 2 {
				t.Fatalf("%d moves, blockers %+v", d.Moves, d.Blockers)
			}
			for _, b := range d.Blockers {
				if !strings.Contains(b.Why, tc.why) || b.Cause != migration.ByRoute {
					t.Errorf("cause %s: %s", b.Cause, b.Why)
				}
			}
		})
	}
}

// A re-balance sends no VM to a host to which its own has no route.
func TestRebalanceWhereHostsAreNotReached(t *testing.T) {
	p := fourHosts(map[[2]int]string{{0, 1}: "cut", {0, 2}: "cut"})
	p.Hosts[0].CPU = 1
	plan, err := migration.New(p)
	if err != nil {
		t.Fatal(err)
	}
	best := plan.Plan(math.Inf(1))
	if best.Moves == 0 {
		t.Fatalf("nothing moves: %s", best.Reason)
	}
	for _, s := range best.Steps {
		if s.Kind == migration.Move && s.To != 3 {
			t.Errorf("a VM goes to host %d", s.To)
		}
	}
}
