package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// The agent tests whether this host can send VMs to others before any move needs that: see reach. A few thousand hosts must not
// each connect to every other, so each tests a bounded number of them at a time, and goes round.

// PeersWanted asks the leader which hosts to test.
type PeersWanted struct {
	Host string
	// The leader returns at most Max hosts that take VMs over: those that come after this one by name, in a ring. To them it adds
	// those of Again that still take VMs over.
	After string
	Max   int
	Again []string `json:",omitempty"`
}

// Peers are hosts that take VMs over. Next is the After of the next question.
type Peers struct {
	Peers []Peer
	Next  string
}

// Peer is a host and where its hypervisor is reached.
type Peer struct{ Host, URI string }

// MissingRoute says that this host cannot send VMs to another one, or to any (To is ""), and why.
type MissingRoute struct {
	To   string `json:",omitempty"`
	Why  string
	Here bool `json:",omitempty"` // the cause lies on this host
}

// probeResult is what the last probe of a host found.
type probeResult struct {
	hypervisor.Obstacle
	at        time.Time
	transport string // see transportOf
}

// transportOf returns the part of an address that decides which of this host's own files a connection needs.
func transportOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return uri
	}
	return u.Scheme + " " + u.Query().Get("pkipath")
}

// reach has the known routes from this host to others.
type reach struct {
	host   string
	hyp    hypervisor.Host
	peers  func(context.Context, PeersWanted) (Peers, error)
	news   func() // called when what is to be reported has changed
	failed func(error)

	mu   sync.Mutex
	seen map[string]probeResult // by host
}

// report returns what the leader is to know now.
func (r *reach) report(now time.Time) []MissingRoute {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return missingRoutes(r.seen, now)
}

// missingRoutes returns the routes that were found missing, for the leader. A cause that lies on this host, where all hosts
// that were probed are reached over the same transport, keeps this host from all others, also from those not probed.
func missingRoutes(seen map[string]probeResult, now time.Time) (out []MissingRoute) {
	var here probeResult // the latest cause that lies here
	for _, l := range seen {
		if l.Why != "" && l.Here && now.Sub(l.at) < reachStale && (l.at.After(here.at) || l.at.Equal(here.at) && l.Why < here.Why) {
			here = l
		}
	}
	all := here.Why != ""
	for host, l := range seen {
		if now.Sub(l.at) >= reachStale {
			continue
		}
		all = all && l.transport == here.transport && (l.Why != "" || l.at.Before(here.at))
		if l.Why != "" {
			out = append(out, MissingRoute{To: host, Why: l.Why, Here: l.Here})
		}
	}
	if all {
		return []MissingRoute{{Why: here.Why, Here: true}}
	}
	slices.SortFunc(out, func(a, b MissingRoute) int { return strings.Compare(a.To, b.To) })
	return out
}

// missed returns the hosts that were not reached, those first whose probe was longest ago.
func missed(seen map[string]probeResult, limit int) (out []string) {
	for host, l := range seen {
		if l.Why != "" {
			out = append(out, host)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(seen[a].at.Compare(seen[b].at), strings.Compare(a, b))
	})
	return out[:min(len(out), limit)]
}

// run probes other hosts until ctx ends.
func (r *reach) run(ctx context.Context) {
	after, lastRound := r.host, time.Time{}
	wait := rand.N(mendEvery / 6) // not all hosts at the same moment
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = mendEvery + rand.N(mendEvery/10)
		q := PeersWanted{Host: r.host, After: after}
		r.mu.Lock()
		q.Again = missed(r.seen, PeersAtOnce)
		r.mu.Unlock()
		round := lastRound.IsZero() || time.Since(lastRound) >= reachEvery-mendEvery/2
		if round {
			q.Max = PeersAtOnce
		} else if len(q.Again) == 0 {
			continue
		}
		got, err := r.peers(ctx, q)
		if err != nil {
			if ctx.Err() == nil {
				r.failed(fmt.Errorf("which hosts VMs may be sent to: %w", err))
			}
			wait = mendEvery/6 + rand.N(mendEvery/6)
			continue
		}
		if round {
			after, lastRound = got.Next, time.Now()
		}
		r.probe(ctx, q.Again, got.Peers)
	}
}

// probe probes hosts, and forgets those of again that are hosts no more.
func (r *reach) probe(ctx context.Context, again []string, peers []Peer) {
	found := r.ask(ctx, peers)
	var twice []Peer // it may have been a moment
	r.mu.Lock()
	for _, p := range peers {
		if o := found[p.Host]; o.Why != "" && !o.Here && r.seen[p.Host].Why == "" {
			twice = append(twice, p)
		}
	}
	r.mu.Unlock()
	if len(twice) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reachSecond):
		}
		for host, o := range r.ask(ctx, twice) {
			found[host] = o
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.record(peers, found, again)
}

// record notes what was found, and reports it if it is news.
func (r *reach) record(peers []Peer, found map[string]probeResult, again []string) {
	now := time.Now()
	r.mu.Lock()
	before := missingRoutes(r.seen, now)
	for _, host := range again {
		if !slices.ContainsFunc(peers, func(p Peer) bool { return p.Host == host }) {
			delete(r.seen, host)
		}
	}
	for host, l := range found {
		r.seen[host] = l
	}
	for host, l := range r.seen {
		if now.Sub(l.at) >= reachStale {
			delete(r.seen, host)
		}
	}
	changed := !slices.Equal(before, missingRoutes(r.seen, now))
	r.mu.Unlock()
	if changed {
		r.news()
	}
}

// ask probes hosts, a few at once. It leaves out those whose route could not be found out.
func (r *reach) ask(ctx context.Context, peers []Peer) map[string]probeResult {
	out := map[string]probeResult{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	lanes := make(chan struct{}, reachLanes)
	for _, p := range peers {
		lanes <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-lanes }()
			if l, err := r.one(ctx, p); err == nil {
				mu.Lock()
				out[p.Host] = l
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out
}

func (r *reach) one(ctx context.Context, p Peer) (probeResult, error) {
	bounded, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	o, err := r.hyp.CheckPeer(bounded, p.URI)
	if ctx.Err() != nil {
		return probeResult{}, ctx.Err()
	}
	return probeResult{o, time.Now(), transportOf(p.URI)}, err
}

// after finds out what is in the way after a migration failed, "" if nothing is. The agent reports it before it reports the end
// of the migration, so that the leader sends no other VM by the same route.
func (r *reach) after(ctx context.Context, p Peer) string {
	if r == nil || ctx.Err() != nil {
		return ""
	}
	l, err := r.one(ctx, p)
	if err != nil || l.Why == "" {
		return ""
	}
	r.record([]Peer{p}, map[string]probeResult{p.Host: l}, nil)
	if l.Here {
		return fmt.Sprintf("host %s cannot send VMs: %s", r.host, l.Why)
	}
	return fmt.Sprintf("host %s cannot send VMs to %s: %s", r.host, p.Host, l.Why)
}
