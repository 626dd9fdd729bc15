package leader

import (
	"context"
	"maps"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
)

// HostStats are what only the leader knows of a host, for monitoring.
type HostStats struct {
	// Unproved are its restartable VMs that are not started elsewhere because nothing proves that the host lost them, and no time that
	// passes will: a fence device or an operator must.
	Unproved int
	// Watched: the host's configuration names a watchdog, armed or not.
	Watched bool
	// Rate is how much faster the host's clock runs than this server's, as a fraction; not known
	// before the host has renewed for a while in this term.
	Rate      float64
	RateKnown bool
}

// FenceCount counts how often fence devices were asked to turn a host off, by the outcome.
type FenceCount struct{ Proved, Failed int }

// fenceCounts counts the outcomes of fence devices. They outlive terms.
type fenceCounts struct {
	mu sync.Mutex // protects by
	by map[string]FenceCount
}

// hostClocks is what renewals of a term say besides what leases depend on; no decision rests on it.
type hostClocks struct {
	mu      sync.Mutex // protects both maps
	clocks  map[string]*rate
	watched map[string]bool
}

func newHostClocks() hostClocks {
	return hostClocks{clocks: map[string]*rate{}, watched: map[string]bool{}}
}

// duplicates are VMs that two hosts reported to run in this term, and when the two took the samples that first showed it.
type duplicates struct {
	mu    sync.Mutex // protects first, and makes one evaluation one step
	first map[string][2]time.Time
}

// rate is the rate of a host's clock against this server's.
type rate struct {
	boot       string
	host, here lease.Instant // where it is measured from
	lastAt     lease.Instant
	value      float64
	known      bool
}

// How long the rate of a clock is measured: at least, so that the network's delays weigh little, and at most,
// so that a change shows.
const (
	minRateWindow = 5 * time.Minute
	maxRateWindow = time.Hour
)

// renewed notes what a renewal has besides what the lease depends on.
func (f *hostClocks) renewed(r agent.Renewal, here lease.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched[r.Host] = r.Watched
	if r.At == 0 { // of a version that does not send it
		return
	}
	c := f.clocks[r.Host]
	if c == nil || c.boot != r.Boot || r.At < c.lastAt {
		f.clocks[r.Host] = &rate{boot: r.Boot, host: r.At, here: here, lastAt: r.At}
		return
	}
	c.lastAt = r.At
	if over := here - c.here; over >= minRateWindow {
		c.value, c.known = float64(r.At-c.host)/float64(over)-1, true
		if over >= maxRateWindow {
			c.host, c.here = r.At, here
		}
	}
}

// countedFence counts the outcomes.
type countedFence struct {
	Fence
	counts *fenceCounts
}

// Off implements Fence.
func (c countedFence) Off(ctx context.Context, host string) (string, error) {
	proof, err := c.Fence.Off(ctx, host)
	f := c.counts
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]FenceCount{}
	}
	n := f.by[host]
	if err == nil {
		n.Proved++
	} else {
		n.Failed++
	}
	f.by[host] = n
	return proof, err
}

// Fenced returns how often this server asked devices to turn hosts off, by host.
func (c *Service) Fenced() map[string]FenceCount {
	c.fenced.mu.Lock()
	defer c.fenced.mu.Unlock()
	return maps.Clone(c.fenced.by)
}

// HostStats returns the statistics of all hosts, on the server that leads.
func (c *Service) HostStats(v *View) map[string]HostStats {
	t := c.current.Load()
	meta, _ := v.Meta()
	out := map[string]HostStats{}
	for _, h := range v.Hosts() {
		var x HostStats
		if verdict := t.failover.Judge(h, meta); h.Lost.Proof == "" && !verdict.Leased && !verdict.Over && verdict.In < 0 {
			for _, vm := range v.VMsOn(h.Name) {
				if vc, _ := v.VC(vm.VC); vm.ConsumesResources() && vc.Restartable() {
					x.Unproved++
				}
			}
		}
		out[h.Name] = x
	}
	t.clocks.mu.Lock()
	defer t.clocks.mu.Unlock()
	for name, x := range out {
		x.Watched = t.clocks.watched[name]
		if r := t.clocks.clocks[name]; r != nil {
			x.Rate, x.RateKnown = r.value, r.known
		}
		out[name] = x
	}
	return out
}

// Duplicates returns the VMs that two hosts report to run while no move of theirs is open. Hosts that do not report do not
// count. A VM counts only once both hosts have reported it again since the duplicate was first observed: a host's last report
// from before a VM left it proves nothing.
func (c *Service) Duplicates(v *View) []string {
	where := map[string][]agent.Sample{}
	v.EachHost(func(h *state.Host) bool {
		if live := v.host(h.Name); live.lease == "held" {
			for id, s := range live.VMs {
				if s.State == "running" {
					where[id] = append(where[id], s)
				}
			}
		}
		return true
	})
	f := &c.current.Load().duplicates
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string][2]time.Time{}
	var out []string
	for id, samples := range where {
		vm, _ := v.VM(id)
		if len(samples) < 2 || vm.MovingTo != "" {
			continue
		}
		a, b := samples[0].At, samples[1].At
		if b.Before(a) {
			a, b = b, a
		}
		first, seen := f.first[id]
		if !seen {
			first = [2]time.Time{a, b}
		}
		now[id] = first
		if seen && a.After(first[0]) && b.After(first[1]) {
			out = append(out, id)
		}
	}
	f.first = now
	return out
}
