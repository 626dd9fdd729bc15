package leader

import (
	"fmt"
	"slices"
	"testing"

	"evenkeel/cluster/agent"
)

// Hosts are probed in turns: no host probes more than a few at a time, all get their turn, and a host that was not reached is
// asked for again.
func TestNextPeers(t *testing.T) {
	var all []agent.Peer
	for i := range 100 {
		all = append(all, agent.Peer{Host: fmt.Sprintf("h%02d", i), URI: fmt.Sprint(i)})
	}
	hosts := func(p agent.Peers) (out []string) {
		for _, x := range p.Peers {
			out = append(out, x.Host)
		}
		return out
	}
	few := all[:3]
	for _, tc := range []struct {
		name string
		all  []agent.Peer
		q    agent.PeersWanted
		want []string
		next string
	}{
		{"none", nil, agent.PeersWanted{After: "h50", Max: 5, Again: []string{"h1"}}, nil, "h50"},
		{"the next ones", all, agent.PeersWanted{After: "h50", Max: 2}, []string{"h51", "h52"}, "h52"},
		{"round the end", all, agent.PeersWanted{After: "h98", Max: 2}, []string{"h99", "h00"}, "h00"},
		{"after one that is gone", all, agent.PeersWanted{After: "h50x", Max: 1}, []string{"h51"}, "h51"},
		{"all of few", few, agent.PeersWanted{After: "h00", Max: 32}, []string{"h01", "h02", "h00"}, "h00"},
		{"again, and the next", all, agent.PeersWanted{After: "h00", Max: 2, Again: []string{"h02", "gone", "h70"}}, []string{"h02", "h70", "h01"}, "h02"},
		{"again alone", all, agent.PeersWanted{After: "h00", Again: []string{"h02"}}, []string{"h02"}, "h00"},
	} {
		if got := nextPeers(slices.Clone(tc.all), tc.q); !slices.Equal(hosts(got), tc.want) || got.Next != tc.next {
			t.Errorf("%s: %v, next %s; want %v, next %s", tc.name, hosts(got), got.Next, tc.want, tc.next)
		}
	}
	batches, after := map[string]int{}, "h10"
	for range 4 {
		got := nextPeers(slices.Clone(all), agent.PeersWanted{After: after, Max: 1000})
		if len(got.Peers) != agent.PeersAtOnce {
			t.Fatalf("%d at once", len(got.Peers))
		}
		for _, p := range got.Peers {
			batches[p.Host]++
		}
		after = got.Next
	}
	if len(batches) != len(all) {
		t.Errorf("after 4 looks %d of %d hosts had their turn", len(batches), len(all))
	}
}
