package member

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/audit"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
)

// refusedKind is the kind of the event of a connection that was refused.
const refusedKind = audit.ConnectionRefused

const (
	eventFresh = 30 * time.Second // what a leader that has just begun records of what was before
	eventsKept = 64
	// maxRefusalEvents is the most events of refusals in a minute, over all servers and addresses. The cluster keeps 10,000
	// events, so strangers alone take 10,000 / 10 = 1,000 minutes, over 16 hours, to push out what happened before.
	maxRefusalEvents = 10
	maxEventText     = 1000 // bytes, as transport takes them from agents
	maxRefusalLines  = 60   // of the program's log about refused connections, in a minute
	maxRefusalWhy    = 256  // bytes of why, in such a line
)

// refusalEvent is an event that the state does not show: something was refused. The server that refused reports it to the
// leader, which records it.
type refusalEvent struct {
	N    uint64    `json:"n"` // 1, 2, 3, ... on its server
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Name string    `json:"name"` // its object: an address
	Text string    `json:"text"`

	// Of what Text is made.
	By     string    `json:"by,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Count  uint64    `json:"count,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// ring holds the last events of this server.
type ring struct {
	mu       sync.Mutex
	n        uint64
	kept     []refusalEvent
	refusals *audit.Refusals

	lines *audit.Refusals // of connections, for the program's log
	log   *slog.Logger    // of those lines
}

// refuse counts something that was refused. What becomes an event of it is bounded: see audit.Refusals.
func (r *ring) refuse(q audit.Refusal, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusals == nil {
		r.refusals = audit.NewRefusals(maxRefusalEvents)
	}
	r.add(r.refusals.Add(q, now), now)
}

func (r *ring) add(list []audit.Summary, now time.Time) {
	for _, s := range list {
		r.n++
		r.kept = append(r.kept, refusalEvent{N: r.n, At: now, Kind: s.Kind, Name: s.Address, Text: eventText(s), By: s.By, Detail: s.Detail, Count: s.Count, Since: s.From})
	}
	r.kept = r.kept[max(0, len(r.kept)-eventsKept):]
}

func eventText(s audit.Summary) string { return audit.Printable(s.Text(), maxEventText) }

// last returns the last events, with those that are due now. It logs the lines that are due, too.
func (r *ring) last(now time.Time) []refusalEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusals != nil {
		r.add(r.refusals.Due(now), now)
	}
	if r.lines != nil {
		r.warn(r.lines.Due(now))
	}
	return slices.Clone(r.kept)
}

// logRefused logs a refused connection as a warning: the first one of an address at once, those that follow once a minute as
// one line with their count, at most maxRefusalLines a minute. Each by itself is logged at DEBUG.
func (r *ring) logRefused(log *slog.Logger, q audit.Refusal, now time.Time) {
	q.Detail = audit.Printable(q.Detail, maxRefusalWhy)
	log.Debug("connection refused", "remote", q.Address, "why", q.Detail)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lines == nil {
		r.lines, r.log = audit.NewRefusals(maxRefusalLines), log
	}
	r.warn(r.lines.Due(now))
	r.warn(r.lines.Add(q, now))
}

func (r *ring) warn(list []audit.Summary) {
	for _, s := range list {
		r.log.Warn("connection refused", "remote", s.Address, "why", audit.Printable(s.Detail, maxRefusalWhy), "count", s.Count, "since", s.From)
	}
}

// refused takes in a connection that was refused.
func (m *Member) refused(remote net.Addr, why error) {
	q := audit.Refusal{Kind: refusedKind, Address: remote.String(), Detail: why.Error()}
	defer func() { m.audits.logRefused(m.log, q, time.Now()) }()
	var refusal *pki.Refusal
	var trespass *transport.Trespass
	switch {
	case errors.As(why, &refusal):
		q.Class = string(refusal.Reason)
	case errors.As(why, &trespass):
		q.Class = trespass.What
	default:
		return // it speaks no TLS, or scans ports: the log of this server has it
	}
	m.o.Audit.Refuse(q)
	m.audits.refuse(q, time.Now())
}

// refusedJoin makes an event of a request to join that was refused. The audit log has it from the API.
func (m *Member) refusedJoin(ctx context.Context, why string) {
	from := audit.Of(ctx).Client
	if from == "" {
		from = "unknown"
	}
	m.audits.refuse(audit.Refusal{Kind: audit.JoinRefused, Address: from, Detail: why}, time.Now())
}

// recording are the events of refusals on their way into the log of the cluster, on the leader.
type recording struct {
	event    func(ctx context.Context, kind, object, name, text string) error
	refusals *audit.Refusals
	waiting  []audit.Summary // that could not be recorded so far
}

func (m *Member) newRecording() *recording {
	return &recording{event: m.Audit, refusals: audit.NewRefusals(maxRefusalEvents)}
}

// take takes in the events of a server that come after number n, and returns the number of the last one. A server that was
// started again counts from 1.
func (r *recording) take(events []refusalEvent, n uint64, now time.Time) uint64 {
	if len(events) > 0 && events[len(events)-1].N < n {
		n = 0
	}
	for _, e := range events {
		if e.N <= n || n == 0 && now.Sub(e.At) > eventFresh {
			continue
		}
		q := audit.Refusal{Kind: e.Kind, Address: e.Name, By: e.By, Class: e.Detail, Detail: e.Detail, Count: e.Count, Since: e.Since}
		r.waiting = append(r.waiting, r.refusals.Add(q, now)...)
		n = e.N
	}
	return n
}

// record records the events that are due. What the log does not take now is recorded later.
func (r *recording) record(ctx context.Context, now time.Time) {
	r.waiting = append(r.waiting, r.refusals.Due(now)...)
	for len(r.waiting) > 0 {
		s := r.waiting[0]
		if err := r.event(ctx, s.Kind, "member", s.Address, eventText(s)); err != nil {
			break
		}
		r.waiting = r.waiting[1:]
	}
	r.waiting = r.waiting[max(0, len(r.waiting)-eventsKept):]
}
