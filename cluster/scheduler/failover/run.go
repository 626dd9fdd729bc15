package failover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
)

// ErrEnded says that the term of a Runner is over. Whatever it was asked for has not been done.
var ErrEnded = errors.New("the term in which this was asked for is over")

// Fence turns a host's power off by its fence device.
type Fence interface {
	// Has says whether there is a device for the host.
	Has(host string) bool
	// Test asks the device whether the host's power is on, and returns the answer as a text.
	Test(ctx context.Context, host string) (string, error)
	// Off turns the power off and returns what proves it, once the device confirms that it is off.
	Off(ctx context.Context, host string) (string, error)
}

// Options of a Runner: what the leader gives it.
type Options struct {
	Lease    time.Duration        // of a host to run restartable VMs
	Clock    func() lease.Instant // neither jumps nor stops while the machine sleeps
	Now      func() time.Time
	Log      *slog.Logger
	Snapshot func() *state.Snapshot
	Leads    func() bool
	// Propose takes a command into the log and returns its outcome.
	Propose func(ctx context.Context, kind state.Kind, body any) error
	// Unknown says whether an error of Propose leaves open what the outcome is.
	Unknown func(error) bool
	// Fence turns hosts off; nil: there are no devices.
	Fence Fence
	// Report is what the host's agent last reported in this term; false: nothing.
	Report func(host string) (HostReport, bool)
	// Changed is called when other hosts than before are unavailable or awaited.
	Changed func()
}

// Runner knows in one term of a leader which hosts renew their leases, and sees to those that do not. The next term has its
// own: once End was called, this one grants nothing and records nothing. Safe for concurrent use, except for Run.
type Runner struct {
	o     Options
	began lease.Instant // the term

	// mu protects the rest up to the blank line. A verdict on a lease, and what is granted by it, must be one step.
	mu      sync.Mutex
	ended   bool
	leases  *lease.Table
	devices map[string]*deviceUse // that are at work, or were in vain

	// Of Run's goroutine alone.
	arrivals arrivals
	reported map[string]string // by host: why nothing proves that it is dead, as last reported
	noted    string            // the hosts that were unavailable or awaited
}

// deviceUse is what is known of the use of one fence device.
type deviceUse struct {
	busy    bool
	since   time.Time // busy
	failure string    // why it was in vain
	next    time.Time
}

// New begins a term: each lease counts as renewed now.
func New(o Options) *Runner {
	now := o.Clock()
	return &Runner{o: o, began: now, leases: lease.NewTable(o.Lease, now), devices: map[string]*deviceUse{}, arrivals: arrivals{}, reported: map[string]string{}}
}

// End ends the term. What this runner granted was granted before End returns, so that a term which begins afterwards counts it
// as renewed at its own beginning.
func (r *Runner) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// Renewed takes in a renewal that is about to be answered: with an error it must not be.
func (r *Runner) Renewed(host string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return ErrEnded
	}
	if !r.leases.Renewed(host, r.o.Clock()) {
		return fmt.Errorf("that it was lost is being recorded: %w", state.ErrConflict)
	}
	delete(r.devices, host)
	return nil
}

// Standing returns what a host may be permitted now.
func (r *Runner) Standing(host string) (Standing, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return Standing{}, ErrEnded
	}
	return Standing{Leased: r.leases.Leased(host, r.o.Clock()), LossPending: r.leases.LossPending(host)}, nil
}

// Heard says whether a host renewed in this term, and how long ago it last did, or how long ago the term began.
func (r *Runner) Heard(host string) (ago time.Duration, inTerm bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases.Heard(host, r.o.Clock())
}

// Judge returns the verdict on a host's lease by the renewals of this term.
func (r *Runner) Judge(h state.Host, m state.Meta) lease.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases.Judge(h.Name, enforcementOf(h), !m.FencingDisabled, r.o.Clock())
}

func (r *Runner) whyUnavailable(h *state.Host) string {
	report, reported := r.o.Report(h.Name)
	var last renewal
	last.ago, last.inTerm = r.Heard(h.Name)
	return whyUnavailable(h, report, reported, last, r.o.Lease)
}

// Unavailable returns the hosts for which nothing may be decided now, and why.
func (r *Runner) Unavailable(s *state.Snapshot) map[string]string {
	out := map[string]string{}
	s.EachHost(func(h *state.Host) bool {
		if why := r.whyUnavailable(h); why != "" {
			out[h.Name] = why
		}
		return true
	})
	return out
}

// WhyUnavailable returns why nothing may be decided for a host now; "": it may.
func (r *Runner) WhyUnavailable(s *state.Snapshot, host string) string {
	h, ok := s.Host(host)
	if !ok {
		return "is not known"
	}
	return r.whyUnavailable(&h)
}

// Unreported returns the hosts that owe this leader a report, by name.
func (r *Runner) Unreported(s *state.Snapshot) (names []string) {
	s.EachHost(func(h *state.Host) bool {
		if _, reported := r.o.Report(h.Name); owesReport(s, h, reported) {
			names = append(names, h.Name)
		}
		return true
	})
	return names
}

// Awaited returns the unreported hosts for which the leader waits: none once this server has led for a lease.
func (r *Runner) Awaited(s *state.Snapshot) []string {
	if r.o.Clock()-r.began >= r.o.Lease {
		return nil
	}
	return r.Unreported(s)
}

// Run watches for hosts that fell silent, until ctx ends: it records what is proved of them, starts fence devices, and reports
// where nothing can be proved.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(evaluateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !r.o.Leads() {
			continue
		}
		s := r.o.Snapshot()
		unavailable := strings.Join(slices.Sorted(maps.Keys(r.Unavailable(s))), " ")
		if now := unavailable + "; " + strings.Join(r.Awaited(s), " "); now != r.noted {
			r.noted = now
			r.o.Changed()
		}
		for _, h := range s.Hosts() {
			s := r.o.Snapshot() // the hosts before this one may have taken long
			h, there := s.Host(h.Name)
			if !there {
				continue
			}
			if err := r.apply(ctx, s, h.Name, Plan(r.observe(s, h))); err != nil && ctx.Err() == nil && r.o.Leads() {
				r.o.Log.Warn("failover", "host", h.Name, "error", err)
			}
		}
	}
}

// observe returns what decides about a host. What costs is looked at only where the decision needs it.
func (r *Runner) observe(s *state.Snapshot, h state.Host) Observation {
	meta, _ := s.Meta()
	o := Observation{Verdict: r.Judge(h, meta), FencingDisabled: meta.FencingDisabled, Frozen: meta.RecoveryFreeze.On(), Reported: r.reported[h.Name]}
	o.Restartable = !o.Verdict.Leased && runsRestartable(s, h.Name)
	o.Arriving = o.Restartable && o.Verdict.Over && r.arrivals.at(s, h, r.o.Clock())
	o.Device, o.Failure = r.device(h.Name)
	return o
}

// device returns the state of a host's fence device.
func (r *Runner) device(host string) (Device, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	use := r.devices[host]
	switch {
	case r.o.Fence == nil || !r.o.Fence.Has(host):
		return NoDevice, ""
	case use == nil:
		return DeviceIdle, ""
	case use.busy && r.o.Now().Sub(use.since) < fenceHangs:
		return DeviceBusy, use.failure
	case use.busy:
		return DeviceRest, "its fence program has run since " + use.since.UTC().Format(time.RFC3339) + " and does not end"
	case r.o.Now().Before(use.next):
		return DeviceRest, use.failure
	default:
		return DeviceIdle, use.failure
	}
}

// apply carries an action out.
func (r *Runner) apply(ctx context.Context, s *state.Snapshot, host string, a Action) error {
	if r.reported[host] = a.Reported; a.Reported == "" {
		delete(r.reported, host)
	}
	switch a.Step {
	case FenceHost:
		r.fence(ctx, host, s.Index())
	case RecordLoss:
		r.o.Log.Warn("host lost", "host", host, "proof", a.Text)
		return r.hostFailed(ctx, state.HostLost{Host: host, Proof: state.ProofLease, Text: a.Text, Basis: s.Index()})
	case ReportUnproved:
		r.o.Log.Error("nothing proves that the host is dead: its restartable VMs are not started elsewhere", "host", host, "why", a.Text)
		return r.o.Propose(ctx, state.KindAudit, state.Audit{Kind: "host-unproved", Object: "host", Name: host,
			Text: "nothing proves that it is dead, its restartable VMs are not started elsewhere: " + a.Text + "; vcctl host confirm-dead " + host + " if you know"})
	}
	return nil
}

// fence starts a host's fence device, and does not wait for it: a device's program may hang for good where no signal ends it, and
// the next term must begin. What such a program proves after ctx has ended counts for nothing.
func (r *Runner) fence(ctx context.Context, host string, basis uint64) {
	use := &deviceUse{busy: true, since: r.o.Now()}
	r.mu.Lock()
	if old := r.devices[host]; old != nil {
		use.failure = old.failure
	}
	r.devices[host] = use // a renewal forgets it
	r.mu.Unlock()
	go func() {
		proof, err := r.o.Fence.Off(ctx, host)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = r.hostFailed(ctx, state.HostLost{Host: host, Proof: state.ProofFence, Text: proof, Basis: basis})
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		use.busy, use.next, use.failure = false, r.o.Now().Add(fenceRetry), ""
		if err != nil {
			use.failure = err.Error()
			r.o.Log.Error("fence", "host", host, "error", err)
		}
	}()
}

// hostFailed records that a host is lost. If the proof does not hold any more meanwhile, that is no error.
func (r *Runner) hostFailed(ctx context.Context, b state.HostLost) error {
	err := r.RecordLoss(ctx, b)
	if errors.Is(err, state.ErrConflict) {
		return nil // fencing, or the watchdog, was disabled, or the host renewed, since the check
	}
	return err
}

// RecordLoss records the loss of a host. From the last check of the proof until the loss is in the log, the host is granted nothing:
// the proof does not cover what it would start then. A proof from an earlier term counts for nothing: a host that a fence device turned
// off may be on again.
func (r *Runner) RecordLoss(ctx context.Context, b state.HostLost) error {
	if err := r.beginLoss(b); err != nil {
		return err
	}
	// The caller may go away meanwhile, but the outcome of the entry must be known.
	err := r.o.Propose(context.WithoutCancel(ctx), state.KindHostLost, b)
	if err == nil || !r.o.Unknown(err) { // else it is known once another term has begun
		r.mu.Lock()
		r.leases.Recorded(b.Host)
		r.mu.Unlock()
	}
	return err
}

// beginLoss checks the proof for the last time.
func (r *Runner) beginLoss(b state.HostLost) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return ErrEnded
	}
	now, s := r.o.Clock(), r.o.Snapshot()
	h, _ := s.Host(b.Host)
	m, _ := s.Meta()
	ago, renewed := r.leases.Heard(b.Host, now)
	if b.Proof == state.ProofLease && !r.leases.Judge(b.Host, enforcementOf(h), !m.FencingDisabled, now).Over ||
		b.Proof == state.ProofOperator && renewed && ago < r.o.Lease {
		return fmt.Errorf("host %s was heard of again: %w", b.Host, state.ErrConflict)
	}
	r.leases.BeginLoss(b.Host)
	return nil
}
