package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// DrainRequest asks for the drain of a host: all its VMs leave by live migration.
type DrainRequest struct {
	Deadline   time.Duration // after which no move begins; 0: none
	MaxBytes   *int64        // most bytes that its moves may send; nil or -1: no bound
	OnBlocked  string        // drain.OnBlockedStop, OnBlockedSkip, OnBlockedShutdown; "" = the first
	OtherHosts []string      // hosts that are about to be emptied, too: nothing goes there
	By         string
	Reason     string
}

// Blocker is a VM that keeps its host from being drained.
type Blocker = moves.Blocker

// DrainResult is the answer to a request to drain a host.
type DrainResult struct {
	Host      string
	Plan      state.MovePlan // without an id and steps where nothing has to move
	Blockers  []Blocker      // VMs that cannot leave, for now
	Operation state.Operation
	DryRun    bool
	Replayed  bool
}

// Blocked says that a host cannot be drained, and why. Nothing was moved or changed. It is a conflict.
type Blocked struct {
	Host     string
	Blockers []Blocker
}

// Error implements error.
func (e *Blocked) Error() string {
	return fmt.Sprintf("host %s cannot be emptied, and nothing was moved: %s", e.Host, moves.BlockersText(e.Blockers))
}

// Is makes it an ErrConflict.
func (e *Blocked) Is(target error) bool { return target == ErrConflict }

func (q DrainRequest) check() error {
	var f faults
	switch q.OnBlocked {
	case "", drain.OnBlockedStop, drain.OnBlockedSkip, drain.OnBlockedShutdown:
	default:
		f.add("onBlocked", clip(q.OnBlocked), "must be stop, skip or shutdown")
	}
	if q.Deadline < 0 {
		f.add("deadline", q.Deadline.String(), "must not be below 0")
	}
	if q.MaxBytes != nil && *q.MaxBytes < -1 {
		f.add("maxBytes", *q.MaxBytes, "must be a number of bytes, or -1 for no bound")
	}
	if len(q.Reason) > 500 {
		f.add("reason", nil, "must be at most 500 characters")
	}
	return f.err()
}

// Drain begins to drain a host: it takes no new VMs, and those that run there move to others. VMs that cannot leave are listed
// before anything moves. Unless the request accepts that (OnBlocked), the answer is *Blocked, and nothing is changed. A drain
// that goes on is given the new bounds. It is over once the hypervisor reports that the host runs none of this cluster's VMs:
// see Empty.
func (c *Service) Drain(ctx context.Context, host string, q DrainRequest, call Call) (DrainResult, error) {
	if err := q.check(); err != nil {
		return DrainResult{}, err
	}
	if q.OnBlocked == "" {
		q.OnBlocked = drain.OnBlockedStop
	}
	same := q
	same.By = sameBy
	print := fingerprint("drain", host, same)
	for n := 0; ; n++ {
		r, again, err := c.tryDrain(ctx, host, q, print, call)
		if !again || n >= tries {
			return r, err
		}
	}
}

func (c *Service) tryDrain(ctx context.Context, host string, q DrainRequest, print string, call Call) (DrainResult, bool, error) {
	what := "drain host " + host
	if _, err := c.before(ctx, what); err != nil {
		return DrainResult{}, false, err
	}
	planned, err := c.turn(ctx)
	if err != nil {
		return DrainResult{}, false, fmt.Errorf("%s: %w: %w", what, ErrTimeout, err)
	}
	defer planned()
	if err := c.inflight.drained(ctx); err != nil {
		return DrainResult{}, false, fmt.Errorf("%s: %w: %w", what, ErrTimeout, err)
	}
	t, s := c.current.Load(), c.o.State.Snapshot()
	if r, done, err := replay(s, print, call); done || err != nil {
		plan, _ := s.MovePlan(r.Operation.MovePlan)
		return DrainResult{Host: host, Plan: plan, Operation: r.Operation, Replayed: true}, false, err
	}
	h, ok := s.Host(host)
	switch {
	case !ok:
		return DrainResult{}, false, fmt.Errorf("host %s: %w", host, ErrNotFound)
	case h.Lost.Proof != "":
		return DrainResult{}, false, fmt.Errorf("host %s is lost, and what ran there with it: %s: %w", host, h.Lost.Text, ErrConflict)
	}
	body, a, err := t.drainOf(s, h, q)
	if err != nil {
		return DrainResult{}, false, fmt.Errorf("%s: %w", what, err)
	}
	r := DrainResult{Host: host, Plan: a.Plan, Blockers: a.Blockers, DryRun: call.DryRun}
	if len(a.Blockers) > 0 {
		if err := t.allReported(s, what); err != nil {
			return r, false, err
		}
	}
	switch {
	case call.DryRun:
		r.Plan.ID, r.Plan.State = "", state.MovesProposed
		return r, false, nil
	case len(a.Blockers) > 0 && q.OnBlocked == drain.OnBlockedStop:
		return r, false, &Blocked{Host: host, Blockers: a.Blockers}
	}
	body.Operation = &state.Operation{ID: c.ids.next(), Kind: "drain", Name: host, Host: host, At: c.o.Now().UTC(), MovePlan: body.Drain.Plan}
	if call.IdempotencyKey != "" {
		body.Remembered = &state.Remembered{Key: call.IdempotencyKey, Fingerprint: print, Operation: body.Operation.ID}
	}
	if err := c.propose(ctx, state.KindDrain, body); err != nil {
		return DrainResult{}, errors.Is(err, state.ErrConflict), fmt.Errorf("%s: %w", what, err)
	}
	t.drains.Found(host, a.Blockers)
	after := c.o.State.Snapshot()
	r.Operation, _ = after.Operation(body.Operation.ID)
	if p, ok := after.MovePlan(body.Drain.Plan); ok {
		r.Plan = p
	}
	return r, false, nil
}

// drainOf returns the drain of a host as it would begin now.
func (t *term) drainOf(s *state.Snapshot, h state.Host, q DrainRequest) (*state.HostDrain, drain.Answer, error) {
	now := t.c.o.Now().UTC()
	d := h.BeginDrain(state.Drain{MaxBytes: -1, OnBlocked: q.OnBlocked, By: q.By, Reason: q.Reason}, now, s.Format())
	if q.Deadline > 0 {
		d.Deadline = now.Add(q.Deadline)
	}
	if q.MaxBytes != nil {
		d.MaxBytes = *q.MaxBytes
	}
	supersedes := drain.Superseded(s, h.Name)
	o := drain.Options{Budget: d.MaxBytes, Deadline: q.Deadline, Supersedes: supersedes}
	if h.Drain.State == state.DrainRunning && d.MaxBytes >= 0 { // it goes on: what it sent counts
		o.Budget = max(0, d.MaxBytes-drain.Spent(s, h))
	}
	if q.Deadline == 0 { // with a deadline there is no time for optional moves
		o.OptionalBytes, o.MinGain = drain.OptionalMoves(s)
	}
	f := t.drainFleet(s, supersedes, nil)
	for _, name := range q.OtherHosts {
		at := f.Host(name)
		if at < 0 {
			return nil, drain.Answer{}, fmt.Errorf("host %s: %w", name, ErrNotFound)
		}
		f.Hosts[at].Cordoned = true
	}
	a, err := drain.Plan(f, h.Name, o)
	if err != nil {
		return nil, a, err
	}
	body := &state.HostDrain{Host: h.Name, Drain: d, Version: h.Drain.Index}
	a.Plan.By, a.Plan.Text = q.By, q.Reason
	if len(a.Plan.Steps) > 0 {
		a.Plan.ID = t.c.ids.next()
		body.Drain.Plan = a.Plan.ID
		body.MovePlan = &state.MovePlanPut{Plan: a.Plan, Supersedes: supersedes}
	}
	return body, a, nil
}

// drainFleet is the cluster as drains are planned on it.
func (t *term) drainFleet(s *state.Snapshot, supersedes []string, keep map[string]string) *moves.Fleet {
	meta, _ := s.Meta()
	return moves.NewFleet(s, t.env(), t.reports.fleet(s), moves.Options{Supersedes: supersedes, Pinned: keep, CopyStorage: meta.Settings.Moves.CopyStorage, Steps: drainEffort})
}

// Undrain ends a host's drain: moves under way end, nothing is moved back. The host takes VMs again, unless an operator had cordoned it
// before.
func (c *Service) Undrain(ctx context.Context, host string, call Call) error {
	what := "undrain host " + host
	for n := 0; ; n++ {
		s, err := c.before(ctx, what)
		if err != nil {
			return err
		}
		h, ok := s.Host(host)
		switch {
		case !ok:
			return fmt.Errorf("host %s: %w", host, ErrNotFound)
		case h.Drain.State == "" && h.Cordoned:
			return fmt.Errorf("host %s has no drain; it is cordoned: uncordon it: %w", host, ErrConflict)
		case h.Drain.State == "" || call.DryRun:
			return nil
		}
		body := state.HostDrain{Host: host, Version: h.Drain.Index}
		if p, ok := s.MovePlan(h.Drain.Plan); ok && !p.State.Ended() {
			body.MovePlan = moves.Stop(p, "the drain of host "+host+" was taken back")
		}
		err = c.propose(ctx, state.KindDrain, body)
		if err == nil {
			c.current.Load().drains.Found(host, nil)
			return nil
		}
		if !errors.Is(err, state.ErrConflict) || n >= tries {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// DrainBatch has hosts that can be drained at the same time.
type DrainBatch struct {
	Hosts    []string
	Bytes    int64   // predicted
	MinYield float64 // of the cluster while they are empty
}

// Undrainable is a host that cannot be drained in the present state.
type Undrainable struct {
	Host     string
	Why      string
	Blockers []Blocker
}

// DrainBatches sorts all hosts, except those with a drain, into batches of hosts that can be drained at the same time:
// everything fits on the other hosts, rules are kept, and the minimum yield is not below the lower of the present one and the
// cluster's default. It also returns the hosts that cannot be drained.
func (c *Service) DrainBatches(ctx context.Context) ([]DrainBatch, []Undrainable, error) {
	s, err := c.beforePlan(ctx, "hosts that can be emptied together")
	if err != nil {
		return nil, nil, err
	}
	t := c.current.Load()
	f := t.drainFleet(s, nil, nil)
	var groups []DrainBatch
	var stuck []Undrainable
	var hosts []int
	out := t.failover.Unavailable(s)
	for i, h := range s.Hosts() {
		switch {
		case out[h.Name] != "":
			stuck = append(stuck, Undrainable{Host: h.Name, Why: "host " + h.Name + " " + out[h.Name]})
		case h.Drain.State == "":
			hosts = append(hosts, i)
		}
	}
	meta, _ := s.Meta()
	floor := meta.Settings.MinYield
	for _, vc := range s.VCs() {
		if vc.Goal == state.GoalRun && vc.Admitted {
			floor = min(floor, state.YieldOf(vc, s.VMsOf(vc.ID)))
		}
	}
	planned, none, err := migration.Batches(f.Problem, hosts, floor)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range planned {
		t := DrainBatch{Bytes: int64(r.Bytes), MinYield: r.MinYield}
		for _, j := range r.Hosts {
			t.Hosts = append(t.Hosts, f.Hosts[j].Name)
		}
		groups = append(groups, t)
	}
	for _, x := range none {
		u := Undrainable{Host: f.Hosts[x.Host].Name, Blockers: f.Blockers(x.Blockers)}
		switch {
		case len(u.Blockers) > 0:
			u.Why = moves.BlockersText(u.Blockers)
		case x.MinYield > 0:
			u.Why = fmt.Sprintf("the minimum yield would fall to %.3f", x.MinYield)
		default:
			u.Why = "no way was found in which everything fits on the others"
		}
		stuck = append(stuck, u)
	}
	return groups, stuck, nil
}

// EmptyView says whether a host runs any VM of this cluster, by its hypervisor's list.
type EmptyView struct {
	Host      string
	Empty     bool
	VMs       []string // that it runs, by its list, or may run, by the state
	Unmanaged []string // that carry this cluster's mark, and are unknown to its state
	At        time.Time
}

// Empty says whether a host runs none of this cluster's VMs. It is true only by the list of the host's own hypervisor, reported
// in this leader's term, with everything in force that was decided for the host, and while no move goes to the host.
func (c *Service) Empty(ctx context.Context, host string) (EmptyView, error) {
	out := EmptyView{Host: host}
	if err := c.o.Log.Linearize(ctx); err != nil {
		return out, fmt.Errorf("is host %s empty: %w: %w", host, ErrNoLeader, err)
	}
	s := c.o.State.Snapshot()
	h, ok := s.Host(host)
	if !ok {
		return out, fmt.Errorf("host %s: %w", host, ErrNotFound)
	}
	t := c.current.Load()
	live, _ := t.reports.of(host)
	w := live.inventory(s, h, t.failover.WhyUnavailable(s, host))
	out.At, out.Unmanaged = live.Listed, w.Unmanaged
	for _, name := range w.Running {
		if !slices.Contains(w.Unmanaged, name) {
			out.VMs = append(out.VMs, name)
		}
	}
	s.EachVMOn(host, func(vm *state.VM) bool {
		if vm.ConsumesResources() && !slices.Contains(out.VMs, vm.Name) {
			out.VMs = append(out.VMs, vm.Name)
		}
		return true
	})
	slices.Sort(out.VMs)
	out.Empty = w.Listed && w.Unavailable == "" && len(out.VMs)+len(out.Unmanaged) == 0
	return out, nil
}
