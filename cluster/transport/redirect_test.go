package transport

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
)

// counting is an agent of host h1 that may not reach the leader, and that counts how often it connected to which server.
func (s *site) counting(leader string, reached bool, servers ...string) (a *Agent, dialed func(address string) int) {
	var mu sync.Mutex
	times := map[string]int{}
	a = s.agentWith(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), func(o *AgentOptions) {
		o.Dialer.Connect = func(ctx context.Context, address string) (net.Conn, error) {
			mu.Lock()
			times[address]++
			mu.Unlock()
			if address == leader && !reached {
				return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
			}
			return s.net.dial(ctx, address)
		}
	}, servers...)
	return a, func(address string) int {
		mu.Lock()
		defer mu.Unlock()
		return times[address]
	}
}

// A server that does not lead relays nothing for an agent that can ask the leader itself: it names the leader. Where the agent
// cannot reach the leader the server relays, and the agent tries the leader seldom.
func TestElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		reached bool
		begins  time.Duration // so long after it was elected
	}{"reached": {true, 0}, "out of reach": {false, 0}, "elected, not yet begun": {true, 60 * time.Millisecond}} {
		reached := c.reached
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b := newSite(t), newBrain()
				s.inMemory(nil)
				began := time.Now()
				leader := s.member("s1", true, false, PeersOptions{Leader: b, Lead: func() Leading {
					if time.Since(began) < c.begins {
						return Leading{}
					}
					return Leading{Here: true, Term: 1}
				}})
				relay := s.member("s2", true, false, PeersOptions{Leader: newBrain(), Lead: func() Leading { return Leading{Address: leader.at} }})
				b.set("h1", agent.Desired{Cluster: clusterID, Index: 5})
				servers := []string{leader.at, relay.at}
				if rand.New(rand.NewPCG(1, 2)).IntN(2) == 0 { // as the agent draws: who does not lead is asked first
					slices.Reverse(servers)
				}
				a, dialed := s.counting(leader.at, reached, servers...)
				await(t, a, "the first state", index(5))
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the first state came after %s", took)
				}
				for range 2 { // at once, and later
					a.mu.Lock()
					at := a.servers[a.at]
					a.mu.Unlock()
					if want := map[bool]string{true: leader.at, false: relay.at}[reached]; at != want {
						t.Errorf("the agent is at %s, not at %s", at, want)
					}
					time.Sleep(time.Minute) // sleep: a fake clock's
				}
				if n := dialed(leader.at); n < 1 || n > 3 || dialed(relay.at) == 0 {
					t.Errorf("the leader was dialed %d times, who does not lead %d times", n, dialed(relay.at))
				}
				if _, _, err := a.Desired(context.Background(), "h1"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A stream that a server relays moves to the leader after a while, without a moment in which the agent hears no leader, and the
// agent reports everything to the leader again. An agent that cannot reach the leader stays with the relay, and tries seldom.
func TestDirectToTheLeader(t *testing.T) {
	for name, reached := range map[string]bool{"reached": true, "out of reach": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b := newSite(t), newBrain()
				s.inMemory(nil)
				var both []string
				leader := s.member("s1", true, false, PeersOptions{Leader: b, Lead: func() Leading { return Leading{Here: true, Term: 1} }, Servers: func() []string { return both }})
				relay := s.member("s2", true, false, PeersOptions{Leader: newBrain(), Lead: func() Leading { return Leading{Address: leader.at} }})
				both = []string{leader.at, relay.at}
				b.set("h1", agent.Desired{Cluster: clusterID, Index: 5})
				a, count := s.counting(leader.at, reached, relay.at)
				await(t, a, "the first state", index(5))
				ctx := context.Background()
				report := agent.Report{Host: "h1", Reach: true, Running: []agent.Instance{}, Index: 5, Statuses: []agent.Status{{VM: "b", Generation: 1, Phase: agent.PhaseRunning}}}
				silent := 0
				for range 240 {
					if _, _, err := a.Desired(ctx, "h1"); err != nil {
						silent++
					}
					if err := a.Report(ctx, report); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // sleep: a fake clock's
				}
				if reached && silent > 0 {
					t.Errorf("no leader was heard %d times", silent)
				}
				if n := count(leader.at); reached && (n == 0 || n > 3) || !reached && n > 4 {
					t.Errorf("the leader was dialed %d times", n)
				}
				a.mu.Lock()
				at := a.servers[a.at]
				a.mu.Unlock()
				if want := map[bool]string{true: leader.at, false: relay.at}[reached]; at != want {
					t.Errorf("the agent is at %s, not at %s", at, want)
				}
				if got := b.taken(); len(got) < 2 || len(got[len(got)-1].Statuses) != 1 {
					t.Errorf("reports: %+v", got)
				}
				b.set("h1", agent.Desired{Cluster: clusterID, Index: 9})
				await(t, a, "a later state", index(9))
			})
		})
	}
}
