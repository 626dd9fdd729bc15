package simulation

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// orderVM has the leader change one VM, as a user. Which one is drawn from those that the order can be for.
func (s *sim) orderVM(verb string) error {
	return s.withLeader(func(ctx context.Context, l *serving) error {
		var of []state.VM
		for _, vm := range l.store.Snapshot().VMs() {
			vc, _ := l.store.Snapshot().VC(vm.VC)
			if stands := vm.Order.StoppedBy != ""; vc.Goal == state.GoalRun && vc.Admitted && stands == (verb == "start") {
				of = append(of, vm)
			}
		}
		if len(of) == 0 {
			return errors.New("there is none")
		}
		s.mu.Lock()
		vm := of[s.rng.IntN(len(of))]
		s.mu.Unlock()
		var err error
		switch verb {
		case "stop":
			_, err = l.ctl.StopVM(ctx, vm.Name, leader.Call{})
		case "start":
			_, err = l.ctl.StartVM(ctx, vm.Name, leader.Call{})
		case "restart":
			_, err = l.ctl.RestartVM(ctx, vm.Name, leader.Call{})
		case "reset":
			_, err = l.ctl.ResetVM(ctx, vm.Name, leader.Call{})
		case "migrate":
			_, err = l.ctl.MigrateVM(ctx, vm.Name, leader.MigrateRequest{}, leader.Call{})
		}
		if err == nil {
			s.count("single VMs: " + verb)
		}
		return err
	})
}

// wasReset notes that a host reset a VM.
func (s *sim) wasReset(id string) {
	s.count("VMs reset")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets[id]++
}

// watchOrders: a VM that was stopped alone runs nowhere, and no VM is reset more often than users asked for.
func (s *sim) watchOrders() {
	snap := s.newest()
	if snap == nil {
		return
	}
	s.mu.Lock()
	made := map[string]int{}
	for id, n := range s.resets {
		made[id] = n
	}
	skip := s.restored || snap.Index() < s.furthest // a server with newer state is down or stalled
	s.mu.Unlock()
	if skip {
		return
	}
	asked := map[string]int{}
	for _, op := range snap.Operations() {
		if op.Kind == "reset" {
			asked[op.VM]++
		}
	}
	for id, n := range made {
		if n > asked[id] {
			s.violate("VM %s was reset %d times, and %d resets were asked for", id, n, asked[id])
		}
	}
	seen := map[string]bool{}
	for _, host := range s.order {
		for _, vm := range s.listed(host) {
			row, known := snap.VM(vm.VM)
			if !known || row.Order.StoppedBy == "" || row.Phase != state.Stopped || row.Generation != vm.Generation {
				continue
			}
			key := fmt.Sprintf("%s/%d", vm.VM, vm.Generation)
			if seen[key] = true; s.up[key] { // twice: what was started a moment ago may be newer than the state of all servers that run
				s.violate("VM %s was stopped alone, and generation %d runs on %s", row.Name, vm.Generation, host)
			}
		}
	}
	s.up = seen
}
