package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// A member that servers refuse can ask them whether it was removed, and with a certificate that is bad otherwise it cannot. Only
// servers are asked and believed.
func TestStanding(t *testing.T) {
	s := newSite(t)
	m := s.member("s1", true, true, PeersOptions{Lead: none})
	host := s.member("h9", false, true, PeersOptions{})
	other, err := pki.NewCA(clusterID, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	revoked := s.certificates(nil, "h1", false, true, now, time.Hour)
	s.revoke(pki.SerialOf(revoked.Leaf()))
	for _, c := range []struct {
		what         string
		certificates *pki.CertificateStore
		at           string
		answer       bool
		want         bool
	}{
		{"a member", s.certificates(nil, "h2", false, true, now, time.Hour), m.at, true, false},
		{"a removed member", revoked, m.at, true, true},
		{"a stranger", s.certificates(other, "h3", false, true, now, time.Hour), m.at, false, false},
		{"an expired one", s.certificates(nil, "h4", false, true, now.Add(-30*time.Minute), time.Minute), m.at, false, false},
		{"a host is asked", revoked, host.at, false, false},
	} {
		removed, err := s.dialer(c.certificates).Standing(t.Context(), c.at)
		if (err == nil) != c.answer || removed != c.want {
			t.Errorf("%s: removed %t, %v", c.what, removed, err)
		}
	}
}

// An agent whose member was removed goes on as if there were no leader for its leases, asks nothing of the network and reports
// nothing, and goes on once its member is admitted again.
func TestAgentOfRemovedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, l := newSite(t), newBrain(), &lead{}
		s.inMemory(nil)
		l.set(true, "")
		b.set("h1", agent.Desired{Cluster: clusterID, Index: 5})
		m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
		k := s.certificates(nil, "h1", false, true, time.Now(), time.Hour)
		shut := make(chan struct{}, 100)
		a := s.agentWith(k, func(o *AgentOptions) { o.Shut = func() { shut <- struct{}{} } }, m.at)
		await(t, a, "the first state", index(5))
		serial := pki.SerialOf(k.Leaf())
		s.revoke(serial)
		m.port.Recheck()
		<-shut
		a.o.Dialer.SetRemoved(true)
		dials := func() int { s.net.mu.Lock(); defer s.net.mu.Unlock(); return len(s.net.dials) }
		time.Sleep(time.Minute) // sleep: a fake clock's
		before := dials()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		begun := time.Now()
		if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); !errors.Is(err, ErrRemoved) || time.Since(begun) > time.Second {
			t.Errorf("a lease is renewed, after %s: %v", time.Since(begun), err)
		}
		if _, err := a.Permit(ctx, agent.PermitRequest{Host: "h1"}); !errors.Is(err, ErrRemoved) {
			t.Errorf("a permit is given: %v", err)
		}
		if _, _, err := a.Desired(ctx, "h1"); !errors.Is(err, ErrRemoved) || time.Since(begun) < 9*time.Minute {
			t.Errorf("there are orders, after %s: %v", time.Since(begun), err)
		}
		if n := dials() - before; n > 0 {
			t.Errorf("it connected %d times", n)
		}
		s.mu.Lock()
		delete(s.revoked, serial)
		s.mu.Unlock()
		heard := make(chan error, 1)
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { heard <- a.Report(soon, agent.Report{Host: "h1"}) }()
		synctest.Wait()
		select {
		case err := <-heard:
			t.Fatalf("it reported: %v", err)
		default:
		}
		a.o.Dialer.SetRemoved(false)
		if err := <-heard; err != nil {
			t.Errorf("let in again, it does not report: %v", err)
		}
		await(t, a, "its orders", index(5))
	})
}
