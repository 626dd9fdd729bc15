package state

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The certificates of a member that have not ended are bounded, and each but the first is an event.
func TestCertificatesOfAMember(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	s := New()
	w := newWriter(s.db.Txn(true), 1, at)
	defer w.txn.Abort()
	w.put(tMembers, &Member{Name: "h1", Agent: true, Serials: []Serial{{Number: "over", Until: at.Add(-time.Second)}}})
	refused := 0
	for i := range 20 {
		err := w.certificate(&Certificate{Member: "h1", Serial: Serial{Number: fmt.Sprintf("%02x", i), Until: at.Add(time.Hour)}})
		switch {
		case errors.Is(err, ErrConflict):
			refused++
		case err != nil:
			t.Fatal(err)
		}
	}
	if err := w.certificate(&Certificate{Member: "h2", Serial: Serial{Number: "01", Until: at}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no member: %v", err)
	}
	m, _ := w.read().Member("h1")
	if len(m.Serials) != MaxSerials || refused != 20-MaxSerials || m.Certificates(at) != MaxSerials || m.Has("over") || !m.Has("00") {
		t.Errorf("%d certificates are recorded, %d were refused", len(m.Serials), refused)
	}
	events := 0
	for _, e := range all[Event](w.read(), tEvents, "id") {
		if e.Kind == "certificate-renewed" && e.Name == "h1" {
			events++
		}
	}
	if events != MaxSerials-1 {
		t.Errorf("%d events, want %d", events, MaxSerials-1)
	}
	// Those that have ended make place.
	w.at = at.Add(2 * time.Hour)
	if err := w.certificate(&Certificate{Member: "h1", Serial: Serial{Number: "ff", Until: at.Add(3 * time.Hour)}}); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
}

func TestTokenAdmits(t *testing.T) {
	at, hash := time.Unix(1_000_000, 0), "a1"
	good := JoinToken{ID: "t", Hash: hash, Agent: true, Until: at}
	agent := Member{Name: "h1", Agent: true}
	with := func(f func(*JoinToken)) JoinToken { t := good; f(&t); return t }
	for _, c := range []struct {
		what   string
		token  JoinToken
		hash   string
		member Member
		ok     bool
	}{
		{"good", good, hash, agent, true},
		{"for that member", with(func(t *JoinToken) { t.For = "h1" }), hash, agent, true},
		{"not known", JoinToken{}, hash, agent, false},
		{"not known, and no secret", JoinToken{}, "", Member{}, false},
		{"not known, and the hash it is compared with", JoinToken{}, noHash, Member{}, false},
		{"another secret", good, "a2", agent, false},
		{"no secret", good, "", agent, false},
		{"used", with(func(t *JoinToken) { t.UsedBy = "h1" }), hash, agent, false},
		{"over", with(func(t *JoinToken) { t.Until = at.Add(-1) }), hash, agent, false},
		{"more roles", good, hash, Member{Name: "h1", Agent: true, Server: true}, false},
		{"for another member", with(func(t *JoinToken) { t.For = "h2" }), hash, agent, false},
	} {
		if err := c.token.Admits(c.hash, c.member, at); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
