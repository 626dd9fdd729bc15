package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// want is a client's request for a VC.
type want struct {
	Verb  string // create, scale, apply, start, stop, delete, read; set: what a history begins with
	Count int    // of VMs, after it
	Goal  state.Goal
	Grow  bool // apply: with more memory than create gives, for which VMs restart
}

// got is the answer: done, unknown (it may have happened, or may yet), taken (the name is), absent, refused
// (nothing changed), or of a read what is there.
type got struct {
	Is    string
	Count int
	Goal  state.Goal // of a read
}

// seenVC is a VC as clients see it. The zero value is one that does not exist.
type seenVC struct {
	Count int
	Goal  state.Goal // "" = there is none
}

// vcModel is what a VC may do, as one client at a time would see it. The requests do not show when a VC
// that is to be deleted is gone: every step may find it gone.
var vcModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{seenVC{}} },
	Step: func(s, in, out any) []any { return vcStep(s.(seenVC), in.(want), out.(got)) },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v -> %+v", in, out)
	},
}

func vcStep(s seenVC, w want, g got) []any {
	var out []any
	from := []seenVC{s}
	if s.Goal == state.GoalDelete {
		from = append(from, seenVC{})
	}
	for _, s := range from {
		next, able := applied(s, w)
		switch g.Is {
		case "done":
			if able {
				out = append(out, next)
			}
		case "unknown":
			out = append(out, s)
			if able {
				out = append(out, next)
			}
		case "taken":
			if s.Goal != "" {
				out = append(out, s)
			}
		case "absent":
			if s.Goal == "" {
				out = append(out, s)
			}
		case "refused":
			out = append(out, s)
		case "is":
			if s.Goal == g.Goal && s.Count == g.Count {
				out = append(out, s)
			}
		}
	}
	return out
}

// applied is s after w was done; false if it cannot be.
func applied(s seenVC, w want) (seenVC, bool) {
	live := s.Goal == state.GoalRun || s.Goal == state.GoalStop
	switch w.Verb {
	case "set":
		return seenVC{Count: w.Count, Goal: w.Goal}, true
	case "create":
		return seenVC{Count: w.Count, Goal: state.GoalRun}, s.Goal == ""
	case "scale":
		return seenVC{Count: w.Count, Goal: s.Goal}, live
	case "apply":
		if s.Goal == "" {
			s.Goal, live = state.GoalRun, true
		}
		return seenVC{Count: w.Count, Goal: s.Goal}, live
	case "start":
		return seenVC{Count: s.Count, Goal: state.GoalRun}, live
	case "stop":
		return seenVC{Count: s.Count, Goal: state.GoalStop}, live
	case "delete":
		return seenVC{Count: s.Count, Goal: state.GoalDelete}, s.Goal != ""
	}
	return s, w.Verb == "read"
}

// history of all clients, by VC. A restore ends it, and begins another.
type history struct {
	mu     sync.Mutex
	byName map[string][]porcupine.Operation
	done   []map[string][]porcupine.Operation
	asked  int
	answer map[string]int
}

func (h *history) add(client int, name string, w want, g got, called, returned int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.Is == "unknown" {
		returned = int64(1) << 60
	}
	h.asked++
	h.answer[g.Is]++
	if g.Is == "unknown" && w.Verb == "read" {
		return
	}
	h.byName[name] = append(h.byName[name], porcupine.Operation{ClientId: client, Input: w, Output: g, Call: called, Return: returned})
}

// check says which VC has a history that no order of requests explains.
func (h *history) check() (bad []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	model := vcModel.ToModel()
	for _, part := range append(h.done, h.byName) {
		for name, ops := range part {
			if porcupine.CheckOperationsTimeout(model, ops, 20*time.Second) == porcupine.Illegal {
				text := "the history of " + name + " is not linearizable:"
				for _, o := range ops {
					text += fmt.Sprintf("\n    client %d, %v to %v: %s", o.ClientId, time.Duration(o.Call), time.Duration(o.Return), vcModel.DescribeOperation(o.Input, o.Output))
				}
				bad = append(bad, text)
			}
		}
	}
	return bad
}

// restored begins another history, with the VCs that exist now. Requests of shortly before may still be on their
// way, and their keys are forgotten.
func (h *history) restored(now time.Duration, there map[string]seenVC) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[string][]porcupine.Operation{}
	for name, vc := range there {
		next[name] = append(next[name], porcupine.Operation{ClientId: 200, Input: want{Verb: "set", Count: vc.Count, Goal: vc.Goal}, Output: got{Is: "done"},
			Call: int64(now) - 1, Return: int64(now) - 1})
	}
	for name, ops := range h.byName {
		for _, o := range ops {
			if w := o.Input.(want); w.Verb != "read" && w.Verb != "set" && o.Call > int64(now-longest-20*time.Second) {
				o.Call, o.Return, o.Output = int64(now), int64(1)<<60, got{Is: "unknown"}
				next[name] = append(next[name], o)
			}
		}
	}
	h.done = append(h.done, h.byName)
	h.byName = next
}

// client makes one request after the other until ctx ends.
func (s *sim) client(ctx context.Context, id int) {
	rng := seeded(s.o.seed, uint64(1000+id))
	own, known := s.o.own(), map[string]int{} // known: size as last heard, to ask for what makes sense
	for n := 0; wait(ctx, time.Duration(300+rng.IntN(4000))*time.Millisecond) == nil; n++ {
		name := own[rng.IntN(len(own))]
		w := want{Verb: "read"}
		switch k := rng.IntN(20); {
		case k < 6:
		case known[name] == 0:
			w = want{Verb: "create", Count: 1 + rng.IntN(3)}
		case k < 10:
			w = want{Verb: "scale", Count: 1 + rng.IntN(4)}
		case k < 13:
			w = want{Verb: "apply", Count: 1 + rng.IntN(4), Grow: rng.IntN(2) == 0}
		case k < 15:
			w.Verb = "stop"
		case k < 17:
			w.Verb = "start"
		case k < 18:
			w.Verb = "delete"
		}
		s.clients.RLock() // a restore waits for the requests that are under way
		g := s.request(ctx, rng, id, n, name, w)
		s.clients.RUnlock()
		switch {
		case g.Is == "is" && g.Goal != "":
			known[name] = max(1, g.Count)
		case g.Is == "is", g.Is == "absent":
			known[name] = 0
		case g.Is == "taken":
			known[name] = max(1, known[name])
		case g.Is == "done":
			known[name] = max(1, w.Count, known[name])
		}
	}
}

// request something of a VC, with a key, again where the outcome is not known; and note the outcome.
func (s *sim) request(ctx context.Context, rng *rand.Rand, id, n int, name string, w want) got {
	called := time.Since(s.began)
	key := fmt.Sprintf("client-%d-%d", id, n)
	var g got
	unsure := false
	for range 1 + rng.IntN(3) {
		at := s.names[rng.IntN(len(s.names))]
		bounded, cancel := context.WithTimeout(ctx, 6*time.Second)
		var err error
		g, err = ask(bounded, s, "client", at, func(ctx context.Context, p *serving) (got, error) {
			return p.act(ctx, name, w, key)
		})
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, errRefused), errors.Is(err, leader.ErrNoLeader):
			g = got{Is: "refused"}
			_ = wait(ctx, 500*time.Millisecond)
			continue // nothing happened
		default:
			unsure, g = true, got{Is: "unknown"}
			continue
		}
		if unsure && g.Is != "done" && w.Verb != "read" {
			// This try did nothing, but an earlier one may have, or may yet.
			g = got{Is: "unknown"}
		}
		break
	}
	if unsure && g.Is == "refused" {
		g.Is = "unknown"
	}
	s.history.add(id, name, w, g, int64(called), int64(time.Since(s.began)))
	return g
}

// act at the leader.
func (p *serving) act(ctx context.Context, name string, w want, key string) (got, error) {
	c := leader.Call{IdempotencyKey: key}
	var err error
	switch w.Verb {
	case "create":
		_, err = p.ctl.Create(ctx, p.s.spec(name, w.Count), c)
	case "scale":
		_, err = p.ctl.Scale(ctx, name, leader.Scale{Count: &w.Count}, c)
	case "apply":
		_, err = p.apply(ctx, name, w, c)
	case "start":
		_, err = p.ctl.Start(ctx, name, c)
	case "stop":
		_, err = p.ctl.Stop(ctx, name, c)
	case "delete":
		_, err = p.ctl.Delete(ctx, name, c)
	default:
		v, err := p.ctl.View(ctx, false)
		if err != nil {
			return got{}, err
		}
		vc, ok := v.VCNamed(name)
		if !ok {
			return got{Is: "is"}, nil
		}
		return got{Is: "is", Count: vc.Groups[0].Count, Goal: vc.Goal}, nil
	}
	var full *leader.Refused
	var frozen *leader.FrozenError
	var exists *leader.Exists
	var invalid *leader.Invalid
	switch {
	case err == nil:
		return got{Is: "done"}, nil
	case errors.As(err, &full), errors.As(err, &frozen), errors.As(err, &invalid):
		if full != nil {
			p.s.refusedRun(name, full)
		}
		return got{Is: "refused"}, nil
	case errors.Is(err, state.ErrQuota):
		p.s.count("requests over a quota")
		return got{Is: "refused"}, nil
	case errors.As(err, &exists):
		return got{Is: "taken"}, nil
	case errors.Is(err, leader.ErrNotFound):
		return got{Is: "absent"}, nil
	case errors.Is(err, leader.ErrConflict):
		return got{Is: "refused"}, nil
	}
	return got{}, err
}

// apply the file of a VC; VMs that must restart for it may.
func (p *serving) apply(ctx context.Context, name string, w want, c leader.Call) (leader.Result, error) {
	file := p.s.spec(name, w.Count)
	if _, sized := p.s.o.sized[name]; w.Grow && !sized {
		file.Groups[0].Memory += 256 << 20
	}
	r, err := p.ctl.Apply(ctx, file, leader.Apply{Verb: "apply", Create: true, Restart: true, Force: true}, c)
	if err == nil {
		p.s.count("files applied")
		for _, change := range r.Changes {
			if change.Verb == "restart" {
				p.s.count("files applied: VMs that restart")
			}
		}
	}
	return r, err
}

// spec of a VC: what it is follows from its name, so that every client asks for the same.
func (s *sim) spec(name string, count int) state.VC {
	k := seeded(s.o.seed, uint64(len(name))<<32|uint64(name[len(name)-1]))
	vc := state.VC{Name: name, MinYield: 0.2, OnFull: state.Queue, Groups: []state.Group{{Name: "g", Count: count, CPU: min(3.5, (0.5+1.5*k.Float64())*s.o.needs),
		Memory: int64(1+k.IntN(3)) * 256 << 20, Disk: state.Disk{Ephemeral: true}}}}
	s.o.rightsize(&vc, k)
	if q, ok := s.o.sized[name]; ok {
		g := &vc.Groups[0]
		g.CPU, g.Memory = 0.3, q.mebibytes<<20-overhead
		for _, h := range q.avoid {
			g.Affinity.Avoid = append(g.Affinity.Avoid, "host:"+h)
		}
	}
	if s.o.periodic != nil && s.o.periodic.shape(&vc) {
		return vc
	}
	tenant, plain := state.SplitName(name)
	if plain[0] == 'r' {
		vc.OnHostLoss = state.RestartOnLoss
	}
	if tenant != state.DefaultTenant {
		vc.Groups[0].CPU, vc.Groups[0].Memory, vc.MinYield = 0.2, 256<<20, 0.05
	}
	return vc
}
