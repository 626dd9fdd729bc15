package failover_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/state"
)

// A runner whose term is over grants no lease and no permit, and records no loss: neither a leader nor a host may act for the
// next term by what the last one knew.
func TestEndedTermGrantsNothing(t *testing.T) {
	now, proposed := lease.Instant(0), 0
	store := state.New()
	r := failover.New(failover.Options{Lease: failover.DefaultLease, Clock: func() lease.Instant { return now }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Snapshot: store.Snapshot, Leads: func() bool { return true },
		Propose: func(context.Context, state.Kind, any) error { proposed++; return nil }, Unknown: func(error) bool { return false },
		Report: func(string) (failover.HostReport, bool) { return failover.HostReport{}, false }, Changed: func() {}})
	loss := state.HostLost{Host: "h1", Proof: state.ProofFence, Text: "off"}
	if err := r.Renewed("h1"); err != nil {
		t.Fatal(err)
	}
	if at, err := r.Standing("h1"); err != nil || !at.Leased || at.LossPending {
		t.Errorf("standing %+v, %v", at, err)
	}
	if err := r.RecordLoss(t.Context(), loss); err != nil || proposed != 1 {
		t.Errorf("%d losses proposed, %v", proposed, err)
	}
	r.End()
	if err := r.Renewed("h1"); !errors.Is(err, failover.ErrEnded) {
		t.Errorf("renewal after the end of the term: %v", err)
	}
	if _, err := r.Standing("h1"); !errors.Is(err, failover.ErrEnded) {
		t.Errorf("permits after the end of the term: %v", err)
	}
	if err := r.RecordLoss(t.Context(), loss); !errors.Is(err, failover.ErrEnded) || proposed != 1 {
		t.Errorf("loss after the end of the term: %v, %d proposed", err, proposed)
	}
}

// Until the outcome of a loss is known, and where it never is, the host is granted nothing.
func TestLossPending(t *testing.T) {
	unknown := errors.New("timed out")
	for _, c := range []struct {
		name    string
		outcome error
		pending bool
	}{{"recorded", nil, false}, {"refused", state.ErrConflict, false}, {"not known", unknown, true}} {
		t.Run(c.name, func(t *testing.T) {
			store := state.New()
			var r *failover.Runner
			meanwhile := false
			r = failover.New(failover.Options{Lease: failover.DefaultLease, Clock: func() lease.Instant { return 0 }, Log: slog.New(slog.DiscardHandler), Snapshot: store.Snapshot,
				Propose: func(context.Context, state.Kind, any) error {
					at, _ := r.Standing("h1")
					meanwhile = at.LossPending && !at.Leased && errors.Is(r.Renewed("h1"), state.ErrConflict)
					return c.outcome
				},
				Unknown: func(err error) bool { return errors.Is(err, unknown) }})
			err := r.RecordLoss(t.Context(), state.HostLost{Host: "h1", Proof: state.ProofFence})
			if at, _ := r.Standing("h1"); !errors.Is(err, c.outcome) || !meanwhile || at.LossPending != c.pending || at.Leased == c.pending {
				t.Errorf("%v; granted nothing meanwhile: %v; afterwards %+v", err, meanwhile, at)
			}
		})
	}
}
