package migration_test

import (
	"fmt"
	"math"

	"evenkeel/migration"
)

// The VMs on north need more than its 4 cores. East has cores to spare, but the
// memory of its only VM leaves no room, until that VM has gone to south, which is
// new and small.
func Example() {
	const gib = 1 << 30
	p := migration.Problem{
		Hosts: []migration.Host{
			{Name: "north", CPU: 4, Memory: 16 * gib, Reserve: gib},
			{Name: "east", CPU: 4, Memory: 16 * gib, Reserve: gib},
			{Name: "south", CPU: 1, Memory: 14 * gib, Reserve: gib},
		},
		Groups: []migration.Group{
			{Name: "web", Count: 1, CPU: 3, Memory: 10 * gib, Hosts: []int{0}, Bytes: []float64{11 * gib}},
			{Name: "batch", Count: 1, CPU: 2.5, Memory: 4 * gib, Hosts: []int{0}, Bytes: []float64{4.5 * gib}},
			{Name: "cache", Count: 1, CPU: 1, Memory: 12 * gib, Hosts: []int{1}, Bytes: []float64{13 * gib}},
		},
		Limits: migration.Limits{PerHost: 1, Total: 2, Bandwidth: gib / 8},
	}
	planner, err := migration.New(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, point := range planner.Curve() {
		fmt.Printf("%4.1f GiB: minimum yield %.3f\n", point.Bytes/gib, point.MinYield)
	}
	plan := planner.Plan(math.Inf(1))
	fmt.Println(plan.Reason)
	for i, s := range plan.Steps {
		fmt.Printf("%d: %v, after %v, at %.0f s for %.0f s: %s\n", i, s.Kind, s.After, s.Begins, s.Seconds, s.Reason)
	}
	fmt.Println(planner.Plan(10 * gib).Reason)
	// Output:
	//  0.0 GiB: minimum yield 0.727
	// 17.5 GiB: minimum yield 1.000
	// 2 moves of 17.5 GiB bring the minimum yield from 0.7273 to 1.0000 (+0.2727)
	// 0: move, after [], at 0 s for 104 s: makes way on host east for batch-0
	// 1: move, after [0], at 104 s for 36 s: host north can give its VMs 72.7% of what they need, host east 100.0% in the end
	// 2: adjust, after [0 1], at 140 s for 0 s: caps that shrink: 0; then those that grow: 2
	// no beneficial move within 10 GiB: the minimum yield stays 0.7273; 1.0000 takes at least 17.5 GiB
}
