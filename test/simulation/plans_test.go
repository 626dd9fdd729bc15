package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// plan has the leader plan moves, as an operator.
func (s *sim) plan(p step, a, b string) error {
	bytes := int64(-1)
	if n, err := strconv.ParseInt(map[bool]string{true: a, false: b}[p.verb == "rebalance"], 10, 64); err == nil && n >= 0 {
		bytes = n << 20
	}
	return s.withLeader(func(ctx context.Context, l *serving) error {
		host := a
		if a == "any" {
			if host = s.anyHost(l.store.Snapshot(), p.verb == "undrain"); host == "" {
				return errors.New("there is none")
			}
		}
		switch p.verb {
		case "undrain":
			return l.ctl.Undrain(ctx, host, leader.Call{})
		case "drain":
			_, err := l.ctl.Drain(ctx, host, leader.DrainRequest{OnBlocked: "skip", MaxBytes: &bytes, Reason: "a test"}, leader.Call{})
			if err == nil {
				s.count("drains begun")
			}
			return err
		}
		r, err := l.ctl.Rebalance(ctx, leader.RebalanceRequest{MaxBytes: &bytes, Text: "a test"}, leader.Call{})
		if err == nil && len(r.Plan.Steps) > 0 {
			s.count("re-balances begun")
		}
		return err
	})
}

// anyHost of those that VMs run on, or that are drained; "" if there is none.
func (s *sim) anyHost(snap *state.Snapshot, drained bool) string {
	var of []string
	for _, h := range snap.Hosts() {
		if drained && h.Drain.State != "" || !drained && h.Drain.State == "" && len(snap.VMsOn(h.Name)) > 0 {
			of = append(of, h.Name)
		}
	}
	if len(of) == 0 {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return of[s.rng.IntN(len(of))]
}

// undrain all hosts, and have no more plans made.
func (s *sim) undrain(ctx context.Context, l *serving) error {
	_, err := l.ctl.Settings(ctx, func(set *state.Settings) error { set.Moves.Mode = state.MovesOff; return nil }, leader.Call{})
	faults := []error{err}
	for _, h := range l.store.Snapshot().Hosts() {
		if h.Drain.State != "" {
			faults = append(faults, l.ctl.Undrain(ctx, h.Name, leader.Call{}))
		}
	}
	return errors.Join(faults...)
}

// newest state that any server has.
func (s *sim) newest() (best *state.Snapshot) {
	for _, name := range s.names {
		if p := s.servers[name].alive(); p != nil {
			if snap := p.store.Snapshot(); best == nil || snap.Index() > best.Index() {
				best = snap
			}
		}
	}
	return best
}

// planOf is the plan that has the VM moved now; "" if none has.
func (s *sim) planOf(vm string) string {
	if snap := s.newest(); snap != nil {
		m, _ := snap.MigrationOf(vm)
		return m.Plan
	}
	return ""
}

// moved takes in what a migration sent, as its hypervisor counted.
func (s *sim) moved(plan string, bytes, limit int64) {
	if limit > 0 && bytes > limit {
		s.violate("a migration sent %d bytes, and may send %d", bytes, limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if plan != "" {
		s.sent[plan] += bytes
		s.counts["migrations of plans"]++
	}
}

// watchPlans: no plan moves more bytes than its budget, whatever happens to its moves; and if a host is reported as empty,
// its hypervisor lists no VM of the cluster either.
func (s *sim) watchPlans() {
	snap := s.newest()
	if snap == nil {
		return
	}
	s.mu.Lock()
	sent := map[string]int64{}
	for id, n := range s.sent {
		sent[id] = n
	}
	restored := s.restored
	old := snap.Index() < s.furthest // a server with newer state is down or stalled: a linearizable read does not get this answer
	s.furthest = max(s.furthest, snap.Index())
	s.mu.Unlock()
	if old || restored { // the bytes sent and the hosts' lists may be newer than this state
		return
	}
	for _, p := range snap.MovePlans() {
		if p.Budget >= 0 && (sent[p.ID] > p.Budget || p.BytesMoved > p.Budget) {
			s.violate("move plan %s (%s) has moved %d bytes, %d by its own count, of %d", p.ID, p.Kind, sent[p.ID], p.BytesMoved, p.Budget)
		}
	}
	for _, h := range snap.Hosts() {
		if h.Drain.State != state.DrainDone {
			continue
		}
		for _, vm := range s.listed(h.Name) {
			if row, known := snap.VM(vm.VM); known && row.Generation == vm.Generation {
				s.violate("host %s is said to be empty, and runs %s", h.Name, vm.Name)
			}
		}
	}
}

// unmoved says what is left of moves; "" = nothing is.
func unmoved(snap *state.Snapshot) string {
	for _, p := range snap.RunningMovePlans() {
		return fmt.Sprintf("move plan %s (%s) is carried out still: %+v", p.ID, p.Kind, p.Steps)
	}
	for _, m := range snap.Migrations() {
		if vm, ok := snap.VM(m.VM); m.State == state.MigrationRunning && (!ok || vm.MovingTo != m.To) {
			return fmt.Sprintf("migration %s of VM %s goes on, and the VM is %+v", m.ID, m.VMName, vm)
		}
	}
	return ""
}
