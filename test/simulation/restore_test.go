package simulation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/agent"
)

// restore the saved snapshot. Clients wait meanwhile.
func (s *sim) restore() error {
	saved, err := s.begins()
	if err != nil {
		return err
	}
	defer s.clients.Unlock()
	return s.enforce(saved, false)
}

// rebuild the cluster after all servers lost their disks: a new one takes the saved state over. VMs run on. Agents
// start again, half of them without what they had on disk: the early ones hear of the new cluster before the saved state
// is in force, the others some time after it.
func (s *sim) rebuild(early []string) error {
	saved, err := s.begins()
	if err != nil {
		return err
	}
	defer s.clients.Unlock()
	var all sync.WaitGroup
	for _, h := range s.hosts {
		all.Go(h.killAgent)
	}
	all.Wait()
	for _, name := range s.names {
		v := s.servers[name]
		v.crash()
		v.full.Store(false)
		s.net.freeze(name, false)
		v.used, v.lost = false, v.lost+1
	}
	s.newDisks()
	s.net.heal()
	for _, h := range s.hosts {
		if s.net.chance(0.5) {
			h.mu.Lock()
			h.disk = agent.PersistentState{}
			h.mu.Unlock()
		}
	}
	s.mu.Lock()
	s.furthest = 0
	s.mu.Unlock()
	if err := s.formServers(); err != nil {
		s.violate("the cluster is not made again: %v", err)
		return err
	}
	for _, name := range early {
		s.hosts[name].startAgent()
	}
	_ = wait(s.ctx, s.net.between(0, 3*time.Second))
	if !s.eventually(time.Minute, func() bool { err = s.enforce(saved, true); return err == nil }) {
		s.violate("the saved state is not put in force in a new cluster: %v", err)
	}
	s.count("clusters rebuilt")
	for _, name := range s.order {
		if !slices.Contains(early, name) {
			all.Go(func() {
				_ = wait(s.ctx, s.net.between(0, 20*time.Second))
				s.hosts[name].startAgent()
			})
		}
	}
	all.Wait()
	return err
}

// begins to restore: clients wait until they are let go on.
func (s *sim) begins() ([]byte, error) {
	s.mu.Lock()
	saved := s.saved
	s.mu.Unlock()
	if saved == nil {
		return nil, fmt.Errorf("nothing was saved")
	}
	s.clients.Lock()
	s.mu.Lock()
	s.restored = true
	s.mu.Unlock()
	return saved, nil
}

// enforce a saved state. Clients go on from what there is then.
func (s *sim) enforce(saved []byte, foreign bool) error {
	s.asksForRuns(saved)
	err := s.withLeader(func(ctx context.Context, p *serving) error {
		_, err := p.node.Restore(ctx, bytes.NewReader(saved), foreign)
		return err
	})
	if err == nil {
		s.count("snapshots restored")
	}
	for range 200 { // whether it is in force is for the next linearizable read to say, and the next leader may still put it in force
		there := map[string]seenVC{}
		if s.withLeader(func(ctx context.Context, p *serving) error {
			v, err := p.ctl.View(ctx, false)
			if err != nil {
				return err
			}
			for _, name := range s.o.names {
				if vc, ok := v.VCNamed(name); ok {
					there[name] = seenVC{Count: vc.Groups[0].Count, Goal: vc.Goal}
				} else {
					there[name] = seenVC{}
				}
			}
			return nil
		}) == nil {
			s.history.restored(time.Since(s.began), there)
			return err
		}
		_ = wait(s.ctx, 2*time.Second)
	}
	return fmt.Errorf("restore: no leader after it: %w", err)
}
