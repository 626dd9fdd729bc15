package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
)

// draining is what the leader remembers of drains besides the state.
type draining struct {
	mu       sync.Mutex
	blockers map[string][]Blocker // by host: that were found last
}

func newDraining() draining { return draining{blockers: map[string][]Blocker{}} }

func (d *draining) found(host string, blockers []Blocker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(blockers) == 0 {
		delete(d.blockers, host)
	} else {
		d.blockers[host] = blockers
	}
}

func (d *draining) of(host string) []Blocker {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blockers[host]
}

// drainEvery is how often drains are evaluated though nothing changes: deadlines pass, hosts fall silent.
const drainEvery = time.Second

// emptyHosts drains the hosts that have a drain, or reports why they are not empty, until ctx ends. The moves that it plans are
// carried out as those of any plan.
func (t *term) emptyHosts(ctx context.Context) {
	states := drainState{map[string]time.Time{}, map[string]time.Time{}}
	for ctx.Err() == nil {
		changed := t.c.o.State.Snapshot().Watch()
		var tick <-chan time.Time
		if t.c.o.Log.Leads() {
			some, err := t.drainHosts(ctx, states)
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoLeader) {
				t.c.log.Warn("drains", "error", err)
			}
			if some || err != nil {
				tick = time.After(drainEvery)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
			continue
		case <-changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(debounce):
		}
	}
}

// drainState is what one evaluation of drains leaves for the next, by host.
type drainState struct {
	unavailable map[string]time.Time // since when it is out
	vain        map[string]time.Time // when moves were last planned in vain
}

// drainHosts takes the next step for every host with a drain. some: there are such hosts that are not empty.
func (t *term) drainHosts(ctx context.Context, states drainState) (some bool, err error) {
	var hosts []string
	s := t.c.o.State.Snapshot()
	if m, ok := s.Meta(); !ok || m.RecoveryFreeze.On() {
		return false, nil
	}
	s.EachHost(func(h *state.Host) bool {
		if h.Drain.State != "" && h.Drain.State != state.DrainDone {
			hosts = append(hosts, h.Name)
		}
		return true
	})
	var faults []error
	for _, name := range hosts {
		if e := t.drainHost(ctx, name, states); e != nil {
			faults = append(faults, fmt.Errorf("drain of host %s: %w", name, e))
		}
	}
	for _, kept := range []map[string]time.Time{states.unavailable, states.vain} {
		maps.DeleteFunc(kept, func(name string, _ time.Time) bool { return !slices.Contains(hosts, name) })
	}
	return len(hosts) > 0, errors.Join(faults...)
}

func (t *term) drainHost(ctx context.Context, name string, states drainState) error {
	if err := t.c.plan(ctx); err != nil {
		return err
	}
	defer t.c.planned()
	s := t.c.o.State.Snapshot()
	h, ok := s.Host(name)
	if !ok {
		return nil
	}
	env := t.env()
	w, _ := t.reports.inventory(s, h, env.Unavailable[name])
	if w.Unavailable == "" {
		delete(states.unavailable, name)
	} else {
		if states.unavailable[name].IsZero() {
			states.unavailable[name] = env.Now
		}
		w.UnavailableFor = env.Now.Sub(states.unavailable[name])
	}
	if len(env.Awaited) > 0 { // what hosts run and could take is not known yet
		return nil
	}
	if at, vain := states.vain[name]; vain && env.Now.Sub(at) < drainEvery && s.LoadOf(name).VMs > 0 {
		return nil // planning takes long among many VMs, and others wait for their turn
	}
	planned := false
	step, err := drain.Next(s, h, w, env, func(supersedes []string, keep map[string]string) *moves.Fleet {
		planned = true
		return t.drainFleet(s, supersedes, keep)
	})
	if err != nil {
		return err
	}
	if delete(states.vain, name); planned && step.Stop == nil && (step.Put == nil || step.Put.MovePlan == nil) {
		states.vain[name] = env.Now
	}
	switch {
	case step.Put != nil:
		d := step.Put.Drain
		t.c.log.Info("drain", "host", name, "state", d.State, "plan", d.Plan, "text", d.Text)
		err = t.propose(ctx, state.KindDrain, step.Put)
	case step.Stop != nil:
		t.c.log.Info("drain", "host", name, "shuts down", len(step.Stop.VMs), "text", step.Stop.Text)
		if err = t.c.inflight.drained(ctx); err == nil {
			err = t.propose(ctx, state.KindPlan, step.Stop)
		}
	}
	if err == nil && step.Blockers != nil {
		t.drains.found(name, step.Blockers)
	}
	if errors.Is(err, state.ErrConflict) {
		return nil // the state moved on, and that wakes us
	}
	return err
}

// DrainVM is a VM of a host that is being drained.
type DrainVM struct {
	VM, VC     string // names
	State      string // that of its step: waiting, preparing, moving, done, failed, skipped; or stays, stopping, comes, starting
	To         string
	Migration  string // id
	Bytes      int64  // predicted
	BytesMoved int64
	Rate       float64 // bytes per second, while it moves
	ETA        float64 // seconds; below 0: not known
	Text       string
}

// DrainView is how far the drain of a host is.
type DrainView struct {
	state.Drain
	BytesMoved int64
	VMs        []DrainVM
}

// DrainView returns how far the drain of a host is.
func (v *View) DrainView(h state.Host) DrainView {
	out := DrainView{Drain: h.Drain, BytesMoved: h.Drain.Moved}
	if h.Drain.State == "" {
		return out
	}
	rows := map[string]int{}
	for _, p := range v.MovePlans() {
		if p.Kind != state.MovesDrain || p.Host != h.Name || p.CreateIndex < h.Drain.Begun {
			continue
		}
		if p.ID == h.Drain.Plan {
			out.BytesMoved += p.BytesMoved
		}
		for _, step := range p.Steps {
			vc, _ := v.VC(step.VC)
			row := DrainVM{VM: step.VMName, VC: vc.Name, State: string(step.State), To: step.To, Migration: step.Migration, Bytes: step.Bytes, ETA: -1, Text: step.Text}
			if m, ok := v.Migration(step.Migration); ok && step.Migration != "" {
				row = row.moves(v.MigrationView(m))
				if m.State == state.MigrationRunning {
					out.BytesMoved += row.BytesMoved
				}
			}
			at, known := rows[step.VMName]
			if !known {
				at = len(out.VMs)
				rows[step.VMName] = at
				out.VMs = append(out.VMs, DrainVM{})
			}
			out.VMs[at] = row
		}
	}
	v.EachVMOn(h.Name, func(vm *state.VM) bool {
		if vm.ConsumesResources() {
			v.stays(&out, rows, h, *vm)
		}
		return true
	})
	return out
}

// moves adds what is known of a migration.
func (d DrainVM) moves(m MigrationView) DrainVM {
	d.BytesMoved = m.BytesMoved
	if m.Live == nil {
		return d
	}
	d.Rate, d.Text = m.Live.Rate, m.Live.Text
	if speed := m.Live.Rate - m.Live.Dirty; speed > 0 {
		d.ETA = float64(m.Live.Remaining) / speed
	}
	return d
}

// stays adds a VM of the host that no step moves now, or the reason of its last step for its being there still.
func (v *View) stays(out *DrainView, rows map[string]int, h state.Host, vm state.VM) {
	at, known := rows[vm.Name]
	if known {
		switch state.StepState(out.VMs[at].State) {
		case state.StepWaiting, state.StepPreparing, state.StepMoving:
			return
		}
	} else {
		vc, _ := v.VC(vm.VC)
		at = len(out.VMs)
		out.VMs = append(out.VMs, DrainVM{VM: vm.Name, VC: vc.Name, ETA: -1})
	}
	row := &out.VMs[at]
	switch {
	case vm.MovingTo == h.Name:
		row.State, row.Text = "comes", "on its way from host "+vm.Host
	case vm.MovingTo != "":
		row.State, row.To = string(state.StepMoving), vm.MovingTo
	case vm.Phase == state.Stopping:
		row.State, row.Text = "stopping", vm.Reason
	case vm.Phase == state.Starting:
		row.State = "starting"
	default:
		row.State, row.To = "stays", ""
		if v.blockers != nil {
			for _, b := range v.blockers(h.Name) {
				if b.ID == vm.ID {
					row.Text = b.Why
				}
			}
		}
	}
}
