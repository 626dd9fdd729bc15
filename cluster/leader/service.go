package leader

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/node"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Log takes decisions into the replicated log: *node.Node.
type Log interface {
	// Apply applies an entry and returns the state's outcome, or an error if the entry is not known to be in the log.
	Apply(ctx context.Context, entry []byte) (index uint64, outcome, err error)
	// Linearize returns once the local state has all that was acknowledged before.
	Linearize(ctx context.Context) error
	Leads() bool
	Leader() string
}

// Options are the options of the service.
type Options struct {
	State    *state.Store
	Log      Log
	Settings state.Settings // for a cluster that is made again
	Hosts    []string       // that must have reported before the service is ready
	// Console attaches to the console of a VM by its id.
	Console func(ctx context.Context, host, vm string) (io.ReadWriteCloser, error)
	// History gets what a host measured of a VM (its id), as history.Encode makes it; hypervisor.ErrNotFound if that is nothing.
	// nil: no histories are kept.
	History func(ctx context.Context, host, vm string) ([]byte, error)
	// Forecast gets the forecast of what a VM will use of a resource in the given number of minutes; it is set where History
	// is.
	Forecast func(ctx context.Context, host, vm, resource string, steps int) (agent.VMForecast, error)
	// Inspect looks at an image's file before it enters the catalogue, and fills in its sizes.
	Inspect func(img state.Image) (state.Image, error)
	Logger  *slog.Logger
	Now     func() time.Time // default time.Now
	Entropy io.Reader        // for ids; default crypto/rand

	// Lease of a host to run restartable VMs; default 20 s.
	Lease time.Duration
	// Clock neither jumps nor stops while the machine sleeps; default CLOCK_BOOTTIME.
	Clock func() lease.Instant
	// Fence turns hosts off; nil = there are no devices.
	Fence Fence
	// Period between looks at what VMs need: the step of forecasts, by default a minute.
	Period time.Duration
	// Servers that an agent may ask, host:port; nil = this one only.
	Servers func() []string
}

// Fence turns a host's power off by its fence device.
type Fence = failover.Fence

// Service is the leader's service: what outlives terms, and the term. Safe for concurrent use.
type Service struct {
	o   Options
	log *slog.Logger

	// planning has one element while a plan is made. Plans are made one at a time: two at once would only conflict.
	planning chan struct{}
	capacity admission.CapacityIndex // under planning
	inflight inflightPlans

	wake   chan struct{} // wakes the loop
	used   tokenUses
	fenced fenceCounts
	ids    ids

	current atomic.Pointer[term] // in which this server leads, or led last
}

// New makes the service. It answers requests that need no leader; call StartTerm for each term in which its server leads.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Period == 0 {
		o.Period = time.Minute
	}
	if o.Clock == nil {
		o.Clock = lease.Boottime
	}
	c := &Service{o: o, log: o.Logger, wake: make(chan struct{}, 1), planning: make(chan struct{}, 1), ids: newIDs(o.Entropy, o.Now)}
	c.current.Store(c.newTerm(0)) // of a server that has not led: it knows nothing
	return c
}

// StartTerm begins a term in which this server leads: nothing is known of any host, and each lease counts as renewed now.
// It makes the cluster if the state is empty, with that id; "" = a new one.
func (c *Service) StartTerm(ctx context.Context, number uint64, id string) error {
	c.current.Load().failover.End() // before the next term counts each lease as renewed
	c.current.Store(c.newTerm(number))
	s := c.o.State.Snapshot()
	if _, ok := s.Meta(); ok {
		return nil
	}
	if id == "" {
		id = c.ids.next()
	}
	if err := c.propose(ctx, state.KindInit, state.Init{ID: id, Settings: c.o.Settings}); err != nil {
		return fmt.Errorf("make the cluster: %w", err)
	}
	return nil
}

// ids makes ids that ascend.
type ids struct {
	mu      *sync.Mutex // protects entropy, which each id changes
	entropy io.Reader
	now     func() time.Time
}

func newIDs(entropy io.Reader, now func() time.Time) ids {
	return ids{&sync.Mutex{}, ulid.Monotonic(entropy, 0), now}
}

func (i ids) next() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return ulid.MustNew(ulid.Timestamp(i.now()), i.entropy).String()
}

// propose proposes a command and returns its outcome.
func (c *Service) propose(ctx context.Context, kind state.Kind, body any) error {
	entry, err := c.o.State.Snapshot().Encode(kind, c.o.Now(), body)
	if err != nil {
		return err
	}
	_, outcome, err := c.o.Log.Apply(ctx, entry)
	switch {
	case errors.Is(err, node.ErrUnknown): // also of a server that ends: the entry may be in the log
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	case errors.Is(err, node.ErrNotLeader), errors.Is(err, node.ErrClosed):
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return outcome
}

// turn waits until the caller may make a plan, or ctx ends. done ends the turn.
func (c *Service) turn(ctx context.Context) (done func(), err error) {
	select {
	case c.planning <- struct{}{}:
		return sync.OnceFunc(func() { <-c.planning }), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other requests: %w", ctx.Err())
	}
}

// View returns the cluster as it is now; stale: as this server knows it.
func (c *Service) View(ctx context.Context, stale bool) (*View, error) {
	if !stale {
		if err := c.o.Log.Linearize(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoLeader, err)
		}
	}
	t := c.current.Load()
	v := &View{Snapshot: c.o.State.Snapshot(), hosts: map[string]hostLook{}, term: t, now: c.o.Now(), Leader: c.o.Log.Leader()}
	v.availability = sync.OnceValue(t.admissionMargin.reported)
	v.Late = sync.OnceValue(c.Late)
	v.blockers, v.recommendations, v.period = t.drains.Blockers, sync.OnceValue(t.rightsizing.Recommendations), c.o.Period
	v.withMargin = func(env placement.Env) placement.Env { return t.withMargin(v.Snapshot, env) }
	return v, nil
}

// Index is the log index up to which this server has applied the log.
func (c *Service) Index() uint64 { return c.o.State.Snapshot().Index() }

// Await returns once this server has applied the log up to that index.
func (c *Service) Await(ctx context.Context, index uint64) error {
	for {
		s := c.o.State.Snapshot()
		if s.Index() >= index {
			return nil
		}
		select {
		case <-s.Watch():
		case <-ctx.Done():
			return fmt.Errorf("the state of this server is at index %d, not at %d: %w", s.Index(), index, ErrTimeout)
		}
	}
}

// Ready says why the service cannot do its work yet; nil if it can.
func (c *Service) Ready() error {
	if !c.o.Log.Leads() {
		return ErrNoLeader
	}
	t := c.current.Load()
	for _, h := range c.o.Hosts {
		if _, ok := t.reports.of(h); !ok {
			return fmt.Errorf("host %s has not reported yet", h)
		}
	}
	return nil
}

// sameBy stands for the caller in fingerprints: a request that is sent again is the same one, whichever caller sends it, for
// example with a new token. Programs wrote this text before they knew the caller.
const sameBy = "an operator"

// fingerprint identifies a request, so that an idempotency key is not used for two different ones. Validation refuses later
// what JSON cannot say (NaN).
func fingerprint(verb, name string, body any) string {
	raw, err := json.Marshal(body)
	if err != nil {
		raw = []byte(err.Error())
	}
	sum := sha256.Sum256([]byte(verb + "\x00" + name + "\x00" + string(raw)))
	return hex.EncodeToString(sum[:])
}

// decider decides on a request by a snapshot. global: no other plan is in flight. Without global, scoped says that the plan affects
// only the hosts that it lists. If it is not scoped, the decider must be called again with global.
type decider func(s *state.Snapshot, global bool) (a admission.Answer, scoped bool, err error)

// change plans on a snapshot, proposes, and plans again if the state had changed meanwhile. decide must be a function of the
// snapshot, and of the plans in flight.
func (c *Service) change(ctx context.Context, verb, name string, body any, call Call, decide decider) (Result, error) {
	q := request{verb, name, fingerprint(verb, name, body), call}
	if err := c.o.Log.Linearize(ctx); err != nil {
		return Result{}, fmt.Errorf("%s %s: %w: %w", verb, name, ErrNoLeader, err)
	}
	for n := 0; ; n++ {
		r, again, err := c.try(ctx, q, n > 1, decide)
		if !again || n >= tries {
			return r, err
		}
		c.log.Debug("planned on an old state, planning again", "verb", verb, "name", name, "error", err)
	}
}

// request is a call that is planned, and planned again.
type request struct {
	verb, name, print string // print: see fingerprint
	call              Call
}

// try plans once. again: the state had changed meanwhile.
func (c *Service) try(ctx context.Context, q request, global bool, decide decider) (r Result, again bool, err error) {
	planned, err := c.turn(ctx)
	if err != nil {
		return r, false, fmt.Errorf("%s %s: %w: %w", q.verb, q.name, ErrTimeout, err)
	}
	defer planned()
	for {
		if global {
			if err := c.inflight.drained(ctx); err != nil {
				return r, false, fmt.Errorf("%s %s: %w: %w", q.verb, q.name, ErrTimeout, err)
			}
		}
		s := c.o.State.Snapshot()
		if r, done, err := replay(s, q.print, q.call); done || err != nil {
			return r, false, err
		}
		if m, _ := s.Meta(); m.RecoveryFreeze.On() {
			return r, false, fmt.Errorf("%s %s: %w", q.verb, q.name, &FrozenError{Reason: m.RecoveryFreeze.Reason, Pending: m.RecoveryFreeze.Pending})
		}
		a, scoped, err := decide(s, global)
		if err != nil {
			return r, false, err
		}
		if !scoped && !global {
			global = true
			continue
		}
		if a.Unchanged != nil {
			return Result{VC: *a.Unchanged, VMs: s.VMsOf(a.Unchanged.ID), DryRun: q.call.DryRun}, false, nil
		}
		if a.Plan == nil {
			if err := c.current.Load().allReported(s, q.verb+" "+q.name+": it does not fit so far"); err != nil {
				return r, false, err
			}
			return Result{DryRun: q.call.DryRun, Decision: a.Decision}, false, &Refused{Decision: a.Decision}
		}
		if err := s.CheckGrowth(q.verb, a.Plan.VC); err != nil { // a VC that the plan queues counts for the quota of queued VCs
			return r, false, err
		}
		m, _ := s.Meta()
		r = Result{VC: *a.Plan.VC, Decision: a.Decision, Changes: changesOf(s, a.Plan), DryRun: q.call.DryRun, rightsizing: m.Settings.Rightsizing}
		if q.call.DryRun {
			r.VC, r.VMs = c.preview(s, a.Plan)
			return r, false, nil
		}
		a.Plan.Text += askedBy(ctx) // of the event alone
		a.Plan.Operation = &state.Operation{ID: c.ids.next(), Kind: q.verb, VC: a.Plan.VC.ID, Name: a.Plan.VC.Name, At: c.o.Now().UTC()}
		if a.VM != nil {
			aboutVM(&a)
		}
		if q.call.IdempotencyKey != "" {
			a.Plan.Remembered = &state.Remembered{Key: q.call.IdempotencyKey, Fingerprint: q.print, Operation: a.Plan.Operation.ID}
		}
		if !global {
			defer c.inflight.off(a.Plan)()
			planned()
		}
		if err := c.propose(ctx, state.KindPlan, a.Plan); err != nil {
			return Result{}, errors.Is(err, state.ErrConflict), fmt.Errorf("%s %s: %w", q.verb, q.name, err)
		}
		after := c.o.State.Snapshot()
		r.Operation, _ = after.Operation(a.Plan.Operation.ID)
		if vc, ok := after.VC(a.Plan.VC.ID); ok {
			r.VC = vc
		}
		return r, false, nil
	}
}

// replay answers an idempotency key that was used before.
func replay(s *state.Snapshot, print string, call Call) (Result, bool, error) {
	r, ok, err := remembered(s, print, call)
	if !ok || err != nil {
		return Result{}, false, err
	}
	op, _ := s.Operation(r.Operation)
	vc, _ := s.VC(op.VC)
	return Result{Operation: op, VC: vc, Decision: vc.Decision, Replayed: true}, true, nil
}

// remembered returns the stored answer to a request that was carried out before under its idempotency key.
func remembered(s *state.Snapshot, print string, call Call) (state.Remembered, bool, error) {
	r, ok := s.Remembered(call.IdempotencyKey)
	if call.IdempotencyKey == "" || !ok {
		return state.Remembered{}, false, nil
	}
	if r.Fingerprint != print {
		return r, false, &Invalid{Fields: []FieldError{{Field: "Idempotency-Key", Text: "was used for another request; use a new key for each new request"}}}
	}
	return r, true, nil
}

// preview returns the VC of a plan and its VMs, as they would be once the plan is applied.
func (c *Service) preview(s *state.Snapshot, p *state.Plan) (state.VC, []state.VM) {
	vc := *p.VC
	vc.Groups = slices.Clone(vc.Groups)
	if vc.CreatedAt.IsZero() {
		vc.CreatedAt = c.o.Now().UTC()
	}
	for _, a := range p.Allocations {
		for i, g := range vc.Groups {
			if a.VC == vc.ID && a.Group == g.Name {
				vc.Groups[i].Allocation = a.CPU
			}
		}
	}
	vms := slices.Clone(s.VMsOf(vc.ID))
	for _, vm := range p.VMs {
		if at := slices.IndexFunc(vms, func(old state.VM) bool { return old.ID == vm.ID }); at >= 0 {
			vms[at] = vm
		} else {
			vms = append(vms, vm)
		}
	}
	return vc, vms
}

// changesOf returns the changes of a plan, in the order of its rows.
func changesOf(s *state.Snapshot, p *state.Plan) []Change {
	var out []Change
	named := map[string]state.VC{}
	if p.VC != nil {
		named[p.VC.ID] = *p.VC
	}
	for _, vm := range p.VMs {
		old, existed := s.VM(vm.ID)
		g, _ := p.VC.GroupOf(vm)
		ch := Change{VM: vm.Name, VC: p.VC.Name}
		switch {
		case vm.Phase == state.Starting && (!existed || old.Generation < vm.Generation):
			ch.Verb, ch.Text = "place", fmt.Sprintf("place %s on %s: need %.2f cores, %d MiB", vm.Name, vm.Host, g.CPU, g.Memory>>20)
		case vm.Goal == state.GoalDelete:
			ch.Verb, ch.Text = "delete", fmt.Sprintf("delete %s from %s", vm.Name, vm.Host)
			if placement.HasDisk(s, g) {
				ch.Disk = "with its disk"
			}
		case vm.Order != (state.VMOrder{}):
			ch.Verb, ch.Text = orderChange(vm)
		case vm.Goal == state.GoalStop:
			ch.Verb, ch.Text = "stop", fmt.Sprintf("stop %s on %s", vm.Name, vm.Host)
			if placement.HasDisk(s, g) && !g.Disk.Ephemeral {
				ch.Disk = "its disk is kept"
			}
		default:
			ch.Verb, ch.Text = "balloon", fmt.Sprintf("balloon of %s on %s: %d MiB", vm.Name, vm.Host, vm.Due(g)>>20)
		}
		if ch.Disk != "" {
			ch.Text += ", " + ch.Disk
		}
		out = append(out, ch)
	}
	for _, a := range p.Allocations {
		vc, ok := named[a.VC]
		if !ok {
			vc, _ = s.VC(a.VC)
		}
		var was float64
		if old, ok := s.VC(a.VC); ok {
			for _, g := range old.Groups {
				if g.Name == a.Group {
					was = g.Allocation
				}
			}
		}
		out = append(out, Change{Verb: "cap", VC: vc.Name, Text: fmt.Sprintf("cap each VM of %s/%s: %.3f -> %.3f cores", vc.Name, a.Group, was, a.CPU)})
	}
	return out
}
