package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/hypervisor"
)

// Starts are under way beside the rounds: a start that takes long, or hangs, delays neither the shares of other VMs nor the
// reports. A start that has not ended may yet bring its VM up. Until it has ended, the agent does nothing, and reports nothing,
// that takes for granted that the VM does not run.

// starting is a start under way.
type starting struct {
	spec hypervisor.Spec
	done chan struct{} // closed when it has ended
	err  error         // set before
}

// Starting says of a VM why its start has not ended, in a text that stays the same.
type Starting struct {
	Why  string
	Hung bool // a call of the hypervisor that is about it had its time and has no answer
}

// Hang is a call of the hypervisor that had its time and has not returned.
type Hang struct {
	Call   string        // with its object
	VM     string        `json:",omitempty"` // id
	Waited time.Duration // when it was first reported
}

// begin begins the start of VMs that are permitted, and waits for them for a moment. It returns those that have ended.
func (r *runner) begin(ctx context.Context, specs []hypervisor.Spec) []*starting {
	begun, at := make([]*starting, len(specs)), time.Now()
	for i, spec := range specs {
		s := &starting{spec: spec, done: make(chan struct{})}
		begun[i], r.starts[spec.Identity.VM] = s, s
		r.beside.Go(func() {
			r.log.Info("start VM", "vm", spec.Label(), "generation", spec.Generation)
			r.Recorder.starts(spec.Identity.VM, spec.Generation)
			s.err = r.Hypervisor.Define(ctx, spec)
			if s.err == nil && spec.Leased && !r.lease.leased() { // it took long
				s.err = fmt.Errorf("the host's lease is over: %w", hypervisor.ErrUnavailable)
			}
			if s.err == nil {
				s.err = r.Hypervisor.Start(ctx, spec)
			}
			r.awaitHung(ctx, spec.Identity.VM)
			if spec.Leased {
				r.lease.started(1)
			}
			close(s.done)
			if time.Since(at) >= startPatience { // else the round has waited for it
				r.wake()
			}
		})
	}
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for _, s := range begun {
		select {
		case <-s.done:
		case <-patience.C:
			return slices.DeleteFunc(begun, func(s *starting) bool { return !s.over() })
		}
	}
	return begun
}

// awaitHung waits until no call about the VM hangs: one that was given up may yet start it.
func (r *runner) awaitHung(ctx context.Context, id string) {
	for hung := false; slices.ContainsFunc(hypervisor.HangingOf(r.Hypervisor), func(h hypervisor.Hung) bool { return h.VM == id }); hung = true {
		if !hung {
			r.wake() // so that it is reported
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hungEvery):
		}
	}
}

func (s *starting) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// takeStart takes in how a start ended.
func (r *runner) takeStart(ctx context.Context, s *starting) error {
	id := s.spec.Identity.VM
	delete(r.starts, id)
	if s.err == nil {
		r.shares[id] = s.spec.CPU.Cap
		return nil
	}
	a := r.attempts[id]
	if a.generation != s.spec.Generation {
		a = attempt{generation: s.spec.Generation}
	}
	switch {
	case errors.Is(s.err, hypervisor.ErrUnavailable) || ctx.Err() != nil:
		// the failure says nothing of the VM
	case errors.Is(s.err, hypervisor.ErrInvalid):
		a.final = s.err.Error()
	case errors.Is(s.err, hypervisor.ErrExists):
		if a.n++; a.n >= startAttempts {
			a.final = fmt.Sprintf("its name %s belongs to a VM on the host that the cluster does not know", s.spec.Name)
		}
	default:
		if a.n++; a.n >= startAttempts {
			a.final = fmt.Sprintf("%v (after %d attempts)", s.err, a.n)
		}
	}
	r.attempts[id] = a
	return fmt.Errorf("start VM %s: %w", s.spec.Label(), s.err)
}

// takeStarts takes in the starts that ended since rounds waited for them. Call it before VMs are listed: the list then shows
// the VMs that they started.
func (r *runner) takeStarts(ctx context.Context) {
	for _, s := range r.starts {
		if s.over() {
			r.lateStarts = errors.Join(r.lateStarts, r.takeStart(ctx, s))
		}
	}
}

// notEnded returns the VMs whose start has not ended, by id: it is under way, or a call about the VM hangs.
func (r *runner) notEnded() map[string]Starting {
	out := map[string]Starting{}
	for id := range r.starts {
		out[id] = Starting{Why: "its start is under way"}
	}
	for _, h := range slices.Backward(hypervisor.HangingOf(r.Hypervisor)) {
		if h.VM != "" {
			out[h.VM] = Starting{Why: "the hypervisor of its host does not answer: " + h.Call + " hangs, so that it is not known whether the VM will run", Hung: true}
		}
	}
	return out
}

// unlessHung returns the operations without those that hold back, or report, a VM whose start hangs: all else that can be done
// for the desired state is done without it.
func unlessHung(ops []Operation, starting map[string]Starting) []Operation {
	return slices.DeleteFunc(slices.Clone(ops), func(op Operation) bool {
		switch op := op.(type) {
		case Blocked:
			return starting[op.VM].Hung
		case ReportStatus:
			return op.Status.Phase == PhaseStarting && starting[op.Status.VM].Hung
		}
		return false
	})
}

// hangs returns the calls of the hypervisor that hang, as they are reported.
func (r *runner) hangs() []Hang {
	var out []Hang
	waited := map[hypervisor.Hung]time.Duration{}
	for _, h := range hypervisor.HangingOf(r.Hypervisor) {
		w, reported := r.hung[h]
		if !reported {
			w = time.Since(h.Since).Round(time.Second)
			r.log.Error("the hypervisor does not answer: VMs run on; restart its daemon", "call", h.Call, "vm", h.VM, "waited", w)
		}
		waited[h] = w
		out = append(out, Hang{h.Call, h.VM, w})
	}
	r.hung = waited
	return out
}

// othersStart says why no further VM is started: as many as are started side by side have not ended. Calls that hang must not
// take up all workers of the hypervisor.
func (p Past) othersStart() string {
	var hung []string
	for _, s := range p.Starting {
		if s.Hung {
			hung = append(hung, s.Why)
		}
	}
	if len(hung) == 0 {
		return "other VMs are being started"
	}
	return "other starts hang: " + slices.Min(hung)
}
