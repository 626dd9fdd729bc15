package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
	"evenkeel/test/site"
)

// openRequest is something that runs with a token, opened on some server.
type openRequest struct {
	what  string
	ended chan ending
}

// ending is how it ended: what was read last, and when.
type ending struct {
	said string
	err  error
	at   time.Time
}

// tokenStore opens what runs with a token.
type tokenStore struct {
	*several
	token string
}

func (k tokenStore) get(name, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(k.t.Context(), http.MethodGet, "https://"+k.Address(name)+path, nil)
	must(k.t, err)
	r.Header.Set("Authorization", "Bearer "+k.token)
	return k.http.Do(r)
}

// stream of events, open once its first line has come.
func (k tokenStore) stream(name, query string) openRequest {
	resp, err := k.get(name, "/v1/events"+query)
	must(k.t, err)
	if resp.StatusCode != http.StatusOK {
		k.t.Fatalf("a stream on %s: %s", name, resp.Status)
	}
	lines := bufio.NewReader(resp.Body)
	_, err = lines.ReadString('\n')
	must(k.t, err)
	h := openRequest{"event stream " + query + " on " + name, make(chan ending, 1)}
	go func() {
		defer resp.Body.Close() //nolint:errcheck // read to its end
		rest, err := io.ReadAll(lines)
		h.ended <- ending{string(rest), err, time.Now()}
	}()
	return h
}

// poll for what does not come.
func (k tokenStore) poll(name, path string) openRequest {
	h := openRequest{"long poll " + path + " on " + name, make(chan ending, 1)}
	go func() {
		resp, err := k.get(name, path)
		if err != nil {
			h.ended <- ending{"", err, time.Now()}
			return
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end
		b, err := io.ReadAll(resp.Body)
		h.ended <- ending{resp.Status + " " + string(b), err, time.Now()}
	}()
	return h
}

// console of a VM, open once its first output has come.
func (k tokenStore) console(name, vm string) openRequest {
	ws, resp, err := websocket.Dial(k.t.Context(), "wss://"+k.Address(name)+"/v1/vms/"+vm+"/console", &websocket.DialOptions{HTTPClient: k.http,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + k.token}}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		k.t.Fatalf("console of %s on %s: %v, %v", vm, name, err, resp)
	}
	_, _, err = ws.Read(k.t.Context())
	must(k.t, err)
	h := openRequest{"console of " + vm + " on " + name, make(chan ending, 1)}
	go func() {
		var err error
		for err == nil {
			_, _, err = ws.Read(k.t.Context())
		}
		h.ended <- ending{err.Error(), nil, time.Now()}
	}()
	return h
}

// What runs with a token ends when the token is revoked, on the leader, on a follower, and through one; what runs
// with another goes on.
func TestRevokedTokensEndWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{})
		leader, follower := s.leads()
		api := s.client(leader)
		r, err := api.Create(t.Context(), small("a", 4))
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		large := small("large", 6) // 3 hosts hold it once, not twice
		large.Groups[0].CPU, large.OnFull = 7, "queue"
		_, err = api.Create(t.Context(), large)
		must(t, err)
		large.Name = "waits"
		queued, err := api.Create(t.Context(), large)
		must(t, err)
		if queued.Operation == nil {
			t.Fatalf("%+v", queued)
		}
		make := func(name string) (v1.Token, tokenStore) {
			k, err := api.MakeToken(t.Context(), v1.TokenRequest{Name: name, Role: "operator"})
			must(t, err)
			return k, tokenStore{s, k.Token}
		}
		leaked, with := make("leaked")
		_, other := make("other")
		v, err := api.Status(t.Context())
		must(t, err)
		polls := []string{"/v1/operations/" + queued.Operation.ID + "?wait=60s", fmt.Sprintf("/v1/plans?wait=60s&index=%d", v.Index)}

		var all []openRequest
		for i, name := range []string{leader, follower} {
			all = append(all, with.stream(name, ""), with.stream(name, "?consistency=stale"), with.console(name, fmt.Sprintf("a-w-%d", i)))
			for _, path := range polls {
				all = append(all, with.poll(name, path))
			}
		}
		all = append(all, with.poll(follower, polls[1]+"&consistency=stale"))
		var stay []openRequest
		for i, name := range []string{leader, follower} {
			stay = append(stay, other.stream(name, ""), other.console(name, fmt.Sprintf("a-w-%d", i+2)))
		}
		var would v1.TokenRevocation
		if err := s.Await(t.Context(), "all long polls have come to the leader", func() bool {
			would, err = api.RevokeToken(t.Context(), leaked.ID, client.DryRun())
			return err == nil && would.LongPolls == 4
		}); err != nil {
			t.Fatalf("%v: %+v", err, would)
		}
		// Through the follower and on the leader: 2 streams on the leader, 1 through the follower, whose other one is its own.
		if !would.DryRun || would.EventStreams != 3 || would.Consoles != 2 || !strings.Contains(would.Text, "would be revoked") {
			t.Errorf("dry run: %+v", would)
		}
		for _, h := range append(all, stay...) {
			select {
			case e := <-h.ended:
				t.Errorf("%s ended before its time: %+v", h.what, e)
			default:
			}
		}
		if t.Failed() {
			return
		}
		begun := time.Now()
		did, err := s.client(follower).RevokeToken(t.Context(), leaked.ID)
		must(t, err)
		if did.DryRun || did.ID != leaked.ID || did.Role != "operator" {
			t.Errorf("%+v", did)
		}
		for _, h := range all {
			select {
			case e := <-h.ended:
				t.Logf("%s ended after %s", h.what, e.at.Sub(begun).Round(time.Millisecond))
				if e.err != nil || !strings.Contains(e.said, "the token was revoked") {
					t.Errorf("%s: it does not say why it ended: %q, %v", h.what, e.said, e.err)
				}
				if strings.HasPrefix(h.what, "long poll") && !strings.HasPrefix(e.said, "401 ") {
					t.Errorf("%s: %s", h.what, e.said)
				}
				if strings.HasPrefix(h.what, "console") && !strings.Contains(e.said, "StatusPolicyViolation") {
					t.Errorf("%s: %s", h.what, e.said)
				}
			case <-time.After(patience.Within(patience.Stall)):
				t.Errorf("%s runs on", h.what)
			}
		}
		for _, h := range stay {
			select {
			case e := <-h.ended:
				t.Errorf("%s of another token ended: %+v", h.what, e)
			default:
			}
		}
		for _, name := range []string{leader, follower} {
			for _, path := range []string{"/v1/vms", "/v1/vms?consistency=stale"} {
				resp, err := with.get(name, path)
				must(t, err)
				must(t, resp.Body.Close())
				if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s on %s: %s", path, name, resp.Status)
				}
			}
		}
		if e := s.event("token-revoked", leaked.ID); !strings.Contains(e.Text, "leaked") || !strings.Contains(e.Text, "site (token:"+site.TokenID+")") {
			t.Errorf("event %+v", e)
		}
	})
}

// Tokens that are made on one server are known to all, and so is when they were used.
func TestTokensOfManyServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{})
		leader, follower := s.leads()
		short := 3600.0
		k, err := s.client(follower).MakeToken(t.Context(), v1.TokenRequest{Name: "scraper", Role: "metrics", Seconds: &short})
		must(t, err)
		with := tokenStore{s, k.Token}
		for _, name := range s.Up() { // each answers /metrics itself
			resp, err := with.get(name, "/metrics")
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != http.StatusOK {
				t.Errorf("/metrics on %s: %s", name, resp.Status)
			}
			resp, err = with.get(name, "/v1/vms")
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("/v1/vms on %s: %s", name, resp.Status)
			}
		}
		k, err = s.client(leader).MakeToken(t.Context(), v1.TokenRequest{Name: "follower's", Role: "metrics"})
		must(t, err)
		resp, err := tokenStore{s, k.Token}.get(follower, "/metrics")
		must(t, err)
		must(t, resp.Body.Close())
		must(t, s.Await(t.Context(), "the leader knows of the use on a follower", func() bool {
			all, err := s.client(leader).Tokens(t.Context())
			must(t, err)
			for _, x := range all {
				if x.ID == k.ID && x.LastUsed != nil {
					return true
				}
			}
			return false
		}))
		if _, err := s.client(leader).RevokeToken(t.Context(), site.TokenID); !client.IsProblem(err, v1.ProblemConflict) || !strings.Contains(err.Error(), "vcctl token create") {
			t.Errorf("the last admin token: %v", err)
		}
	})
}

// Requests about tokens that cannot be meant, and what the answers hold.
func TestTokenRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		for _, q := range []struct {
			method, path, body string
			status             int
			kind, field        string
		}{
			{"POST", "/v1/tokens", `{"role":"admin"}`, 422, v1.ProblemInvalid, "name"},
			{"POST", "/v1/tokens", `{"name":"a","role":"root"}`, 422, v1.ProblemInvalid, "role"},
			{"POST", "/v1/tokens", `{"name":"a"}`, 422, v1.ProblemInvalid, "role"},
			{"POST", "/v1/tokens", `{"name":"a\n","role":"admin"}`, 422, v1.ProblemInvalid, "name"},
			{"POST", "/v1/tokens", `{"name":"` + strings.Repeat("x", 64) + `","role":"admin"}`, 422, v1.ProblemInvalid, "name"},
			{"POST", "/v1/tokens", `{"name":"a","role":"admin","seconds":59}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", "/v1/tokens", `{"name":"a","role":"admin","seconds":-1}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", "/v1/tokens", `{"name":"a","role":"admin","seconds":1e300}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", "/v1/tokens", `{"name":"a","role":"admin","tenant":"t"}`, 422, v1.ProblemInvalid, "tenant"},
			{"POST", "/v1/tokens", `{"name":"a","role":"admin","hash":"beef"}`, 422, v1.ProblemInvalid, "hash"},
			{"POST", "/v1/tokens", `[`, 400, v1.ProblemMalformed, "body"},
			{"POST", "/v1/tokens", ``, 400, v1.ProblemMalformed, "body"},
			{"DELETE", "/v1/tokens/0123456789abcdef", ``, 404, v1.ProblemNotFound, ""},
			{"DELETE", "/v1/tokens/0123456789abcdef?dryRun=true", ``, 404, v1.ProblemNotFound, ""},
			{"DELETE", "/v1/tokens/file", ``, 404, v1.ProblemNotFound, ""},
		} {
			resp, body := c.request(t, q.method, q.path, q.body)
			if resp.StatusCode != q.status {
				t.Errorf("%s %s %s: %s %s, want %d", q.method, q.path, q.body, resp.Status, body, q.status)
				continue
			}
			p := problemIn(t, resp, body)
			if p.Type != q.kind || q.field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != q.field) {
				t.Errorf("%s %s %s: %s", q.method, q.path, q.body, body)
			}
		}
		resp, body := c.request(t, "POST", "/v1/tokens?dryRun=true", `{"name":"a","role":"admin","seconds":3600}`)
		if resp.StatusCode != http.StatusOK || strings.Contains(body, "ekt_") || strings.Contains(body, `"id"`) {
			t.Errorf("dry run: %s %s", resp.Status, body)
		}
		if _, body := c.request(t, "GET", "/v1/tokens", ""); body != "{\"items\":[]}\n" {
			t.Errorf("after all that: %s", body)
		}
		resp, body = c.request(t, "POST", "/v1/tokens", `{"name":"a","role":"admin","seconds":3600}`)
		var made v1.Token
		must(t, json.Unmarshal([]byte(body), &made))
		if resp.StatusCode != http.StatusCreated || resp.Header.Get("Cache-Control") != "no-store" || made.Until == nil || made.MadeBy != "admin.token (token:file)" ||
			!strings.HasPrefix(made.Token, "ekt_"+made.ID+".") || made.Until.Before(time.Now().Add(59*time.Minute)) {
			t.Errorf("made: %s %s", resp.Status, body)
		}
		_, body = c.request(t, "GET", "/v1/tokens", "", "Authorization", "Bearer "+made.Token)
		if strings.Contains(body, made.Token) || strings.Contains(body, "hash") || !strings.Contains(body, `"lastUsed"`) {
			t.Errorf("list: %s", body)
		}
		// In dev the file's token is left, so the last row that does not expire may go.
		lasting, err := c.client(t).MakeToken(t.Context(), v1.TokenRequest{Name: "lasting", Role: "admin"})
		must(t, err)
		if _, err := c.client(t).RevokeToken(t.Context(), lasting.ID); err != nil {
			t.Errorf("the last admin token of the state: %v", err)
		}
		own, err := client.New(client.Config{Address: c.address, CAFile: c.caFile, Token: made.Token, Dial: c.network.Dial})
		must(t, err)
		defer own.Close()
		did, err := own.RevokeToken(t.Context(), made.ID)
		if err != nil || !strings.Contains(did.Text, "the token of this very request") {
			t.Errorf("one's own: %+v, %v", did, err)
		}
		if _, err := own.Tokens(t.Context()); !client.IsProblem(err, v1.ProblemUnauthorized) {
			t.Errorf("after it was revoked: %v", err)
		}
	})
}

// Too many streams with one token are refused, another token's are not.
func TestStreamsOfOneTokenAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		http2 := c.raw(t)
		http2.Transport.(*http.Transport).ForceAttemptHTTP2 = true
		open := func(token string) (*http.Response, error) {
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+"/v1/events", nil)
			must(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			return http2.Do(r)
		}
		api := c.client(t)
		k, err := api.MakeToken(t.Context(), v1.TokenRequest{Name: "many", Role: "auditor"})
		must(t, err)
		var last *http.Response
		for i := range 101 {
			last, err = open(k.Token)
			must(t, err)
			if i < 100 && last.StatusCode != http.StatusOK {
				t.Fatalf("stream %d: %s", i+1, last.Status)
			}
		}
		body, err := io.ReadAll(last.Body)
		must(t, err)
		if last.StatusCode != http.StatusTooManyRequests || last.Header.Get("Retry-After") == "" || !bytes.Contains(body, []byte(v1.ProblemTooMany)) {
			t.Errorf("stream 101: %s %v %s", last.Status, last.Header, body)
		}
		if resp, err := open(c.token); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("another token: %v, %v", resp, err)
		}
		did, err := api.RevokeToken(t.Context(), k.ID, client.DryRun())
		if err != nil || did.EventStreams != 100 {
			t.Errorf("%+v, %v", did, err)
		}
		var refused *client.Error
		if _, err := api.RevokeToken(t.Context(), "no such"); !errors.As(err, &refused) || refused.Problem.Status != 404 {
			t.Errorf("an id that is none: %v", err)
		}
	})
}
