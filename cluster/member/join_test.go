package member_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// Without a good token the log has nothing of a request to join, however often it is made. Every token that is not good is
// refused with the same error, and before another fault of the request is reported.
func TestAdmitWithoutToken(t *testing.T) {
	s := newSite(t, 2)
	m := s.first()
	ctx := t.Context()
	token := func(life time.Duration, row state.JoinToken) pki.JoinToken {
		t.Helper()
		text, _, err := m.NewToken(ctx, life, row)
		if err != nil {
			t.Fatal(err)
		}
		k, err := pki.ParseJoinToken(text)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	open, over := token(time.Hour, state.JoinToken{Agent: true}), token(-time.Second, state.JoinToken{Agent: true})
	used, other := token(time.Hour, state.JoinToken{Agent: true}), token(time.Hour, state.JoinToken{Server: true, For: "h1"})
	if _, err := member.Join(ctx, t.TempDir(), "h2", "127.0.0.1:1", member.JoinOptions{Token: used.Text(), Addresses: []string{s.at["h1"]}}); err != nil {
		t.Fatal(err)
	}
	secret := func() string {
		b := make([]byte, 22)
		_, _ = rand.Read(b)
		return hex.EncodeToString(b)[:43]
	}
	forms := map[string]func() transport.JoinRequest{
		"an unknown token":         func() transport.JoinRequest { return transport.JoinRequest{ID: secret()[:16], Secret: secret()} },
		"no token":                 func() transport.JoinRequest { return transport.JoinRequest{} },
		"a wrong secret":           func() transport.JoinRequest { return transport.JoinRequest{ID: open.ID, Secret: secret()} },
		"a wrong secret, own PKI":  func() transport.JoinRequest { return transport.JoinRequest{ID: open.ID, Secret: secret(), Chain: "x"} },
		"a token that was used":    func() transport.JoinRequest { return transport.JoinRequest{ID: used.ID, Secret: used.Secret} },
		"a token that is over":     func() transport.JoinRequest { return transport.JoinRequest{ID: over.ID, Secret: over.Secret} },
		"a token for another":      func() transport.JoinRequest { return transport.JoinRequest{ID: other.ID, Secret: other.Secret} },
		"a wrong secret of a vote": func() transport.JoinRequest { return transport.JoinRequest{ID: other.ID, Secret: secret(), Name: "h1"} },
		"900,000 bytes of address": func() transport.JoinRequest {
			return transport.JoinRequest{ID: open.ID, Secret: secret(), Address: strings.Repeat("a", 900_000) + ":1"}
		},
		"an unknown token's secret": func() transport.JoinRequest { return transport.JoinRequest{ID: open.ID, Secret: used.Secret} },
	}
	before := m.Index()
	for range 100 {
		for what, form := range forms {
			q := form()
			if q.Name == "" {
				q.Name = "n" + secret()[:8]
			}
			if _, err := m.Admit(ctx, q); !errors.Is(err, state.ErrToken) {
				t.Fatalf("%s: %v", what, err)
			}
			if err := m.MayJoin(ctx, q); !errors.Is(err, state.ErrToken) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	if grown := m.Index() - before; grown > 50 {
		t.Errorf("%d refusals: the log has %d entries more", 100*len(forms), grown)
	}
	// What is wrong beside the token is asked to who has one.
	q := transport.JoinRequest{ID: open.ID, Secret: open.Secret, Name: "n1", Address: "host"}
	if err := m.MayJoin(ctx, q); err != nil {
		t.Errorf("a good token: %v", err)
	}
	if _, err := m.Admit(ctx, q); err == nil || errors.Is(err, state.ErrToken) || !strings.Contains(err.Error(), "address") {
		t.Errorf("an address without a port: %v", err)
	}
}

// What cannot be done for a server that joins is found before its token is used, or the answer says that another token is needed.
func TestAdmitNotToTheEnd(t *testing.T) {
	s := newSite(t, 2)
	m := s.first()
	ask := func(row state.JoinToken, address string) error {
		t.Helper()
		row.Server = true
		text, _, err := m.NewToken(t.Context(), time.Hour, row)
		if err != nil {
			t.Fatal(err)
		}
		k, err := pki.ParseJoinToken(text)
		if err != nil {
			t.Fatal(err)
		}
		key, err := pki.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		request, err := pki.NewRequest(key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Admit(t.Context(), transport.JoinRequest{ID: k.ID, Secret: k.Secret, Name: "h2", Address: address, Request: string(request)})
		return err
	}
	if err := ask(state.JoinToken{}, s.at["h1"]); !errors.Is(err, node.ErrRefused) || !strings.Contains(err.Error(), s.at["h1"]+" is the address of server h1") {
		t.Errorf("the address of another server: %v", err)
	}
	if _, known := m.State.Snapshot().Member("h2"); known {
		t.Error("h2 is a member, and was refused")
	}
	key := filepath.Join(s.dirs["h1"], "gossip.key")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	if err := ask(state.JoinToken{}, "127.0.0.1:1"); !errors.Is(err, leader.ErrConflict) || !strings.Contains(err.Error(), "vcctl cluster join-token --for h2") {
		t.Errorf("a key is missing: %v", err)
	}
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	if err := ask(state.JoinToken{For: "h2"}, "127.0.0.1:1"); err != nil {
		t.Errorf("with another token: %v", err)
	}
}

// A certificate is renewed for a member that shows a recorded one, a few times in ten minutes. A refused renewal leaves no
// entry in the log.
func TestRenewals(t *testing.T) {
	s := newSite(t, 1)
	m := s.first()
	id := m.Identity()
	s.eventually("its certificate is recorded", func() bool {
		row, ok := m.State.Snapshot().Member("h1")
		return ok && len(row.Serials) == 1
	})
	row, _ := m.State.Snapshot().Member("h1")
	serial := row.Serials[0].Number
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	renew := func(serial string, request []byte) error {
		_, err := m.Renew(t.Context(), id, serial, request)
		return err
	}
	before := m.Index()
	for range 100 {
		if err := renew("0123", request); !errors.Is(err, leader.ErrConflict) {
			t.Fatalf("another serial: %v", err)
		}
		if err := renew(serial, []byte("x")); err == nil {
			t.Fatal("no request")
		}
		if err := m.Record(t.Context(), id, serial, nil); err != nil {
			t.Fatalf("what is recorded: %v", err)
		}
	}
	for range 3 {
		if err := renew(serial, request); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		if err := renew(serial, request); !errors.Is(err, transport.ErrThrottled) {
			t.Fatalf("more than three at once: %v", err)
		}
	}
	if row, _ := m.State.Snapshot().Member("h1"); len(row.Serials) != 4 {
		t.Errorf("certificates of the member: %+v", row.Serials)
	}
	if grown := m.Index() - before; grown > 50 {
		t.Errorf("three renewals: the log has %d entries more", grown)
	}
}
