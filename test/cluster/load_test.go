package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// load is a number of clients that create, scale and delete VCs of their own, through all servers in turn, and
// remember what was acknowledged. They repeat a request that gets no answer, or the answer to try again, with the
// same idempotency key.
type load struct {
	s      *site
	stop   context.CancelFunc // no new requests
	all    sync.WaitGroup
	stalls *patience.Stalls

	mu     sync.Mutex
	want   map[string]int // acknowledged VCs and how many VMs they are to have
	gone   map[string]bool
	acks   []time.Time // of writes, in order
	asked  []time.Time // when each acknowledged request began, in the order of acks
	again  map[string]int
	faults []string // answers that say no where nothing says why
	open   []string // requests that got no answer until the end
}

// maxInFlight is more than half of what VMs may have of a host's memory.
const maxInFlight = 17 << 30 / 10

// filled is a VC with a VM on each host that leaves no room for the VCs of the load that wait.
func filled(n int) v1.VirtualClusterSpec {
	vc := spec("steady", n, "restart", nil)
	vc.Groups[0].Memory, vc.Groups[0].Affinity = maxInFlight, &v1.Affinity{Spread: "host"}
	return vc
}

// startLoad begins to write. The VC filled must run. Every tenth client's VMs fit and run; the others' are queued.
func startLoad(t *testing.T, s *site, clients int) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{s: s, stop: stop, stalls: patience.WatchStalls(t.Context()), want: map[string]int{}, gone: map[string]bool{}, again: map[string]int{}}
	t.Cleanup(func() {
		stop()
		l.all.Wait()
	})
	seed := rand.Uint64()
	t.Logf("load of %d clients, seed %d", clients, seed)
	for n := range clients {
		l.all.Go(func() { l.client(ctx, t.Context(), n, rand.New(rand.NewPCG(seed, uint64(n)))) })
	}
	return l
}

// client writes until ctx ends. It finishes what it began, unless end comes before.
func (l *load) client(ctx, end context.Context, n int, rng *rand.Rand) {
	for k := 0; ctx.Err() == nil; k++ {
		name := fmt.Sprintf("load%d-%d-%d", n, k, rng.IntN(1_000_000))
		vc := spec(name, 1, "keep", nil)
		vc.Groups[0].CPU, vc.Groups[0].Memory = 0.05, 64<<20
		waits := n%10 != 0
		if waits {
			vc.Groups[0].Memory = maxInFlight // filled has it: the VC waits, and costs no VM
		}
		try := func(verb string, count int, f func(context.Context, *client.Client, client.Option) error) bool {
			return l.write(end, rng, name, fmt.Sprintf("%s-%s-%d", name, verb, k), count, f)
		}
		if !try("create", 1, func(ctx context.Context, c *client.Client, key client.Option) error {
			_, err := c.Create(ctx, vc, key)
			return err
		}) {
			return
		}
		two := 2
		if ctx.Err() != nil || !try("scale", 2, func(ctx context.Context, c *client.Client, key client.Option) error {
			_, err := c.Scale(ctx, name, v1.ScaleRequest{Count: &two}, key)
			return err
		}) {
			return
		}
		// Some stay, five of each client at most: a cluster that is slow for its queue must not get a longer one for being slow.
		if ctx.Err() == nil && !(waits && k%4 == 3 && k < 20) && !try("delete", 0, func(ctx context.Context, c *client.Client, key client.Option) error {
			_, err := c.Delete(ctx, name, key)
			return err
		}) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(200)) * time.Millisecond):
		}
	}
}

// writeTime bounds one write: an election and more.
const writeTime = 60 * time.Second

// write until there is an answer. It says whether the write was acknowledged.
func (l *load) write(end context.Context, rng *rand.Rand, name, key string, count int, f func(context.Context, *client.Client, client.Option) error) bool {
	ctx, cancel := context.WithTimeout(end, patience.Within(writeTime))
	defer cancel()
	at := rng.IntN(len(l.s.hosts))
	for {
		h := l.s.hosts[at%len(l.s.hosts)]
		at++
		begun := time.Now()
		short, done := context.WithTimeout(ctx, 5*time.Second)
		err := f(short, h.API, client.IdempotencyKey(key))
		done()
		why, again := retryable(err)
		l.mu.Lock()
		switch {
		case err == nil:
			l.acks, l.asked = append(l.acks, time.Now()), append(l.asked, begun)
			if count > 0 {
				l.want[name] = count
			} else {
				delete(l.want, name)
				l.gone[name] = true
			}
		case again:
			l.again[why]++
		case client.IsProblem(err, v1.ProblemRefused): // there is no room, and nothing is changed
			l.again["refused"]++
			l.mu.Unlock()
			return true
		default:
			l.faults = append(l.faults, fmt.Sprintf("%s through %s: %v", key, h.Name, err))
			delete(l.want, name)
		}
		if ctx.Err() != nil && err != nil {
			l.open = append(l.open, fmt.Sprintf("%s: %v", key, err))
			delete(l.want, name)
		}
		l.mu.Unlock()
		if err == nil || !again || ctx.Err() != nil {
			return err == nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(20+rng.IntN(60)) * time.Millisecond):
		}
	}
}

// retryable says whether the answer asks to try again, and what it was.
func retryable(err error) (string, bool) {
	if errors.Is(err, client.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		return "unreachable", true
	}
	for _, kind := range []string{v1.ProblemNoLeader, v1.ProblemUnavailable, v1.ProblemTimeout} {
		if client.IsProblem(err, kind) {
			return kind[len(v1.ProblemPrefix):], true
		}
	}
	return "", false
}

// acked is how many writes were acknowledged.
func (l *load) acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acks)
}

// ackedSince is how many of the requests that began after a moment were acknowledged. A request that began before may
// have been committed before, with its answer still on its way.
func (l *load) ackedSince(at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, begun := range l.asked {
		if begun.After(at) {
			n++
		}
	}
	return n
}

// awaitAcks waits until so many more writes are acknowledged.
func (l *load) awaitAcks(t *testing.T, within time.Duration, more int) {
	t.Helper()
	from := l.acked()
	eventually(t, within, fmt.Sprintf("%d more writes are acknowledged", more), func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.acks) - from; n < more {
			return fmt.Errorf("%d; refused for good: %q", n, l.faults[:min(5, len(l.faults))])
		}
		return nil
	})
}

// end the load: no new writes, those begun are finished.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.all.Wait()
	for n, f := range l.faults {
		if n < 10 {
			t.Errorf("refused for good: %s", f)
		}
	}
	for n, o := range l.open {
		if n < 10 {
			t.Errorf("no answer within %s: %s", writeTime, o)
		}
	}
}

// gap is the longest time without an acknowledged write, since then. Time in which the machine stood still does not count.
func (l *load) gap(since time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	last := time.Time{}
	for _, at := range l.acks {
		if at.Before(since) {
			last = at
			continue
		}
		if !last.IsZero() {
			longest = max(longest, l.stalls.Ran(last, at))
		}
		last = at
	}
	return longest
}

// check that everything acknowledged is in the state of every server that is given.
func (l *load) check(t *testing.T, hosts []*host) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range hosts {
		var vcs []v1.VirtualCluster
		eventually(t, 30*time.Second, h.Name+" lists the virtual clusters", func(ctx context.Context) (err error) {
			vcs, err = h.API.VirtualClusters(ctx)
			return err
		})
		there := map[string]v1.VirtualCluster{}
		for _, vc := range vcs {
			there[vc.Name] = vc
		}
		lost := 0
		for name, n := range l.want {
			if vc, ok := there[name]; !ok || vc.Groups[0].Count != n || vc.State == "deleting" {
				lost++
				t.Errorf("%s: %s of %d VMs was acknowledged; found %v: %+v", h.Name, name, n, ok, vc)
			}
		}
		for name := range l.gone {
			if vc, ok := there[name]; ok && vc.State != "deleting" {
				lost++
				t.Errorf("%s: that %s is deleted was acknowledged; it is %s", h.Name, name, vc.State)
			}
		}
		if lost > 0 {
			t.Errorf("%s: %d of %d acknowledged writes lost", h.Name, lost, len(l.acks))
		}
	}
}
