package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
)

// guardEvery is how often silent hosts are checked.
const guardEvery = time.Second

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
		m, _ := s.MigrationOf(vm.ID)
		if m.SourceLost == 0 {
			continue
		}
		since, known := c.sourceLost[vm.ID]
		if !known || since.index != m.SourceLostSince() {
			since = lostSince{m.SourceLostSince(), now}
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
		if vm.ConsumesResources() && (vm.Host != host || !s.SourceLost(vm)) {
			vc, _ := s.VC(vm.VC)
			runs = vc.Restartable()
		}
		return !runs
	})
	return runs
}
