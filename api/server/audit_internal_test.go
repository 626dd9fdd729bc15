package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/audit"
)

// notes keeps records in memory.
type notes struct {
	records  []audit.Record
	refusals []audit.Refusal
}

func (n *notes) Add(r audit.Record) {
	r.At = time.Now()
	n.records = append(n.records, r)
}
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
		s.mux.HandleFunc("POST /v1/nothing", c.handler)
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
	all := verbs{"POST /v1/virtual-clusters/{name}/start": "startVirtualCluster", "POST /v1/images": "addImage", "POST /v1/simulate": "simulate", "PATCH /v1/cluster/settings": "patchSettings",
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
		{"POST /v1/simulate", "/v1/simulate", "simulate", "cluster"},
		{"GET /v1/nothing", "/v1/nothing", "GET", "path//v1/nothing"}, // no operation
		{"", "/v1/nothing", "unknown-route", "path"},
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

// Reads that programs repeat are recorded once a minute, and at most so many of a caller.
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
	another := read("a", "1")
	another.Actor.ID = "token:y"
	take(time.Minute+2*time.Second, another, true, 0) // the reads of one caller hide none of another
	take(2*time.Minute, read("a", "1"), true, 1000-(maxReads-1)+1)
	take(2*time.Minute, another, true, 0)
}

// The reads of very many callers are counted together beyond a bound, so that what is kept of them is bounded.
func TestReadsOfManyCallers(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var r repeated
	taken := 0
	for i := range 2 * maxFailedTokens {
		ok, _ := r.take(audit.Record{Verb: "getVMSamples", Actor: audit.Actor{ID: strconv.Itoa(i)}}, at)
		if ok {
			taken++
		}
	}
	if taken != maxFailedTokens+maxReads || len(r.readers) != maxFailedTokens+1 {
		t.Errorf("%d reads are recorded, of %d callers", taken, len(r.readers))
	}
}

// A token sends 10,000 requests that fail, and some that do not, in 75 s. At most 61 records of it are written in a minute, they
// stand for all its failed requests, and every success and the failure of another token are recorded by themselves.
func TestAuditFlood(t *testing.T) {
	for name, c := range map[string]struct {
		method, path string
		status       int
		records      int // of the failed requests: two minutes and the summaries
	}{
		"unknown route":  {"PUT", "/nnnn?some=text", 404, 4},
		"unknown method": {"MINE", "/v1/vms/a?some=text", 405, 4},
		"unclean path":   {"PUT", "/v1//vms/a?some=text", 404, 4},
		"role":           {"PUT", "/v1/vms/a", 403, 4},
		"content":        {"PUT", "/v1/vms/a?some=text", 422, 122},
		"no such object": {"PUT", "/v1/vms/%d", 404, 122},
		"busy":           {"PUT", "/v1/vms/%d", 503, 122},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &notes{}
				s := &Server{mux: &recordingMux{}, opts: Options{Audit: log}, verbs: verbs{"PUT /v1/vms/{name}": "putVM"}}
				s.mux.HandleFunc("PUT /v1/vms/{name}", func(http.ResponseWriter, *http.Request) {})
				ask := func(token, method, path string, status int) {
					r := httptest.NewRequest(method, path, nil)
					s.audited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						asks(r.Context(), audit.Actor{ID: "token:" + token, Name: token, Client: r.RemoteAddr, Request: "mine"})
						w.WriteHeader(status)
					})).ServeHTTP(httptest.NewRecorder(), r)
				}
				const failing, good = 10_000, 100
				begun := time.Now()
				for i := range failing {
					path := c.path
					if strings.Contains(path, "%d") {
						path = fmt.Sprintf(path, i)
					}
					ask("flood", c.method, path, c.status)
					if i%(failing/good) == 0 {
						ask("flood", "PUT", "/v1/vms/good", 202)
					}
					if i == failing/4 {
						ask("other", "PUT", "/v1/vms/b", 422)
					}
					time.Sleep(75 * time.Second / failing)
				}
				time.Sleep(time.Minute)
				ask("other", "GET", "/v1/vms", 200) // not recorded, but the summary is due
				minutes := map[int]int{}
				var failed, ok, others uint64
				n := 0
				for _, r := range log.records {
					switch {
					case r.Actor.Name == "other":
						others++
					case r.Outcome == audit.Ok:
						ok++
					default:
						n++
						minutes[int(r.At.Sub(begun)/time.Minute)]++
						failed += max(1, r.Count)
						if text := r.Object.String() + r.Detail + r.Verb; (c.status == 405 || strings.HasPrefix(c.path, "/nnnn") || strings.Contains(c.path, "//")) &&
							(strings.Contains(text, "nnnn") || strings.Contains(text, "some") || strings.Contains(text, "MINE")) {
							t.Fatalf("text of the caller in %+v", r)
						}
					}
				}
				for minute, n := range minutes {
					if n > 61 {
						t.Errorf("%d records in minute %d", n, minute)
					}
				}
				if failed != failing || ok != good || others != 1 || n != c.records {
					t.Errorf("%d records of %d failed requests, want %d of %d; %d successes, %d of another token", n, failed, c.records, failing, ok, others)
				}
			})
		})
	}
}

// However many tokens fail, what is kept of them is bounded, and all are counted.
func TestAuditFloodOfTokens(t *testing.T) {
	const tokens, each = 5000, 100
	var r repeated
	var n, left uint64
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i := range tokens * each {
		ok, sums := r.failed(audit.Record{Verb: "putVM", Actor: audit.Actor{ID: fmt.Sprint("token:", i%tokens)}}, false, at)
		if len(sums) > 0 {
			t.Fatal("a summary before the minute is over")
		}
		if ok {
			n++
		}
	}
	if len(r.tokens) > maxFailedTokens+1 || n != (maxFailedTokens+1)*maxFailed {
		t.Errorf("%d tokens are kept, %d requests recorded", len(r.tokens), n)
	}
	for _, s := range r.due(at.Add(time.Minute)) {
		left += s.Count
	}
	if n+left != tokens*each || len(r.tokens) > 0 {
		t.Errorf("%d recorded and %d left out are not %d", n, left, tokens*each)
	}
}

// What strangers are refused is not in the program's log above DEBUG, and a line is short whatever is asked for.
func TestObserveStrangers(t *testing.T) {
	long := "/" + strings.Repeat("%00a", 10_000)
	for name, c := range map[string]struct {
		method, path, token string
		lines, status       int
	}{
		"stranger":           {"GET", "/v1/hosts", "", 0, 401},
		"stranger at length": {"GET", long, "", 0, 401},
		"wrong token":        {"PUT", long, "x", 0, 401},
		"bad join":           {"POST", joinPath, "", 0, 0},
		"token":              {"PUT", "/v1/nothing", "t", 1, 404},
		"token at length":    {"PUT", long, "t", 1, 404},
		"long method":        {strings.Repeat("A", 10_000), "/v1/nothing", "t", 1, 404},
	} {
		var log strings.Builder
		s := New(broken{}, Options{Tokens: []TokenHash{HashToken("t")}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code < 400 || c.status != 0 && w.Code != c.status {
			t.Errorf("%s: status %d", name, w.Code)
		}
		if n := strings.Count(log.String(), "\n"); n != c.lines || len(log.String()) > 800 {
			t.Errorf("%s: %d lines of %d bytes: %.300s", name, n, log.Len(), log.String())
		}
	}
}

// An informational status is not the answer.
func TestObserveStatus(t *testing.T) {
	for _, c := range []struct {
		statuses []int
		want     int
	}{{[]int{103, 404}, 404}, {[]int{100, 103, 200}, 200}, {[]int{101}, 101}, {[]int{201, 500}, 201}} {
		w := &recorder{ResponseWriter: httptest.NewRecorder(), index: func() uint64 { return 0 }}
		for _, status := range c.statuses {
			w.WriteHeader(status)
		}
		if w.status != c.want {
			t.Errorf("%v: %d", c.statuses, w.status)
		}
	}
}
