package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/cluster/agent"
)

// ways notes through whom renewals came, "" = directly.
type ways struct {
	*brain
	mu   sync.Mutex
	came []string
}

func (w *ways) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came = append(w.came, callerOf(ctx).Relay)
	return w.brain.Renew(ctx, r)
}

// An agent that reached the leader through another server calls it directly from then on, its stream stays where it is. If
// that does not go, calls take the way they came, and it is not tried again at each.
func TestCallsGoStraight(t *testing.T) {
	for _, walled := range []bool{false, true} {
		s := newSite(t)
		var leads [3]*lead
		var brains [3]*ways
		var members [3]*member
		for i := range members {
			leads[i], brains[i] = &lead{}, &ways{brain: newBrain()}
			members[i] = s.member("s"+string(rune('1'+i)), true, false, PeersOptions{Leader: brains[i], Lead: leads[i].ask, Heartbeat: 20 * time.Millisecond,
				Servers: func() []string { return []string{members[0].at, members[1].at, members[2].at} }})
		}
		lead := func(n int) {
			for i := range leads {
				leads[i].set(i == n, members[n].at)
			}
		}
		lead(0)
		brains[0].set("h1", agent.Desired{Cluster: clusterID, Index: 1})
		var tried atomic.Int32 // connections to the leader
		a := s.agentWith(s.keeper(nil, "h1", false, true, time.Now(), time.Hour), func(o *AgentOptions) {
			o.Dialer.Connect = func(ctx context.Context, address string) (net.Conn, error) {
				if address == members[0].at {
					if tried.Add(1); walled {
						return nil, errors.New("a wall")
					}
				}
				return tcp(ctx, address)
			}
		}, members[2].at)
		await(t, a, "the state through a relay", index(1))
		s.eventually("the list of servers", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.servers) == 3
		})
		ctx := context.Background()
		renew := func(n int) {
			t.Helper()
			for range n {
				if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		renew(4)
		want := []string{"s3", "", "", ""}
		if walled {
			want = []string{"s3", "s3", "s3", "s3"}
		}
		brains[0].mu.Lock()
		came := slices.Clone(brains[0].came)
		brains[0].mu.Unlock()
		if !slices.Equal(came, want) || tried.Load() != 1 {
			t.Errorf("walled %v: renewals came by %q, %d connections were tried", walled, came, tried.Load())
		}
		// Another one leads: the old one is not asked first.
		brains[1].set("h1", agent.Desired{Cluster: clusterID, Index: 2})
		lead(1)
		await(t, a, "the state of the new leader", index(2))
		renew(2)
		brains[1].mu.Lock()
		came = slices.Clone(brains[1].came)
		brains[1].mu.Unlock()
		if !walled && (len(came) != 2 || came[1] != "") {
			t.Errorf("renewals came to the new leader by %q", came)
		}
	}
}
