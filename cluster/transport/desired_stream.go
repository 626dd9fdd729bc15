package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

const (
	frameTime  = 10 * time.Second       // for one write to a stream
	minSpacing = 10 * time.Millisecond  // between two looks at a host's desired state,
	maxSpacing = 250 * time.Millisecond // while what changes does not concern the host
)

// desired streams a host's desired state, for as long as this server leads in the same term.
func (p *Peers) desired(w http.ResponseWriter, r *http.Request) {
	ctx, host := r.Context(), r.PathValue("host")
	caller, term := callerOf(ctx), p.o.Lead().Term
	// good: this server leads as it did at first, and the agent is a member still.
	good := func() bool {
		now := p.o.Lead()
		return now.Here && now.Term == term && (p.o.Revoked == nil || !p.o.Revoked(caller.Serial))
	}
	s := desiredStream{p: p, host: host, w: w, conn: http.NewResponseController(w), beat: time.NewTicker(p.o.Heartbeat), spacing: minSpacing}
	defer s.beat.Stop()
	for {
		want, changed, err := p.o.Leader.Desired(ctx, host)
		if err == nil {
			err = s.take(want)
		}
		if err != nil {
			if !s.begun {
				p.fail(w, r, err)
			} else if ctx.Err() == nil {
				p.o.Log.DebugContext(ctx, "a stream of desired state ends", "host", host, "error", err)
			}
			return
		}
		checkedAt := time.Now()
		if !s.await(ctx, changed, good) {
			return
		}
		if early := s.spacing - time.Since(checkedAt); early > 0 {
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

// desiredStream is the answer to an agent that reads its host's desired state.
type desiredStream struct {
	p       *Peers
	host    string
	w       http.ResponseWriter
	conn    *http.ResponseController
	begun   bool         // something was sent
	beat    *time.Ticker // a frame is due, however little it says
	encoder desiredEncoder
	later   *agent.Desired   // what can wait
	soon    <-chan time.Time // when that is sent; nil while nothing waits
	spacing time.Duration    // between two looks at the desired state

	// What agents should know besides the desired state, as it was sent last.
	servers []string
	revoked []pki.Revocation
	gossip  string
}

// take sends a state, or keeps it for later where nothing of it matters to the host.
func (s *desiredStream) take(want agent.Desired) error {
	if s.encoder.canWait(want) {
		s.later, s.spacing = &want, min(2*s.spacing, maxSpacing)
		if s.soon == nil {
			s.soon = time.After(s.p.o.Heartbeat / 2)
		}
		return nil
	}
	s.later, s.soon, s.spacing = nil, nil, minSpacing
	f, _ := s.encoder.frame(want)
	return s.send(f)
}

// await sends heartbeats, and what could wait, until the desired state changes. It is false if the stream ends.
func (s *desiredStream) await(ctx context.Context, changed <-chan struct{}, good func() bool) bool {
	for {
		select {
		case <-changed:
			return true
		case <-s.beat.C:
		case <-s.soon:
		case <-s.p.draining:
			return false
		case <-ctx.Done():
			return false
		}
		if !good() {
			return false
		}
		f := Frame{N: s.encoder.n}
		if s.later != nil {
			if next, differs := s.encoder.frame(*s.later); differs {
				f = next
			}
		}
		s.later, s.soon = nil, nil
		if s.send(f) != nil {
			return false
		}
	}
}

// send writes a frame, with what agents should know besides where that has changed.
func (s *desiredStream) send(f Frame) error {
	if now := s.p.servers(); !slices.Equal(now, s.servers) {
		f.Servers, s.servers = now, now
	}
	if now := s.p.revocations(); !slices.Equal(now, s.revoked) {
		f.Revoked, s.revoked = now, now
	}
	if now := s.p.gossipVersion(); now != s.gossip {
		f.Gossip, s.gossip = now, now
	}
	var line bytes.Buffer
	if err := json.NewEncoder(&line).Encode(f); err != nil {
		return fmt.Errorf("encode desired state: %w", err)
	}
	if line.Len() > maxFrame {
		return fmt.Errorf("desired state of host %s: %d bytes: %w", s.host, line.Len(), ErrTooLarge)
	}
	if !s.begun {
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.w.Header().Set("Cache-Control", "no-store")
		s.begun = true
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(frameTime)) // a writer without deadlines is a test's
	if _, err := s.w.Write(line.Bytes()); err != nil {
		return err
	}
	s.beat.Reset(s.p.o.Heartbeat) // any frame is a sign of life
	return s.conn.Flush()
}
