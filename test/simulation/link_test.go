package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
)

// link is an agent's way to the leader: one stream of desired state that ends when it falls silent, and
// numbered calls, of a kind one at a time, through any server. See cluster/transport.Agent.
type link struct {
	h       *host
	p       *process
	servers []string

	mu      sync.Mutex
	rng     *rand.Rand
	at      int
	alive   bool
	why     error
	desired agent.Desired
	changed chan struct{}
	session uint64
	calls   uint64

	queues  map[string]chan struct{}
	opening chan struct{}
}

func newLink(h *host, p *process) *link {
	l := &link{h: h, p: p, servers: h.s.names, rng: seeded(h.s.o.seed, uint64(h.boots)<<20|uint64(len(h.name))<<8|uint64(h.name[len(h.name)-1])),
		why: errors.New("not connected yet"), changed: make(chan struct{}), opening: make(chan struct{}, 1),
		queues: map[string]chan struct{}{"report": make(chan struct{}, 1), "renew": make(chan struct{}, 1), "permit": make(chan struct{}, 1)}}
	l.at = l.rng.IntN(len(l.servers))
	return l
}

// silence after which no server leads.
const silence = 4 * time.Second

func (l *link) run(ctx context.Context) {
	backoff := 100 * time.Millisecond
	for ctx.Err() == nil {
		l.mu.Lock()
		at := l.at
		l.mu.Unlock()
		begun, err := l.follow(ctx, l.servers[at])
		l.end(err)
		if begun {
			backoff = 100 * time.Millisecond
		}
		l.mu.Lock()
		if l.at == at {
			l.at = (at + 1) % len(l.servers)
		}
		d := backoff/2 + time.Duration(l.rng.Int64N(int64(backoff/2)+1))
		l.mu.Unlock()
		backoff = min(2*backoff, 5*time.Second)
		_ = wait(ctx, d)
	}
}

func (l *link) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = why
	if l.alive {
		l.alive = false
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

type frame struct {
	want agent.Desired
	news bool
	end  error
}

// follow one stream to its end.
func (l *link) follow(ctx context.Context, at string) (begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, host := l.h.s, l.h.name
	frames := make(chan frame, 1)
	s.group.Go(func() {
		err := s.net.pass(ctx, host, at)
		if err == nil {
			err = streamFrom(ctx, s, host, at, []string{at, host}, false, frames)
		}
		if s.net.pass(ctx, at, host) == nil {
			select {
			case frames <- frame{end: err}:
			case <-ctx.Done():
			}
		}
	})
	quiet := time.NewTimer(5*time.Second + silence)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return begun, ctx.Err()
		case <-quiet.C:
			return begun, errors.New("no word for some time")
		case f := <-frames:
			if f.end != nil {
				return begun, f.end
			}
			quiet.Reset(silence)
			begun = true
			if f.news {
				l.mu.Lock()
				l.alive, l.why, l.desired = true, nil, f.want
				close(l.changed)
				l.changed = make(chan struct{})
				l.mu.Unlock()
			}
		}
	}
}

// streamFrom a server, which leads or relays once. path are the members to the agent, this one first.
func streamFrom(ctx context.Context, s *sim, host, at string, path []string, handed bool, frames chan<- frame) error {
	p := s.servers[at].alive()
	if p == nil {
		return errRefused
	}
	switch lead := p.lead(); {
	case lead.here:
		return p.stream(ctx, host, func(want agent.Desired, news bool) error {
			for i := range len(path) - 1 {
				if err := s.net.pass(ctx, path[i], path[i+1]); err != nil {
					return err
				}
			}
			if i := path[0]; len(path) == 3 && s.servers[path[1]].alive() == nil || s.servers[i].alive() != p {
				return errRefused // one of them crashed meanwhile
			}
			select {
			case frames <- frame{want: want, news: news}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	case handed || lead.address == "":
		return errNoServer
	default:
		if err := s.net.pass(ctx, at, lead.address); err != nil {
			return err
		}
		return streamFrom(ctx, s, host, lead.address, append([]string{lead.address}, path...), true, frames)
	}
}

// Desired implements agent.Leader.
func (l *link) Desired(context.Context, string) (agent.Desired, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.alive {
		return agent.Desired{}, nil, fmt.Errorf("%w is heard: %w", leader.ErrNoLeader, l.why)
	}
	return l.desired, l.changed, nil
}

// Report implements agent.Leader.
func (l *link) Report(ctx context.Context, r agent.Report) error {
	_, err := calling(ctx, l, "report", 10*time.Second, func(ctx context.Context, p *serving) (struct{}, error) {
		return struct{}{}, p.ctl.Report(ctx, r)
	})
	return err
}

// Permit implements agent.Leader.
func (l *link) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	return calling(ctx, l, "permit", 3*time.Second, func(ctx context.Context, p *serving) (agent.Permit, error) { return p.ctl.Permit(ctx, q) })
}

// Renew implements agent.Leader.
func (l *link) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	return calling(ctx, l, "renew", 3*time.Second, func(ctx context.Context, p *serving) (agent.Grant, error) { return p.ctl.Renew(ctx, r) })
}

// calling the leader, through each server once if need be.
func calling[T any](ctx context.Context, l *link, kind string, perTry time.Duration, f func(context.Context, *serving) (T, error)) (T, error) {
	var out T
	select {
	case l.queues[kind] <- struct{}{}:
		defer func() { <-l.queues[kind] }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	l.mu.Lock()
	order := slices.Concat(l.servers[l.at:], l.servers[:l.at])
	l.mu.Unlock()
	var errs []error
	for _, at := range order {
		bounded, cancel := context.WithTimeout(ctx, perTry)
		out, err := callAt(bounded, l, at, kind, f)
		cancel()
		if err == nil {
			l.mu.Lock()
			l.at = slices.Index(l.servers, at)
			l.mu.Unlock()
			return out, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", at, err))
		if ctx.Err() != nil {
			break
		}
	}
	return out, fmt.Errorf("%s of host %s: %w", kind, l.h.name, errors.Join(errs...))
}

func callAt[T any](ctx context.Context, l *link, at, kind string, f func(context.Context, *serving) (T, error)) (T, error) {
	for try := 0; ; try++ {
		var none T
		session, err := l.open(ctx, at)
		if err != nil {
			return none, err
		}
		l.mu.Lock()
		l.calls++
		n := l.calls
		l.mu.Unlock()
		out, err := ask(ctx, l.h.s, l.h.name, at, func(ctx context.Context, p *serving) (T, error) {
			leave, err := p.enter(ctx, l.h.name, kind, session, n)
			if err != nil {
				return none, err
			}
			defer leave()
			return f(ctx, p)
		})
		if !errors.Is(err, errSession) || try == 2 {
			return out, err
		}
		l.mu.Lock()
		if l.session == session {
			l.session = 0
		}
		l.mu.Unlock()
	}
}

func (l *link) open(ctx context.Context, at string) (uint64, error) {
	select {
	case l.opening <- struct{}{}:
		defer func() { <-l.opening }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	if session != 0 {
		return session, nil
	}
	session, err := ask(ctx, l.h.s, l.h.name, at, func(_ context.Context, p *serving) (uint64, error) { return p.session(l.h.name), nil })
	if err != nil {
		return 0, fmt.Errorf("open a session: %w", err)
	}
	l.mu.Lock()
	l.session = session
	l.mu.Unlock()
	return session, nil
}

// watched notes the lease that a host is really granted, for the checks.
type watched struct {
	*link
	p *process
}

// Renew implements agent.Leader.
func (w watched) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	h := w.link.h
	sent := h.clock()
	h.mu.Lock()
	if h.proc == w.p {
		h.claims = r.Enforcing
	}
	h.mu.Unlock()
	g, err := w.link.Renew(ctx, r)
	if err == nil {
		h.mu.Lock()
		if h.proc == w.p {
			if h.leaseOf != r.Boot {
				h.lease, h.leaseOf, h.granted = lease.Holder{}, r.Boot, agent.Grant{}
			}
			if older := g.Epoch < h.granted.Epoch || g.Epoch == h.granted.Epoch && g.Index < h.granted.Index; !older { // else the agent refuses it
				h.lease, h.granted = h.lease.Granted(sent, g.Lease, g.Enforce), g
			}
		}
		h.mu.Unlock()
		h.s.count("leases renewed")
	}
	return g, err
}
