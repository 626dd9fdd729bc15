package leader

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/cluster/waits"
	"evenkeel/hypervisor"
)

// HostLive is what a host's agent last reported of the host.
type HostLive struct {
	Synced uint64 // log index up to which the desired state is in force
	Shrunk uint64 // log index up to which all of it is in force that takes something from a VM
	Error  string // why it is not, if it is not
	Reach  bool   // the hypervisor answers
	Hangs  []Hang // calls of the hypervisor that had their time and have no answer
	VMs    map[string]agent.Sample
	// Sampled is when VMs came in, by the leader's clock.
	Sampled time.Time
	Booted  time.Time // when the machine was, by its own clock; zero: not known
	// Pressure of the machine, measured with the samples of its VMs; nil: its kernel measures none, or its agent does not
	// report it.
	Pressure  *hypervisor.Pressure
	Unmanaged []string // VMs of this cluster by their mark, unknown to its state: reported, never touched
	// Running are the VMs of this cluster that the hypervisor listed last; ListedFor is the log index up to which what is
	// wanted of the host was in force by then, 0 = it is not known.
	Running   []agent.Instance
	Listed    time.Time
	ListedFor uint64

	Resumes       bool                 // its agent resumes VMs that a migration left paused
	Moves         []agent.MoveProgress // the migrations that go on from there
	Migrates      agent.Migrates       // what it has for VMs that move there; the zero value: it has not reported
	MissingRoutes []agent.MissingRoute // where it cannot send VMs
}

// Hang is a call of a host's hypervisor that hangs.
type Hang struct {
	agent.Hang
	Heard time.Time // when its agent first reported it, by the leader's clock
}

// HangsOf returns the hanging calls of a host after a report: a call that was reported before keeps the time of its first
// report.
func HangsOf(before []Hang, now []agent.Hang, at time.Time) []Hang {
	var out []Hang
	for _, h := range now {
		heard := at
		for _, b := range before {
			if b.Hang == h {
				heard = b.Heard
			}
		}
		out = append(out, Hang{h, heard})
	}
	return out
}

// Text says how long it has hung by now.
func (h Hang) Text(now time.Time) string {
	return fmt.Sprintf("%s has been waiting for %s", h.Call, (h.Waited + max(0, now.Sub(h.Heard))).Round(time.Second))
}

// View is one consistent look at the cluster: the replicated state at one
// index, and the live figures beside it.
type View struct {
	*state.Snapshot
	// hosts are those that were looked at, once each: with many hosts all of them cost more than most answers need.
	hosts  map[string]hostLook
	term   *term
	now    time.Time
	period time.Duration // Options.Period
	// blockers that were found last of a host that is emptied.
	blockers func(host string) []Blocker
	// recommendations is what was found last of what VMs need, by their ids.
	recommendations func() map[string]rightsizing.Recommendation
	// withMargin adds the margin by which new VMs are placed where needs are estimated, and the availability that hosts report.
	withMargin   func(placement.Env) placement.Env
	availability func() map[string]placement.HostAvailability
	// Late is what waits for too long, as far as this server knows.
	Late func() []waits.Late
	// Leader is the name of the server that leads.
	Leader string
}

// hostLook is what this server knows of a host beside the state.
type hostLook struct {
	HostLive
	reported    bool
	lease       string        // HostView.Lease; "": it may yet be renewed in this term
	heard       time.Duration // HostView.Heard
	unavailable string        // why nothing may be decided for it now; "": it may
}

// host looks at a host. It is for one goroutine, as a view is.
func (v *View) host(name string) hostLook {
	seen, ok := v.hosts[name]
	if !ok {
		seen = v.term.look(v.Snapshot, name)
		v.hosts[name] = seen
	}
	return seen
}

// look returns what this server knows of a host beside the state.
func (t *term) look(s *state.Snapshot, name string) hostLook {
	out := hostLook{heard: -1, unavailable: t.unavailable(s, name)}
	out.HostLive, out.reported = t.reports.of(name)
	h, ok := s.Host(name)
	if !ok {
		return out
	}
	ago, renewed := t.failover.Heard(name)
	switch leased := t.c.o.Lease; {
	case h.Lost.Proof != "":
		out.lease = "lost"
	case !renewed && ago >= leased:
		out.lease = "over"
	case !renewed:
	case ago < leased:
		out.lease, out.heard = "held", ago
	default:
		out.lease, out.heard = "over", ago
	}
	return out
}

// unavailable returns why nothing may be decided for a host of the state now; "": it may.
func (t *term) unavailable(s *state.Snapshot, host string) string {
	if _, ok := s.Host(host); !ok {
		return ""
	}
	return t.failover.WhyUnavailable(s, host)
}

// VMView is a VM with its live figures, for users.
// Many fields: it is one row of the list of VMs, with what its host reports beside it.
type VMView struct {
	state.VM
	VCName     string
	Domain     string  // its name on its hypervisor: as the host lists it, else as it would be started
	State      string  // starting, running, paused, stopping, stopped, failed, unknown
	Need       float64 // cores
	Allocation float64 // cores
	Yield      float64
	Cap        float64 // cores in force on the host, 0 = not seen
	Used       float64 // cores
	Memory     int64   // bytes: balloon target
	Balloon    int64   // bytes: actual, 0 = not seen
	Resident   int64
	MemoryUsed int64 // bytes, see agent.MemoryUsed; 0 = not known
	SampledAt  time.Time
	StartedAt  time.Time    // zero = not known
	Addresses  []netip.Addr // as its host last found them
	MinYield   float64      // that its VC was promised
	OfGroup
}

// OfGroup is what the group of a VM states, see state.Group.
type OfGroup struct {
	Image   string
	Disk    state.Disk
	Network string
	Labels  map[string]string
}

// HostView is a host with what is allocated and used of it.
type HostView struct {
	state.Host
	State        string        // ready, cordoned, unreachable, unknown
	Lease        string        // held, over (it was not renewed), lost (proved), unknown (not renewed in this term)
	Heard        time.Duration // since its agent last renewed its lease; below 0 = not in this term
	Error        string
	Hangs        []string // calls of its hypervisor that hang, with how long they do; the one made first at first
	Allocated    state.Resources
	Used         state.Resources
	VMs          int
	Unmanaged    []string
	Leftovers    []string // VMs that migrations left behind there, paused
	Synced       uint64
	BootedAt     time.Time
	Pressure     *hypervisor.Pressure // nil = not known
	Availability *HostAvailability    // on what it has available for new VMs; nil: it reported none
}

// VCView is a VC with its state and yield.
type VCView struct {
	state.VC
	State state.VCState
	Yield float64
	Count state.Count
	// Unknown is how many of Count.Running are on hosts that cannot report.
	Unknown int
	Reason  string
	// StoppedAlone is how many of its VMs users have stopped one by one, StoppedBy who.
	StoppedAlone int
	StoppedBy    []string
	// Estimates says whether its needs are declared or estimated, Aggressiveness how aggressive the estimates are; "" = there
	// are none.
	Estimates, Aggressiveness string
}

// Lacking says whether the VC waits in the queue, or runs with a yield below what it is promised. VMs whose state is unknown do not run.
func (c *VCView) Lacking() bool {
	return c.State == state.VCQueued || c.Count.Running > c.Unknown && c.Yield < c.MinYield-1e-9
}

// VMView returns a VM with its live figures.
func (v *View) VMView(vm state.VM) VMView {
	vc, _ := v.VC(vm.VC)
	g, _ := vc.GroupOf(vm)
	out := VMView{VM: vm, Domain: vm.Domain(), VCName: vc.Name, State: string(vm.Phase), Need: g.Need(), Memory: g.Memory, MinYield: vc.MinYield,
		OfGroup: OfGroup{Image: g.Image, Disk: g.Disk, Network: g.Network, Labels: g.Labels}}
	switch {
	case vm.ConsumesResources() && vm.Phase == state.Stopping: // it keeps the cap it had, whatever its group is given meanwhile
		g.Allocation = vm.Frozen
		out.Allocation, out.Yield = vm.Frozen, g.Yield()
	case vm.ConsumesResources():
		out.Allocation, out.Yield = g.Allocation, g.Yield()
	}
	if vm.Phase != state.Running || vm.MovingTo != "" {
		if w, waits := waits.OfVM(v.Snapshot, &vm, func(host string) string { return v.host(host).unavailable }); waits && w.Reason != "" {
			out.Reason = w.Reason
		}
	}
	if !vm.ConsumesResources() {
		return out
	}
	live := v.host(vm.Host)
	for _, i := range live.Running {
		if i.VM == vm.ID && i.Name != "" {
			out.Domain = i.Name
		}
	}
	if v.unreported(&vm) {
		out.State = "unknown" // its host cannot report
	}
	s, ok := live.VMs[vm.ID]
	if !ok || s.Generation != vm.Generation {
		return out
	}
	out.Cap, out.Used, out.Balloon, out.Resident, out.MemoryUsed, out.SampledAt = s.Cap, s.Used, s.Balloon, s.Resident, s.Memory, s.At
	out.StartedAt, out.Addresses = s.Started, s.Addresses
	if live.Reach && vm.Phase == state.Running && s.State != "running" {
		out.State = s.State
	}
	return out
}

// unreported says whether a VM ran when its host last reported, and the host cannot report now.
func (v *View) unreported(vm *state.VM) bool {
	if vm.Phase != state.Running {
		return false
	}
	h := v.host(vm.Host)
	return !h.Reach || h.lease == "over"
}

// HostView returns a host with its live figures.
func (v *View) HostView(h state.Host) HostView {
	live := v.host(h.Name)
	out := HostView{Host: h, State: "ready", Lease: cmp.Or(live.lease, "unknown"), Heard: live.heard}
	load := v.LoadOf(h.Name)
	out.Allocated, out.VMs = state.Resources{CPU: load.CPU, Memory: load.Memory}, load.VMs
	for _, s := range live.VMs {
		out.Used.CPU += s.Used
		out.Used.Memory += s.Resident
	}
	out.Pressure, out.BootedAt = live.Pressure, live.Booted
	all := v.availability()
	if w, reported := all[h.Name]; reported {
		out.Availability = &HostAvailability{HostAvailability: w, Ignored: placement.Env{Now: v.now.UTC(), Availability: all, Period: v.period}.Ignored(v.Snapshot, h.Name)}
	}
	out.Unmanaged, out.Synced, out.Error = live.Unmanaged, v.synced(h.Name), live.Error
	for _, i := range live.Running {
		if i.Leftover {
			out.Leftovers = append(out.Leftovers, i.Name)
		}
	}
	for _, hang := range live.Hangs {
		out.Hangs = append(out.Hangs, hang.Text(v.now))
	}
	if len(out.Hangs) > 0 && live.Reach {
		out.Error = "libvirt does not answer: " + out.Hangs[0]
	}
	switch {
	case h.Lost.Proof != "":
		out.State, out.Error = "lost", h.Lost.Text
	case out.Lease == "over":
		out.State, out.Error = "unreachable", live.unavailable
	case !live.reported:
		out.State = "unknown"
	case !live.Reach:
		out.State = "unreachable"
	case h.Cordoned:
		out.State = "cordoned"
	}
	return out
}

// VCView returns a VC with its state and yield.
func (v *View) VCView(vc state.VC) VCView {
	meta, _ := v.Meta()
	vms := v.VMsOf(vc.ID)
	out := viewOf(vc, vms, meta.Settings.Rightsizing)
	var silent []string // hosts that are out of reach
	for i := range vms {
		if !v.unreported(&vms[i]) {
			continue
		}
		out.Unknown++
		host := vms[i].Host
		if h := v.host(host); (h.reported || h.lease == "over") && !slices.Contains(silent, host) {
			silent = append(silent, host)
		}
	}
	if out.State == state.VCRunning && len(silent) > 0 { // that no host has reported right after an election is no fault
		slices.Sort(silent)
		out.State = state.VCDegraded
		out.Reason = fmt.Sprintf("%d of its VMs are unknown: out of reach: %s", out.Unknown, strings.Join(silent, ", "))
	}
	return out
}

// View returns the VC of a dry run as it would be.
func (r Result) View() VCView { return viewOf(r.VC, r.VMs, r.rightsizing) }

func viewOf(vc state.VC, vms []state.VM, set state.RightsizingSettings) VCView {
	out := VCView{VC: vc, State: state.StateOf(vc, vms), Count: state.CountPhases(vms), Estimates: state.NeedsDeclared}
	if set.Estimates(&vc) {
		out.Estimates, out.Aggressiveness = state.NeedsEstimated, set.AggressivenessOf(&vc)
	}
	if out.Count.Starting+out.Count.Running > 0 {
		out.Yield = state.YieldOf(vc, vms)
	}
	switch out.State {
	case state.VCQueued:
		out.Reason = vc.Decision.Summary
	case state.VCStarting:
		for _, vm := range vms {
			if vm.Phase == state.Starting && vm.Reason != "" {
				out.Reason = fmt.Sprintf("VM %s waits on host %s: %s", vm.Name, vm.Host, vm.Reason)
				break
			}
		}
	case state.VCDegraded, state.VCFailed:
		for _, vm := range vms {
			if vm.Order.StoppedBy == "" && (vm.Phase == state.Failed || vm.Phase == state.Stopped && vm.Goal == state.GoalStop) {
				out.Reason = fmt.Sprintf("VM %s: %s", vm.Name, vm.Reason)
				break
			}
		}
		if out.StoppedAlone, out.StoppedBy = state.StoppedAlone(vms); out.StoppedAlone > 0 {
			out.Reason = strings.TrimPrefix(out.Reason+"; "+state.StoppedAloneText(out.StoppedAlone, out.StoppedBy), "; ")
		}
		if out.Reason == "" {
			out.Reason = fmt.Sprintf("yield %.3f is below its minimum %.3f", out.Yield, vc.MinYield)
		}
	}
	return out
}

// synced is the log index up to which the desired state is in force on a host. An agent reports the index at which its own part
// of the state last changed.
func (v *View) synced(host string) uint64 {
	synced := v.host(host).Synced
	if h, ok := v.Host(host); ok && synced > 0 && synced >= h.Version {
		return v.Index()
	}
	return synced
}

// MinYield is the minimum yield of the cluster: the lowest yield of the VCs that run, 1 if none does.
func (v *View) MinYield() float64 { return MinYieldOf(v.VCViews()) }

// VCViews are the views of all VCs, in order of their age.
func (v *View) VCViews() []VCView {
	rows := v.VCs()
	out := make([]VCView, len(rows))
	for i, vc := range rows {
		out[i] = v.VCView(vc)
	}
	return out
}

// MinYieldOf is MinYield by the views of all VCs.
func MinYieldOf(all []VCView) float64 {
	y := 1.0
	for i := range all {
		if c := &all[i]; c.Count.Starting+c.Count.Running > 0 {
			y = min(y, c.Yield)
		}
	}
	return y
}

// Progress returns the progress of an operation.
func (v *View) Progress(op state.Operation) state.Progress {
	return v.ProgressOf(op, v.synced)
}
