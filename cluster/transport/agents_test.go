package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

func vm(id string, generation uint64) agent.VM {
	return agent.VM{Spec: hypervisor.Spec{Identity: hypervisor.Identity{Cluster: clusterID, VM: id, Generation: generation}, Name: "ek-" + id, VCPUs: 1}, Want: agent.WantRun}
}

// await a desired state that is wanted.
func await(t *testing.T, a *Agent, what string, holds func(agent.Desired) bool) agent.Desired {
	t.Helper()
	timeout := time.After(patience)
	for {
		got, changed, err := a.Desired(context.Background(), a.o.Host)
		if err == nil && holds(got) {
			return got
		}
		if err != nil {
			if !errors.Is(err, ErrNoLeader) {
				t.Fatal(err)
			}
			a.mu.Lock()
			changed = a.changed
			a.mu.Unlock()
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%s: still %+v, %v", what, got, err)
		}
	}
}

func index(n uint64) func(agent.Desired) bool {
	return func(d agent.Desired) bool { return d.Index == n }
}

func TestAgentAndLeader(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	b.set("h1", agent.Desired{Cluster: clusterID, Index: 5, CPU: 2, VMs: []agent.VM{vm("a", 1), vm("b", 1)}})
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask, Heartbeat: 20 * time.Millisecond})
	a := s.agent(s.keeper(nil, "h1", false, true, time.Now(), time.Hour), m.at)
	if got := await(t, a, "the first state", index(5)); len(got.VMs) != 2 || got.VMs[0].Spec.Identity.VM != "a" {
		t.Fatalf("%+v", got)
	}
	b.set("h1", agent.Desired{Cluster: clusterID, Index: 6, CPU: 2, VMs: []agent.VM{vm("b", 1), vm("c", 2)}})
	if got := await(t, a, "the second state", index(6)); len(got.VMs) != 2 || got.VMs[1].Spec.Generation != 2 {
		t.Fatalf("%+v", got)
	}
	ctx := context.Background()
	report := agent.Report{Host: "h1", Reach: true, Running: []agent.Instance{}, Index: 6, Statuses: []agent.Status{{VM: "b", Generation: 1, Phase: agent.SeenRunning}}}
	for range 3 {
		if err := a.Report(ctx, report); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range b.taken() {
		if r.Index != 6 || r.Running == nil || r.Unknown != nil || len(r.Statuses) != 1 {
			t.Fatalf("%+v", r)
		}
	}
	if g, err := a.Renew(ctx, agent.Renewal{Host: "h1", Enforcing: true, Boot: "x"}); err != nil || !g.Enforce || g.Lease != 20*time.Second {
		t.Fatal(g, err)
	}
	if p, err := a.Permit(ctx, agent.PermitRequest{Host: "h1", Starts: []agent.Instance{{VM: "b", Generation: 1}}}); err != nil || len(p.Granted) != 1 {
		t.Fatal(p, err)
	}
	l.set(false, "")
	_, changed, _ := a.Desired(ctx, "h1")
	if changed != nil {
		<-changed
	}
	if _, _, err := a.Desired(ctx, "h1"); !errors.Is(err, ErrNoLeader) {
		t.Fatalf("nobody leads: %v", err)
	}
	if err := a.Report(ctx, report); !errors.Is(err, ErrNoLeader) {
		t.Fatalf("nobody leads: %v", err)
	}
}
