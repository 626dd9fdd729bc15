package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// upgradeEach upgrades one server after the other from a time on, as operators do. Draws are its own.
func upgradeEach(o *options) {
	r := seeded(o.seed, 22)
	at := time.Duration(30+r.IntN(60)) * time.Second
	for n := range o.servers {
		o.script = append(o.script, step{at, "upgrade", []string{fmt.Sprintf("s%d", n+1)}})
		at += time.Duration(4+r.IntN(8)) * time.Second
	}
	slices.SortStableFunc(o.script, func(a, b step) int { return int(a.at - b.at) })
}

// upgrade a server: its process ends, and another one begins with its log and snapshots and announces its version. Before that a server
// of the first format announces itself, as an operator may start one by mistake: a cluster with periodic work must refuse it.
func (s *sim) upgrade(name string) error {
	v := s.servers[name]
	v.crash()
	if err := wait(s.ctx, s.net.between(time.Second, 3*time.Second)); err != nil {
		return err
	}
	if err := v.start(false); err != nil {
		return err
	}
	announce := func(version string, format int) error {
		return s.withLeader(func(ctx context.Context, p *serving) error {
			if format == 1 && len(p.store.Snapshot().PeriodicJobs()) == 0 {
				return state.ErrConflict // it would be right to take it
			}
			return p.ctl.Propose(ctx, state.KindMemberPut, state.Member{Name: name, Server: true, Address: name, Format: format, Version: version})
		})
	}
	switch err := announce("0", 1); {
	case err == nil:
		s.violate("server %s of the first format joined a cluster with periodic work", name)
	case errors.Is(err, state.ErrConflict):
		s.count("servers of an earlier format refused")
	}
	var err error
	if s.eventually(20*time.Second, func() bool { err = announce("2", state.FormatVersion); return err == nil }) {
		s.count("servers upgraded")
		return nil
	}
	return fmt.Errorf("announce %s: %w", name, err)
}

// Upgraded servers keep what is reserved, learned and granted, run after run: the judge of the agenda sees it.
func TestUpgradesKeepTheAgenda(t *testing.T) {
	started := 0
	for seed := uint64(1); seed <= 3; seed++ {
		o := defaults(seed)
		somePeriodicWork(&o)
		upgradeEach(&o)
		o.script = append([]step{{0, "random", nil}}, o.script...)
		o.verbose = *verbose
		r := play(t, o)
		if len(r.violations) > 0 {
			report(t, o, r)
		}
		if r.counts["servers upgraded"] < o.servers || r.counts["servers of an earlier format refused"] == 0 {
			t.Errorf("seed %d shows little: %s", seed, stats(r.counts))
		}
		started += r.counts["periodic: runs that started in their slots"]
	}
	if started == 0 {
		t.Error("no run started in its slot")
	}
}
