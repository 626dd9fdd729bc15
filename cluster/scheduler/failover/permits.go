package failover

import (
	"fmt"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
)

// Standing is what a host may be permitted by its lease. It must be read before the state: a host that had its lease then is
// not proved lost before it had to stop what it starts now.
type Standing struct {
	Leased      bool // it may begin restartable VMs
	LossPending bool // its loss is on its way into the log: it may begin nothing
}

// frozen says of what the recovery freeze bars that it is barred; "" while there is none.
func frozen(m state.Meta, what string) string {
	if !m.RecoveryFreeze.On() {
		return ""
	}
	return what + " after a " + m.RecoveryFreeze.Reason + " until every host has said what it runs"
}

// Permits answers what a host asks to start, to clear away and to resume, into p.
func Permits(s *state.Snapshot, q agent.PermitRequest, at Standing, p *agent.Permit) {
	meta, _ := s.Meta()
	h, _ := s.Host(q.Host)
	// unproved says why the host must not begin to run a VM, by what is known of the host.
	unproved := func(vm state.VM) string {
		vc, _ := s.VC(vm.VC)
		switch {
		case h.Lost.Proof != "":
			return "host " + q.Host + " is lost: " + h.Lost.Text
		case at.LossPending:
			return "that host " + q.Host + " was lost is being recorded"
		case vc.Restartable() && !at.Leased:
			return "host " + q.Host + " holds no lease for restartable VMs"
		}
		return ""
	}
	for _, i := range q.Starts {
		vm, ok := s.VM(i.VM)
		why := frozen(meta, "nothing is started")
		if why == "" && (!ok || vm.Host != q.Host || vm.Generation != i.Generation || vm.Phase != state.Starting || vm.Goal != state.GoalRun) {
			why = fmt.Sprintf("generation %d of VM %s is not to be started on %s", i.Generation, i.VM, q.Host)
		}
		if why == "" {
			why = unproved(vm)
		}
		if why != "" {
			p.Refused = why
			continue
		}
		p.Granted = append(p.Granted, i)
	}
	for _, i := range q.Leftovers {
		vm, known := s.VM(i.VM)
		m, _ := s.MigrationOf(i.VM)
		why := frozen(meta, "nothing is destroyed")
		if why == "" {
			why = state.LeftoverStays(vm, m, known, q.Host, i.Generation, i.Leftover && meta.Epoch == 0)
		}
		if why != "" {
			p.Refused = why
			continue
		}
		p.Leftovers = append(p.Leftovers, i)
	}
	for _, r := range q.Resumes {
		vm, known := s.VM(r.VM)
		m, _ := s.MigrationOf(r.VM)
		why := frozen(meta, "nothing goes on")
		if why == "" {
			why = state.ResumeRefused(vm, m, known, q.Host, r.Generation, r.Move)
		}
		if why == "" {
			why = unproved(vm)
		}
		if why != "" {
			p.Refused = why
			continue
		}
		p.Resumes = append(p.Resumes, r)
	}
}

// Handovers answers what VMs a host asks to hand over, as far as the state decides it: open are the moves whose permits are to
// go into the log. Whether their targets answer is the caller's to check.
func Handovers(s *state.Snapshot, q agent.PermitRequest, p *agent.Permit) (open []agent.Handover) {
	meta, _ := s.Meta()
	for _, m := range q.Moves {
		vm, ok := s.VM(m.VM)
		running, _ := s.MigrationOf(m.VM)
		switch {
		case meta.RecoveryFreeze.On():
			p.Refused = frozen(meta, "nothing moves")
		case !ok || vm.Host != q.Host || vm.Generation != m.Generation || running.Open != m.Move || m.Move == 0:
			p.Refused = fmt.Sprintf("move %d of VM %s from %s is not open", m.Move, m.VM, q.Host)
		default:
			open = append(open, m)
		}
	}
	return open
}
