package rebalance

import (
	"strings"
	"testing"
	"time"

	"evenkeel/migration"
)

var pace = Pace{StabilizationWindow: time.Minute, Period: 10 * time.Minute, CoolDown: 10 * time.Minute, MinGain: 0.1, OnJoin: true}

func TestWhen(t *testing.T) {
	t0 := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(min float64) time.Time { return t0.Add(time.Duration(min * float64(time.Minute))) }
	short := Trigger{Since: t0}
	for name, c := range map[string]struct {
		before Trigger
		in     Observation
		look   bool
		why    string
		next   time.Time
	}{
		"idle":                 {Trigger{Since: t0}, Observation{Now: at(60), MinYield: 1}, false, "nothing can be gained", time.Time{}},
		"just short":           {Trigger{}, Observation{Now: at(0), MinYield: 0.8}, false, "may pass by itself", at(1)},
		"held":                 {short, Observation{Now: at(1), MinYield: 0.8}, true, "minimum yield 0.800", at(11)},
		"busy":                 {short, Observation{Now: at(9), MinYield: 0.8, Busy: "a plan is carried out"}, false, "a plan is carried out", time.Time{}},
		"VM starts":            {short, Observation{Now: at(9), MinYield: 0.8, Starts: "VM a starts"}, false, "VM a starts; next look in 1m0s", at(10)},
		"VMs start":            {Trigger{Since: t0, Starting: at(8.5)}, Observation{Now: at(9), MinYield: 0.8, Starts: "VM b starts"}, false, "VM b starts", at(9.5)},
		"VMs start for long":   {Trigger{Since: t0, Starting: at(8)}, Observation{Now: at(9), MinYield: 0.8, Starts: "VM b starts"}, true, "", at(19)},
		"looked, VMs start":    {Trigger{Since: t0, Starting: at(5), EvaluatedAt: at(8.5), Change: 7}, Observation{Now: at(9), MinYield: 0.8, Starts: "VM b starts", Change: 8}, false, "VM b starts", at(9.5)},
		"none starts any more": {Trigger{Since: t0, Starting: at(8.9)}, Observation{Now: at(9), MinYield: 0.8}, true, "", at(19)},
		"looked":               {Trigger{Since: t0, EvaluatedAt: at(5), Change: 7}, Observation{Now: at(9), MinYield: 0.8, Change: 7}, false, "nothing changed", at(15)},
		"looked, then changed": {Trigger{Since: t0, EvaluatedAt: at(5), Change: 7}, Observation{Now: at(9), MinYield: 0.8, Change: 8}, true, "", at(19)},
		"period over":          {Trigger{Since: t0, EvaluatedAt: at(5), Change: 7}, Observation{Now: at(15), MinYield: 0.8, Change: 7}, true, "", at(25)},
		"one re-balance":       {short, Observation{Now: at(9), MinYield: 0.8, Ended: []time.Time{at(3)}}, false, "1 re-balance ended", at(13)},
		"three re-balances":    {short, Observation{Now: at(30), MinYield: 0.8, Ended: []time.Time{at(3), at(25), at(13)}}, false, "3 re-balances", at(55)},
		"by a clock ahead":     {short, Observation{Now: at(9), MinYield: 0.8, Ended: []time.Time{at(600)}}, true, "", at(19)},
		"long ago":             {short, Observation{Now: at(90), MinYield: 0.8, Ended: []time.Time{at(3), at(13), at(25)}}, true, "", at(100)},
		"host just came":       {Trigger{Since: t0, Hosts: 1}, Observation{Now: at(9), MinYield: 0.8, Hosts: 2}, false, "a host came", at(10)},
		"host came":            {Trigger{Since: t0, Hosts: 2, Stable: at(8), EvaluatedAt: at(5)}, Observation{Now: at(9), MinYield: 0.8, Hosts: 2}, true, "", at(19)},
		"host came, looked":    {Trigger{Since: t0, Hosts: 2, Stable: at(4), EvaluatedAt: at(5)}, Observation{Now: at(9), MinYield: 0.8, Hosts: 2}, false, "nothing changed", at(15)},
		"short of its least":   {short, Observation{Now: at(30), MinYield: 0.3, Short: true, Ended: []time.Time{at(25)}}, true, "", at(40)},
		"short but not held":   {Trigger{Since: at(29.5)}, Observation{Now: at(30), MinYield: 0.3, Short: true}, false, "may pass", at(30.5)},
	} {
		t.Run(name, func(t *testing.T) {
			after, v := c.before.Due(pace, c.in)
			if v.Evaluate != c.look || !strings.Contains(v.Why, c.why) || !v.Next.Equal(c.next) {
				t.Errorf("look %v, next %s: %s; want %v, %s, %q", v.Evaluate, v.Next, v.Why, c.look, c.next, c.why)
			}
			if v.Evaluate && (!after.EvaluatedAt.Equal(c.in.Now) || after.Change != c.in.Change) {
				t.Errorf("forgets that it looked: %+v", after)
			}
			if c.in.MinYield == 1 && !after.Since.IsZero() {
				t.Errorf("idle, but short since %s", after.Since)
			}
		})
	}
}

// Where hosts that join are no reason to look, the period is.
func TestWhenJoined(t *testing.T) {
	p, t0 := pace, time.Unix(1e6, 0)
	joined := Trigger{Since: t0, Hosts: 2, Stable: t0.Add(8 * time.Minute), EvaluatedAt: t0.Add(5 * time.Minute)}
	for _, p.OnJoin = range []bool{false, true} {
		if _, v := joined.Due(p, Observation{Now: t0.Add(9 * time.Minute), MinYield: 0.8, Hosts: 2}); v.Evaluate != p.OnJoin {
			t.Errorf("on join %v: %+v", p.OnJoin, v)
		}
	}
}

func TestWhenNearlyIdle(t *testing.T) {
	p := pace
	p.IdleBelow = 0.3
	long := Trigger{Since: time.Unix(0, 0)}
	for load, look := range map[float64]bool{0.29: false, 0.3: true} {
		if _, v := long.Due(p, Observation{Now: time.Unix(1e6, 0), MinYield: 0.5, Load: load}); v.Evaluate != look || v.Evaluate == strings.Contains(v.Why, "nothing is moved") {
			t.Errorf("load %v: %+v", load, v)
		}
	}
}

// An hour of load that swings every five minutes is worth a few re-balances, not one per swing.
func TestWhenSwings(t *testing.T) {
	t0 := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var b Trigger
	var ended []time.Time
	for s := range 3600 {
		now := t0.Add(time.Duration(s) * time.Second)
		var v Verdict
		if b, v = b.Due(pace, Observation{Now: now, MinYield: 0.5, Change: uint64(s / 300), Ended: ended}); v.Evaluate {
			ended = append(ended, now)
		}
	}
	if n := len(ended); n < 2 || n > 4 {
		t.Errorf("%d re-balances in an hour: %v", n, ended)
	}
}

func TestWorth(t *testing.T) {
	const gib = 1 << 30
	problem := func(needs ...float64) migration.Problem { // VMs on the first of two hosts of 4 cores, 64 GiB
		p := migration.Problem{Hosts: []migration.Host{{Name: "a", CPU: 4, Memory: 64 * gib}, {Name: "b", CPU: 4, Memory: 64 * gib}}}
		for i, n := range needs {
			p.Groups = append(p.Groups, migration.Group{Name: string(rune('p' + i)), Count: 1, CPU: n, Memory: gib, Hosts: []int{0}})
		}
		return p
	}
	for name, c := range map[string]struct {
		p      migration.Problem
		budget float64
		not    string
		moves  int
	}{
		"room elsewhere":  {problem(3, 3), 8 * gib, "", 1},
		"no budget":       {problem(3, 3), 0.5 * gib, "no beneficial move", 0},
		"too little gain": {problem(2.1, 2.1), 8 * gib, "5.0% more, and less than 10% is not worth it", 1},
		"alone":           {problem(6), 8 * gib, "", 0},
		"idle":            {problem(1, 1), 8 * gib, "", 0},
		"many small ones": {problem(0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5), 8 * gib, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			pl, err := migration.New(c.p)
			if err != nil {
				t.Fatal(err)
			}
			plan, not := Worth(pl, c.budget, 0.1, true)
			if plan.Moves != c.moves || !strings.Contains(not, c.not) || c.not == "" && c.moves > 0 && not != "" {
				t.Errorf("%d moves, not worth it because %q; want %d, %q", plan.Moves, not, c.moves, c.not)
			}
			if c.moves == 0 && not == "" {
				t.Error("a plan without a move is worth something")
			}
		})
	}
}
