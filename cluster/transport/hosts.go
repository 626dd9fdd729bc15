package transport

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

const (
	frameTime  = 10 * time.Second       // for one write to a stream
	minSpacing = 10 * time.Millisecond  // between two looks at a host's desired state,
	maxSpacing = 250 * time.Millisecond // while what changes does not concern the host
)

// Kinds of calls that an agent makes, each in an order of its own.
const (
	callReport = "report"
	callRenew  = "renew"
	callPermit = "permit"
	callPeers  = "peers"
)

// line is what an agent last sent to this leader. Its calls carry a session, which the leader gave it, and a number that grows.
// They are answered one by one in that order. A call that took so long that a later one came before it is refused: it would
// report again what is no longer so.
type line struct {
	busy map[string]chan struct{} // by kind; each holds one while a call is answered

	// Under Peers.mu:
	session uint64
	term    uint64            // in which it was given; a leader that was none for a while has missed calls
	last    map[string]uint64 // highest number by kind

	// Under busy[callReport]:
	of      uint64 // the session of reports
	reports reportDecoder
}

// sessionAnswer is the answer to the question for a session.
type sessionAnswer struct {
	Session uint64 `json:"session"`
}

// session begins a new session, which ends the one before it.
func (p *Peers) session(w http.ResponseWriter, r *http.Request) {
	var raw [8]byte
	_, _ = crand.Read(raw[:]) // never fails
	session := binary.BigEndian.Uint64(raw[:]) | 1
	p.mu.Lock()
	l := p.lines[r.PathValue("host")]
	if l == nil {
		l = &line{busy: map[string]chan struct{}{callReport: make(chan struct{}, 1), callRenew: make(chan struct{}, 1), callPermit: make(chan struct{}, 1), callPeers: make(chan struct{}, 1)}}
		p.lines[r.PathValue("host")] = l
	}
	l.session, l.term, l.last = session, p.o.Lead().Term, map[string]uint64{}
	p.mu.Unlock()
	p.answer(w, r, sessionAnswer{Session: session})
}

// enter finds the line of a call and waits for its turn. If the call is not the latest of its kind, enter answers it, and leave
// is nil.
func (p *Peers) enter(w http.ResponseWriter, r *http.Request, kind string) (l *line, n uint64, leave func()) {
	session, err1 := strconv.ParseUint(r.Header.Get(headerSession), 10, 64)
	n, err2 := strconv.ParseUint(r.Header.Get(headerCall), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		refuse(w, http.StatusBadRequest, kindMalformed, "session and number of the call: %v", err)
		return nil, 0, nil
	}
	term := p.o.Lead().Term
	p.mu.Lock()
	l = p.lines[r.PathValue("host")]
	known := l != nil && l.session == session && l.term == term
	var last uint64
	if known {
		last = l.last[kind]
		l.last[kind] = max(n, last)
	}
	p.mu.Unlock()
	if known && n > last {
		select {
		case l.busy[kind] <- struct{}{}:
		case <-r.Context().Done():
			givenUp(w, r.Context().Err())
			return nil, 0, nil
		}
		p.mu.Lock()
		known, last = l.session == session, l.last[kind]
		p.mu.Unlock()
		if known && n == last {
			return l, n, func() { <-l.busy[kind] }
		}
		<-l.busy[kind]
	}
	if !known {
		refuse(w, http.StatusConflict, kindSession, "the leader does not know session %d", session)
	} else {
		refuse(w, http.StatusConflict, kindLate, "%s %d came after %d", kind, n, last)
	}
	return nil, 0, nil
}

// report takes an agent's report.
func (p *Peers) report(w http.ResponseWriter, r *http.Request) {
	var c Change
	if !readCall(w, r, maxReport, &c) {
		return
	}
	l, n, leave := p.enter(w, r, callReport)
	if leave == nil {
		return
	}
	defer leave()
	p.mu.Lock()
	if l.of != l.session {
		l.of, l.reports = l.session, reportDecoder{}
	}
	p.mu.Unlock()
	report, err := l.reports.take(c)
	switch {
	case errors.Is(err, errWhole):
		refuse(w, http.StatusConflict, kindWhole, "%v", err)
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, kindMalformed, "%v", err)
		return
	}
	if report.Host != r.PathValue("host") {
		p.trespass(w, r, &Trespass{Caller: callerOf(r.Context()), What: fmt.Sprintf("report for host %.64q", report.Host)})
		return
	}
	if err := p.o.Leader.Report(r.Context(), report); err != nil {
		p.fail(w, r, err)
		return
	}
	l.reports.keep(n, report)
	w.WriteHeader(http.StatusNoContent)
}

// renew renews a lease.
func (p *Peers) renew(w http.ResponseWriter, r *http.Request) {
	call(p, w, r, callRenew, func(a agent.Renewal) string { return a.Host }, p.o.Leader.Renew)
}

// permit answers a request for permits.
func (p *Peers) permit(w http.ResponseWriter, r *http.Request) {
	call(p, w, r, callPermit, func(q agent.PermitRequest) string { return q.Host }, p.o.Leader.Permit)
}

// peersOf answers with the hosts to which an agent is to test the route.
func (p *Peers) peersOf(w http.ResponseWriter, r *http.Request) {
	call(p, w, r, callPeers, func(q agent.PeersWanted) string { return q.Host }, p.o.Leader.(peerLister).Peers)
}

// peerLister is a Leader that knows to which hosts VMs may be sent.
type peerLister interface {
	Peers(context.Context, agent.PeersWanted) (agent.Peers, error)
}

// call reads a request, checks that it is about the caller's own host, and asks the leader.
func call[Q, A any](p *Peers, w http.ResponseWriter, r *http.Request, kind string, host func(Q) string, ask func(context.Context, Q) (A, error)) {
	var q Q
	if !readCall(w, r, maxCall, &q) {
		return
	}
	if host(q) != r.PathValue("host") {
		p.trespass(w, r, &Trespass{Caller: callerOf(r.Context()), What: fmt.Sprintf("%s for host %.64q", kind, host(q))})
		return
	}
	_, _, leave := p.enter(w, r, kind)
	if leave == nil {
		return
	}
	defer leave()
	a, err := ask(r.Context(), q)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.answer(w, r, a)
}

// desired streams a host's desired state, for as long as this server leads in the same term.
func (p *Peers) desired(w http.ResponseWriter, r *http.Request) {
	ctx, host := r.Context(), r.PathValue("host")
	caller, term := callerOf(ctx), p.o.Lead().Term
	// good: this server leads as it did at first, and the agent is a member still.
	good := func() bool {
		now := p.o.Lead()
		return now.Here && now.Term == term && (p.o.Revoked == nil || !p.o.Revoked(caller.Serial))
	}
	conn := http.NewResponseController(w)
	beat := time.NewTicker(p.o.Heartbeat)
	defer beat.Stop()
	var encoder desiredEncoder
	var servers []string
	var revoked []pki.Revocation
	var gossip string
	// aside of the desired state, what agents should know.
	aside := func(f *Frame) {
		if now := p.servers(); !slices.Equal(now, servers) {
			f.Servers, servers = now, now
		}
		if now := p.revocations(); !slices.Equal(now, revoked) {
			f.Revoked, revoked = now, now
		}
		if now := p.gossipVersion(); now != gossip {
			f.Gossip, gossip = now, now
		}
	}
	begun := false
	var later *agent.Desired  // what can wait
	var soon <-chan time.Time // when that is sent; nil while nothing waits
	spacing := minSpacing
	send := func(f Frame) error {
		var line bytes.Buffer
		if err := json.NewEncoder(&line).Encode(f); err != nil {
			return fmt.Errorf("encode desired state: %w", err)
		}
		if line.Len() > maxFrame {
			return fmt.Errorf("desired state of host %s: %d bytes: %w", host, line.Len(), ErrTooLarge)
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			begun = true
		}
		_ = conn.SetWriteDeadline(time.Now().Add(frameTime)) // a writer without deadlines is a test's
		if _, err := w.Write(line.Bytes()); err != nil {
			return err
		}
		beat.Reset(p.o.Heartbeat) // any frame is a sign of life
		return conn.Flush()
	}
	for {
		want, changed, err := p.o.Leader.Desired(ctx, host)
		switch {
		case err != nil:
		case encoder.canWait(want):
			if later, spacing = &want, min(2*spacing, maxSpacing); soon == nil {
				soon = time.After(p.o.Heartbeat / 2)
			}
		default:
			later, soon, spacing = nil, nil, minSpacing
			f, _ := encoder.frame(want)
			aside(&f)
			err = send(f)
		}
		if err != nil {
			if !begun {
				p.fail(w, r, err)
			} else if ctx.Err() == nil {
				p.o.Log.DebugContext(ctx, "a stream of desired state ends", "host", host, "error", err)
			}
			return
		}
		checkedAt := time.Now()
	wait:
		for {
			select {
			case <-changed:
				break wait
			case <-beat.C:
			case <-soon:
			case <-p.draining:
				return
			case <-ctx.Done():
				return
			}
			if !good() {
				return
			}
			f := Frame{N: encoder.n}
			if later != nil {
				if next, differs := encoder.frame(*later); differs {
					f = next
				}
			}
			later, soon = nil, nil
			aside(&f)
			if send(f) != nil {
				return
			}
		}
		if early := spacing - time.Since(checkedAt); early > 0 {
			select {
			case <-time.After(early):
			case <-ctx.Done():
				return
			}
		}
		if !good() {
			return
		}
	}
}

func (p *Peers) revocations() []pki.Revocation {
	if p.o.Revocations == nil {
		return nil
	}
	return p.o.Revocations()
}

func (p *Peers) servers() []string {
	if p.o.Servers == nil {
		return nil
	}
	return p.o.Servers()
}
