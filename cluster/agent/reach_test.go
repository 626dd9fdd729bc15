package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

const noCA = "/etc/pki/CA/cacert.pem is missing"

func TestMissingRoutes(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(ago time.Duration, way, why string, here bool) probeResult {
		return probeResult{hypervisor.Obstacle{Why: why, Here: here}, now.Add(-ago), way}
	}
	const tls, tcp = "qemu+tls ", "qemu+tcp "
	for _, tc := range []struct {
		name string
		seen map[string]probeResult
		want []MissingRoute
	}{
		{"nothing", nil, nil},
		{"all is well", map[string]probeResult{"h2": at(0, tls, "", false)}, nil},
		{"one is not reached", map[string]probeResult{"h2": at(0, tls, "refused", false), "h3": at(0, tls, "", false)}, []MissingRoute{{To: "h2", Why: "refused"}}},
		{"a file is missing", map[string]probeResult{"h2": at(0, tls, noCA, true), "h3": at(time.Second, tls, noCA, true)}, []MissingRoute{{Why: noCA, Here: true}}},
		{"a file is missing since", map[string]probeResult{"h2": at(0, tls, noCA, true), "h3": at(time.Minute, tls, "", false)}, []MissingRoute{{Why: noCA, Here: true}}},
		{"a file was missing", map[string]probeResult{"h2": at(time.Minute, tls, noCA, true), "h3": at(0, tls, "", false)}, []MissingRoute{{To: "h2", Why: noCA, Here: true}}},
		{"not all go by TLS", map[string]probeResult{"h2": at(0, tls, noCA, true), "h3": at(time.Minute, tcp, "", false)}, []MissingRoute{{To: "h2", Why: noCA, Here: true}}},
		{"what is here goes first", map[string]probeResult{"h2": at(0, tls, noCA, true), "h3": at(0, tls, "refused", false)}, []MissingRoute{{Why: noCA, Here: true}}},
		{"it is too long ago", map[string]probeResult{"h2": at(reachStale, tls, noCA, true), "h3": at(reachStale, tls, "refused", false)}, nil},
	} {
		if got := missingRoutes(tc.seen, now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestMissed(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	seen := map[string]probeResult{"h2": {hypervisor.Obstacle{Why: "x"}, now, ""}, "h3": {hypervisor.Obstacle{}, now, ""}, "h4": {hypervisor.Obstacle{Why: "x"}, now.Add(-time.Minute), ""}}
	if got := missed(seen, 5); !slices.Equal(got, []string{"h4", "h2"}) {
		t.Errorf("%v", got)
	}
	if got := missed(seen, 1); !slices.Equal(got, []string{"h4"}) {
		t.Errorf("%v", got)
	}
}

// counted is a hypervisor that counts which hosts probe which, and how many at once.
type counted struct {
	hypervisor.Host
	mu        sync.Mutex
	now, peak int
	calls     map[string]int
}

func (c *counted) CheckPeer(ctx context.Context, to string) (hypervisor.Obstacle, error) {
	c.mu.Lock()
	c.now++
	c.peak = max(c.peak, c.now)
	c.calls[to]++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
	}()
	return c.Host.CheckPeer(ctx, to)
}

// looks runs reach on h1 of a world, with peers as the leader lists them.
func looks(t *testing.T, hosts int, f func(t *testing.T, w *simulated.World, c *counted, r *reach, reported func() string)) {
	synctest.Test(t, func(t *testing.T) {
		w, err := simulated.New(simulated.Options{Hosts: hosts, CPU: 1, Memory: 1 << 30, Timing: &simulated.Timing{Call: 50 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() //nolint:errcheck // nothing is kept
		c := &counted{Host: w.Host("h1"), calls: map[string]int{}}
		peers := func(_ context.Context, q PeersWanted) (Peers, error) {
			out := Peers{Next: q.After}
			for i := range hosts - 1 {
				name := fmt.Sprintf("h%d", i+2)
				if q.Max > 0 || slices.Contains(q.Again, name) {
					out.Peers = append(out.Peers, Peer{name, name})
				}
			}
			return out, nil
		}
		r := &reach{host: "h1", hyp: c, peers: peers, news: func() {}, failed: func(err error) { t.Error(err) }, seen: map[string]probeResult{}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.run(ctx) })
		f(t, w, c, r, func() string {
			var out []string
			for _, n := range r.report(time.Now()) {
				out = append(out, n.To+": "+n.Why)
			}
			return strings.Join(out, "; ")
		})
		cancel()
		wg.Wait()
	})
}

// What is in the way is reported within one look, is looked at again soon, and is reported no more once it is mended.
func TestReach(t *testing.T) {
	looks(t, 4, func(t *testing.T, w *simulated.World, _ *counted, _ *reach, reported func() string) {
		must(t, w.NoRoute("h1", "h3", hypervisor.Obstacle{Why: "refused"}))
		step := func(what string, within time.Duration, want string) {
			t.Helper()
			pass(within)
			if got := reported(); got != want {
				t.Errorf("%s: reported %q, want %q", what, got, want)
			}
		}
		mend := mendEvery + mendEvery/10 + time.Second
		step("at the start", mendEvery/6+reachSecond+time.Second, "h3: refused")
		must(t, w.NoRoute("h1", "h3", hypervisor.Obstacle{}))
		step("mended", mend, "")
		must(t, w.NoRoute("h1", "", hypervisor.Obstacle{Why: noCA, Here: true}))
		step("a file is gone", reachEvery+mend, ": "+noCA)
		must(t, w.NoRoute("h1", "", hypervisor.Obstacle{}))
		step("and back", mend, "")
	})
}

// What lasts for a moment is not reported. A host is not probed over more than a few connections at once.
func TestReachIsPatient(t *testing.T) {
	looks(t, 20, func(t *testing.T, w *simulated.World, c *counted, r *reach, reported func() string) {
		must(t, w.NoRoute("h1", "h3", hypervisor.Obstacle{Why: "refused"}))
		for range 600 { // until it was looked at once
			pass(10 * time.Millisecond)
			c.mu.Lock()
			n := c.calls["h3"]
			c.mu.Unlock()
			if n > 0 {
				break
			}
		}
		pass(100 * time.Millisecond)
		must(t, w.NoRoute("h1", "h3", hypervisor.Obstacle{}))
		for range 60 {
			pass(time.Minute)
			if got := reported(); got != "" {
				t.Errorf("reported %q", got)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.peak > reachLanes || c.calls["h2"] > 21 || c.calls["h2"] < 17 {
			t.Errorf("%d at once; h2 was looked at %d times in an hour", c.peak, c.calls["h2"])
		}
	})
}

// pass lets time go by in a bubble of synctest.
func pass(d time.Duration) {
	time.Sleep(d) // sleep: the bubble's time, which takes none
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// After a migration that failed the agent reports what is in the way, together with that end.
func TestReachAfterAMigration(t *testing.T) {
	looks(t, 3, func(t *testing.T, w *simulated.World, _ *counted, r *reach, reported func() string) {
		pass(time.Minute)
		must(t, w.NoRoute("h1", "", hypervisor.Obstacle{Why: noCA, Here: true}))
		if got := r.after(t.Context(), Peer{"h2", "h2"}); got != "host h1 cannot send VMs: "+noCA || reported() != ": "+noCA {
			t.Errorf("%q, reported %q", got, reported())
		}
		must(t, w.NoRoute("h1", "", hypervisor.Obstacle{}))
		if got := r.after(t.Context(), Peer{"h3", "h3"}); got != "" {
			t.Errorf("%q, and nothing is in the way", got)
		}
	})
}

// Without a leader nothing is known; it is asked again, but not all the time.
func TestReachWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := &reach{host: "h1", peers: func(context.Context, PeersWanted) (Peers, error) {
			asked++
			return Peers{}, errors.New("no server leads")
		},
			failed: func(error) {}, seen: map[string]probeResult{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.run(ctx)
		if asked < 5 || asked > 12 {
			t.Errorf("asked %d times in a minute", asked)
		}
	})
}
