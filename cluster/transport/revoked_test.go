package transport

import (
	"context"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// An agent receives which certificates are revoked, at first and when there are others, through whichever server.
func TestRevocationsAreReported(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	b.set("h1", agent.Desired{Cluster: clusterID, Index: 5})
	var mu sync.Mutex
	list := []pki.Revocation{{Serial: "0a", Until: time.Unix(2e9, 0).UTC()}}
	now := func() []pki.Revocation {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
	leader := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask, Heartbeat: 20 * time.Millisecond, Revocations: now})
	var to lead
	to.set(false, leader.at)
	follower := s.member("s2", true, false, PeersOptions{Leader: b, Lead: to.ask, Heartbeat: 20 * time.Millisecond})
	heard := map[string]int{}
	a := s.agentWith(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), func(o *AgentOptions) {
		o.Revoked = func(list []pki.Revocation) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range list {
				heard[r.Serial]++
			}
		}
	}, follower.at)
	await(t, a, "the first state", index(5))
	mu.Lock()
	list = append([]pki.Revocation{{Serial: "0b", Until: time.Unix(2e9, 0).UTC()}}, list...)
	mu.Unlock()
	s.eventually("the agent hears of both", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return heard["0a"] > 0 && heard["0b"] > 0
	})
	b.set("h1", agent.Desired{Cluster: clusterID, Index: 6})
	await(t, a, "the second state", index(6))
	mu.Lock()
	defer mu.Unlock()
	if heard["0a"] != 2 || heard["0b"] != 1 {
		t.Errorf("reported %v times", heard)
	}
}

// What an agent reports itself is taken down in the name of its own host, within bounds.
func TestEventsAreReported(t *testing.T) {
	s, l := newSite(t), &lead{}
	l.set(true, "")
	var mu sync.Mutex
	var got []Event
	m := s.member("s1", true, false, PeersOptions{Lead: l.ask, Record: func(host string, events []Event) {
		mu.Lock()
		defer mu.Unlock()
		if host != "h1" {
			t.Errorf("in the name of %s", host)
		}
		got = append(got, events...)
	}})
	c := NewClient(s.dialer(s.certificates(nil, "h1", false, true, time.Now(), time.Hour)), ClientOptions{Log: quiet()})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	e := Event{At: time.Unix(1e9, 0).UTC(), Kind: "connection-refused", Name: "192.0.2.1", Text: "revoked"}
	if err := c.ReportEvents(ctx, m.at, "h1", []Event{e}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != e {
		t.Errorf("taken down %+v", got)
	}
	if err := c.ReportEvents(ctx, m.at, "h2", []Event{e}); err == nil {
		t.Error("reported in the name of another host")
	}
	if err := c.ReportEvents(ctx, m.at, "h1", make([]Event, maxEvents+1)); err == nil {
		t.Error("too many are taken")
	}
	e.Text = string(make([]byte, maxEventText+1))
	if err := c.ReportEvents(ctx, m.at, "h1", []Event{e}); err == nil || len(got) != 1 {
		t.Errorf("too long a text is taken: %v", err)
	}
}
