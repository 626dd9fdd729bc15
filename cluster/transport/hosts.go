package transport

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// Kinds of calls that an agent makes, each in an order of its own.
const (
	callReport = "report"
	callRenew  = "renew"
	callPermit = "permit"
	callPeers  = "peers"
)

// line is what an agent last sent to this leader. The agent's calls carry a session that the leader gave it, and a number that grows.
// Those of a kind are answered one by one in the order of numbers. A call is refused if a later one of its kind arrived before its
// turn: what it reports may not be so any more.
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
