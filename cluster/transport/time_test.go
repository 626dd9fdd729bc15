package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// memory is a network in one process, for tests with a fake clock. What is cut off loses what is
// sent to and from it, and answers no call.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*queue
	cut       map[string]bool
	dials     []time.Time
	weather   *weather // nil: fine
}

// inMemory gives a site such a network. In a bubble only: writes have some time to end.
func (s *site) inMemory(w *weather) {
	s.net = &memory{listeners: map[string]*queue{}, cut: map[string]bool{}, weather: w}
	s.t.Cleanup(func() {
		time.Sleep(2 * time.Minute) // sleep: a fake clock's; what is on its way gets lost in the end
	})
}

func (n *memory) listen(name string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := newQueue(named{"memory", name + ":1"})
	n.listeners[name+":1"] = q
	return q
}

func (n *memory) isCut(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[address]
}

func (n *memory) set(address string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[address] = cut
}

func (n *memory) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	q, cut := n.listeners[address], n.cut[address]
	n.dials = append(n.dials, time.Now())
	n.mu.Unlock()
	if cut || q == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	if n.weather != nil {
		n.weather.seen(near)
		n.weather.seen(far)
	}
	if end := n.lossy(far, address); !q.put(end) {
		_ = end.Close()
		return nil, errors.New("connection refused")
	}
	return n.lossy(near, address), nil
}

// lossy is an end of a connection. What is written is on its way until it is read, so that a
// writer does not wait for a reader.
type lossy struct {
	net.Conn
	sent chan []byte
	done chan struct{}
	once sync.Once
}

func (n *memory) lossy(c net.Conn, address string) *lossy {
	l := &lossy{Conn: c, sent: make(chan []byte, 1000), done: make(chan struct{})}
	go func() {
		defer c.Close()
		for {
			var b []byte
			select {
			case b = <-l.sent:
			case <-l.done:
				select {
				case b = <-l.sent: // what was written before the end still arrives
				default:
					return
				}
			}
			if n.weather != nil {
				time.Sleep(n.weather.late()) // sleep: a fake clock's
			}
			if n.isCut(address) {
				continue
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	return l
}

func (l *lossy) Write(b []byte) (int, error) {
	select {
	case <-l.done:
		return 0, net.ErrClosed
	case l.sent <- slices.Clone(b):
		return len(b), nil
	}
}

func (l *lossy) Close() error {
	l.once.Do(func() { close(l.done) })
	_ = l.Conn.SetReadDeadline(time.Unix(1, 0)) // the reader is woken
	_ = l.Conn.SetWriteDeadline(time.Now().Add(time.Minute))
	return nil
}

// The leader's side is cut off: the agent holds its orders for void within the time of silence,
// reaches the leader through another server for what is urgent, and is back soon after.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		l.set(true, "")
		one := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
		two := s.member("s2", true, false, PeersOptions{Leader: newBrain(), Lead: func() Leading { return Leading{Address: one.at} }})
		a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), one.at, two.at)
		await(t, a, "the first state", index(0))
		a.mu.Lock()
		a.at = slices.Index(a.servers, one.at)
		a.mu.Unlock()
		ctx := context.Background()
		if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err != nil {
			t.Fatal(err)
		}

		s.net.set(two.at, true)
		s.net.set(one.at, true)
		_, changed, err := a.Desired(ctx, "h1")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		<-changed
		if took := time.Since(begin); took > silence {
			t.Errorf("old orders were held good for %s", took)
		}
		if _, _, err := a.Desired(ctx, "h1"); !errors.Is(err, ErrNoLeader) {
			t.Fatalf("no answer: %v", err)
		}
		begin = time.Now()
		if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err == nil {
			t.Fatal("renewed without a leader")
		}
		if took := time.Since(begin); took > 2*askTime {
			t.Errorf("a renewal took %s to fail", took)
		}

		// One server can be reached again, not from the agent but as relay: the leader hears the
		// relay only.
		s.net.set(two.at, false)
		s.net.set(one.at, false)
		begin = time.Now()
		await(t, a, "the state again", index(0))
		if took := time.Since(begin); took > lastBackoff+2*handshakeTimeout+silence {
			t.Errorf("back after %s", took)
		}
		begin = time.Now()
		if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*askTime {
			t.Errorf("a renewal took %s", took)
		}
	})
}

// While there is no server to be reached, tries get rarer, and never rarer than the longest backoff.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.inMemory(nil)
		closed := s.net.listen("s1")
		_ = closed.Close()
		a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), "s1:1")
		time.Sleep(time.Minute)
		s.net.mu.Lock()
		dials := slices.Clone(s.net.dials)
		s.net.mu.Unlock()
		if n := len(dials); n < 60/5 || n > 60/2 {
			t.Errorf("%d tries in a minute", n)
		}
		for i := 1; i < len(dials); i++ {
			gap, limit := dials[i].Sub(dials[i-1]), min(firstBackoff<<(i-1), lastBackoff)
			if gap > limit || gap < limit/2 {
				t.Errorf("try %d came %s after the one before, want %s to %s", i, gap, limit/2, limit)
			}
		}
		if _, _, err := a.Desired(context.Background(), "h1"); !errors.Is(err, ErrNoLeader) {
			t.Error(err)
		}
	})
}

// A hint that there is a leader again ends a long wait for one, and so does an answer to any call.
func TestHintEndsTheWait(t *testing.T) {
	for name, hint := range map[string]func(a *Agent){
		"a hint":    (*Agent).Hint,
		"an answer": func(a *Agent) { _, _ = a.Renew(context.Background(), agent.Renewal{Host: "h1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b, l := newSite(t), newBrain(), &lead{}
				s.inMemory(nil)
				b.set("h1", agent.Desired{Cluster: clusterID, Index: 1})
				m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
				a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), m.at)
				for n := range 5 { // at some instant of a wait of up to 5 s
					l.set(false, "")
					time.Sleep(time.Minute + time.Duration(n)*700*time.Millisecond) // sleep: in a bubble of synctest, where time is fake
					_, heard, err := a.Desired(context.Background(), "h1")
					if !errors.Is(err, ErrNoLeader) || heard == nil {
						t.Fatalf("%v, %v", heard, err)
					}
					l.set(true, "")
					began := time.Now()
					hint(a)
					<-heard
					if took := time.Since(began); took > lastBackoff/10+100*time.Millisecond {
						t.Errorf("the leader was heard after %s", took)
					}
					if _, _, err := a.Desired(context.Background(), "h1"); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// Hints that lead nowhere do not make an agent try all the time: a thousand that do would keep servers from coming back.
func TestHintsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		var tries atomic.Int64
		m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: func() Leading { tries.Add(1); return l.ask() }})
		a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), m.at)
		l.set(false, "")
		time.Sleep(time.Minute) // sleep: in a bubble of synctest, where time is fake
		tries.Store(0)
		for range 6000 {
			a.Hint()
			time.Sleep(10 * time.Millisecond) // sleep: the same
		}
		if n := tries.Load(); n == 0 || n > 60 { // a wait of 2.5 to 5 s, and a hint for each
			t.Errorf("%d tries in a minute", n)
		}
	})
}

// Samples are sent every two seconds, alone or with what is sent at once.
func TestSamplesAreThinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		l.set(true, "")
		m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
		a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), m.at)
		await(t, a, "the first state", index(0))
		report := agent.Report{Host: "h1", Reach: true}
		send := func(want int, samples bool, what string) {
			t.Helper()
			if err := a.Report(context.Background(), report); err != nil {
				t.Fatal(err)
			}
			got := b.taken()
			if len(got) != want || (got[want-1].Samples != nil) != samples {
				t.Errorf("%s: %d reports arrived, want %d, the last with samples: %v", what, len(got), want, samples)
			}
		}
		send(1, false, "the first")
		report.Samples = []agent.Sample{{VM: "a", State: "running"}}
		send(2, true, "the first samples")
		time.Sleep(time.Second)
		send(2, true, "after 1 s")
		time.Sleep(time.Second)
		send(3, true, "after 2 s")
		report.Statuses = []agent.Status{{VM: "a", Phase: agent.PhaseRunning}}
		send(4, false, "a status")
		send(5, false, "another status")
		report.Statuses = nil
		send(5, false, "samples again")
		report.Samples[0].State = "paused"
		send(6, true, "it runs no more")
		time.Sleep(2 * time.Second)
		report.Statuses = []agent.Status{{VM: "a", Phase: agent.PhaseRunning}}
		send(7, true, "a status when samples are due")
		report.Statuses = nil
		report.Error = "trouble"
		send(8, true, "trouble")
		l.set(false, "")
		time.Sleep(silence)
		if err := a.Report(context.Background(), report); !errors.Is(err, ErrNoLeader) {
			t.Errorf("no server leads: %v", err)
		}
	})
}

// Connections outlive every time limit of a single call, and streams those of an answer, also
// through a relay.
func TestLongConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		l.set(true, "")
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn := http.NewResponseController(w)
			for r.Context().Err() == nil {
				_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
				if _, err := io.WriteString(w, "tick\n"); err != nil {
					t.Error(err)
					return
				}
				_ = conn.Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
				}
			}
		})
		s.apis["s1"] = api
		leader := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
		relay := s.member("s2", true, false, PeersOptions{Leader: newBrain(), Lead: func() Leading { return Leading{Address: leader.at} }})
		agents := []*Agent{s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), leader.at), s.agent(s.certificates(nil, "h2", false, true, time.Now(), time.Hour), relay.at)}
		for _, a := range agents {
			await(t, a, "the first state", index(0))
		}
		near, far := net.Pipe()
		front := &http.Server{WriteTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { relay.client.Forward(w, r, leader.at) })}
		q := newQueue(named{"memory", "front"})
		q.put(far)
		go func() { _ = front.Serve(q) }()
		defer front.Close()
		go func() { _, _ = io.WriteString(near, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n") }()
		ticks := bufio.NewScanner(near)
		ctx := context.Background()
		for round := range 20 {
			for _, a := range agents {
				if _, changed, err := a.Desired(ctx, a.o.Host); err != nil {
					t.Fatalf("round %d: %v", round, err)
				} else {
					defer func() {
						select {
						case <-changed:
							t.Errorf("the stream of %s ended in round %d", a.o.Host, round)
						default:
						}
					}()
				}
				if err := a.Report(ctx, agent.Report{Host: a.o.Host, Statuses: []agent.Status{{VM: "a"}}}); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if _, err := a.Renew(ctx, agent.Renewal{Host: a.o.Host}); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			for n := 0; n < 2; {
				if !ticks.Scan() {
					t.Fatalf("round %d: the forwarded stream ended: %v", round, ticks.Err())
				}
				if ticks.Text() == "tick" {
					n++
				}
			}
		}
		_ = near.Close()
		if n := len(s.net.dials); n > 10 {
			t.Errorf("%d connections were made", n)
		}
	})
}

// churn is a leader with much to do that does not concern the host: only the index moves.
type churn struct {
	*brain
	looks int
}

func (c *churn) Desired(ctx context.Context, host string) (agent.Desired, <-chan struct{}, error) {
	c.mu.Lock()
	c.looks++
	c.mu.Unlock()
	return c.brain.Desired(ctx, host)
}

// A change that does not concern a host is looked at a few times a second at most, and sent to it a second later. A change that
// concerns it arrives soon all the same.
func TestChurnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		l.set(true, "")
		c := &churn{brain: b}
		m := s.member("s1", true, false, PeersOptions{Leader: c, Lead: l.ask})
		a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), m.at)
		await(t, a, "the first state", index(0))
		frames, n := 0, uint64(0)
		busy := func(vms []agent.VM) {
			for range 10_000 {
				n++
				b.set("h1", agent.Desired{Index: n, VMs: vms})
				before, changed, err := a.Desired(context.Background(), "h1")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
				select {
				case <-changed:
					frames++
				default:
				}
				if len(before.VMs) < len(vms) && n > 10_000+uint64(maxSpacing/time.Millisecond)+1 {
					t.Fatalf("a VM is reported %d ms late", n-10_000)
				}
			}
		}
		busy(nil)
		if c.looks > 50 || frames > 12 {
			t.Errorf("in 10 s of churn %d looks and %d frames", c.looks, frames)
		}
		busy([]agent.VM{vm("a", 1)})
		time.Sleep(heartbeat + maxSpacing)
		if got, _, err := a.Desired(context.Background(), "h1"); err != nil || got.Index != n {
			t.Errorf("at the end index %d of %d, %v", got.Index, n, err)
		}
	})
}

// A member that does not renew its certificate is cut off when it ends; one that does is not kept away.
func TestCertificatesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		l.set(true, "")
		m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
		if err := m.certificates.Replace(s.material(s.ca, "s1", true, false, time.Now(), 100*time.Hour), time.Now()); err != nil {
			t.Fatal(err)
		}
		k := s.certificates(nil, "h1", false, true, time.Now(), time.Hour)
		renews, lazy := s.agent(k, m.at), s.agent(s.certificates(nil, "h2", false, true, time.Now(), time.Hour), m.at)
		for _, a := range []*Agent{renews, lazy} {
			await(t, a, "the first state", index(0))
		}
		time.Sleep(time.Until(k.RenewAt()))
		if !k.RenewDue(time.Now()) {
			t.Error("it is not time to renew")
		}
		if err := k.Replace(s.material(s.ca, "h1", false, true, time.Now(), 10*time.Hour), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		await(t, renews, "the state after the renewal", index(0))
		if _, err := renews.Renew(context.Background(), agent.Renewal{Host: "h1"}); err != nil {
			t.Error(err)
		}
		if _, _, err := lazy.Desired(context.Background(), "h2"); !errors.Is(err, ErrNoLeader) {
			t.Errorf("the certificate has ended: %v", err)
		}
		s.heard("the end of the certificate", refusal(pki.Expired))
	})
}
