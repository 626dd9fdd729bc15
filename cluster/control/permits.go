package control

import (
	"context"
	"fmt"
	"slices"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
)

// Permit implements agent.Leader: the last question before a start.
func (c *Control) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	term := c.termNow()
	if err := c.o.Log.Linearize(ctx); err != nil {
		return agent.Permit{}, fmt.Errorf("permit for host %s: %w: %w", q.Host, ErrNoLeader, err)
	}
	// Before the snapshot: a host that had its lease then is not proved lost before it had to stop what it starts now.
	c.mu.Lock()
	runs, lossPending := c.leases.Leased(q.Host, c.o.Clock()), c.leases.LossPending(q.Host)
	c.mu.Unlock()
	s := c.o.State.Snapshot()
	meta, _ := s.Meta()
	h, _ := s.Host(q.Host)
	w := c.desired.to(c.o.State, q.Host, term)
	p := agent.Permit{Epoch: w.desired.Epoch, Term: term, Index: w.desired.Index}
	for _, i := range q.Starts {
		vm, ok := s.VM(i.VM)
		vc, _ := s.VC(vm.VC)
		switch {
		case meta.RecoveryFreeze.On():
			p.Refused = "nothing is started after a " + meta.RecoveryFreeze.Reason + " until every host has said what it runs"
		case !ok || vm.Host != q.Host || vm.Generation != i.Generation || vm.Phase != state.Starting || vm.Goal != state.GoalRun:
			p.Refused = fmt.Sprintf("generation %d of VM %s is not to be started on %s", i.Generation, i.VM, q.Host)
		case h.Lost.Proof != "":
			p.Refused = "host " + q.Host + " is lost: " + h.Lost.Text
		case lossPending:
			p.Refused = "that host " + q.Host + " was lost is being recorded"
		case vc.Restartable() && !runs:
			p.Refused = "host " + q.Host + " holds no lease for restartable VMs"
		default:
			p.Granted = append(p.Granted, i)
		}
	}
	for _, i := range q.Leftovers {
		vm, known := s.VM(i.VM)
		m, _ := s.MigrationOf(i.VM)
		why := state.LeftoverStays(vm, m, known, q.Host, i.Generation, i.Leftover && meta.Epoch == 0)
		if meta.RecoveryFreeze.On() {
			why = "nothing is destroyed after a " + meta.RecoveryFreeze.Reason + " until every host has said what it runs"
		}
		if why != "" {
			p.Refused = why
			continue
		}
		p.Leftovers = append(p.Leftovers, i)
	}
	for _, r := range q.Resumes {
		vm, known := s.VM(r.VM)
		vc, _ := s.VC(vm.VC)
		m, _ := s.MigrationOf(r.VM)
		why := state.ResumeRefused(vm, m, known, q.Host, r.Generation, r.Move)
		switch {
		case meta.RecoveryFreeze.On():
			why = "nothing goes on after a " + meta.RecoveryFreeze.Reason + " until every host has said what it runs"
		case why != "":
		case h.Lost.Proof != "":
			why = "host " + q.Host + " is lost: " + h.Lost.Text
		case lossPending:
			why = "that host " + q.Host + " was lost is being recorded"
		case vc.Restartable() && !runs:
			why = "host " + q.Host + " holds no lease for restartable VMs"
		}
		if why != "" {
			p.Refused = why
			continue
		}
		p.Resumes = append(p.Resumes, r)
	}
	if len(q.Moves) > 0 {
		if err := c.permitMoves(ctx, s, q, &p); err != nil {
			return agent.Permit{}, fmt.Errorf("permit for host %s: %w", q.Host, err)
		}
	}
	return p, nil
}

// permitMoves gives the permits to hand VMs over. They are in the log, so that each comes before or after every other entry
// about these moves, and reports of before the permit differ from reports of after it.
func (c *Control) permitMoves(ctx context.Context, s *state.Snapshot, q agent.PermitRequest, p *agent.Permit) error {
	meta, _ := s.Meta()
	body := state.VMReport{Host: q.Host}
	asked := map[agent.Handover]uint64{}
	for _, m := range q.Moves {
		vm, ok := s.VM(m.VM)
		open, _ := s.MigrationOf(m.VM)
		switch {
		case meta.RecoveryFreeze.On():
			p.Refused = "nothing moves after a " + meta.RecoveryFreeze.Reason + " until every host has said what it runs"
		case !ok || vm.Host != q.Host || vm.Generation != m.Generation || open.Open != m.Move || m.Move == 0:
			p.Refused = fmt.Sprintf("move %d of VM %s from %s is not open", m.Move, m.VM, q.Host)
		case slices.Contains(c.awaited(s), vm.MovingTo): // a refusal would end the move
			return c.allReported(s, fmt.Sprintf("move of VM %s to host %s", vm.Name, vm.MovingTo))
		case c.isUnavailable(s, vm.MovingTo):
			p.Refused = "target host " + vm.MovingTo + " does not answer"
		default:
			body.VMs = append(body.VMs, state.VMStatus{VM: m.VM, Generation: m.Generation, Move: m.Move, Permit: true})
			asked[m] = open.Permit
		}
	}
	if len(asked) == 0 {
		return nil
	}
	if err := c.propose(ctx, state.KindVMReport, body); err != nil {
		return err
	}
	s = c.o.State.Snapshot()
	for _, m := range q.Moves {
		open, _ := s.MigrationOf(m.VM)
		before, is := asked[m]
		switch {
		case !is:
		case open.Open != m.Move || open.Permit <= before:
			p.Refused = fmt.Sprintf("move %d of VM %s from %s is not to be begun", m.Move, m.VM, q.Host)
		default:
			p.Moves = append(p.Moves, m)
		}
	}
	return nil
}
