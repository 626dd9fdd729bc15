package manyhosts

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/member"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
)

// joinsAtOnce is how many hosts enter the cluster at the same time.
const joinsAtOnce = 8

// join the hosts as agents, each with a token of its own.
func join(ctx context.Context, api *client.Client, dir string, hosts, servers []string) error {
	slots := make(chan struct{}, joinsAtOnce)
	failed := make(chan error, len(hosts))
	var wg sync.WaitGroup
	for i, host := range hosts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t, err := joinToken(ctx, api)
			if err == nil {
				first := i % len(servers)
				_, err = member.Join(ctx, filepath.Join(dir, host), host, "127.0.0.1:1", member.JoinOptions{Token: t.Token, Addresses: append(servers[first:len(servers):len(servers)], servers[:first]...)})
			}
			if err != nil {
				failed <- fmt.Errorf("host %s: %w", host, err)
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// joinToken makes a join token for an agent. On a busy machine leadership changes: it asks again
// until a server leads.
func joinToken(ctx context.Context, api *client.Client) (t v1.JoinToken, err error) {
	_ = until(ctx, time.Minute, "a join token", func() bool {
		t, err = api.MakeJoinToken(ctx, v1.JoinTokenRequest{Agent: true})
		return err == nil || retryable(err) == ""
	})
	return t, err
}

// keep is an agent's state, in memory. A host has it on a disk of its own; here all agents would wait for the disk
// that the servers' logs are on.
type keep struct{ m agent.PersistentState }

// Load implements agent.StateStore.
func (k *keep) Load() (agent.PersistentState, error) { return k.m, nil }

// Save implements agent.StateStore.
func (k *keep) Save(m agent.PersistentState) error {
	k.m = m
	return nil
}

// startAgents runs an agent per host until ctx ends. The hosts serve no consoles and do not gossip: the gossip of
// 1,000 hosts on one machine would take most of its time.
func (b *bench) startAgents(ctx context.Context, dir string) error {
	log, servers := slog.New(slog.DiscardHandler), b.addresses()
	slots := make(chan struct{}, joinsAtOnce)
	for i, name := range b.world.Hosts() {
		certificates, err := pki.OpenStore(pki.FilesIn(filepath.Join(dir, name, "pki")), false, time.Now())
		if err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
		dialer := &transport.Dialer{Security: transport.Security{Certificates: certificates, Revoked: func(string) bool { return false }}}
		leader := transport.NewAgent(transport.AgentOptions{Host: name, Dialer: dialer, Servers: servers, Log: log,
			Rand: rand.New(rand.NewPCG(uint64(i), 1))})
		b.agents.Go(func() {
			leader.Run(ctx)
			dialer.Close()
		})
		o := agent.Options{Host: name, Hypervisor: b.world.Host(name), Leader: leader, Log: log, SampleEvery: b.o.SampleEvery, Boot: "1", MigrateURI: name,
			State: &keep{},
			Allowance: func(c hypervisor.Capacity) agent.Limits {
				return agent.Limits{CPU: 0.95 * c.CPU, Memory: c.Memory / 20 * 19}
			},
			Overhead: func(hypervisor.Capacity) int64 { return 32 << 20 }}
		b.agents.Go(func() { _ = agent.Run(ctx, o) }) // what it could not do shows in the figures
		// No more at a time than this one machine can shake hands with: each has two ends here.
		slots <- struct{}{}
		b.agents.Go(func() {
			defer func() { <-slots }()
			_ = until(ctx, time.Minute, "host "+name+" hears the leader", func() bool { _, _, err := leader.Desired(ctx, name); return err == nil })
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
