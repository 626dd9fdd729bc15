package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
)

// DefaultLease is how long a host may run restartable VMs without a renewal by the leader.
const DefaultLease = 20 * time.Second

// Renew implements agent.Leader. It answers after a check of this server's leadership that began after the
// request arrived, and after the log has what the renewal says of how the host enforces its lease.
func (c *Control) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	began := c.termNow()
	c.counters.renewed(r, c.o.Clock())
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
	c.mu.Lock()
	if !c.leases.Renewed(r.Host, c.o.Clock()) {
		c.mu.Unlock()
		return agent.Grant{}, fmt.Errorf("renew the lease of host %s: that it was lost is being recorded: %w", r.Host, ErrConflict)
	}
	delete(c.fencing, r.Host)
	term := c.term
	c.mu.Unlock()
	w := c.desired.to(c.o.State, r.Host, began) // its index: the agent would refuse its own desired state under a higher one
	g := agent.Grant{Epoch: w.desired.Epoch, Term: term, Index: w.desired.Index, Lease: c.o.Lease, Enforce: !meta.FencingDisabled}
	if c.o.Servers != nil {
		g.Servers = c.o.Servers()
	}
	return g, nil
}

// Readmit returns the state with which the agent of a host begins that was admitted again, by an entry of this term's log, in
// the same run of its machine; false: there is none. Nothing is decided for the host until its agent has reported. The lease
// counts from before the entry, which ended whatever the renewals before it could have proved.
func (c *Control) Readmit(host string, machine state.Machine) (agent.Beginning, bool) {
	s := c.o.State.Snapshot()
	h, known := s.Host(host)
	if !known || !h.RunsOn(machine) {
		return agent.Beginning{}, false
	}
	meta, _ := s.Meta()
	b := agent.Beginning{Enforce: !meta.FencingDisabled}
	c.mu.Lock()
	delete(c.live, host)
	if h.Lost.Proof == "" && c.leases.Renewed(host, c.o.Clock()) {
		b.Lease = c.o.Lease
	}
	term := c.term
	c.mu.Unlock()
	for _, vm := range s.VMsOn(host) {
		if vm.MovingTo == "" {
			continue
		}
		if b.Sending == nil {
			b.Sending = map[string]agent.Sending{}
		}
		m, _ := s.MigrationOf(vm.ID)
		b.Sending[vm.ID] = agent.Sending{Open: vm.Move, MaxBytes: max(0, m.MaxBytes), Kept: true} // it may have run there since
	}
	w := c.desired.to(c.o.State, host, term)
	b.Epoch, b.Index = w.desired.Epoch, w.desired.Index
	c.wakeLoop()
	return b, true
}

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
		why := state.LeftoverStays(vm, known, q.Host, i.Generation, i.Leftover && meta.Epoch == 0)
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
		why := state.ResumeRefused(vm, known, q.Host, r.Generation, r.Move)
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
		switch {
		case meta.RecoveryFreeze.On():
			p.Refused = "nothing moves after a " + meta.RecoveryFreeze.Reason + " until every host has said what it runs"
		case !ok || vm.Host != q.Host || vm.Generation != m.Generation || vm.Move != m.Move || vm.Move == 0:
			p.Refused = fmt.Sprintf("move %d of VM %s from %s is not open", m.Move, m.VM, q.Host)
		case slices.Contains(c.awaited(s), vm.MovingTo): // a refusal would end the move
			return c.allReported(s, fmt.Sprintf("move of VM %s to host %s", vm.Name, vm.MovingTo))
		case c.isUnavailable(s, vm.MovingTo):
			p.Refused = "target host " + vm.MovingTo + " does not answer"
		default:
			body.VMs = append(body.VMs, state.VMStatus{VM: m.VM, Generation: m.Generation, Move: m.Move, Permit: true})
			asked[m] = vm.Permit
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
		vm, ok := s.VM(m.VM)
		before, is := asked[m]
		switch {
		case !is:
		case !ok || vm.Move != m.Move || vm.Permit <= before:
			p.Refused = fmt.Sprintf("move %d of VM %s from %s is not to be begun", m.Move, m.VM, q.Host)
		default:
			p.Moves = append(p.Moves, m)
		}
	}
	return nil
}

// judge returns the verdict on a host's lease by the renewals of this term.
func (c *Control) judge(h state.Host, m state.Meta) lease.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases.Judge(h.Name, enforcementOf(h), !m.FencingDisabled, c.o.Clock())
}

func enforcementOf(h state.Host) lease.Enforcement {
	f := h.Fencing
	return lease.Enforcement{Enforcing: f.Enforcing, Watchdog: time.Duration(f.Watchdog) * time.Millisecond, Lease: time.Duration(f.Lease) * time.Millisecond}
}

// unavailable returns the hosts for which nothing may be decided now, and why.
func (c *Control) unavailable(s *state.Snapshot) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	now := c.o.Clock()
	s.EachHost(func(h *state.Host) bool {
		if why := c.unavailableLocked(h, now); why != "" {
			out[h.Name] = why
		}
		return true
	})
	return out
}

// isUnavailable says whether unavailable has the host.
func (c *Control) isUnavailable(s *state.Snapshot, host string) bool {
	h, ok := s.Host(host)
	c.mu.Lock()
	defer c.mu.Unlock()
	return !ok || c.unavailableLocked(&h, c.o.Clock()) != ""
}

func (c *Control) unavailableLocked(h *state.Host, now lease.Instant) string {
	live, reported := c.live[h.Name]
	ago, renewed := c.leases.Heard(h.Name, now)
	switch {
	case h.Lost.Proof != "":
		return "is lost: " + h.Lost.Text
	case !reported:
		return "has not reported since this server leads"
	case !live.Reach:
		return "has a hypervisor that does not answer: " + live.Error
	case renewed && ago >= c.o.Lease:
		return fmt.Sprintf("has not been heard of for %s", ago.Round(time.Second))
	}
	return ""
}

// guardEvery is how often silent hosts are checked.
const guardEvery = time.Second

// fencing is the fencing of one host by its device.
type fencing struct {
	busy bool
	said string // why it was in vain
	next time.Time
}

// fenceAgain is how long after a device did not confirm it is tried again.
const fenceAgain = 30 * time.Second

// Guard watches for hosts that fell silent, until ctx ends: it records what is proved of them, starts fence devices, and
// reports where nothing can be proved.
func (c *Control) Guard(ctx context.Context) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	said := map[string]string{}
	out := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.o.Log.Leads() {
			continue
		}
		s := c.o.State.Snapshot()
		if now := c.unavailableNames(s) + "; " + strings.Join(c.awaited(s), " "); now != out {
			out = now
			c.wakeLoop()
		}
		for _, h := range s.Hosts() {
			s := c.o.State.Snapshot() // the hosts before this one may have taken long
			h, there := s.Host(h.Name)
			if !there {
				continue
			}
			if err := c.guard(ctx, s, h, said); err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoLeader) {
				c.log.Warn("guard", "host", h.Name, "error", err)
			}
		}
	}
}

func (c *Control) guard(ctx context.Context, s *state.Snapshot, h state.Host, said map[string]string) error {
	meta, _ := s.Meta()
	v := c.judge(h, meta)
	if v.Leased || !runsRestartable(s, h.Name) { // in this order: the second looks at all VMs of the host
		delete(said, h.Name)
		return nil
	}
	switch {
	case v.Over:
		delete(said, h.Name)
		if c.arriving(s, h) {
			return nil
		}
		c.log.Warn("host lost", "host", h.Name, "proof", v.Text)
		return c.hostFailed(ctx, h.Name, s.Index(), state.ProofLease, v.Text)
	case v.In >= 0: // the watchdog will reset the host
		return nil
	case meta.FencingDisabled, meta.RecoveryFreeze.On(): // a host is not turned off either during a recovery freeze, or while fencing is disabled
	case c.o.Fence != nil && c.o.Fence.Has(h.Name):
		c.fence(ctx, h.Name, s.Index())
	}
	var f fencing
	c.mu.Lock()
	if at := c.fencing[h.Name]; at != nil {
		f = *at
	}
	c.mu.Unlock()
	text := v.Text
	if f.said != "" {
		text += "; " + f.said
	}
	if said[h.Name] == text || f.busy {
		return nil
	}
	said[h.Name] = text
	c.log.Error("nothing proves that the host is dead: its restartable VMs are not started elsewhere", "host", h.Name, "why", text)
	return c.propose(ctx, state.KindAudit, state.Audit{Kind: "host-unproved", Object: "host", Name: h.Name,
		Text: "nothing proves that it is dead, its restartable VMs are not started elsewhere: " + text + "; vcctl host confirm-dead " + h.Name + " if you know"})
}

// arriving says whether a restartable VM may have come to the host, by migration, after its lease had ended, so that the
// watchdog may not have reset the host since. A VM cannot come any more once it is proved gone from its source.
func (c *Control) arriving(s *state.Snapshot, h state.Host) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wait := c.o.Clock(), lease.Stopped(time.Duration(h.Fencing.Watchdog)*time.Millisecond)
	coming := false
	for _, vm := range s.VMsMovingTo(h.Name) {
		if vm.SourceLost == "" {
			continue
		}
		since, known := c.sourceLost[vm.ID]
		if !known || since.index != vm.ModifyIndex {
			since = lostSince{vm.ModifyIndex, now}
			c.sourceLost[vm.ID] = since
		}
		coming = coming || now-since.at < wait
	}
	return coming
}

// lostSince is when this server first observed, in this term, that a VM was proved gone from the source of its move.
type lostSince struct {
	index uint64
	at    lease.Instant
}

// hostFailed proposes that the host is lost. If the proof does not hold any more meanwhile, that is no error.
func (c *Control) hostFailed(ctx context.Context, host string, basis uint64, proof state.Proof, text string) error {
	err := c.proposeLoss(ctx, state.HostLost{Host: host, Proof: proof, Text: text, Basis: basis})
	if errors.Is(err, state.ErrConflict) {
		return nil // fencing, or the watchdog, was disabled, or the host renewed, since the check
	}
	return err
}

// proposeLoss proposes the loss of a host. From the last check of the proof until it is in the log the host is granted nothing:
// the proof does not cover what it would start then.
func (c *Control) proposeLoss(ctx context.Context, b state.HostLost) error {
	c.mu.Lock()
	leases := c.leases // of this term
	now := c.o.Clock()
	s := c.o.State.Snapshot()
	h, _ := s.Host(b.Host)
	m, _ := s.Meta()
	ago, renewed := leases.Heard(b.Host, now)
	again := b.Proof == state.ProofLease && !leases.Judge(b.Host, enforcementOf(h), !m.FencingDisabled, now).Over ||
		b.Proof == state.ProofOperator && renewed && ago < c.o.Lease
	if !again {
		leases.BeginLoss(b.Host)
	}
	c.mu.Unlock()
	if again {
		return fmt.Errorf("host %s was heard of again: %w", b.Host, ErrConflict)
	}
	// The caller may go away meanwhile, but the outcome of the entry must be known.
	err := c.propose(context.WithoutCancel(ctx), state.KindHostLost, b)
	if !errors.Is(err, ErrTimeout) { // else it is known once another term has begun
		c.mu.Lock()
		leases.Recorded(b.Host)
		c.mu.Unlock()
	}
	return err
}

func runsRestartable(s *state.Snapshot, host string) (runs bool) {
	s.EachVMOn(host, func(vm *state.VM) bool {
		if vm.ConsumesResources() && vm.SourceLost != host {
			vc, _ := s.VC(vm.VC)
			runs = vc.Restartable()
		}
		return !runs
	})
	return runs
}

// fence starts the host's fence device, unless it is at work.
func (c *Control) fence(ctx context.Context, host string, basis uint64) {
	c.mu.Lock()
	f := c.fencing[host]
	if f == nil {
		f = &fencing{}
		c.fencing[host] = f
	}
	busy := f.busy || c.o.Now().Before(f.next)
	if !busy {
		f.busy = true
	}
	term := c.term
	c.mu.Unlock()
	if busy {
		return
	}
	go func() {
		proof, err := c.off(ctx, host)
		if err == nil && c.termNow() != term { // the power may be on again since
			err = ErrNoLeader
		}
		if err == nil {
			err = c.hostFailed(ctx, host, basis, state.ProofFence, proof)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		f.busy, f.next, f.said = false, c.o.Now().Add(fenceAgain), ""
		if err != nil {
			f.said = err.Error()
			c.log.Error("fence", "host", host, "error", err)
		}
	}()
}
