package rebalance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Slot is that of an occurrence for which no hosts have room.
type Slot struct {
	Occurrence state.Occurrence
	VC         state.VC                   // its run, as the contract has it
	Reserved   map[string]state.Resources // by others, on each host, from now on
}

// PlanSlot returns the plan of moves after which hosts have room for a slot that the fleet has as a VC beside those that run, within a
// budget of bytes (-1: no bound), and the hosts of its VMs, group by group. It has no steps if there is none.
func PlanSlot(f *moves.Fleet, slot *Slot, budget int64) (plan state.MovePlan, hosts []string, err error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return plan, nil, fmt.Errorf("make room for occurrence %s: %w", slot.Occurrence.ID, err)
	}
	p := pl.Plan(moves.Budget(budget))
	plan = f.MovePlan(p, state.MovesRoom, budget)
	if !p.Feasible || len(plan.Steps) == 0 {
		plan.Steps = nil
		return plan, nil, nil
	}
	for i := range f.Groups {
		if f.VC(i).ID != slot.VC.ID {
			continue
		}
		for _, at := range p.Hosts[i] {
			hosts = append(hosts, f.Hosts[at].Name)
		}
	}
	return plan, hosts, nil
}

// MakeSlotRoom plans moves for the slot of an occurrence that begins soon, within the cluster's budget. From then on its hosts keep the room
// for it: VCs that wait do not take what the moves free.
func (r *Runner) MakeSlotRoom(ctx context.Context, s *state.Snapshot) (bool, error) {
	now := r.o.Now()
	if since := now.Sub(r.slotsAt); since >= 0 && since < slotsEvery || !s.HasAgenda() {
		return false, nil
	}
	meta, _ := s.Meta()
	set := meta.Settings.Moves.WithDefaults()
	if set.Mode != state.MovesAuto || len(s.RunningMovePlans()) > 0 || r.o.Slots == nil || !s.MovesForSlots() {
		return false, nil
	}
	env := r.o.Env()
	if len(env.Awaited) > 0 { // hosts that have yet to report may have the room
		return false, nil
	}
	at := s.PlacementIndex()
	r.slotsAt = now
	for _, slot := range r.o.Slots(s, env.Now) {
		o := slot.Occurrence
		recent := recentPlans(s, env.Now.Add(-set.CoolDown.Duration()), func(p *state.MovePlan) bool { return p.Occurrence == o.ID })
		if r.tried[o.ID] == at || recent >= maxRoomPlans {
			continue
		}
		r.tried[o.ID] = at
		f := moves.NewFleet(s, env, r.o.Observation(s), moves.Options{CopyStorage: set.CopyStorage, Reserved: slot.Reserved}, slot.VC)
		plan, hosts, err := PlanSlot(f, &slot, set.Budget())
		if err != nil || len(plan.Steps) == 0 {
			continue
		}
		plan.ID, plan.Occurrence, plan.By = r.o.NewID(), o.ID, "agenda"
		plan.Text = fmt.Sprintf("no hosts have room for the run of job %s at %s", o.Job, o.Start.Format(time.RFC3339))
		o.Hosts, o.Text = hosts, fmt.Sprintf("%s to make room for it: move plan %s", counted(len(plan.Steps), "move"), plan.ID)
		r.o.Log.Info("plan of moves", "kind", plan.Kind, "occurrence", o.ID, "moves", len(plan.Steps), "bytes", plan.Bytes)
		err = r.o.Propose(ctx, state.KindAgenda, state.AgendaPut{Basis: s.Index(), Occurrences: []state.Occurrence{o}})
		if errors.Is(err, state.ErrConflict) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("make room for occurrence %s: %w", o.ID, err)
		}
		return r.put(ctx, s, plan)
	}
	return false, nil
}
