package leader

import (
	"context"
	"fmt"
	"slices"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/state"
)

// Permit implements agent.Leader: the last question before a start.
func (c *Service) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	t := c.current.Load()
	if err := c.o.Log.Linearize(ctx); err != nil {
		return agent.Permit{}, fmt.Errorf("permit for host %s: %w: %w", q.Host, ErrNoLeader, err)
	}
	standing, err := t.failover.Standing(q.Host) // before the snapshot
	if err != nil {
		return agent.Permit{}, fmt.Errorf("permit for host %s: %w: %w", q.Host, ErrNoLeader, err)
	}
	s := c.o.State.Snapshot()
	w := t.desired.to(c.o.State, q.Host)
	p := agent.Permit{Epoch: w.desired.Epoch, Term: t.number, Index: w.desired.Index}
	failover.Permits(s, q, standing, &p)
	if len(q.Moves) > 0 {
		if err := t.permitMoves(ctx, s, q, &p); err != nil {
			return agent.Permit{}, fmt.Errorf("permit for host %s: %w", q.Host, err)
		}
	}
	for _, ask := range q.Resets {
		if err := t.permitReset(ctx, q.Host, ask, &p); err != nil {
			return agent.Permit{}, fmt.Errorf("permit for host %s: %w", q.Host, err)
		}
	}
	return p, nil
}

// permitMoves gives the permits to hand VMs over. They are in the log, so that each comes before or after every other entry
// about these moves, and reports of before the permit differ from reports of after it.
func (t *term) permitMoves(ctx context.Context, s *state.Snapshot, q agent.PermitRequest, p *agent.Permit) error {
	body := state.VMReport{Host: q.Host}
	asked := map[agent.Handover]uint64{}
	for _, m := range failover.Handovers(s, q, p) {
		vm, _ := s.VM(m.VM)
		open, _ := s.MigrationOf(m.VM)
		switch {
		case slices.Contains(t.failover.Awaited(s), vm.MovingTo): // the agent asks again; a refusal would end the move
			return t.allReported(s, fmt.Sprintf("move of VM %s to host %s", vm.Name, vm.MovingTo))
		case t.failover.WhyUnavailable(s, vm.MovingTo) != "":
			p.Refused = "target host " + vm.MovingTo + " does not answer"
		default:
			body.VMs = append(body.VMs, state.VMStatus{VM: m.VM, Generation: m.Generation, Move: m.Move, Permit: true})
			asked[m] = open.Permit
		}
	}
	if len(asked) == 0 {
		return nil
	}
	if err := t.propose(ctx, state.KindVMReport, body); err != nil {
		return err
	}
	s = t.c.o.State.Snapshot()
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
