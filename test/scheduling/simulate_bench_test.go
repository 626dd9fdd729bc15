package scheduling_test

import (
	"testing"

	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/simulate"
	"evenkeel/test/scheduling"
)

func BenchmarkWhatIf(b *testing.B) {
	for _, scale := range scales {
		c := scale.make(b)
		s := c.Snapshot()
		run := func(name string, f func() error) {
			b.Run(scale.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("spare", func() error { _, err := failover.Capacity(s, c.Env()); return err })
		run("lose a host", func() error {
			_, err := simulate.Run(s, c.Env(), moves.Observation{}, simulate.Request{Budget: 1 << 40, Remove: []string{"h7"}})
			return err
		})
		run("add hosts", func() error {
			_, err := simulate.Run(s, c.Env(), moves.Observation{}, simulate.Request{Budget: 1 << 40, Add: []simulate.Host{{CPU: 30, Memory: 120 * scheduling.GiB, Count: 10}}})
			return err
		})
		run("drain", func() error {
			_, err := drain.Plan(moves.NewFleet(s, c.Env(), moves.Observation{}, moves.Options{}), "h7", drain.Options{Budget: -1, OptionalBytes: 75e9, MinGain: 0.1})
			return err
		})
	}
}
