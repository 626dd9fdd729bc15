package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/audit"
)

// notes keeps records in memory.
type notes struct {
	records  []audit.Record
	refusals []audit.Refusal
}

func (n *notes) Add(r audit.Record)     { n.records = append(n.records, r) }
func (n *notes) Refuse(r audit.Refusal) { n.refusals = append(n.refusals, r) }
func (n *notes) Counts() audit.Counts   { return audit.Counts{} }
func (n *notes) Query(context.Context, audit.Filter) (audit.Answer, error) {
	return audit.Answer{}, nil
}

// early is a client that looks at the log when the first byte of an answer reaches it.
type early struct {
	*httptest.ResponseRecorder
	log  *notes
	had  int
	once bool
}

func (e *early) WriteHeader(status int) {
	if !e.once && status >= 200 {
		e.had, e.once = len(e.log.records), true
	}
	e.ResponseRecorder.WriteHeader(status)
}

func (e *early) Write(b []byte) (int, error) {
	if !e.once {
		e.WriteHeader(http.StatusOK)
	}
	return e.ResponseRecorder.Write(b)
}

// A change is recorded once, before its answer is sent, however it is answered; one that another server answers is not.
func TestAuditedAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int // recorded; 0: nothing is
		actor   bool
	}{
		"status":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, 202, true},
		"body alone": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, 200, true},
		"nothing":    {func(http.ResponseWriter, *http.Request) {}, 200, true},
		"twice": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte("x"))
		}, 409, true},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusForbidden)
		}, 403, true},
		"panic": {func(http.ResponseWriter, *http.Request) { panic("x") }, 500, true},
		"forwarded": {func(w http.ResponseWriter, r *http.Request) {
			forwarded(r.Context())
			w.WriteHeader(http.StatusOK)
		}, 0, true},
		"stranger": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, 0, false},
	} {
		log := &notes{}
		s := &Server{mux: &recordingMux{}, opts: Options{Audit: log}}
		h := http.Handler(c.handler)
		if c.actor {
			inner := h
			h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(w, r.WithContext(asks(r.Context(), audit.Actor{ID: "token:x", Name: "deploy", Client: r.RemoteAddr})))
			})
		}
		h = s.audited(h)
		w := &early{ResponseRecorder: httptest.NewRecorder(), log: log}
		r := httptest.NewRequest(http.MethodPost, "/v1/nothing?a=b", nil)
		r.RemoteAddr = "192.0.2.9:999"
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(w, r)
		}()
		switch {
		case c.status == 0 && len(log.records) > 0, c.status != 0 && len(log.records) != 1:
			t.Errorf("%s: %+v", name, log.records)
		case c.status != 0:
			got := log.records[0]
			if got.Status != c.status || got.Verb != http.MethodPost || got.Object.String() != "path//v1/nothing" || got.Detail != "query: a=b" ||
				got.Actor != (audit.Actor{ID: "token:x", Name: "deploy", Client: "192.0.2.9:999"}) {
				t.Errorf("%s: %+v", name, got)
			}
			if w.once && w.had != 1 {
				t.Errorf("%s: the answer was sent before the record was written", name)
			}
		}
		if want := !c.actor; (len(log.refusals) == 1) != want {
			t.Errorf("%s: refusals %+v", name, log.refusals)
		}
	}
}

func TestVerbs(t *testing.T) {
	all := verbs{"POST /v1/virtual-clusters/{name}/start": "startVirtualCluster", "POST /v1/images": "addImage", "POST /v1/plans/try": "tryPlan", "PATCH /v1/cluster/settings": "patchSettings",
		"DELETE /v1/cluster/members/{name}": "removeMember", "POST /v1/cluster/leader": "transferLeadership", "POST /v1/cluster/join-tokens": "makeJoinToken", "GET /v1/vms/{name}/console": "openConsole"}
	for _, c := range []struct{ pattern, path, verb, object string }{
		{"POST /v1/virtual-clusters/{name}/start", "/v1/virtual-clusters/web/start", "startVirtualCluster", "virtual-cluster/web"},
		{"POST /v1/virtual-clusters/{name}/start", "/v1/virtual-clusters/a%2Fb/start", "startVirtualCluster", "virtual-cluster/a/b"},
		{"POST /v1/images", "/v1/images", "addImage", "image"},
		{"PATCH /v1/cluster/settings", "/v1/cluster/settings", "patchSettings", "cluster"},
		{"DELETE /v1/cluster/members/{name}", "/v1/cluster/members/h2", "removeMember", "member/h2"},
		{"POST /v1/cluster/leader", "/v1/cluster/leader", "transferLeadership", "cluster"},
		{"POST /v1/cluster/join-tokens", "/v1/cluster/join-tokens", "makeJoinToken", "join-token"},
		{"GET /v1/vms/{name}/console", "/v1/vms/web-w-0/console", "openConsole", "vm/web-w-0"},
		{"POST /v1/plans/try", "/v1/plans/try", "tryPlan", "plan"},
		{"", "/v1/nothing", "POST", "path//v1/nothing"},
	} {
		u, err := url.Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		method, _, _ := strings.Cut(c.pattern+"POST ", " ")
		if verb, object := all.of(strings.TrimSuffix(method, " "), c.pattern, u); verb != c.verb || object.String() != c.object {
			t.Errorf("%s %s: %s of %s", c.pattern, c.path, verb, object)
		}
	}
}

// Reads that programs repeat are recorded once a minute, and at most so many of all.
func TestRepeatedReads(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	read := func(name, port string) audit.Record {
		return audit.Record{Verb: "getVMSamples", Object: audit.Object{Kind: "vm", Name: name}, Actor: audit.Actor{ID: "token:x", Client: "192.0.2.1:" + port}}
	}
	var r repeated
	take := func(after time.Duration, q audit.Record, want bool, before uint64) {
		t.Helper()
		if ok, n := r.take(q, at.Add(after)); ok != want || n != before {
			t.Errorf("%v, stands for %d", ok, n)
		}
	}
	take(0, read("a", "1"), true, 0)
	take(time.Second, read("a", "2"), false, 0) // from another port
	take(2*time.Second, read("b", "1"), true, 2)
	take(time.Minute, read("a", "1"), true, 0)
	for i := range 1000 {
		ok, _ := r.take(read(strings.Repeat("x", i), "1"), at.Add(time.Minute+time.Second))
		if ok != (i < maxReads-1) {
			t.Fatalf("read %d: %v", i, ok)
		}
	}
	take(2*time.Minute, read("a", "1"), true, 1000-(maxReads-1)+1)
}
