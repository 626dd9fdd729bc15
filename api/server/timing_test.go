package server_test

import (
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/server"
)

var timings = flag.Int("timings", 0, "how often TestTimingOfOthers asks every route in a round; 0: 1,000 times what is answered from memory, and the others 20 times")

const (
	unequal     = 0.05 // by which part of the smaller one two medians may differ
	maxRepeated = 60   // rounds in all, where a busy machine makes them differ
	deviations  = 4    // by how many standard deviations of a fair coin one of the two must be the slower
)

// pair is how long the requests of a probe took.
type pair [2][]time.Duration

// differ is by which part the medians differ.
func (p pair) differ() float64 {
	var m [2]float64
	for i, took := range p {
		took = slices.Clone(took)
		slices.Sort(took)
		m[i] = float64(took[len(took)/2])
	}
	return max(m[0], m[1])/min(m[0], m[1]) - 1
}

// onesided says whether one of the two is the slower of its pair more often than chance allows: the sign test. Two equal requests of a
// busy machine have medians that differ, and each is the slower half of the time.
func (p pair) onesided() bool {
	slower, n := 0.0, 0.0
	for i := range p[0] {
		if p[0][i] != p[1][i] {
			n++
		}
		if p[0][i] > p[1][i] {
			slower++
		}
	}
	return math.Abs(slower-n/2) > deviations*math.Sqrt(n)/2
}

// Of 1,200 requests that take 0.5 to 2 times as long as each other by chance, the sign test finds a part of 20% that one takes more, and
// nothing where both take the same.
func TestOnesided(t *testing.T) {
	for _, c := range []struct {
		slower float64
		want   bool
	}{{1, false}, {1.2, true}, {1 / 1.2, true}} {
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(1, seed))
			var p pair
			for range 1200 {
				for i, by := range []float64{1, c.slower} {
					p[i] = append(p[i], time.Duration(1e6*by*math.Exp2(2*r.Float64()-1)))
				}
			}
			if got := p.onesided(); got != c.want {
				t.Errorf("one request takes %.2f times as long, seed %d: onesided %v", c.slower, seed, got)
			}
		}
	}
}

// What is another tenant's is answered as what does not exist, on every route that takes a name: the same status, headers and body but
// for the name, as much work by the count of allocations, and as fast by the median. Requests for the one and the other alternate, so
// that what else the machine does slows down both. Medians that differ are taken again over more requests: noise goes away, a
// difference does not. At the end medians must differ and the same one be the slower of its pair beyond chance. The requests go into
// the handler of the API: a network would hide more than it adds.
func TestTimingOfOthers(t *testing.T) {
	x := startTenants(t, 1, 1)
	h := server.New(x.Member("h1"), server.Options{Members: x.Member("h1"), Logger: slog.New(slog.DiscardHandler)})
	h.UnboundDryRuns()
	probed, beyondRole := 0, 0
	for _, route := range x.routesWith() {
		for _, p := range x.probes(route) {
			ask := func(i int) *httptest.ResponseRecorder {
				r := httptest.NewRequest(route.method, p.path[i], strings.NewReader(p.body[i]))
				r.Header.Set("Authorization", "Bearer "+x.token["film owner"])
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("X-Request-Id", "same")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			var answers [2]string
			for i := range answers {
				w := ask(i)
				answers[i] = neutral(fmt.Sprint(w.Code, w.Header(), w.Body), p.path[i], p.name[i])
			}
			what := route.method + " " + p.path[0] + " " + p.body[0]
			if answers[0] != answers[1] {
				t.Errorf("%s is not answered as what does not exist:\n%s\n%s", what, answers[0], answers[1])
			}
			if ask(0).Code == 403 { // for its role, before the name is read
				beyondRole++
				continue
			}
			probed++
			x.compare(what, p.stale, func(i int) { ask(i) })
		}
	}
	if t.Logf("%d probes, %d routes that the role does not reach", probed, beyondRole); probed < 30 {
		t.Error("too few probes")
	}
}

// compare how much work two requests are.
func (x *tenancy) compare(what string, stale bool, ask func(i int)) {
	n := *timings
	switch {
	case n == 0 && stale:
		n = 1000
	case n == 0:
		n = 20
	}
	var took pair
	for range maxRepeated {
		for k := range n {
			for j := range took {
				i := (j + k) % 2 // each is first in half of the pairs
				begun := time.Now()
				ask(i)
				took[i] = append(took[i], time.Since(begun))
			}
		}
		if took.differ() <= unequal {
			break
		}
	}
	if by := took.differ(); by > unequal && took.onesided() {
		x.t.Errorf("%s: over %d requests the medians differ by %.1f%%", what, len(took[0]), 100*by)
	}
	if stale { // nothing else works for these
		// What others of this process allocate meanwhile counts too, and only adds: the least of several looks is what a request takes.
		a, b := math.Inf(1), math.Inf(1)
		for range maxRepeated {
			a, b = min(a, testing.AllocsPerRun(100, func() { ask(0) })), min(b, testing.AllocsPerRun(100, func() { ask(1) }))
			if max(a, b) <= min(a, b)*(1+unequal) {
				break
			}
		}
		if max(a, b) > min(a, b)*(1+unequal) {
			x.t.Errorf("%s: %v allocations, of what does not exist %v", what, a, b)
		}
	}
}

// probe is a request for what is another tenant's, and for what does not exist.
type probe struct {
	path, body, name [2]string
	stale            bool // answered from memory
}

// probes of a route that takes a name, as a tenant: for what is acme's, and for what does not exist.
func (x *tenancy) probes(r routeOf) (out []probe) {
	name := [2]string{mark("acme"), absent(mark("acme"))}
	add := func(paths, bodies [2]string) {
		stale := r.knows["consistency"] || r.path == "/v1/tokens/{id}"
		if r.knows["consistency"] {
			for i := range 2 {
				paths[i] = query(paths[i], "consistency=stale")
			}
		}
		if r.method != "GET" {
			for i := range 2 {
				if !r.knows["dryRun"] {
					return
				}
				paths[i] = query(paths[i], "dryRun=true")
			}
		}
		out = append(out, probe{paths, bodies, name, stale})
	}
	empty := [2]string{}
	if r.method != "GET" && r.method != "DELETE" {
		empty = [2]string{"{}", "{}"}
	}
	if strings.Contains(r.path, "{") {
		for _, at := range x.filled(r.path, "acme") {
			id := ""
			for i, part := range strings.Split(r.path, "/") {
				if strings.HasPrefix(part, "{") {
					id = strings.Split(at, "/")[i]
				}
			}
			for _, body := range append(bodies[r.method+" "+r.path], empty[0]) {
				add([2]string{at, strings.Replace(at, id, absent(id), 1)}, [2]string{strings.ReplaceAll(body, "%s", "none"), strings.ReplaceAll(body, "%s", "none")})
			}
		}
	}
	if r.knows["tenant"] && r.method == "GET" && !strings.Contains(r.path, "{") {
		add([2]string{query(r.path, "tenant=acme"), query(r.path, "tenant=acm0")}, empty)
	}
	if r.knows["virtualCluster"] {
		add([2]string{query(r.path, "virtualCluster="+mark("acme")), query(r.path, "virtualCluster="+absent(mark("acme")))}, empty)
	}
	for _, body := range bodies[r.method+" "+r.path] {
		if strings.Contains(body, "%s") && !strings.Contains(r.path, "{") {
			add([2]string{r.path, r.path}, [2]string{strings.ReplaceAll(body, "%s", mark("acme")), strings.ReplaceAll(body, "%s", absent(mark("acme")))})
		}
	}
	return out
}
