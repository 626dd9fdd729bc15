package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"evenkeel/cluster/audit"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/state"
)

// askedBy names the caller, for the end of an event's text: nothing if the caller is not known.
func askedBy(ctx context.Context) string {
	if a := audit.Of(ctx); a.ID != "" {
		return "; asked for by " + a.String()
	}
	return ""
}

// ConfirmDead records an operator's confirmation that a host is dead: its VMs are lost, the restartable ones start elsewhere. A
// host that still reports is not dead.
func (c *Service) ConfirmDead(ctx context.Context, host, by, reason string, dryRun bool) error {
	if err := checkReason("reason", reason); err != nil {
		return err
	}
	if err := c.o.Log.Linearize(ctx); err != nil {
		return fmt.Errorf("confirm that host %s is dead: %w: %w", host, ErrNoLeader, err)
	}
	s := c.o.State.Snapshot()
	if _, ok := s.Host(host); !ok {
		return fmt.Errorf("host %s: %w", host, ErrNotFound)
	}
	f := c.current.Load().failover
	ago, renewed := f.Heard(host)
	switch {
	case ago < c.o.Lease && renewed:
		return fmt.Errorf("host %s is not dead: its agent was heard of %s ago; turn it off first: %w", host, ago.Round(time.Second), ErrConflict)
	case ago < c.o.Lease:
		return fmt.Errorf("host %s may be heard of yet: this server leads since %s only; try again after %s: %w", host, ago.Round(time.Second), c.o.Lease, ErrConflict)
	}
	if dryRun {
		return nil
	}
	text := by + " confirmed that it is dead"
	if reason != "" {
		text += ": " + reason
	}
	if err := recordLoss(ctx, f, state.HostLost{Host: host, Proof: state.ProofOperator, Text: text, Basis: s.Index()}); err != nil {
		return fmt.Errorf("confirm that host %s is dead: %w", host, err)
	}
	return nil
}

// recordLoss records a loss that an operator's request proves, in the term in which the proof began.
func recordLoss(ctx context.Context, f *failover.Runner, b state.HostLost) error {
	err := f.RecordLoss(ctx, b)
	if errors.Is(err, failover.ErrEnded) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return err
}

// FenceHost tries the host's fence device (test), or turns the host off with it.
func (c *Service) FenceHost(ctx context.Context, host string, test bool) (string, error) {
	if _, ok := c.o.State.Snapshot().Host(host); !ok {
		return "", fmt.Errorf("host %s: %w", host, ErrNotFound)
	}
	if c.o.Fence == nil || !c.o.Fence.Has(host) {
		return "", fmt.Errorf("host %s has no fence device; servers name them in their configuration under fence: %w", host, ErrNotFound)
	}
	if test {
		said, err := c.o.Fence.Test(ctx, host)
		if err != nil {
			return "", fmt.Errorf("test the fence device of host %s: %w", host, err)
		}
		return said, c.propose(ctx, state.KindAudit, state.Audit{Kind: "fence-tested", Object: "host", Name: host, Text: said + askedBy(ctx)})
	}
	f, basis := c.current.Load().failover, c.o.State.Snapshot().Index()
	proof, err := countedFence{c.o.Fence, &c.fenced}.Off(ctx, host)
	if err != nil {
		return "", fmt.Errorf("fence host %s: %w", host, err)
	}
	return proof, recordLoss(ctx, f, state.HostLost{Host: host, Proof: state.ProofFence, Text: proof + askedBy(ctx), Basis: basis})
}

// SetFencing enables or disables fencing: whether a host stops VMs when its lease runs out. Operators disable it for work on the network.
func (c *Service) SetFencing(ctx context.Context, enable bool, reason string) error {
	if err := checkReason("reason", reason); err != nil {
		return err
	}
	return c.propose(ctx, state.KindSetFencing, state.SetFencing{FencingDisabled: !enable, Reason: reason})
}

// Audit records an event of the cluster's own: a connection refused, a certificate issued.
func (c *Service) Audit(ctx context.Context, kind, object, name, text string) error {
	return c.propose(ctx, state.KindAudit, state.Audit{Kind: kind, Object: object, Name: name, Text: text})
}

// Propose proposes a command of those that only change the cluster's own tables: members, tokens, certificates. It returns the
// outcome of applying it.
func (c *Service) Propose(ctx context.Context, kind state.Kind, body any) error {
	switch kind {
	case state.KindMemberPut, state.KindMemberDrop, state.KindTokenPut, state.KindJoin, state.KindCertificate, state.KindAdminToken, state.KindMove:
		return c.propose(ctx, kind, body)
	}
	return fmt.Errorf("a %s is not proposed from outside", kind)
}
