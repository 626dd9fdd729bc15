package member

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
)

// audit is an event that the state does not show: a connection that was refused. The
// server it happened on tells the leader, which records it.
type audit struct {
	N    uint64    `json:"n"` // 1, 2, 3, ... on its server
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Name string    `json:"name"` // of the member, or an address
	Text string    `json:"text"`
}

// refusedKind is the kind of the event of a connection that was refused.
const refusedKind = "connection-refused"

const (
	auditEvery = time.Minute      // how often the same thing is recorded at most
	auditFresh = 30 * time.Second // what a leader that has just begun records of what was before
	auditsKept = 64
)

// ring holds the last events of this server.
type ring struct {
	mu   sync.Mutex
	n    uint64
	kept []audit
}

// add an event. A flood of the same one is one event a minute.
func (r *ring) add(kind, name, text string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.kept {
		if a.Kind == kind && a.Name == name && a.Text == text && now.Sub(a.At) < auditEvery {
			return
		}
	}
	r.n++
	r.kept = append(r.kept, audit{N: r.n, At: now, Kind: kind, Name: name, Text: text})
	r.kept = r.kept[max(0, len(r.kept)-auditsKept):]
}

func (r *ring) last() []audit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

// refused hears of connections that were refused.
func (m *Member) refused(remote net.Addr, why error) {
	host, _, err := net.SplitHostPort(remote.String())
	if err != nil {
		host = remote.String()
	}
	m.log.Warn("connection refused", "remote", remote.String(), "why", why)
	var refusal *pki.Refusal
	var trespass *transport.Trespass
	if !errors.As(why, &refusal) && !errors.As(why, &trespass) {
		return // somebody who speaks no TLS, or scans ports: the log of this server has it
	}
	m.audits.add(refusedKind, host, why.Error(), time.Now())
}

// record the events of a server that come after number n, and return the number of the
// last one recorded. A server that was started again counts from 1.
func (m *Member) record(ctx context.Context, events []audit, n uint64) uint64 {
	if len(events) > 0 && events[len(events)-1].N < n {
		n = 0
	}
	for _, a := range events {
		if a.N <= n || n == 0 && time.Since(a.At) > auditFresh {
			continue
		}
		if err := m.Audit(ctx, a.Kind, "member", a.Name, a.Text); err != nil {
			return n
		}
		n = a.N
	}
	return n
}
