package leader

import (
	"iter"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// liveReports is what agents reported in a term.
type liveReports struct {
	mu    sync.Mutex // protects both maps; what their values refer to does not change
	hosts map[string]HostLive
	dirty map[string]float64 // how fast the guests write whose migration goes on, or went on, by VM
}

func newLiveReports() liveReports {
	return liveReports{hosts: map[string]HostLive{}, dirty: map[string]float64{}}
}

// news is what a report changes that the control loop depends on.
type news struct {
	reach    bool // the host was not known, or its hypervisor answers again, or no more
	shrunk   bool // a host has put more of its desired state in force, so that VMs may have released CPU or memory
	incoming bool // the instances changed that a migration left, or is bringing
}

// unlist forgets the VMs that a host listed and does not list any more, and says whether there are any. A VM must not start on a host
// that lists it. So unlist comes before the state says that they have stopped: a request may start them again at once then.
func (l *liveReports) unlist(r agent.Report) bool {
	if !r.Reach || r.Running == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	live, gone := l.hosts[r.Host], missingIn(r.Running)
	if !slices.ContainsFunc(live.Running, gone) {
		return false
	}
	live.Running = slices.DeleteFunc(slices.Clone(live.Running), gone)
	l.hosts[r.Host] = live
	return true
}

// take takes a report in.
func (l *liveReports) take(r agent.Report, now time.Time) (n news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	live, reported := l.hosts[r.Host]
	n = news{reach: !reported || live.Reach != r.Reach, shrunk: r.Index > live.Shrunk,
		incoming: r.Reach && r.Running != nil && !slices.Equal(incoming(live.Running), incoming(r.Running))}
	l.hosts[r.Host] = live.after(r, now)
	for _, p := range r.Moves {
		if p.Dirty > 0 {
			l.dirty[p.VM] = p.Dirty
		}
	}
	return n
}

// missingIn says whether an instance is not among those of a list.
func missingIn(list []agent.Instance) func(agent.Instance) bool {
	there := map[string]bool{}
	for _, i := range list {
		there[i.VM] = true
	}
	return func(i agent.Instance) bool { return !there[i.VM] }
}

// after returns what a host reported last once another report of it has come.
func (live HostLive) after(r agent.Report, now time.Time) HostLive {
	live.Reach, live.Error, live.Hangs, live.Booted = r.Reach, r.Error, HangsOf(live.Hangs, r.Hangs, now), r.Booted
	live.Shrunk = max(live.Shrunk, r.Index)
	if len(r.Lacking) == 0 {
		live.Synced = max(live.Synced, r.Index)
	}
	if r.Reach {
		live.Unmanaged = r.Unmanaged
	}
	if r.Reach && r.Running != nil {
		live.Running, live.Listed = r.Running, now
		if r.Index > 0 || len(r.Running) > 0 { // a report at the beginning of a round has no index; it changes nothing here unless VMs run
			if live.ListedFor = r.Index; len(r.Hangs) > 0 { // what hangs may bring up a VM that is not listed
				live.ListedFor = 0
			}
		}
	}
	live.Moves, live.Resumes, live.MissingRoutes = r.Moves, r.Resumes, r.MissingRoutes
	if r.Migrates.CPUModel != "" {
		live.Migrates = r.Migrates
	}
	if r.Samples != nil {
		live.VMs, live.Pressure, live.Sampled = make(map[string]agent.Sample, len(r.Samples)), r.Pressure, now.UTC()
		for _, m := range r.Samples {
			live.VMs[m.VM] = m
		}
	}
	return live
}

// incoming returns the instances that run nothing where they are.
func incoming(running []agent.Instance) (out []agent.Instance) {
	for _, i := range running {
		if i.Incoming {
			out = append(out, i)
		}
	}
	return out
}

// forget what a host reported.
func (l *liveReports) forget(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hosts, host)
}

// of returns what a host reported last; false: nothing.
func (l *liveReports) of(host string) (HostLive, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	live, reported := l.hosts[host]
	return live, reported
}

// hypervisor returns what a host reported last of its hypervisor.
func (l *liveReports) hypervisor(host string) (failover.HostReport, bool) {
	live, reported := l.of(host)
	return failover.HostReport{Reach: live.Reach, Error: live.Error}, reported
}

// each goes through what hosts reported last.
func (l *liveReports) each(see func(host string, live HostLive) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for host, live := range l.hosts {
		if !see(host, live) {
			return
		}
	}
}

// listerOf returns a function that returns the hosts whose hypervisor last listed a VM, in no order. It goes through the hosts'
// reports once, when it is first asked of a VM that was started before: it is for one decision, and one goroutine.
func listerOf(reports iter.Seq2[string, HostLive]) func(vm state.VM) []string {
	var hosts map[string][]string // by the VMs that they list
	return func(vm state.VM) []string {
		if vm.Generation == 0 {
			return nil
		}
		if hosts == nil {
			hosts = map[string][]string{}
			for host, l := range reports {
				for _, i := range l.Running {
					hosts[i.VM] = append(hosts[i.VM], host)
				}
			}
		}
		return hosts[vm.ID]
	}
}

// pools returns the pools of hosts.
func (l *liveReports) pools() placement.Pools {
	l.mu.Lock()
	defer l.mu.Unlock()
	return poolsOf(l.hosts)
}

func poolsOf(live map[string]HostLive) placement.Pools {
	out := placement.Pools{}
	for name, l := range live {
		if l.Migrates.Pools != nil {
			out[name] = l.Migrates.Pools
		}
	}
	return out
}

// routes returns the obstacles that agents found, by the host that would send VMs.
func (l *liveReports) routes() moves.Routes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return routesOf(l.hosts)
}

func routesOf(live map[string]HostLive) moves.Routes {
	out := moves.Routes{}
	for host, l := range live {
		for _, n := range l.MissingRoutes {
			if out[host] == nil {
				out[host] = map[string]hypervisor.Obstacle{}
			}
			out[host][n.To] = hypervisor.Obstacle{Why: n.Why, Here: n.Here}
		}
	}
	return out
}

// fleet returns what agents reported of VMs, and of what their hosts need to take VMs over.
func (l *liveReports) fleet(s *state.Snapshot) moves.Observation {
	out := moves.Observation{Use: map[string]moves.Use{}, Partners: map[string]hypervisor.Partner{}}
	for _, m := range s.Migrations() {
		if m.BytesMoved > 0 {
			u := out.Use[m.VM]
			u.Sent = m.BytesMoved
			out.Use[m.VM] = u
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out.Routes = routesOf(l.hosts)
	for name, live := range l.hosts {
		if live.Migrates.CPUModel != "" {
			out.Partners[name] = live.Migrates
		}
		for id, v := range live.VMs {
			u := out.Use[id]
			u.Resident, u.Dirty = max(u.Resident, v.Resident), l.dirty[id]
			out.Use[id] = u
		}
	}
	return out
}

// measured returns what hosts last measured of VMs, by id.
func (l *liveReports) measured(s *state.Snapshot) map[string]rightsizing.VMObservation {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]rightsizing.VMObservation{}
	s.EachVM(func(vm *state.VM) bool {
		live := l.hosts[vm.Host]
		sample, sampled := live.VMs[vm.ID]
		if !sampled || sample.Generation != vm.Generation {
			return true
		}
		see := rightsizing.VMObservation{At: live.Sampled, Cap: sample.Cap, Used: sample.Used, MemoryUsed: sample.Memory, Balloon: sample.Balloon}
		if g := sample.Guest; g != nil {
			see.Reports, see.Follows, see.Pressure = true, g.Follows, g.Pressure
		}
		out[vm.ID] = see
		return true
	})
	return out
}

// synced returns the log indexes up to which the desired state is in force on a host: what takes something from VMs, and all of
// it.
func (l *liveReports) synced(host string) (shrunk, all uint64) {
	live, _ := l.of(host)
	return live.Shrunk, live.Synced
}

// inventory returns the last list of a host's hypervisor.
func (l *liveReports) inventory(s *state.Snapshot, h state.Host, unavailable string) drain.HostInventory {
	live, _ := l.of(h.Name)
	return live.inventory(s, h, unavailable)
}

func (live HostLive) inventory(s *state.Snapshot, h state.Host, unavailable string) drain.HostInventory {
	w := drain.HostInventory{Unavailable: unavailable, Listed: live.Reach && live.ListedFor > 0 && live.ListedFor >= h.Version}
	for _, i := range live.Running {
		vm, known := s.VM(i.VM)
		name := i.Name
		if known {
			name = vm.Name
		} else {
			w.Unmanaged = append(w.Unmanaged, name)
		}
		w.Running = append(w.Running, name)
	}
	return w
}
