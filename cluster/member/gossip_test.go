package member_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/cluster/node"
	"evenkeel/cluster/transport"
)

// talk gives the first n members addresses for gossip.
func (s *site) talk(n int) {
	s.t.Helper()
	s.gossip = map[string]string{}
	l, err := net.Listen("tcp", "127.0.1.1:0") // a port that is free, perhaps
	if err != nil {
		s.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	for i := 1; i <= n; i++ {
		s.gossip[fmt.Sprintf("h%d", i)] = fmt.Sprintf("127.0.1.%d:%s", i, port)
	}
}

// A member whose clock is set far off is named by every server, itself too, though certificates are refused by that clock.
func TestClockFarOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	s.talk(3)
	var ahead atomic.Int64
	s.now = map[string]func() time.Time{"h1": func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	s.first()
	s.join("h2", true)
	s.join("h3", true)
	for name := range s.up {
		s.eventually(name+" hears of all clocks", func() bool { return len(s.up[name].Clocks()) == 3 })
		if w := node.WrongClocks(s.up[name].Clocks()); len(w) != 0 {
			t.Errorf("%s: %v, want none", name, w)
		}
	}
	ahead.Store(int64(400 * 24 * time.Hour))
	for name := range s.up {
		s.eventually(name+" names h1", func() bool {
			w := node.WrongClocks(s.up[name].Clocks())
			return len(w) == 1 && w[0].Name == "h1" && w[0].Ahead > 399*24*time.Hour
		})
	}
	ahead.Store(0)
	for name := range s.up {
		s.eventually(name+" names none", func() bool { return len(node.WrongClocks(s.up[name].Clocks())) == 0 })
	}
}

// A member that was removed cannot take part in gossip: the key is another soon, on servers and agents, also if the leader
// changes at once. Those that stay do not lose sight of each other.
func TestGossipWithoutRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	s.talk(4)
	s.first()
	s.join("h2", true)
	s.join("h3", true)
	s.join("h4", false) // an agent, which hears of keys with its orders
	sees := func(name string, want ...string) bool {
		var got []string
		for _, p := range s.up[name].Gossips() {
			if p.Meta.Version != "test" {
				t.Errorf("%s hears that %s runs %q", name, p.Name, p.Meta.Version)
			}
			got = append(got, p.Name)
		}
		return slices.Equal(got, want)
	}
	for name := range s.up {
		s.eventually(name+" sees all", func() bool { return sees(name, "h1", "h2", "h3", "h4") })
	}
	keys := func(name string) (k transport.GossipKeys) {
		if b, err := os.ReadFile(filepath.Join(s.dirs[name], "gossip.keys")); err == nil {
			_ = json.Unmarshal(b, &k)
		}
		return k
	}
	old, err := os.ReadFile(filepath.Join(s.dirs["h3"], "gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("three servers vote", func() bool {
		nodes, _ := s.leader().Nodes()
		n := 0
		for _, v := range nodes {
			if v.Voter && v.Healthy {
				n++
			}
		}
		return n == 3
	})
	out := "h3"
	s.eventually("a leader that stays", func() bool {
		if l := s.leader(); l.Identity().Name == out {
			_ = l.TransferLeadership(t.Context(), "h1")
			return false
		}
		return true
	})
	s.eventually("it is removed", func() bool {
		err := s.leader().Remove(t.Context(), out, true)
		_, there := s.leader().State.Snapshot().Member(out)
		return err == nil || !there
	})
	_ = s.leader().TransferLeadership(t.Context(), "")
	stay := []string{"h1", "h2", "h4"}
	for _, name := range stay {
		s.eventually(name+" has one key, a new one", func() bool {
			k := keys(name)
			return len(k.Keys) == 1 && string(k.Keys[0]) != string(old) && k.Version == keys("h1").Version
		})
		s.eventually(name+" sees those that stay", func() bool { return sees(name, stay...) })
	}
	if k, err := os.ReadFile(filepath.Join(s.dirs["h1"], "gossip.key")); err != nil || string(k) != string(old) {
		t.Errorf("the founding key was changed: %v", err)
	}
	// The old key, and whatever the removed member has received since, make no member.
	for _, ring := range [][][]byte{{old}, keys(out).Keys} {
		if len(ring) == 0 {
			continue
		}
		g, err := node.OpenGossip(node.GossipOptions{Name: "spy", Bind: "127.0.0.1:0", Keys: ring, Log: s.log, Interval: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		g.Join(ctx, func() []string { return []string{s.gossip["h1"], s.gossip["h2"], s.gossip["h4"]} })
		cancel()
		if n := len(g.Peers()); n != 1 {
			t.Errorf("who was removed sees %d members", n)
		}
		_ = g.Close()
		for _, name := range stay {
			if !sees(name, stay...) {
				t.Errorf("%s sees %v", name, s.up[name].Gossips())
			}
		}
	}
}
