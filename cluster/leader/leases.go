package leader

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/state"
)

// DefaultLease is how long a host may run restartable VMs without a renewal by the leader.
const DefaultLease = failover.DefaultLease

// Renew implements agent.Leader. It answers after a check of this server's leadership that began after the
// request arrived, and after the log has what the renewal says of how the host enforces its lease.
func (c *Service) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	t := c.current.Load()
	t.clocks.renewed(r, c.o.Clock())
	if err := c.o.Log.Linearize(ctx); err != nil {
		return agent.Grant{}, fmt.Errorf("renew the lease of host %s: %w: %w", r.Host, ErrNoLeader, err)
	}
	s := c.o.State.Snapshot()
	h, known := s.Host(r.Host)
	if !known {
		return agent.Grant{}, fmt.Errorf("renew the lease of host %s: it has not reported yet: %w", r.Host, ErrNotFound)
	}
	now := state.Fencing{Enforcing: r.Enforcing, Watchdog: r.Watchdog.Milliseconds(), Lease: c.o.Lease.Milliseconds()}
	if left := r.Left.Milliseconds() + 1; left > now.Lease { // it has one of a server with longer leases
		now.Lease = max(left, h.Fencing.Lease)
	}
	said := state.HostFencing{Host: r.Host, Fencing: now}
	if is := (state.Machine{ID: r.Machine, Boot: r.Boot}); r.Machine != "" && r.Boot != "" && is != h.Machine {
		said.Machine = is
	}
	if h.Fencing != now || said.Machine != (state.Machine{}) {
		if err := c.propose(ctx, state.KindFencing, said); err != nil {
			return agent.Grant{}, fmt.Errorf("renew the lease of host %s: %w", r.Host, err)
		}
		s = c.o.State.Snapshot()
	}
	meta, _ := s.Meta()
	switch err := t.failover.Renewed(r.Host); {
	case errors.Is(err, failover.ErrEnded):
		return agent.Grant{}, fmt.Errorf("renew the lease of host %s: %w: %w", r.Host, ErrNoLeader, err)
	case err != nil:
		return agent.Grant{}, fmt.Errorf("renew the lease of host %s: %w", r.Host, err)
	}
	w := t.desired.to(c.o.State, r.Host) // its index: the agent would refuse its own desired state under a higher one
	g := agent.Grant{Epoch: w.desired.Epoch, Term: t.number, Index: w.desired.Index, Lease: c.o.Lease, Enforce: !meta.FencingDisabled}
	if c.o.Servers != nil {
		g.Servers = c.o.Servers()
	}
	return g, nil
}

// Readmit returns the state with which the agent of a host begins, after an entry of this term's log admitted the host again in the
// same run of its machine; false: it did not. Nothing is decided for the host until its agent has reported. The lease counts from
// before that entry, which voids what earlier renewals could have proved.
func (c *Service) Readmit(host string, machine state.Machine) (agent.Beginning, bool) {
	t := c.current.Load()
	s := c.o.State.Snapshot()
	h, known := s.Host(host)
	if !known || !h.RunsOn(machine) {
		return agent.Beginning{}, false
	}
	meta, _ := s.Meta()
	b := agent.Beginning{Enforce: !meta.FencingDisabled}
	t.reports.forget(host)
	if h.Lost.Proof == "" && t.failover.Renewed(host) == nil {
		b.Lease = c.o.Lease
	}
	for _, vm := range s.VMsOn(host) {
		if vm.MovingTo == "" {
			continue
		}
		if b.Sending == nil {
			b.Sending = map[string]agent.Sending{}
		}
		m, _ := s.MigrationOf(vm.ID)
		b.Sending[vm.ID] = agent.Sending{Open: m.Open, MaxBytes: max(0, m.MaxBytes), Kept: true} // it may have run there since
	}
	w := t.desired.to(c.o.State, host)
	b.Epoch, b.Index = w.desired.Epoch, w.desired.Index
	c.wakeLoop()
	return b, true
}
