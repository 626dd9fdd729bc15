package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/cluster/transport"
)

const (
	// DefaultRate is how many requests in a second a server takes of one principal, where its configuration does not say.
	DefaultRate = 500
	// burst is how many seconds' worth of requests a principal may send at once.
	burst = 10
	// probeRate is how many dry runs in a second a server answers all tokens of one tenant together. A dry run shows whether something
	// fits now and changes nothing: the bound slows a search for how much room others leave. Real requests, carried out or refused, do
	// not count.
	probeRate = 2
	// maxBuckets is the number of buckets from which on those are dropped that are full again: a new one is full, too.
	maxBuckets = 10_000
)

// rates are the token buckets of principals on one server. All tokens of one person share a bucket.
type rates struct {
	perSecond float64 // 0: without a limit; else at least 1
	mu        sync.Mutex
	of        map[string]*bucket // by id of the principal
	pruneAt   int
}

// bucket has what is left of a burst, at a time.
type bucket struct {
	left float64
	at   time.Time
}

// fill a bucket up to a time.
func (b *bucket) fill(perSecond float64, now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.left = min(perSecond*burst, b.left+perSecond*d.Seconds())
		b.at = now
	}
}

// take one request of a principal; false: it has sent too many. The next one is taken after a second at most.
func (r *rates) take(id string, now time.Time) bool {
	if r.perSecond <= 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of, r.pruneAt = map[string]*bucket{}, maxBuckets
	}
	b := r.of[id]
	if b == nil {
		r.prune(now)
		b = &bucket{left: r.perSecond * burst, at: now}
		r.of[id] = b
	}
	b.fill(r.perSecond, now)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// prune drops the buckets that are full again. It looks at all of them only once there are twice as many as it left the last time.
func (r *rates) prune(now time.Time) {
	if len(r.of) < r.pruneAt {
		return
	}
	for id, b := range r.of {
		if b.fill(r.perSecond, now); b.left >= r.perSecond*burst {
			delete(r.of, id)
		}
	}
	r.pruneAt = max(maxBuckets, 2*len(r.of))
}

// tooFast is the answer to a principal that has sent too many requests; nil if it has not. A request that another server forwards was
// counted there.
func (s *Server) tooFast(ctx context.Context, p *principal, now time.Time) *problem {
	if transport.ForwardedBy(ctx) == "" && !s.rates.take(p.ID, now) {
		return tooMany("%s sends more than %g requests a second to this server (requestRate in vcd.yaml): send fewer", p.label(), s.rates.perSecond)
	}
	return nil
}

// tooManyDryRuns is the answer to a tenant that has asked for too many dry runs; nil if it has not. Only requests whose role may use the
// route count.
func (s *Server) tooManyDryRuns(ctx context.Context, p *principal, route string, r *http.Request, now time.Time) *problem {
	if p.of() == "" || transport.ForwardedBy(ctx) != "" || !s.dryRuns[route] || !dryRun(r) || s.probes.take(p.of(), now) {
		return nil
	}
	return tooMany("tenant %s asks for more than %g dry runs a second on this server: send fewer", p.of(), s.probes.perSecond)
}

// dryRunsOf the API are the routes that take dryRun. None of them reads.
func dryRunsOf(doc *huma.OpenAPI) map[string]bool {
	out := map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete} {
			if op != nil && slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == "dryRun" }) {
				out[method+" "+path] = true
			}
		}
	}
	return out
}

// dryRun says whether a request asks for a dry run.
func dryRun(r *http.Request) bool {
	for _, text := range r.URL.Query()["dryRun"] {
		if dry, err := strconv.ParseBool(text); err != nil || dry {
			return true
		}
	}
	return false
}
