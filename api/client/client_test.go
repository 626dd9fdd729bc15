package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// The servers here are scripted, to give answers that the real one gives
// rarely or never. Against the real one the client is tested in package server.

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Config{Address: s.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNew(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string // part of the error, "" for none
	}{
		{Config{}, ""}, {Config{Address: "h:1"}, ""}, {Config{Address: "https://h:1/"}, ""}, {Config{Address: "http://127.0.0.1:1"}, ""},
		{Config{Address: "http://localhost:1"}, ""}, {Config{Address: "http://[::1]:1"}, ""},
		{Config{Address: "http://h:1"}, "use https"}, {Config{Address: "ftp://h"}, "must be like"}, {Config{Address: "https://"}, "must be like"},
		{Config{Address: "https://h:x"}, "must be like"}, {Config{CAFile: filepath.Join(dir, "none")}, "no such file"}, {Config{CAFile: empty}, "no certificate"},
	} {
		c.config.Token = "secret"
		_, err := New(c.config)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
	if c, err := New(Config{}); err != nil || c.Address() != DefaultAddress {
		t.Errorf("%v, %v", c.Address(), err)
	}
}

func TestNames(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.EscapedPath()
		_, _ = io.WriteString(w, "{}")
	})
	if _, err := c.VirtualCluster(t.Context(), "a/b?c"); err != nil || got != "/v1/virtual-clusters/a%2Fb%3Fc" {
		t.Errorf("asked for %s, %v", got, err)
	}
	for _, name := range []string{"", ".", ".."} {
		got = ""
		if _, err := c.Delete(t.Context(), name); err == nil || got != "" {
			t.Errorf("%q was sent as %q, %v", name, got, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	answer := func(status int, kind, body string) *Client {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				t.Error("no token was sent")
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for _, c := range []struct {
		name   string
		client *Client
		kind   string // of the problem
		text   string
	}{
		{"problem", answer(409, "application/problem+json", `{"type":"urn:evenkeel:problem:refused","title":"Refused","status":409,"detail":"no room","hosts":[{"host":"h1"}]}`), v1.ProblemRefused, "Refused: no room"},
		{"problem with a charset", answer(404, "application/problem+json; charset=utf-8", `{"type":"urn:evenkeel:problem:not-found","title":"T","detail":"no such"}`), v1.ProblemNotFound, "no such"},
		{"faults of a body that the client wrote", answer(422, "application/problem+json", `{"type":"urn:evenkeel:problem:invalid","title":"Not valid","detail":"line 1: cpu: no\nline 1: count: on line 1: no"}`),
			v1.ProblemInvalid, "Not valid: cpu: no\ncount: on line 1: no"},
		{"a proxy's page", answer(502, "text/html", "<html>"), "about:blank", "another server"},
		{"a redirect", answer(302, "text/html", ""), "about:blank", "302"},
		{"half a problem", answer(500, "application/problem+json", `{"type":`), "about:blank", "500"},
	} {
		_, err := c.client.VirtualClusters(t.Context())
		if !IsProblem(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := answer(200, "application/json", `{"items":[`).VirtualClusters(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("half an answer: %v", err)
	}
	gone := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := gone.Hosts(t.Context()); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("no answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gone.Hosts(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("the caller's own end: %v", err)
	}
}

func TestOptions(t *testing.T) {
	var got *http.Request
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r; _, _ = io.WriteString(w, "{}") })
	if _, err := c.Delete(t.Context(), "a", DryRun(), IfMatch(42), IdempotencyKey("k"), Stale()); err != nil {
		t.Fatal(err)
	}
	if got.Method != "DELETE" || got.URL.RawQuery != "consistency=stale&dryRun=true" || got.Header.Get("If-Match") != `"42"` || got.Header.Get("Idempotency-Key") != "k" {
		t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
	}
}

// TestFollow: a stream that breaks, even in the middle of an event, is taken up after the last whole one.
func TestFollow(t *testing.T) {
	var asked []string
	event := func(n int) string { return fmt.Sprintf("id: %d\ndata: {\"seq\":%d}\n\n", n, n) }
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("after"))
		body := ""
		switch len(asked) {
		case 1:
			body = ": events after 4\n\n" + event(5) + event(6) + "id: 7\ndata: {\"se"
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3: // as many streams as there may be
			w.WriteHeader(http.StatusTooManyRequests)
		case 4:
			body = ": events after 6\n\n: still here\n\n" + event(7) + "event: gap\ndata: {\"after\":7,\"next\":20}\n\n"
		case 5:
			body = strings.ReplaceAll(event(20), "\n", "\r\n")
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			body = `{"type":"urn:evenkeel:problem:unauthorized","title":"t"}`
		}
		_, _ = io.WriteString(w, body)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got []string
	err := c.Follow(ctx, EventQuery{}, func(m Message) error {
		if m.Gap != nil {
			got = append(got, fmt.Sprintf("gap %d-%d", m.Gap.After, m.Gap.Next))
		} else {
			got = append(got, fmt.Sprint(m.Event.Seq))
		}
		return nil
	})
	if !IsProblem(err, v1.ProblemUnauthorized) {
		t.Errorf("ended with %v", err)
	}
	if want := []string{"5", "6", "7", "gap 7-20", "20"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"", "6", "6", "6", "19", "20"}; !slices.Equal(asked, want) {
		t.Errorf("asked after %q, want %q", asked, want)
	}
}

func TestFollowEnds(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: {\"seq\":1}\n\n") })
	enough := errors.New("enough")
	if err := c.Follow(t.Context(), EventQuery{}, func(Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the reader's own end: %v", err)
	}
	for _, body := range []string{"data: {\n\n", "event: surprise\ndata: {}\n\n"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		if err := c.Follow(t.Context(), EventQuery{}, func(Message) error { return nil }); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("%q: %v", body, err)
		}
	}
	none, err := New(Config{Address: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Follow(t.Context(), EventQuery{}, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a first connection that does not come about: %v", err)
	}
}
