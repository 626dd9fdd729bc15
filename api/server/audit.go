package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/cluster/audit"
)

// Audit takes what is asked of this server into the audit log. *audit.Log is one, for a cluster of one server.
type Audit interface {
	Add(audit.Record)
	Refuse(audit.Refusal)
	Counts() audit.Counts
	// Query the logs of all servers.
	Query(context.Context, audit.Filter) (audit.Answer, error)
}

// consoleVerb is the operation of a console; its end is another record.
const (
	consoleVerb    = "openConsole"
	consoleEndVerb = "closeConsole"
	joinVerb       = "joinMember"
)

const (
	// unknownRoute is the verb of requests that match no route. Their method, path and query are the caller's choice and are
	// not recorded.
	unknownRoute = "unknown-route"
	// failedRequests is the verb of a summary: of those failed requests of a token that have no record of their own.
	failedRequests = "failed-requests"
)

// auditedReads are recorded although they change nothing. Those that programs repeat (true) are recorded once a minute for the
// same caller and object, and no more than maxReads of a caller in a minute.
var auditedReads = map[string]bool{"saveSnapshot": false, consoleVerb: false, "getVMSamples": true, "getVMForecast": true, "listAudit": true}

// pending is the audit record of a request that is being answered.
type pending struct {
	wanted bool
	record audit.Record
	// known: the request is past authentication; record.Actor says who asks, if that was needed.
	known bool
	// forwarded: another server answers, and records it.
	forwarded bool
	answered  bool
}

type pendingKey struct{}

func pendingOf(ctx context.Context) *pending {
	p, _ := ctx.Value(pendingKey{}).(*pending)
	if p == nil {
		return &pending{} // of a handler that is called without audited
	}
	return p
}

// forwarded says that another server answers the request of this context, and records it.
func forwarded(ctx context.Context) { pendingOf(ctx).forwarded = true }

// named gives the name of what a request makes, which does not stand in its path.
func named(ctx context.Context, name string) { pendingOf(ctx).record.Object.Name = name }

// asker of a request, as events name it.
func asker(ctx context.Context) string {
	if a := audit.Of(ctx); a.ID != "" {
		return a.String()
	}
	return "an operator"
}

// audited records every change and the reads that matter, each once, before the first byte of its answer is sent. It counts
// what is refused to callers that are not authenticated. It goes around authenticate, which calls asks.
func (s *Server) audited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := s.begin(r)
		out := &auditWriter{ResponseWriter: w, answer: func(status int) { s.answered(p, r, status) }}
		begin, whole := time.Now(), false
		defer func() {
			if whole {
				out.answerOnce(http.StatusOK) // a handler that wrote nothing
			} else {
				out.answerOnce(http.StatusInternalServerError) // it panicked
			}
			if out.status == http.StatusSwitchingProtocols && p.record.Verb == consoleVerb && !p.forwarded {
				end := p.record
				end.Verb, end.At, end.Detail = consoleEndVerb, time.Time{}, "after "+time.Since(begin).Round(time.Second).String()
				s.opts.Audit.Add(end)
			}
		}()
		next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), pendingKey{}, p)))
		whole = true
	})
}

// asks notes who asks in the context of a request, and in its record.
func asks(ctx context.Context, a audit.Actor) context.Context {
	p := pendingOf(ctx)
	p.known, p.record.Actor = true, a
	if observed, _ := ctx.Value(seenKey{}).(*seen); observed != nil {
		observed.authenticated = a.ID != "" // a join has no actor
	}
	return audit.With(ctx, a)
}

// begin the record of a request.
func (s *Server) begin(r *http.Request) *pending {
	for _, sum := range s.denied.due(time.Now()) {
		s.opts.Audit.Add(sum)
	}
	_, pattern := s.mux.Handler(r)
	if path.Clean(r.URL.Path) != r.URL.Path {
		pattern = "" // route answers 404, whatever the mux would redirect to
	}
	verb, object := s.verbs.of(r.Method, pattern, r.URL)
	_, read := auditedReads[verb]
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
	p := &pending{wanted: changes || read, record: audit.Record{Verb: verb, Object: object}}
	if r.URL.RawQuery != "" && pattern != "" {
		p.record.Detail = "query: " + r.URL.RawQuery
	}
	return p
}

// answered records a request as its answer begins.
func (s *Server) answered(p *pending, r *http.Request, status int) {
	p.answered = true
	refusal := audit.Refusal{Address: r.RemoteAddr}
	switch {
	case p.forwarded:
	case r.URL.Path == joinPath && status >= http.StatusBadRequest:
		refusal.Kind, refusal.Class, refusal.Detail = audit.JoinRefused, strconv.Itoa(status), fmt.Sprintf("status %d", status)
		s.opts.Audit.Refuse(refusal)
	case status == http.StatusUnauthorized:
		_, route := s.mux.Handler(r)
		if route == "" {
			route = "a path that is not there"
		}
		refusal.Kind, refusal.Class, refusal.Detail = audit.Unauthenticated, route, route // nothing that the caller chose
		s.opts.Audit.Refuse(refusal)
	case p.known && status == http.StatusForbidden: // also of a read that is not recorded otherwise
		s.addFailed(p, status)
	case !p.known || !p.wanted:
	case auditedReads[p.record.Verb]:
		s.addOnce(&s.reads, p, status)
	case status >= http.StatusBadRequest:
		s.addFailed(p, status)
	default:
		p.record.Outcome, p.record.Status = audit.OutcomeOf(status), status
		s.opts.Audit.Add(p.record)
	}
}

// addOnce adds a record unless the same one was added in the present minute.
func (s *Server) addOnce(t *repeated, p *pending, status int) {
	take, before := t.take(p.record, time.Now())
	if !take {
		return
	}
	p.record.Count, p.record.Outcome, p.record.Status = before, audit.OutcomeOf(status), status
	s.opts.Audit.Add(p.record)
}

// addFailed adds the record of a failed request within the bounds of its token. A request that its role does not allow, or
// that matches no route, is recorded once a minute.
func (s *Server) addFailed(p *pending, status int) {
	p.record.Outcome, p.record.Status = audit.OutcomeOf(status), status
	once := status == http.StatusForbidden || p.record.Verb == unknownRoute
	take, sums := s.denied.failed(p.record, once, time.Now())
	for _, sum := range sums {
		s.opts.Audit.Add(sum)
	}
	if take {
		s.opts.Audit.Add(p.record)
	}
}

// auditWriter says what status is answered, before it is sent.
type auditWriter struct {
	http.ResponseWriter
	answer func(status int)
	status int
}

// Unwrap is for http.ResponseController.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *auditWriter) answerOnce(status int) {
	if w.status == 0 {
		w.status = status
		w.answer(status)
	}
}

func (w *auditWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // others are not the answer
		w.answerOnce(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *auditWriter) Write(b []byte) (int, error) {
	w.answerOnce(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Bounds of what is recorded of requests that programs repeat.
const (
	repeatEvery     = time.Minute
	maxReads        = 60   // of one caller, in a minute
	maxFailed       = 60   // failed requests of one token that are recorded one by one, in a minute
	maxFailedTokens = 1000 // that are counted by themselves; the others are counted together
)

// repeated is what was recorded in the present minute, by caller: reads, and failed requests.
type repeated struct {
	mu      sync.Mutex
	since   time.Time
	readers map[string]*reads
	tokens  map[string]*failures
}

// reads of one caller in the present minute.
type reads struct {
	seen    map[request]bool
	skipped uint64 // since the last one that was recorded, also in earlier minutes
}

type request struct {
	actor, client, verb string
	object              audit.Object
}

func requestOf(r audit.Record) request {
	return request{r.Actor.ID, audit.HostOf(r.Actor.Client), r.Verb, r.Object}
}

// failures of one token in the present minute.
type failures struct {
	actor    audit.Actor // of the summary
	recorded int         // one by one
	seen     map[request]bool
	left     map[string]uint64 // left out of the log, by verb: the server chooses those, so they are few
}

// failed says whether the record of a failed request is to be added: at most maxFailed of a token in a minute, and with once
// only the first of its caller, verb and object. The summaries of the minute before are to be added first.
func (t *repeated) failed(r audit.Record, once bool, now time.Time) (take bool, sums []audit.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sums = t.summarise(now)
	if t.tokens == nil {
		t.since, t.tokens = now, map[string]*failures{}
	}
	id, actor := r.Actor.ID, r.Actor
	if t.tokens[id] == nil && len(t.tokens) >= maxFailedTokens {
		id, actor = audit.Others, audit.Actor{Name: audit.Others}
	}
	f := t.tokens[id]
	if f == nil {
		f = &failures{seen: map[request]bool{}, left: map[string]uint64{}}
		t.tokens[id] = f
	}
	f.actor = actor
	key := requestOf(r)
	if f.recorded >= maxFailed || once && f.seen[key] {
		f.left[r.Verb]++
		return false, sums
	}
	f.recorded++
	if once {
		f.seen[key] = true
	}
	return true, sums
}

// due summaries of the failed requests that were left out of the log in a minute that is over.
func (t *repeated) due(now time.Time) []audit.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.summarise(now)
}

func (t *repeated) summarise(now time.Time) (sums []audit.Record) {
	if d := now.Sub(t.since); t.tokens == nil || d >= 0 && d < repeatEvery {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(t.tokens)) {
		if f := t.tokens[id]; len(f.left) > 0 {
			sums = append(sums, f.summary())
		}
	}
	t.tokens = nil
	return sums
}

func (f *failures) summary() audit.Record {
	r := audit.Record{Actor: f.actor, Verb: failedRequests, Outcome: audit.Failed}
	r.Actor.Client, r.Actor.Request = audit.HostOf(f.actor.Client), ""
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(f.left)) {
		r.Count += f.left[verb]
		parts = append(parts, fmt.Sprintf("%d %s", f.left[verb], verb))
	}
	r.Detail = "without a record of their own: " + strings.Join(parts, ", ")
	return r
}

// take says whether a read is to be recorded, and how many reads the record then stands for: 0 is
// itself alone, else itself and those left out before.
func (t *repeated) take(r audit.Record, now time.Time) (ok bool, before uint64) {
	key := requestOf(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := now.Sub(t.since); d >= repeatEvery || d < 0 {
		t.since = now
		maps.DeleteFunc(t.readers, func(_ string, of *reads) bool {
			clear(of.seen)
			return of.skipped == 0
		})
	}
	id := r.Actor.ID
	if t.readers[id] == nil && len(t.readers) >= maxFailedTokens {
		id = audit.Others
	}
	of := t.readers[id]
	if of == nil {
		if t.readers == nil {
			t.readers = map[string]*reads{}
		}
		of = &reads{seen: map[request]bool{}}
		t.readers[id] = of
	}
	if of.seen[key] || len(of.seen) >= maxReads {
		of.skipped++
		return false, 0
	}
	of.seen[key] = true
	if before = of.skipped; before > 0 {
		before++ // itself
	}
	of.skipped = 0
	return true, before
}

// verbs are the ids of the API's operations, by method and route.
type verbs map[string]string

func verbsOf(doc *huma.OpenAPI) verbs {
	out := verbs{http.MethodPost + " " + joinPath: joinVerb}
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete} {
			if op != nil {
				out[method+" "+path] = op.OperationID
			}
		}
	}
	return out
}

// of a request: what is done, and to which object. Of a route that is no operation it is the method and the path.
func (v verbs) of(method, pattern string, u *url.URL) (string, audit.Object) {
	if pattern == "" {
		return unknownRoute, audit.Object{Kind: "path"}
	}
	verb := v[pattern]
	if verb == "" {
		return method, audit.Object{Kind: "path", Name: u.Path}
	}
	_, route, _ := strings.Cut(pattern, " ")
	is := strings.Split(u.EscapedPath(), "/")
	var o audit.Object
	kind := ""
	for i, part := range strings.Split(route, "/") {
		if strings.HasPrefix(part, "{") && i < len(is) {
			o.Name = is[i]
			if name, err := url.PathUnescape(is[i]); err == nil {
				o.Name = name
			}
			break
		}
		if part != "" && part != "v1" {
			if kind == "" || kind == "cluster" && strings.HasSuffix(part, "s") { // else it is what is done: plans/apply, cluster/fencing
				kind = part
			}
		}
	}
	switch {
	case verb == joinVerb:
		o.Kind = "member"
	case kind == "auth":
		o.Kind = "user"
	case kind == "settings", kind == "rebalance", kind == "status", kind == "simulate":
		o.Kind = "cluster"
	default:
		o.Kind = strings.TrimSuffix(kind, "s")
	}
	return verb, o
}

var (
	descAudited     = prometheus.NewDesc("evenkeel_audit_records_total", "Records written to this server's audit log.", nil, nil)
	descAuditErrors = prometheus.NewDesc("evenkeel_audit_write_errors_total", "Records of the audit log that were lost because they could not be written.", nil, nil)
	descRefused     = prometheus.NewDesc("evenkeel_refused_total", "What this server refused to callers that were not authenticated, by kind.", []string{"kind"}, nil)
)

type auditCollector struct{ s *Server }

// Describe implements prometheus.Collector.
func (auditCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descAudited
	ch <- descAuditErrors
	ch <- descRefused
}

// Collect implements prometheus.Collector.
func (c auditCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.s.opts.Audit.Counts()
	ch <- prometheus.MustNewConstMetric(descAudited, prometheus.CounterValue, float64(n.Written))
	ch <- prometheus.MustNewConstMetric(descAuditErrors, prometheus.CounterValue, float64(n.Failed))
	for kind, count := range n.Refused {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(count), kind)
	}
}
