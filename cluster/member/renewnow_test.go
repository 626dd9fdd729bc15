package member_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
)

// A member renews its certificate when a server asks it to, over real TLS: the leader itself, another server, and an agent alone. Its host
// keeps its lease. A member that does not answer keeps what it has, and the fourth renewal at once is refused.
func TestRenewNow(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		s.first()
		s.join("h2", true)
		s.join("h3", false)
		s.eventually("three hosts report", func() bool { return s.ready() == 3 })
		l := s.leader()
		serials := func(name string) (out []string) {
			row, _ := l.State.Snapshot().Member(name)
			for _, c := range row.Serials {
				out = append(out, c.Number)
			}
			return out
		}
		for _, name := range []string{"h1", "h2", "h3"} {
			s.eventually("the certificate of "+name+" is recorded", func() bool { return len(serials(name)) == 1 })
			got, err := l.RenewCertificate(t.Context(), name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if now := serials(name); len(now) != 2 || now[1] != got.Serial || got.Until.IsZero() {
				t.Errorf("%s has %v, and says that it has %+v now", name, now, got)
			}
		}
		if s.ready() != 3 {
			t.Error("a host lost its lease by the renewal")
		}
		var err error
		for range 4 {
			if _, err = l.RenewCertificate(t.Context(), "h3"); err != nil {
				break
			}
		}
		if !errors.Is(err, leader.ErrConflict) || !strings.Contains(err.Error(), "h3 has had 3 certificates") {
			t.Errorf("more than three at once: %v", err)
		}
		if _, err := l.RenewCertificate(t.Context(), "h9"); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("no member: %v", err)
		}
		before := len(serials("h3"))
		s.stop("h3")
		if _, err := l.RenewCertificate(t.Context(), "h3"); !errors.Is(err, hypervisor.ErrUnavailable) || !strings.Contains(err.Error(), "not known whether it has a new one: see vcctl cluster certificates list") {
			t.Errorf("a member that is down: %v", err)
		}
		if now := serials("h3"); len(now) != before {
			t.Errorf("a member that is down has %v", now)
		}
	})
}

// A member that has half of the certificates that its row may hold is not asked.
func TestRenewNowLeavesPlaces(t *testing.T) {
	bubble(t, 1, func(t *testing.T, s *site) {
		l := s.first()
		row := func() state.Member {
			m, _ := l.State.Snapshot().Member("h1")
			return m
		}
		s.eventually("the certificate is recorded", func() bool { return len(row().Serials) == 1 })
		for i := range state.MaxSerials/2 - 1 {
			serial := state.Serial{Number: fmt.Sprintf("%032x", i), Until: time.Now().Add(time.Hour)}
			if err := l.Propose(t.Context(), state.KindCertificate, state.Certificate{Member: "h1", Serial: serial}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.RenewCertificate(t.Context(), "h1"); !errors.Is(err, leader.ErrConflict) || len(row().Serials) != state.MaxSerials/2 {
			t.Errorf("%v, %d certificates", err, len(row().Serials))
		}
	})
}

// A member whose row is full is refused by the leader for good: the operator gets a conflict, not an answer that asks to try again.
func TestRenewNowOfAFullRow(t *testing.T) {
	bubble(t, 2, func(t *testing.T, s *site) {
		l := s.first()
		s.join("h2", false)
		s.eventually("two hosts report", func() bool { return s.ready() == 2 })
		for i := range state.MaxSerials {
			serial := state.Serial{Number: fmt.Sprintf("%032x", i), Until: time.Now().Add(time.Hour)}
			if row, _ := l.State.Snapshot().Member("h2"); len(row.Serials) == state.MaxSerials {
				break
			}
			if err := l.Propose(t.Context(), state.KindCertificate, state.Certificate{Member: "h2", Serial: serial}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.up["h2"].RenewNow(t.Context())
		if said, detail := transport.AnswerOf(err); said != transport.Conflict || !strings.Contains(detail, "16 certificates") {
			t.Errorf("%v", err)
		}
	})
}
