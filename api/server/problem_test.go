package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// A conflict says why once: nothing changed meanwhile where a host has VMs.
func TestConflictSaysWhyOnce(t *testing.T) {
	err := fmt.Errorf("join of h2: %w", fmt.Errorf("member h2: its host holds VM a: %w: %w", leader.ErrConflict, state.ErrConflict))
	if p := problemOf(err); p.Error() != "Conflict: join of h2: member h2: its host holds VM a" || p.Type != v1.ProblemConflict {
		t.Errorf("%q", p.Error())
	}
	if p := problemOf(leader.ErrConflict); p.Detail != "changed meanwhile" {
		t.Errorf("%q", p.Detail)
	}
}

func TestProblemOf(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("create render: %w", err) }
	for _, c := range []struct {
		err    error
		status int
		kind   string
	}{
		{&v1.Invalid{Fields: []v1.FieldError{{Field: "a"}}}, 422, v1.ProblemInvalid},
		{&v1.Invalid{Malformed: true, Fields: []v1.FieldError{{}}}, 400, v1.ProblemMalformed},
		{wrap(&leader.Invalid{Fields: []leader.FieldError{{Field: "cpu", Value: math.NaN()}}}), 422, v1.ProblemInvalid},
		{wrap(&leader.Refused{Decision: state.Decision{Summary: "no room"}}), 409, v1.ProblemRefused},
		{wrap(&leader.Exists{Field: "name", Text: "name: taken"}), 409, v1.ProblemExists},
		{wrap(leader.ErrPrecondition), 412, v1.ProblemPrecondition},
		{wrap(leader.ErrNotFound), 404, v1.ProblemNotFound},
		{wrap(leader.ErrConflict), 409, v1.ProblemConflict},
		{wrap(state.ErrInUse), 409, v1.ProblemConflict},
		{wrap(state.ErrTooNew), 409, v1.ProblemConflict},
		{wrap(&leader.Blocked{Host: "h1", Blockers: []leader.Blocker{{VM: "a-w-0", VC: "a", Why: "its disk"}}}), 409, v1.ProblemBlocked},
		{wrap(leader.ErrNoLeader), 503, v1.ProblemNoLeader},
		{wrap(leader.ErrTimeout), 504, v1.ProblemTimeout},
		{wrap(context.DeadlineExceeded), 504, v1.ProblemTimeout},
		{wrap(hypervisor.ErrUnavailable), 503, v1.ProblemUnavailable},
		{wrap(hypervisor.ErrNotFound), 409, v1.ProblemConflict},
		{wrap(hypervisor.ErrInvalid), 422, v1.ProblemInvalid},
		{errors.New("secret inside"), 500, v1.ProblemInternal},
	} {
		p := problemOf(c.err)
		if p.Status != c.status || p.Type != c.kind || p.Title == "" {
			t.Errorf("%v: %d %s %q, want %d %s", c.err, p.Status, p.Type, p.Title, c.status, c.kind)
		}
		raw, err := json.Marshal(p.Problem)
		if err != nil {
			t.Errorf("%v: %v", c.err, err)
		}
		if strings.Contains(string(raw), "secret") {
			t.Errorf("%v: its text is in the answer: %s", c.err, raw)
		}
	}
}

// broken is a cluster whose every answer is an error; only the mapping of
// errors is tested with it.
type broken struct {
	Cluster
	err   error
	panic bool
}

func (b broken) View(context.Context, bool) (*leader.View, error) {
	if b.panic {
		panic("secret inside")
	}
	return nil, b.err
}
func (b broken) Ready() error  { return b.err }
func (b broken) Index() uint64 { return 0 }
func (b broken) Delete(context.Context, string, leader.Call) (leader.Result, error) {
	return leader.Result{}, b.err
}

func TestBrokenCluster(t *testing.T) {
	var log strings.Builder
	for _, c := range []struct {
		cluster      broken
		method, path string
		status       int
		kind         string
		retry        bool
	}{
		{broken{err: leader.ErrNoLeader}, "GET", "/v1/vms", 503, v1.ProblemNoLeader, true},
		{broken{err: leader.ErrNoLeader}, "DELETE", "/v1/virtual-clusters/a", 503, v1.ProblemNoLeader, true},
		{broken{err: leader.ErrNoLeader}, "GET", "/readyz", 503, v1.ProblemNoLeader, true},
		{broken{err: errors.New("host secret has not reported yet")}, "GET", "/readyz", 503, v1.ProblemUnavailable, true},
		{broken{err: leader.ErrTimeout}, "DELETE", "/v1/virtual-clusters/a", 504, v1.ProblemTimeout, false},
		{broken{err: errors.New("secret inside")}, "GET", "/v1/hosts", 500, v1.ProblemInternal, false},
		{broken{panic: true}, "GET", "/v1/hosts", 500, v1.ProblemInternal, false},
	} {
		s := New(c.cluster, Options{Tokens: []TokenHash{HashToken("t")}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Authorization", "Bearer t")
		r.Header.Set("X-Request-Id", "mine-1")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var p v1.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Type != c.kind {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, w.Body, c.status, c.kind)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s %s: the error's text is in the answer: %s", c.method, c.path, w.Body)
		}
		if got := w.Header().Get("Retry-After") != ""; got != c.retry {
			t.Errorf("%s %s: Retry-After %v", c.method, c.path, got)
		}
		if w.Header().Get("X-Request-Id") != "mine-1" || p.Instance != "urn:evenkeel:request:mine-1" {
			t.Errorf("%s %s: request id lost: %v %s", c.method, c.path, w.Header(), p.Instance)
		}
	}
	if !strings.Contains(log.String(), "secret inside") {
		t.Error("the log does not say what failed")
	}
}

func TestPlainIDs(t *testing.T) {
	for id, want := range map[string]bool{"a-1.B_2": true, "": false, "a b": false, "a\nb": false, strings.Repeat("a", 65): false, "é": false} {
		if plainID(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}

func TestManyTokens(t *testing.T) {
	s := &Server{opts: Options{Tokens: []TokenHash{HashToken("one"), HashToken("two")}}}
	for header, want := range map[string]bool{"Bearer one": true, "bearer two": true, "Bearer  two ": true, "Bearer three": false, "Bearer": false,
		"": false, "one": false, "Basic one": false, "Bearer one two": false} {
		r := httptest.NewRequest("GET", "/v1/vms", nil)
		r.Header.Set("Authorization", header)
		principal, refusal := s.identifyToken(r)
		if (principal != nil) != want || (refusal != nil) == want || want && (principal.Role != state.RoleAdmin || !principal.File) {
			t.Errorf("%q: %+v, %v", header, principal, refusal)
		}
	}
	r := httptest.NewRequest("GET", "/v1/vms", nil)
	r.Header.Set("Authorization", "Bearer ")
	if principal, _ := (&Server{}).identifyToken(r); principal != nil {
		t.Error("a server without tokens lets a caller in")
	}
}

func TestTitles(t *testing.T) {
	for status, kind := range kinds {
		if titles[kind] == "" {
			t.Errorf("%d %s has no title", status, kind)
		}
	}
	if p := newError(http.StatusTeapot, "secret"); p.GetStatus() != http.StatusTeapot || strings.Contains(p.Error(), "secret") {
		t.Errorf("%v", p)
	}
}

// A browser at the server's address is led to the dashboard; a program is not.
func TestBrowserAtRoot(t *testing.T) {
	s := New(broken{}, Options{Tokens: []TokenHash{HashToken("t")}, Logger: slog.New(slog.DiscardHandler)})
	for accept, want := range map[string]int{"text/html,application/xhtml+xml": http.StatusSeeOther, "application/json": http.StatusUnauthorized, "": http.StatusUnauthorized} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want || want == http.StatusSeeOther && w.Header().Get("Location") != "/ui/" {
			t.Errorf("Accept %q: %d, to %q, want %d", accept, w.Code, w.Header().Get("Location"), want)
		}
	}
}
