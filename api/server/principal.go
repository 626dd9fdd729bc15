package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// How much may run at the same time with one token on one server, and how soon it ends after its token did.
const (
	maxLive    = 256 // event streams, consoles and long polls together
	maxStreams = 100 // event streams: each costs work at every event

	// sweepEvery is how often this server checks whether the tokens of running requests are still good. A request that began
	// before its token ended has leewayAfterEnd to finish, so that one that revokes its own token is answered. What runs longer
	// is cut at most 2 s (sweepEvery + leewayAfterEnd, rounded up to sweepEvery) after the end is in this server's state. The
	// documented bound is 5 s.
	sweepEvery     = time.Second
	leewayAfterEnd = time.Second

	// maxActorSubject is the longest subject that stands in the audit log, bytes.
	maxActorSubject = 120
)

// principal is who a request is from: the holder of a token of the API, or the subject of one of OpenID Connect.
type principal struct {
	ID   string // of the token, or of the subject: oidc.Identity.ID
	Name string
	Role state.Role // "": a subject whose groups have none
	// Tenant that it is of, with a role of a tenant; "": the cluster.
	Tenant string
	// Home is the tenant that the token is of, whichever it acts in; "": the cluster, or a subject of OpenID Connect.
	Home string
	// Binding is the id of the role binding that gives the role; "": the token itself, or the configuration of the servers.
	Binding string
	roles   []assigned // all roles
	// From are the ranges of addresses that the token may be used from; Client is where this request comes from, host:port.
	From   []string
	Client string
	// Subject and Groups are those of OpenID Connect, and Issued is when the token was made by the issuer's clock.
	Subject string
	Groups  []string
	Issued  time.Time
	Until   time.Time // zero: without an end
	token   string    // of a person, to ask the issuer with; it is secret
	// File: the token is that of the file of `vcd dev`, which has no row and cannot be revoked.
	File bool
}

// tokenActor begins the ids of tokens in the audit log.
const tokenActor = "token:"

// actor is the id of the principal in the audit log. A long subject is named by its hash, so that rows and events have room for it.
func (p *principal) actor() string {
	switch {
	case p.Subject == "":
		return tokenActor + p.ID
	case len(p.Subject) > maxActorSubject:
		return p.ID
	}
	return oidc.IDPrefix + p.Subject
}

// label names the principal in messages.
func (p *principal) label() string { return fmt.Sprintf("%s (%s)", p.Name, p.ID) }

type principalKey struct{}

// principalOf a request that was authenticated; nil for a route that needs no token.
func principalOf(ctx context.Context) *principal {
	p, _ := ctx.Value(principalKey{}).(*principal)
	return p
}

// liveKind is what a request that may run for long is.
type liveKind int

// The kinds, as tokenActivity counts them.
const (
	liveStream liveKind = iota
	liveConsole
	livePoll
	liveKinds
)

// liveRequest is a request that is being answered. Requests of one subject of OpenID Connect have tokens with different ends.
type liveRequest struct {
	cancel  context.CancelCauseFunc
	counts  [liveKinds]int
	by      *principal
	endSeen time.Time // when its right was first found ended; zero: it is good
}

type liveKey struct{}

// liveRequests are the requests that this server answers now, by the id of their principal. One goroutine, which runs while
// there are any, cuts those whose right ended.
type liveRequests struct {
	mu       sync.Mutex
	of       map[string]*tokenActivity
	sweeping bool
	// ended returns why the right of a principal ended; nil if it did not.
	ended func(p *principal, now time.Time) error
}

// tokenActivity is what runs for one principal.
type tokenActivity struct {
	requests map[*liveRequest]struct{}
	counts   [liveKinds]int
}

// enter a request of a principal. The context ends, with the problem as its cause, soon after the token did.
func (l *liveRequests) enter(ctx context.Context, p *principal) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	q := &liveRequest{cancel: cancel, by: p}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]*tokenActivity{}
	}
	a := l.of[p.ID]
	if a == nil {
		a = &tokenActivity{requests: map[*liveRequest]struct{}{}}
		l.of[p.ID] = a
	}
	a.requests[q] = struct{}{}
	if !l.sweeping && !p.File {
		l.sweeping = true
		go l.sweepWhileBusy()
	}
	return context.WithValue(ctx, liveKey{}, q), func() {
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(a.requests, q)
		for kind, n := range q.counts {
			a.counts[kind] -= n
		}
		if len(a.requests) == 0 {
			delete(l.of, p.ID)
		}
	}
}

// acquire counts a request that may run for long, until it leaves, or refuses it.
func (l *liveRequests) acquire(ctx context.Context, kind liveKind) error {
	p := principalOf(ctx)
	q, _ := ctx.Value(liveKey{}).(*liveRequest)
	if p == nil || q == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of[p.ID]
	all := 0
	for _, n := range a.counts {
		all += n
	}
	switch {
	case kind == liveStream && a.counts[liveStream] >= maxStreams:
		return tooMany("token %s has %d event streams open on this server, and no more are served: close some", p.label(), maxStreams)
	case all >= maxLive:
		return tooMany("token %s has %d event streams, consoles and long polls open on this server, and no more are served: close some", p.label(), maxLive)
	}
	a.counts[kind]++
	q.counts[kind]++
	return nil
}

func tooMany(format string, args ...any) *problem {
	p := newProblem(http.StatusTooManyRequests, v1.ProblemTooMany, fmt.Sprintf(format, args...))
	p.retry = true
	return p
}

// running says what runs with a token on this server.
func (l *liveRequests) running(id string) (counts [liveKinds]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of[id]; a != nil {
		counts = a.counts
	}
	return counts
}

func (l *liveRequests) sweepWhileBusy() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for now := range tick.C {
		if !l.sweep(now) {
			return
		}
	}
}

// sweep cuts the requests whose right ended leewayAfterEnd ago. It returns false once no request is left.
func (l *liveRequests) sweep(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.of {
		for q := range a.requests {
			why := l.ended(q.by, now)
			switch {
			case why == nil:
				q.endSeen = time.Time{}
			case q.endSeen.IsZero():
				q.endSeen = now
			case now.Sub(q.endSeen) >= leewayAfterEnd:
				q.cancel(why)
			}
		}
	}
	l.sweeping = len(l.of) > 0
	return l.sweeping
}

// endOf says why the right of a principal ended, as far as this server knows; nil if it did not.
func (s *Server) endOf(p *principal, now time.Time) error {
	if p.File {
		return nil
	}
	if p.Subject == "" {
		row, there := s.cluster.Token(p.ID)
		if !there {
			return newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, "the token was revoked while this request ran")
		}
		if !row.GoodFrom(p.Client) { // a restored state may have another row
			return notFrom(p.Client)
		}
	} else if why := cmp.Or(s.revokedUser(p), s.personEnded(p)); why != nil {
		return why
	}
	if p.Binding != "" {
		if b, there := s.cluster.RoleBinding(p.Binding); !there || !covers(b.Role, p.Role) {
			return newProblem(http.StatusForbidden, v1.ProblemForbidden, "the role "+string(p.Role)+" was taken away while this request ran")
		}
	}
	if why := s.suspends(p); why != nil {
		return why
	}
	if p.Tenant != "" && !s.knowsRights() { // the right may have ended; a change that is under way may still be carried out
		return newProblem(http.StatusGatewayTimeout, v1.ProblemTimeout, "this server lost the leader while the request ran, which may still be carried out")
	}
	if (state.Token{Until: p.Until}).Ended(now) {
		return newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, "the token expired while this request ran")
	}
	return nil
}

// suspends refuses a principal while the tenant that it acts in, or the one that its token is of, is suspended; nil if neither is.
func (s *Server) suspends(p *principal) *problem {
	for _, tenant := range []string{p.Home, p.Tenant} {
		if tenant != "" && s.cluster.Suspended(tenant) {
			return suspended(tenant)
		}
	}
	return nil
}

// lastingEnd is when what the principal makes has to end; zero: never. What people make who logged in, such as tokens for
// services, may outlast their log-in.
func (p *principal) lastingEnd() time.Time {
	if p.Subject != "" {
		return time.Time{}
	}
	return p.Until
}

// cutReason says that a request is cut because its right ended; "" if it is not.
func cutReason(ctx context.Context) string {
	var p *problem
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &p) {
		return p.Detail
	}
	return ""
}
