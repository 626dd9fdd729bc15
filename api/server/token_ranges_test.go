package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/test/site"
)

// from is a client at an address.
func (s *several) from(address string) *http.Client {
	tr := s.http.Transport.(*http.Transport).Clone()
	dial := s.network.From(netip.MustParseAddr(address))
	tr.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) { return dial(ctx, network, to) }
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// A token with ranges is good at the client's own address alone, whichever server it asks and whatever its headers say.
func TestTokenRangesOfManyServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{})
		leader, follower := s.leads()
		api := s.client(leader)
		r, err := api.Create(t.Context(), small("a", 1))
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		k, err := api.MakeToken(t.Context(), v1.TokenRequest{Name: "ci", Role: "operator", From: []string{"198.51.100.0/24", "2001:db8::/48"}})
		must(t, err)
		ask := func(address, on, path string, header ...string) int {
			t.Helper()
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address(on)+path, nil)
			must(t, err)
			q.Header.Set("Authorization", "Bearer "+k.Token)
			for i := 0; i < len(header); i += 2 {
				q.Header.Set(header[i], header[i+1])
			}
			resp, err := s.from(address).Do(q)
			must(t, err)
			defer resp.Body.Close() //nolint:errcheck // a test
			if resp.StatusCode == http.StatusForbidden {
				var p v1.Problem
				must(t, json.NewDecoder(resp.Body).Decode(&p))
				if !strings.Contains(p.Detail, "good from other addresses, not from "+address) || strings.Contains(p.Detail, "198.51") || strings.Contains(p.Detail, "ci") {
					t.Errorf("the refusal says %q", p.Detail)
				}
				if resp.Header.Get("Evenkeel-Index") != "" {
					t.Error("the refusal shows the index of the log")
				}
			}
			return resp.StatusCode
		}
		paths := []string{"/v1/vms", "/v1/vms?consistency=stale", "/v1/events?follow=false", "/v1/vms/a-w-0/console", "/v1/vms/a-w-0/console?consistency=stale", "/v1/operations/x?wait=60s", "/v1/nothing", "/openapi.json"}
		for _, on := range []string{leader, follower} {
			for _, address := range []string{"198.51.100.7", "::ffff:198.51.100.7", "2001:db8::9"} {
				if got := ask(address, on, "/v1/vms"); got != http.StatusOK {
					t.Errorf("from %s on %s: %d", address, on, got)
				}
			}
			for _, path := range paths {
				if got := ask("203.0.113.5", on, path); got != http.StatusForbidden {
					t.Errorf("%s from elsewhere on %s: %d", path, on, got)
				}
				if got := ask("127.0.0.1", on, path); got != http.StatusForbidden {
					t.Errorf("%s from loopback on %s: %d", path, on, got)
				}
			}
			for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Evenkeel-Client", "True-Client-Ip", "Client-Ip"} {
				for _, value := range []string{"198.51.100.7", "198.51.100.7:4000", "for=198.51.100.7"} {
					if got := ask("203.0.113.5", on, "/v1/vms", name, value); got != http.StatusForbidden {
						t.Errorf("%s: %s on %s: %d", name, value, on, got)
					}
					if got := ask("198.51.100.7", on, "/v1/vms", name, strings.ReplaceAll(value, "198.51.100.7", "203.0.113.5"), "Connection", name); got != http.StatusOK {
						t.Errorf("from inside, with %s: %s on %s: %d", name, value, on, got)
					}
				}
			}
			ws, resp, err := websocket.Dial(t.Context(), "wss://"+s.Address(on)+"/v1/vms/a-w-0/console", &websocket.DialOptions{HTTPClient: s.from("198.51.100.7"),
				HTTPHeader: http.Header{"Authorization": {"Bearer " + k.Token}}, CompressionMode: websocket.CompressionDisabled})
			if err != nil {
				t.Fatalf("a console from inside on %s: %v, %v", on, err, resp)
			}
			must(t, ws.CloseNow())
			a, err := s.Member(on).Trail().Query(t.Context(), audit.Filter{Actor: k.ID})
			must(t, err)
			refused := 0
			for _, row := range a.Items {
				if row.Outcome == audit.Refused && row.Actor.ID == "token:"+k.ID && strings.HasPrefix(row.Actor.Client, "203.0.113.5:") && strings.Contains(row.Detail, "none of the token's ranges") {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("the audit log of %s does not say that the token was used from elsewhere: %+v", on, a.Items)
			}
		}
		all, err := api.Tokens(t.Context())
		must(t, err)
		for _, row := range all {
			if row.ID == k.ID && strings.Join(row.From, ",") != "198.51.100.0/24,2001:db8::/48" {
				t.Errorf("listed: %+v", row)
			}
		}
	})
}

// A token with ranges makes none that is good elsewhere.
func TestTokenRangesOfNewTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 1, site.Options{})
		k, err := s.client("h1").MakeToken(t.Context(), v1.TokenRequest{Name: "ci", Role: "admin", From: []string{"198.51.100.0/24", "192.0.2.1"}})
		must(t, err)
		inside := s.from("198.51.100.7")
		for _, c := range []struct {
			from   string
			status int
			want   string
		}{
			{``, 201, `"from":["192.0.2.1/32","198.51.100.0/24"]`},
			{`,"from":[]`, 201, `"from":["192.0.2.1/32","198.51.100.0/24"]`},
			{`,"from":["198.51.100.128/25"]`, 201, `"from":["198.51.100.128/25"]`},
			{`,"from":["198.51.100.0/23"]`, 422, "leave it out for the same"},
			{`,"from":["198.51.0.0/16"]`, 422, "leave it out for the same"},
			{`,"from":["0.0.0.0/0"]`, 422, "leave it out for the same"},
			{`,"from":["198.51.100.7","203.0.113.5"]`, 422, "leave it out for the same"},
			{`,"from":[""]`, 422, "is no range"},
			{`,"from":["` + strings.Repeat("1.1.1.1\",\"", 16) + `1.1.1.1"]`, 422, "from"},
			{`,"from":"198.51.100.7"`, 422, "from"},
		} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.Address("h1")+"/v1/tokens", strings.NewReader(`{"name":"x","role":"operator"`+c.from+`}`))
			must(t, err)
			q.Header.Set("Authorization", "Bearer "+k.Token)
			q.Header.Set("Content-Type", "application/json")
			resp, err := inside.Do(q)
			must(t, err)
			b := make([]byte, 4096)
			n, _ := resp.Body.Read(b)
			must(t, resp.Body.Close())
			if resp.StatusCode != c.status || !strings.Contains(string(b[:n]), c.want) {
				t.Errorf("%s: %d %s", c.from, resp.StatusCode, b[:n])
			}
		}
	})
}

// A token with ranges gives no power to what is good elsewhere: neither to other tokens, nor to people, nor to new members.
func TestTokenRangesOfBindingsAndMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 1, site.Options{})
		token := func(name, role string, from ...string) v1.Token {
			t.Helper()
			k, err := s.client("h1").MakeToken(t.Context(), v1.TokenRequest{Name: name, Role: role, From: from})
			must(t, err)
			return k
		}
		admin := token("admin", "admin", "198.51.100.0/24")
		inside := s.from("198.51.100.7")
		grant := func(kind, name string) string {
			return `{"subject":{"kind":"` + kind + `","name":"` + name + `"},"role":"operator"}`
		}
		for _, c := range []struct {
			name, path, body string
			status           int
			want             string
		}{
			{"everywhere", "/v1/role-bindings", grant("token", token("everywhere", "auditor").ID), 403, "good where the token that asks is not"},
			{"elsewhere", "/v1/role-bindings", grant("token", token("elsewhere", "auditor", "203.0.113.0/24").ID), 403, "good where the token that asks is not"},
			{"wider", "/v1/role-bindings", grant("token", token("wider", "auditor", "198.51.0.0/16").ID), 403, "good where the token that asks is not"},
			{"partly", "/v1/role-bindings", grant("token", token("partly", "auditor", "198.51.100.9", "203.0.113.5").ID), 403, "good where the token that asks is not"},
			{"everywhere, dry run", "/v1/role-bindings?dryRun=true", grant("token", token("dry", "auditor").ID), 403, "good where the token that asks is not"},
			{"a person", "/v1/role-bindings", grant("user", "anna"), 403, "good where the token that asks is not"},
			{"a group", "/v1/role-bindings", grant("group", "crew"), 403, "good where the token that asks is not"},
			{"equal", "/v1/role-bindings", grant("token", token("equal", "auditor", "198.51.100.0/24").ID), 201, ""},
			{"narrower", "/v1/role-bindings", grant("token", token("narrower", "auditor", "198.51.100.128/25").ID), 201, ""},
			{"a member", "/v1/cluster/join-tokens", `{"agent":true}`, 403, "let in where the token that asks is not good"},
		} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.Address("h1")+c.path, strings.NewReader(c.body))
			must(t, err)
			q.Header.Set("Authorization", "Bearer "+admin.Token)
			q.Header.Set("Content-Type", "application/json")
			resp, err := inside.Do(q)
			must(t, err)
			b, err := io.ReadAll(resp.Body)
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != c.status || !strings.Contains(string(b), c.want) {
				t.Errorf("%s: %d %s", c.name, resp.StatusCode, b)
			}
		}
	})
}
