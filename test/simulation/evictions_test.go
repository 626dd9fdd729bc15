package simulation

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// uses are what hosts reported of their VMs' memory, by which evictions are judged.
type uses struct {
	mu      sync.Mutex
	of      map[string][]use          // by VM
	usable  map[string][]use          // by host, less what it keeps for VMs that were stopped alone
	evicted map[string]int64          // by VM: when it was last
	here    map[string]map[string]use // by host and VM: what it may have needed there, and when it was seen there last

	evictions int // that were judged
}

// saysWhy is what an eviction says of the host: the memory that its VMs use, that what they leave idle does not help, and why no VM moves away.
var saysWhy = regexp.MustCompile(`host h\d+ .*; its VMs use \d+ MiB of \d+ MiB, and taking back the \d+ MiB that they leave idle is not enough; no VM moves for it: .`)

// use is what one VM used at a time, or what a host could give.
type use struct {
	at       time.Time
	bytes    int64
	known    bool // the guest reports what it uses
	pressure bool
	balloon  int64
}

// usesCount is for how long a report may decide: the leader takes no older ones (ten periods), and a plan takes a while.
const usesCount = 25 * time.Second

func latest(all []use) []use {
	return slices.DeleteFunc(all, func(u use) bool { return time.Since(u.at) > usesCount })
}

func (u *uses) reported(samples []agent.Sample) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of, u.usable, u.evicted, u.here = map[string][]use{}, map[string][]use{}, map[string]int64{}, map[string]map[string]use{}
	}
	for _, m := range samples {
		u.of[m.VM] = latest(append(u.of[m.VM], use{time.Now(), m.Memory, m.Guest != nil, m.Guest != nil && m.Guest.Pressure != "", m.Balloon}))
	}
}

// watch says what is wrong with evictions since it was last called: a VM may be evicted only where the memory in use on its host, with what VMs under
// pressure must grow to and the most that one VM may take back, did not fit at a time of which reports still count. Of a virtual cluster that is evicted
// whole this holds for one of its hosts.
func (u *uses) watch(s *state.Snapshot) (wrong []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		return nil
	}
	for _, h := range s.Hosts() {
		u.usable[h.Name] = latest(append(u.usable[h.Name], use{at: time.Now(), bytes: h.Usable().Memory - maxKept(s, h)}))
	}
	u.place(s)
	fitted := map[string]string{} // by virtual cluster
	for _, vm := range s.VMs() {
		if vm.PreemptedAt == 0 || u.evicted[vm.ID] == vm.PreemptedAt {
			continue
		}
		u.evicted[vm.ID] = vm.PreemptedAt
		u.evictions++
		if !saysWhy.MatchString(vm.Reason) {
			wrong = append(wrong, fmt.Sprintf("VM %s was evicted, and its reason does not say what its host used and what was tried before: %s", vm.Name, vm.Reason))
		}
		text, known := fitted[vm.VC]
		if how := u.fits(s, vm.Host); !known || text != "" {
			if how != "" {
				how += "; said was: " + vm.Reason
			}
			fitted[vm.VC] = how
		}
	}
	for vc, text := range fitted {
		if text != "" {
			wrong = append(wrong, fmt.Sprintf("VMs of virtual cluster %s were evicted, though %s", vc, text))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// maxKept is the most that a host may keep for VMs that a user stopped one by one, bytes. Such a VM keeps its memory and its overhead for its next start:
// no more than its group declares, or than it booted with. What no user stopped alone, what waits to start, and what was lost before it had stopped keeps nothing.
func maxKept(s *state.Snapshot, h state.Host) (bytes int64) {
	for _, vm := range s.VMs() {
		if vm.Host != h.Name || vm.Phase != state.Stopped || vm.Order.StoppedBy == "" || vm.ChargedMemory == 0 {
			continue
		}
		vc, _ := s.VC(vm.VC)
		g, _ := vc.GroupOf(vm)
		bytes += max(g.Memory, vm.BootMemory) + h.VMOverhead
	}
	return bytes
}

// fits says how what VMs of a host used fitted it all the time; "": it did not.
func (u *uses) fits(s *state.Snapshot, host string) string {
	h, ok := s.Host(host)
	if !ok || len(u.usable[host]) == 0 {
		return ""
	}
	usable := slices.MinFunc(u.usable[host], func(a, b use) int { return int(a.bytes - b.bytes) }).bytes
	sum, takesBack := int64(0), int64(0)
	for _, x := range u.here[host] {
		sum, takesBack = sum+x.bytes+h.VMOverhead, max(takesBack, x.balloon-x.bytes)
	}
	if sum+takesBack > usable {
		return ""
	}
	return fmt.Sprintf("VMs of host %s used %d of %d bytes at most, and one took back %d at most", host, sum, usable, takesBack)
}

// place notes which VMs take memory where, and what they may have needed. VMs that left stay for a while: an eviction may have been decided before.
func (u *uses) place(s *state.Snapshot) {
	for _, vm := range s.VMs() {
		vc, _ := s.VC(vm.VC)
		g, known := vc.GroupOf(vm)
		if !known || !vm.ConsumesResources() {
			continue
		}
		for _, host := range []string{vm.Host, vm.MovingTo} {
			if u.here[host] == nil {
				u.here[host] = map[string]use{}
			}
			u.here[host][vm.ID] = use{at: time.Now(), bytes: u.needs(vm, g, vc.Needs == state.NeedsDeclared), balloon: g.Memory}
		}
	}
	for _, vms := range u.here {
		maps.DeleteFunc(vms, func(_ string, x use) bool { return time.Since(x.at) > leftCounts })
	}
}

// leftCounts is for how long a VM that left a host counts.
const leftCounts = 5 * time.Second

// needs is the most for which others may have been evicted.
func (u *uses) needs(vm state.VM, g state.Group, declared bool) int64 {
	charged := max(vm.Due(g), vm.ChargedMemory)
	all := u.of[vm.ID]
	if declared || len(all) == 0 || time.Since(all[len(all)-1].at) > 10*time.Second || vm.Phase != state.Running || vm.MovingTo != "" {
		return max(charged, g.Memory) // what it uses may not be known
	}
	highest := g.MemoryMin
	for _, x := range all {
		switch {
		case !x.known:
			return g.Memory
		case x.pressure:
			highest = max(highest, charged+g.Memory/10, x.balloon)
		}
		highest = max(highest, x.bytes)
	}
	return min(highest, g.Memory)
}

// A host keeps memory for a VM that was stopped alone, from when it has stopped until its virtual cluster is.
func TestMaxKept(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 1, scheduling.Group(2, 1, scheduling.GiB)))
	c.CommitPlan()
	vms := c.Snapshot().VMsOf(c.Named("a").ID)
	host := func() state.Host { h, _ := c.Snapshot().Host("h1"); return h }
	one := scheduling.GiB + host().VMOverhead
	kept := func(what string, want int64) {
		t.Helper()
		if got := maxKept(c.Snapshot(), host()); got != want {
			t.Errorf("%s: %d bytes are kept, want %d", what, got, want)
		}
	}
	stopped := func(vm state.VM) {
		c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped}}})
	}
	kept("both run", 0)
	c.Enact("stop one", admission.StopVM(c.Snapshot(), c.Named("a"), vms[0], "ann").Plan)
	kept("one stops", 0)
	stopped(vms[0])
	kept("one has stopped", one)
	c.Enact("stop all", admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	stopped(vms[1])
	kept("all were stopped", 0)
	c.Enact("start all", admission.Start(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	c.CommitPlan()
	vms = c.Snapshot().VMsOf(c.Named("a").ID)
	c.Enact("stop one again", admission.StopVM(c.Snapshot(), c.Named("a"), vms[0], "ann").Plan)
	c.Must(state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofFence, Text: "off"})
	kept("it was lost with its host while it stopped", 0)
}
