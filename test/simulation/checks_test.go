package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// listed are the cluster's VMs that run on a host, for code that only observes.
func (s *sim) listed(name string) []hypervisor.VM {
	return slices.DeleteFunc(s.present(name), func(vm hypervisor.VM) bool { return vm.State == hypervisor.Paused })
}

// present are the cluster's VMs that have arrived on a host, and run or are paused there.
func (s *sim) present(name string) []hypervisor.VM {
	c := s.world.Host(name)
	defer c.Close() //nolint:errcheck // a connection to nothing
	vms, err := c.List(s.ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(vms, func(vm hypervisor.VM) bool { return vm.Foreign || vm.State == hypervisor.Incoming })
}

// titleOf is the full name with which a VM was started; "" if it was not.
func (s *sim) titleOf(vm hypervisor.VM) string {
	title, _ := s.titles.Load(vm.VM)
	text, _ := title.(string)
	return text
}

func (s *sim) runsOn(name, id string, generation uint64) bool {
	return slices.ContainsFunc(s.listed(name), func(vm hypervisor.VM) bool { return vm.VM == id && vm.Generation == generation })
}

// watchEvery is how often the checks run of invariants that the simulated world does not record itself.
const watchEvery = 500 * time.Millisecond

// watch the invariants until ctx ends.
func (s *sim) watch(ctx context.Context) {
	over := map[string]time.Time{}
	for wait(ctx, watchEvery) == nil {
		s.audit()
		s.watchFreeze()
		s.watchPlans()
		s.watchOrders()
		s.watchRightsize()
		s.watchWaits()
		for _, name := range s.order {
			s.watchLease(s.hosts[name], over)
		}
	}
}

// audit what the simulated world recorded: VMs in two places, hosts beyond their allowance.
func (s *sim) audit() {
	a := s.world.Audit()
	for _, d := range a.Doubled[s.doubled:] {
		s.violate("a VM runs in two places: %s", d)
	}
	s.doubled = len(a.Doubled)
	limit := allowance(hypervisor.Capacity{CPU: 4, Memory: 4 << 30})
	for _, name := range s.order {
		if p := a.Peaks[name]; p.CPU > limit.CPU*(1+1e-8) || p.Memory > limit.Memory {
			s.violate("host %s had %v cores of caps and %d bytes at one instant, of %v and %d", name, p.CPU, p.Memory, limit.CPU, limit.Memory)
		}
	}
}

// watchWaits: no VC waits for longer than its limit without a reason that its owner can read.
func (s *sim) watchWaits() {
	l := s.leader()
	if l == nil {
		return
	}
	for _, late := range l.ctl.Late() {
		if key := late.Rule.Value + " " + late.ID; late.Reason == "" && !s.unexplained[key] {
			s.unexplained[key] = true
			s.violate("%s %s is %s on %s for %s, and no reason is known", late.Rule.Object, late.Name, late.Rule.Value, late.Host, late.For)
		}
	}
}

// watchFreeze notes since when the cluster has a recovery freeze.
func (s *sim) watchFreeze() {
	l := s.leader()
	if l == nil {
		return
	}
	m, _ := l.store.Snapshot().Meta()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !m.RecoveryFreeze.On():
		s.frozenSince = time.Time{}
	case s.frozenSince.IsZero():
		s.frozenSince = time.Now()
	}
}

// lateAnswer is how long an agent may act on an answer from before a recovery freeze began: its permits are good for 5 s.
const lateAnswer = 8 * time.Second

// checkFreeze: during a recovery freeze no host starts or stops a VM.
func (s *sim) checkFreeze(what, host string) {
	s.watchFreeze() // it may have ended since that was looked at
	h := s.hosts[host]
	h.mu.Lock()
	calm := time.Since(h.uneasy) > lateAnswer
	h.mu.Unlock()
	s.mu.Lock()
	since := s.frozenSince
	s.mu.Unlock()
	if calm && !since.IsZero() && time.Since(since) > lateAnswer {
		s.violate("%s on %s in a hold that began %s ago", what, host, time.Since(since))
	}
}

// watchLease: a restartable VM does not outlive its host's lease by more than the watchdog, or what a healthy
// agent needs to stop it. A host that refused the only answer since fencing was enabled, because a newer desired state overtook it, says
// in its renewals that it does not enforce its lease.
func (s *sim) watchLease(h *host, over map[string]time.Time) {
	h.mu.Lock()
	on, proc, armed, uneasy := h.on, h.proc, h.armed, h.uneasy
	holder, disk, granted := h.lease, h.disk, h.granted
	if proc != nil && h.leaseOf != proc.boot {
		holder = lease.Holder{}
	}
	must := h.claims && holder.MustStop(h.clock())
	h.mu.Unlock()
	leased := on && must && slices.ContainsFunc(s.listed(h.name), func(vm hypervisor.VM) bool { return vm.Leased })
	if !leased {
		delete(over, h.name)
		return
	}
	since, known := over[h.name]
	if !known {
		over[h.name] = time.Now()
		return
	}
	if armed && time.Since(since) > h.watchdog+h.watchdog/50+time.Second {
		s.violate("host %s runs restartable VMs for %s without a lease, with an armed watchdog of %s", h.name, time.Since(since), h.watchdog)
		over[h.name] = time.Now()
	}
	if calm := time.Since(uneasy); proc != nil && !proc.still.Load() && min(calm, time.Since(since)) > 25*time.Second {
		s.violate("host %s runs restartable VMs for %s without a lease, and its agent is well: at %s it was granted %+v, and kept %+v of epoch %d, index %d; the last answer had epoch %d, index %d; stopping now: %s",
			h.name, time.Since(since), h.clock(), holder, disk.Lease, disk.Epoch, disk.Index, granted.Epoch, granted.Index, stopping())
		over[h.name] = time.Now()
	}
}

// stopping are the goroutines of this run that stop VMs for want of a lease.
func stopping() string {
	return strings.Join(slices.DeleteFunc(goroutines(stacks(), bubble()), func(g string) bool { return !strings.Contains(g, "stopLeased(") }), "\n")
}

// heal everything.
func (s *sim) heal() {
	s.note("all is healed")
	s.net.change(func() { s.net.lose, s.net.repeat, s.net.slow = 0, 0, 0 })
	s.net.heal()
	for _, name := range s.names {
		s.servers[name].full.Store(false)
		if err := s.servers[name].start(false); err != nil {
			s.violate("%v", err)
		}
	}
	var all sync.WaitGroup
	for _, h := range s.hosts {
		all.Go(func() {
			h.mu.Lock()
			h.faults = nil
			h.mu.Unlock()
			h.powerOn()
			h.startAgent()
		})
	}
	all.Wait()
	for range 60 {
		if s.withLeader(func(ctx context.Context, p *serving) error { return p.ctl.SetFencing(ctx, true, "") }) == nil {
			return
		}
		_ = wait(s.ctx, time.Second)
	}
	s.violate("no leader for a minute after all was healed")
}

// calm: no client asks for moves any more, the leader plans none, and no host is to be emptied. Plans that are carried out go on.
func (s *sim) calm() {
	for range 60 {
		if s.withLeader(s.undrain) == nil && s.withLeader(s.endPeriodicWork) == nil {
			return
		}
		_ = wait(s.ctx, time.Second)
	}
	s.violate("drains and plans of moves could not be ended")
}

// awaitQuiet waits until all is as it should be. It must be so within some time after all faults are healed.
func (s *sim) awaitQuiet() {
	start, why := time.Now(), ""
	defer func() { s.note("settled after %s", time.Since(start)) }()
	if !s.eventually(s.o.quiet/2, func() bool { why = s.unsettled(); return why == "" }) {
		s.revive()
		if !s.eventually(s.o.quiet/2, func() bool { why = s.unsettled(); return why == "" }) {
			s.violate("%s after all was healed: %s", s.o.quiet, why)
			if l := s.leader(); l != nil { // what goes on instead
				snap := l.store.Snapshot()
				for _, e := range snap.EventsAfter(max(30, snap.LastEvent())-30, 0) {
					s.note("event %d at index %d: %s %s %s: %s", e.Seq, e.Index, e.Kind, e.Object, e.Name, e.Text)
				}
			}
			for _, h := range s.hosts {
				h.mu.Lock()
				if h.link != nil {
					h.link.mu.Lock()
					s.note("%s: alive %v (%v), desired %d/%d, kept %d/%d, at %d", h.name, h.link.alive, h.link.why, h.link.desired.Epoch, h.link.desired.Index, h.disk.Epoch, h.disk.Index, h.link.at)
					h.link.mu.Unlock()
				}
				h.mu.Unlock()
			}
		}
	}
}

// revive VCs whose VMs failed, as their owners would.
func (s *sim) revive() {
	l := s.leader()
	if l == nil {
		return
	}
	for i, vm := range l.store.Snapshot().VMs() {
		if vc, _ := l.store.Snapshot().VC(vm.VC); vm.Phase == state.Failed && vc.Goal == state.GoalRun {
			s.count("VCs started again by their owners")
			s.request(s.ctx, seeded(s.o.seed, 77), 400, i, vc.Name, want{Verb: "start"})
		}
	}
}

// unsettled says what is not as it should be; "" = all is.
func (s *sim) unsettled() string {
	l := s.leader()
	if l == nil {
		return "no leader"
	}
	view, err := l.ctl.View(s.ctx, true)
	if err != nil {
		return err.Error()
	}
	snap := view.Snapshot
	for _, name := range s.names {
		p := s.servers[name].alive()
		if p == nil {
			return "server " + name + " does not run"
		}
		if !s.eventually(time.Second, func() bool { return p.store.Snapshot().Index() >= snap.Index() }) { // a follower hears a moment later what is committed
			return fmt.Sprintf("server %s is at index %d, %s at %d; %v; %v", name, p.store.Snapshot().Index(), l.name, snap.Index(), p.node.Status(), p.node.Down())
		}
	}
	for _, h := range s.hosts { // a fence device may have been at work still
		h.mu.Lock()
		on := h.on
		h.mu.Unlock()
		if !on {
			s.group.Go(h.powerOn)
			return "host " + h.name + " is off"
		}
	}
	if m, _ := snap.Meta(); m.RecoveryFreeze.On() {
		return fmt.Sprintf("hold: %+v", m.RecoveryFreeze)
	}
	if why := unmoved(snap); why != "" {
		return why
	}
	for _, h := range snap.Hosts() {
		if h.Lost.Proof != "" {
			return fmt.Sprintf("host %s is lost: %s", h.Name, h.Lost.Text)
		}
	}
	there := map[string]map[string]uint64{}
	for _, name := range s.order {
		there[name] = map[string]uint64{}
		for _, vm := range s.listed(name) {
			there[name][vm.VM] = vm.Generation
		}
	}
	// The cluster leaves a VM alone that a restored state does not know. That VM may have the room of one that is bound to
	// its host (docs/how-to/restore-from-a-snapshot.md).
	full := map[string]bool{}
	for name := range there {
		for _, vm := range s.listed(name) {
			if _, known := snap.VM(vm.VM); !known && s.restored {
				full[name] = true
			}
		}
	}
	for _, vm := range snap.VMs() {
		vc, _ := snap.VC(vm.VC)
		if vm.Phase == state.Lost && full[vm.Host] {
			continue
		}
		if vm.Phase == state.Lost && vm.Goal == state.GoalRun && s.waits(snap, vc, vm) {
			continue
		}
		runs := there[vm.Host][vm.ID] == vm.Generation
		ended := vm.Phase == state.Failed || vm.Phase == state.Lost && strings.Contains(vc.Decision.Summary, "wait for room")
		if ended && vm.Goal == state.GoalRun && !runs && crowdedOut(snap, vc) {
			continue
		}
		if vm.Phase == state.Lost && vm.Goal == state.GoalRun && !runs && (queuedOut(snap, vc) || fullEverywhere(snap, vc, vm) || len(full) > 0 && startsNone(snap, vc)) {
			continue
		}
		delete(there[vm.Host], vm.ID)
		switch {
		case vm.Order.Reset.Pending():
			return fmt.Sprintf("VM %s is to be reset: %+v", vm.Name, vm.Order.Reset)
		case vm.MovingTo != "":
			return fmt.Sprintf("VM %s moves from %s to %s: %+v; it runs on the one: %v, on the other: %v", vm.Name, vm.Host, vm.MovingTo, vm, runs,
				there[vm.MovingTo][vm.ID] == vm.Generation)
		case vm.Goal == state.GoalRun && (vm.Phase != state.Running || !runs):
			return fmt.Sprintf("VM %s (%s) of generation %d is %s on %s: %s; it runs there: %v; %s; its host: %+v", vm.Name, vm.ID, vm.Generation, vm.Phase, vm.Host, vm.Reason, runs,
				vc.Decision.Summary, hostOf(view, vm.Host))
		case vm.Goal == state.GoalDelete:
			return fmt.Sprintf("VM %s is to be deleted, and %s on %s", vm.Name, vm.Phase, vm.Host)
		case vm.Goal == state.GoalStop && (vm.ConsumesResources() || runs):
			return fmt.Sprintf("VM %s is to be stopped, and %s on %s; it runs there: %v", vm.Name, vm.Phase, vm.Host, runs)
		}
	}
	if s.restored { // a VM that a restored state does not know is left alone
		return ""
	}
	for name, vms := range there {
		for id, generation := range vms {
			return fmt.Sprintf("VM %s of generation %d runs on %s, and the state does not know it there", id, generation, name)
		}
		for _, vm := range s.present(name) {
			if vm.State == hypervisor.Paused {
				return fmt.Sprintf("VM %s of generation %d is paused on %s", vm.VM, vm.Generation, name)
			}
		}
	}
	return ""
}

// crowdedOut says whether a VM that ended by itself, or with its host, waits for room that others have by now. That is a VM of a VC that was asked
// to start again and would not fit; or any VM where needs are estimated, because new VMs get only the room that estimates leave
// with their margin.
func crowdedOut(snap *state.Snapshot, vc state.VC) bool {
	if meta, _ := snap.Meta(); meta.Settings.Rightsizing.Mode == state.RightsizingOn {
		return true
	}
	return queuedOut(snap, vc)
}

// queuedOut says whether a VC was asked to start again, waits, and would not fit.
func queuedOut(snap *state.Snapshot, vc state.VC) bool {
	ids := 0
	env := placement.Env{Now: vc.QueuedAt, NewID: func() string { ids++; return fmt.Sprint("new-", ids) }}
	return !vc.Admitted && !vc.QueuedAt.IsZero() && !admission.Consider(snap, vc, env).Admitted
}

// fullEverywhere says whether no host has memory for a lost VM, as when VMs that a restored state does not know take it.
func fullEverywhere(snap *state.Snapshot, vc state.VC, vm state.VM) bool {
	g, _ := vc.GroupOf(vm)
	for _, h := range snap.Hosts() {
		if load := snap.LoadOf(h.Name); load.Taken()+g.Memory+h.VMOverhead <= h.Usable().Memory {
			return false
		}
	}
	return true
}

// startsNone says whether no lost VM would be started now, and the VC shows that it waits. An example: hosts lack CPU because they run VMs that a
// restored state does not know.
func startsNone(snap *state.Snapshot, vc state.VC) bool {
	if !strings.Contains(vc.Decision.Summary, "wait for room") {
		return false
	}
	plan := admission.Restart(snap, placement.Env{Now: time.Now()})
	return plan == nil || plan.Verb == "waiting"
}

// waits says whether a lost VM waits for memory on the host that it is bound to, which other VMs have taken meanwhile.
func (s *sim) waits(snap *state.Snapshot, vc state.VC, vm state.VM) bool {
	h, _ := snap.Host(vm.Host)
	g, _ := vc.GroupOf(vm)
	return !vc.Restartable() && snap.LoadOf(vm.Host).Memory+g.Memory+h.VMOverhead > h.Usable().Memory
}

// replay the logs: every server that is started again on its disk gets the state that it had, and all servers have the same state.
func (s *sim) replay() {
	for _, h := range s.hosts {
		h.killAgent()
	}
	for _, v := range s.servers {
		p := v.alive()
		p.cancel()
		p.group.Wait()
	}
	_ = wait(s.ctx, 2*time.Second)
	before := map[string]string{}
	for _, name := range s.names {
		before[name] = s.servers[name].alive().saved()
		if before[name] != before[s.names[0]] {
			s.violate("the state of %s is not that of %s: %s", name, s.names[0], firstDifference(before[name], before[s.names[0]]))
		}
	}
	for _, name := range s.names {
		s.servers[name].crash()
	}
	for _, name := range s.names {
		if err := s.servers[name].start(true); err != nil {
			s.violate("%v", err)
			return
		}
	}
	for _, name := range s.names {
		p := s.servers[name].alive()
		if !s.eventually(time.Minute, func() bool { return p.saved() == before[name] }) {
			s.violate("the log of %s, read again, gives another state: %s", name, firstDifference(p.saved(), before[name]))
		}
	}
}

func hostOf(v *leader.View, name string) leader.HostView {
	h, _ := v.Host(name)
	return v.HostView(h)
}

func firstDifference(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	cut := func(s string) string { return s[max(0, n-120):min(len(s), n+120)] }
	if n > len(a) || n > len(b) {
		return ""
	}
	return fmt.Sprintf("%q against %q", cut(a), cut(b))
}
