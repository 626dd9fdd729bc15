package site

import (
	"context"
	"fmt"
	"strings"

	"evenkeel/cluster/leader"
	"evenkeel/test/patience"
)

// Doing is what a cluster does, for a test that waits: it has nothing that changes while the cluster makes no progress.
func Doing(v *leader.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader %q, minimum yield %.3f", v.Leader, v.MinYield())
	for _, h := range v.Hosts() {
		fmt.Fprintf(&b, "; host %s %s", h.Name, v.HostView(h).State)
	}
	for _, vc := range v.VCs() {
		seen := v.VCView(vc)
		fmt.Fprintf(&b, "; VC %s %s %+v", vc.Name, seen.State, seen.Count)
	}
	for _, p := range v.MovePlans() {
		fmt.Fprintf(&b, "; plan %s %s, tries %d, failures %d: %s", p.ID, p.State, p.Tries, p.Failures, p.Reason)
		for _, m := range v.MigrationsOf(p.ID) {
			fmt.Fprintf(&b, ", VM %s from %s to %s %s %s", m.VM, m.From, m.To, m.State, m.Error)
			if live := v.MigrationView(m).Live; live != nil {
				fmt.Fprintf(&b, " %d bytes", live.Bytes)
			}
		}
	}
	return b.String()
}

// doing is what the site's members do.
func (s *Site) doing() any {
	leader := s.Leader()
	out := fmt.Sprintf("leader %q", leader)
	for _, name := range s.Up() {
		m := s.up[name]
		if m.Identity().Server {
			here, address := m.Leader()
			out += fmt.Sprintf("; server %s leads: %t, follows %q", name, here, address)
		}
	}
	m := s.Member(leader)
	if m == nil {
		return out
	}
	nodes, _ := m.Nodes()
	for _, n := range nodes {
		out += fmt.Sprintf("; %s votes: %t, healthy: %t", n.ID, n.Voter, n.Healthy)
	}
	if v, err := m.View(context.Background(), true); err == nil {
		out += "; " + Doing(v)
	}
	return out
}

// Await a result, as long as the members make progress.
func (s *Site) Await(ctx context.Context, what string, ok func() bool) error {
	return patience.Until(ctx, patience.Stall, what, s.doing, ok)
}

// Ready is how many hosts are ready.
func Ready(v *leader.View) (n int) {
	for _, h := range v.Hosts() {
		if v.HostView(h).State == "ready" {
			n++
		}
	}
	return n
}
