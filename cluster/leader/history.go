package leader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/history"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// Unreachable says that only a host has what was asked for, and that the host does not answer.
type Unreachable struct {
	VM, Host string
	Err      error
}

// Error implements error.
func (e *Unreachable) Error() string {
	return fmt.Sprintf("what VM %s used is kept by its host %s, which cannot be asked now (%v); it is kept there: ask again once the host answers (vcctl host get %s)",
		e.VM, e.Host, e.Err, e.Host)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// History returns the history of a VM, by its name or id, from its host.
func (c *Service) History(ctx context.Context, name string) (*history.History, history.Notes, state.VM, error) {
	vm, err := c.placed(name)
	if err != nil {
		return nil, nil, vm, err
	}
	ctx, cancel := context.WithTimeout(ctx, historyTime)
	defer cancel()
	data, err := c.o.History(ctx, vm.Host, vm.ID)
	switch {
	case errors.Is(err, hypervisor.ErrNotFound): // it has just been started, or has begun to arrive
		return &history.History{}, nil, vm, nil
	case err != nil:
		return nil, nil, vm, &Unreachable{VM: vm.Name, Host: vm.Host, Err: err}
	}
	h, notes, err := history.Decode(data)
	if err != nil {
		return nil, nil, vm, &Unreachable{VM: vm.Name, Host: vm.Host, Err: err}
	}
	return h, notes, vm, nil
}

// Need is a VM's need, as declared, and as its forecast for the next forecast.Horizon steps gives it.
type Need struct {
	Declared float64
	Forecast float64 // the most that is expected, with its buffer; 0 where nothing is
	Buffer   float64 // that of the step that needs most
}

// by computes the need from a forecast; always from that many steps, however many were asked for.
func (n *Need) by(ahead []forecast.Prediction, buffer forecast.Buffer) {
	ahead = ahead[:min(forecast.Horizon, len(ahead))]
	if len(ahead) == 0 {
		return
	}
	n.Forecast = buffer.Need(n.Declared, ahead)
	highest := math.Inf(-1)
	for _, p := range ahead {
		size := buffer.Size(n.Declared, p)
		if need := max(0, p.Mean) + size; need > highest {
			highest, n.Buffer = need, size
		}
	}
}

// Forecast returns the forecast of what a VM, by its name or id, will use of a resource, from its host. Until is zero where
// nothing was measured yet.
func (c *Service) Forecast(ctx context.Context, name, resource string, steps int) (agent.VMForecast, Need, state.VM, error) {
	vm, err := c.placed(name)
	if err != nil {
		return agent.VMForecast{}, Need{}, vm, err
	}
	var need Need
	s := c.o.State.Snapshot()
	meta, _ := s.Meta()
	vc, _ := s.VC(vm.VC)
	aggressiveness := meta.Settings.Rightsizing.AggressivenessOf(&vc)
	if g, ok := vc.GroupOf(vm); ok && resource == agent.ResourceMemory {
		need.Declared = float64(g.Memory)
	} else if ok {
		need.Declared = g.CPU
	}
	ctx, cancel := context.WithTimeout(ctx, historyTime)
	defer cancel()
	asked := steps
	if steps >= 1 { // else the host refuses it
		asked = max(steps, forecast.Horizon)
	}
	f, err := c.o.Forecast(ctx, vm.Host, vm.ID, resource, asked)
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
		f = agent.VMForecast{Resource: resource, Step: time.Minute}
		f.Reason = "nothing was measured of it yet"
	case err != nil:
		return agent.VMForecast{}, Need{}, vm, &Unreachable{VM: vm.Name, Host: vm.Host, Err: err}
	}
	buffer := rightsizing.CPUBufferFor
	if resource == agent.ResourceMemory {
		buffer = rightsizing.BufferFor
	}
	need.by(f.Ahead, buffer(aggressiveness))
	f.Ahead = f.Ahead[:max(0, min(steps, len(f.Ahead)))]
	return f, need, vm, nil
}

// placed returns the VM of that name or id, which has a host that keeps its history.
func (c *Service) placed(name string) (state.VM, error) {
	s := c.o.State.Snapshot()
	vm, ok := s.VMNamed(name)
	if !ok {
		vm, ok = s.VM(name)
	}
	switch {
	case !ok:
		return vm, fmt.Errorf("VM %s: %w", name, ErrNotFound)
	case vm.Host == "":
		return vm, fmt.Errorf("VM %s is %s and on no host: nothing is measured of it: %w", vm.Name, vm.Phase, ErrConflict)
	case c.o.History == nil:
		return vm, fmt.Errorf("VM %s: this cluster keeps no histories: %w", vm.Name, ErrConflict)
	}
	return vm, nil
}

// HistoryFor returns, to the agent of a host to which a VM has moved, what the VM's earlier hosts of the last hour measured.
// The error is agent.ErrNoHistory if it came from none. After any other error the agent may try again.
func (c *Service) HistoryFor(ctx context.Context, host, id string) ([]byte, error) {
	s := c.o.State.Snapshot()
	vm, ok := s.VM(id)
	switch {
	case !ok || c.o.History == nil:
		return nil, fmt.Errorf("VM %s: %w", id, agent.ErrNoHistory)
	case vm.Host != host && vm.MovingTo == host:
		return nil, fmt.Errorf("VM %s has not arrived on host %s by what its agent reported", id, host)
	case vm.Host != host:
		return nil, fmt.Errorf("VM %s is on host %s: %w", id, vm.Host, agent.ErrNoHistory)
	}
	var from []state.Migration // the last move first
	for _, m := range s.Migrations() {
		if m.VM == id && m.State == state.MigrationDone && m.From != host && c.o.Now().Sub(m.EndedAt) <= agent.HistoryKept {
			from = append(from, m)
		}
	}
	slices.SortFunc(from, func(a, b state.Migration) int { return b.EndedAt.Compare(a.EndedAt) })
	ctx, cancel := context.WithTimeout(ctx, historyTime)
	defer cancel()
	var out *history.History
	var notes history.Notes
	asked := map[string]bool{}
	for i, m := range from {
		if asked[m.From] {
			continue
		}
		asked[m.From] = true
		data, err := c.o.History(ctx, m.From, id)
		var h *history.History
		var n history.Notes
		if err == nil {
			h, n, err = history.Decode(data)
		}
		switch {
		case errors.Is(err, hypervisor.ErrNotFound):
		case err != nil && i == 0:
			return nil, fmt.Errorf("history of VM %s from host %s: %w", id, m.From, err)
		case err != nil: // the host after it has asked for it, too
			c.log.Debug("history of a VM from a host that it was on before", "vm", id, "host", m.From, "error", err)
		case out == nil:
			out, notes = h, n
		default:
			out = history.Merge(out, h)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("VM %s: %w", id, agent.ErrNoHistory)
	}
	return history.Encode(out, notes), nil
}

// historyTime bounds how long the leader waits for a host's answer.
const historyTime = 10 * time.Second
