package control

import (
	"fmt"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
)

// judge returns the verdict on a host's lease by the renewals of this term.
func (c *Control) judge(h state.Host, m state.Meta) lease.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases.Judge(h.Name, enforcementOf(h), !m.FencingDisabled, c.o.Clock())
}

func enforcementOf(h state.Host) lease.Enforcement {
	f := h.Fencing
	return lease.Enforcement{Enforcing: f.Enforcing, Watchdog: time.Duration(f.Watchdog) * time.Millisecond, Lease: time.Duration(f.Lease) * time.Millisecond}
}

// unavailable returns the hosts for which nothing may be decided now, and why.
func (c *Control) unavailable(s *state.Snapshot) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	now := c.o.Clock()
	s.EachHost(func(h *state.Host) bool {
		if why := c.unavailableLocked(h, now); why != "" {
			out[h.Name] = why
		}
		return true
	})
	return out
}

// isUnavailable says whether unavailable has the host.
func (c *Control) isUnavailable(s *state.Snapshot, host string) bool {
	h, ok := s.Host(host)
	c.mu.Lock()
	defer c.mu.Unlock()
	return !ok || c.unavailableLocked(&h, c.o.Clock()) != ""
}

func (c *Control) unavailableLocked(h *state.Host, now lease.Instant) string {
	live, reported := c.live[h.Name]
	ago, renewed := c.leases.Heard(h.Name, now)
	switch {
	case h.Lost.Proof != "":
		return "is lost: " + h.Lost.Text
	case !reported:
		return "has not reported since this server leads"
	case !live.Reach:
		return "has a hypervisor that does not answer: " + live.Error
	case renewed && ago >= c.o.Lease:
		return fmt.Sprintf("has not been heard of for %s", ago.Round(time.Second))
	}
	return ""
}
