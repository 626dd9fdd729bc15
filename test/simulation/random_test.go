package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
)

func always[T any](v T) func(*rand.Rand) T { return func(*rand.Rand) T { return v } }

// often is how moves are planned in random runs: much more often than an operator would want.
var often = state.MoveSettings{Mode: state.MovesAuto, Period: 30_000, MinResidency: 20_000, CoolDown: 20_000, StabilizationWindow: 2_000, MinGain: 0.05, Deadline: 60_000, OnJoin: true}

// defaults of a run: five servers and twenty hosts.
func defaults(seed uint64) options {
	settings := state.DefaultSettings()
	settings.Moves.Mode = state.MovesOff
	return options{seed: seed, settings: settings, servers: 5, hosts: 20, clients: 3, needs: 1, names: []string{"ra", "rb", "rc", "rd", "ka", "kb", "kc"},
		snapshotEvery: 150, timers: node.Timers{Heartbeat: 2 * time.Second}, lose: 0.01, repeat: 0.03, slow: 0.01, quiet: 4 * time.Minute,
		watchdogs: func(r *rand.Rand) time.Duration {
			return []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second}[r.IntN(4)]
		},
		devices: func(r *rand.Rand) string { return []string{"", "", "works", "slow", "fails"}[r.IntN(5)] }}
}

// randomScript makes faults for the given time, by the seed.
func randomScript(o *options, long time.Duration) {
	r := seeded(o.seed, 4)
	add := func(at time.Duration, verb string, args ...string) {
		o.script = append(o.script, step{at.Round(time.Millisecond), verb, args})
	}
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(r.Int64N(int64(b-a))) }
	server := func() string { return fmt.Sprintf("s%d", 1+r.IntN(o.servers)) }
	host := func() string { return fmt.Sprintf("h%d", 1+r.IntN(o.hosts)) }
	member := func() string {
		if r.IntN(2) == 0 {
			return server()
		}
		return host()
	}
	o.settings.Moves = often
	add(0, "random")
	for i, name := range o.names {
		add(between(0, 8*time.Second), "create", name, fmt.Sprint(o.larger()*(1+(i+r.IntN(3))%3)))
	}
	saved := false
	for at := between(12*time.Second, 20*time.Second); at < long; at += between(time.Second, 6*time.Second) {
		until := at + between(3*time.Second, 70*time.Second)
		switch k := r.IntN(111); {
		case k < 10:
			m := host()
			add(at, "cut", m)
			add(until, "join", m)
		case k < 17:
			m := server()
			add(at, "cut", m)
			add(until, "join", m)
		case k < 21:
			a, b := server(), member()
			if a != b {
				add(at, "cut", a, b)
				add(until, "join", a, b)
			}
		case k < 24:
			a, b := member(), server()
			if a != b {
				add(at, "block", a, b)
				add(until, "join", a, b)
			}
		case k < 31:
			v := server()
			add(at, "crash", v)
			add(until, "start", v)
		case k < 41:
			h := host()
			add(at, "off", h)
			if r.IntN(4) == 0 {
				add(at+between(time.Second, 30*time.Second), "confirm", h)
			}
			add(until, "on", h)
		case k < 49:
			h := host()
			add(at, "crash", h)
			add(until, "start", h)
		case k < 54:
			add(at, "stall", host(), between(time.Second, 50*time.Second).Round(time.Millisecond).String())
		case k < 59:
			add(at, "stall", server(), between(time.Second, 40*time.Second).Round(time.Millisecond).String())
		case k < 63:
			v := server()
			add(at, "full", v)
			add(until, "free", v)
		case k < 74:
			calls := []string{"any", "list", "start", "destroy", "set-CPU-of", "define", "stop", "undefine", "stats", "migrate", "abort-the-migration-of"}
			add(at, "strike", host(), calls[r.IntN(len(calls))], fmt.Sprint(1+r.IntN(4)), []string{"fails", "hang", "after"}[r.IntN(3)])
		case k < 88:
			add(at, "move", "any")
		case k < 90:
			add(at, "transfer")
		case k < 92:
			add(at, "disarm")
			add(until, "arm")
		case k < 95:
			add(at, "save")
			saved = true
		case k < 96 && saved:
			add(at, "restore")
		case k < 104 && k >= 100:
			add(at, "drain", "any", []string{"-1", "-1", "600"}[r.IntN(3)])
			add(until, "undrain", "any")
		case k < 108 && k >= 104:
			add(at, "rebalance", []string{"-1", "300", "1500"}[r.IntN(3)])
		case k >= 108:
			add(at, "leave", host(), fmt.Sprint(1+r.IntN(3)))
		case k < 98:
			add(at, "kill", fmt.Sprintf("%s-g-0", o.names[r.IntN(len(o.names))]))
		}
	}
	lost := seeded(o.seed, 5)
	for at := 15*time.Second + time.Duration(lost.Int64N(int64(15*time.Second))); at < long; at += 15*time.Second + time.Duration(lost.Int64N(int64(45*time.Second))) {
		add(at, "lose", fmt.Sprintf("h%d", 1+lost.IntN(o.hosts)), fmt.Sprint(1+lost.IntN(2)))
	}
	one := seeded(o.seed, 6)
	for at := 14*time.Second + time.Duration(one.Int64N(int64(6*time.Second))); at < long; at += time.Second + time.Duration(one.Int64N(int64(9*time.Second))) {
		add(at, "order", []string{"stop", "start", "start", "restart", "reset", "migrate"}[one.IntN(6)])
	}
	slices.SortStableFunc(o.script, func(a, b step) int { return int(a.at - b.at) })
	o.script = slices.DeleteFunc(o.script, func(p step) bool { return p.at > long+70*time.Second })
	if saved && o.seed%5 == 2 { // in the end, as no other fault may start a server that is yet to lose its disk
		var early []string
		for n := range o.hosts {
			if r.IntN(2) == 0 {
				early = append(early, fmt.Sprintf("h%d", n+1))
			}
		}
		add(long+75*time.Second, "rebuild", early...)
	}
}
