package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// Which requests go on to the next server, and which must not.
func TestSeveralServers(t *testing.T) {
	good := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "{}") }
	leaderless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"type":%q,"title":"No leader"}`, v1.ProblemNoLeader)
	}
	busy := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"type":%q,"title":"Out of reach"}`, v1.ProblemUnavailable)
	}
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) } // the request had arrived
	create := func(c *Client) error {
		_, err := c.Create(t.Context(), v1.VirtualClusterSpec{Name: "a"})
		return err
	}
	token := func(c *Client) error { // a change without a key
		_, err := c.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Agent: true})
		return err
	}
	read := func(c *Client) error { _, err := c.Hosts(t.Context()); return err }
	for _, c := range []struct {
		name  string
		first http.HandlerFunc // nil: no server listens
		do    func(*Client) error
		asked bool // the second server is
	}{
		{"read, no server there", nil, read, true}, {"change, no server there", nil, create, true}, {"change without a key, no server there", nil, token, true},
		{"read, no leader", leaderless, read, true}, {"change, no leader", leaderless, create, true}, {"change without a key, no leader", leaderless, token, true},
		{"read, broken off", breaks, read, true}, {"change, broken off", breaks, create, true}, {"change without a key, broken off", breaks, token, false},
		{"another problem", busy, create, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex // the servers write, the test reads
			wasAsked, lastBody, lastKey, allKeys := 0, "", "", []string{}
			look := func() (int, string, string, []string) {
				mu.Lock()
				defer mu.Unlock()
				return wasAsked, lastBody, lastKey, slices.Clone(allKeys)
			}
			second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				mu.Lock()
				wasAsked, lastBody, lastKey = wasAsked+1, string(b), r.Header.Get("Idempotency-Key")
				mu.Unlock()
				good(w, r)
			}))
			defer second.Close()
			address := "http://127.0.0.1:1"
			if c.first != nil {
				first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					allKeys = append(allKeys, r.Header.Get("Idempotency-Key"))
					mu.Unlock()
					c.first(w, r)
				}))
				defer first.Close()
				address = first.URL
			}
			api, err := New(Config{Address: address + ", " + second.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			err = c.do(api)
			asked, body, key, keys := look()
			if (asked == 1) != c.asked || (err == nil) != c.asked {
				t.Fatalf("the second server was asked %d times: %v", asked, err)
			}
			if c.asked && strings.HasPrefix(c.name, "change") && body == "" {
				t.Error("the body did not go along")
			}
			if len(keys) > 0 && c.asked && keys[0] != key {
				t.Errorf("keys %q and %q", keys[0], key)
			}
			if c.asked { // from now on it is asked first
				err := c.do(api)
				if asked, _, _, keys = look(); err != nil || asked != 2 || len(keys) > 1 {
					t.Errorf("%v, asked %d times, the first one %d", err, asked, len(keys))
				}
			}
		})
	}
	api, err := New(Config{Address: "http://127.0.0.1:1,http://127.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Hosts(t.Context()); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"h:1,", "h:1,http://h:2", ",", "h:1,ftp://x"} {
		if _, err := New(Config{Address: bad}); err == nil {
			t.Errorf("%q is taken for addresses", bad)
		}
	}
}

// While there is no leader a client that has patience asks again, also what changes something: nothing was changed.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration
		silent   int   // answers without a leader
		lowest   int32 // how often it is asked
		highest  int32
		fails    bool
	}{
		"none":   {0, 1, 1, 1, true},
		"enough": {time.Minute, 2, 3, 3, false},
		"over":   {time.Millisecond, 9, 1, 2, true}, // the first answer may take as long
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if int(asked.Add(1)) <= c.silent {
					w.Header().Set("Content-Type", v1.ProblemMediaTypeDefault)
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte(`{"type":"` + v1.ProblemNoLeader + `","title":"No leader","status":503}`))
					return
				}
				if !strings.Contains(string(body), "unlimited") {
					t.Errorf("asked with %q", body)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"plan":{"id":"p"}}`))
			}))
			defer srv.Close()
			api, err := New(Config{Address: srv.URL, Token: "x", Patience: c.patience})
			if err != nil {
				t.Fatal(err)
			}
			bound, err := v1.ParseBound("unlimited")
			if err != nil {
				t.Fatal(err)
			}
			r, err := api.Rebalance(t.Context(), v1.RebalanceRequest{MaxBytes: &bound})
			if (err != nil) != c.fails || !c.fails && r.Plan.ID != "p" || asked.Load() < c.lowest || asked.Load() > c.highest {
				t.Errorf("%v, plan %q, asked %d times", err, r.Plan.ID, asked.Load())
			}
		})
	}
}

// A change whose outcome a server does not know is asked for again, with the same key: it is carried out once. One without a key is not.
func TestUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*Client) error
		asked int
	}{
		"with a key": {func(c *Client) error { _, err := c.Create(t.Context(), v1.VirtualClusterSpec{Name: "a"}); return err }, 2},
		"without a key": {func(c *Client) error {
			_, err := c.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Agent: true})
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var keys []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) == 1 {
					w.Header().Set("Content-Type", v1.ProblemMediaTypeDefault)
					w.WriteHeader(http.StatusGatewayTimeout)
					_, _ = fmt.Fprintf(w, `{"type":%q,"title":"Timed out","status":504}`, v1.ProblemTimeout)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, "{}")
			}))
			defer srv.Close()
			api, err := New(Config{Address: srv.URL, Token: "x", Patience: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.do(api); (err == nil) != (c.asked == 2) || len(keys) != c.asked || keys[0] != keys[len(keys)-1] {
				t.Errorf("%v, asked with the keys %q", err, keys)
			}
		})
	}
}
