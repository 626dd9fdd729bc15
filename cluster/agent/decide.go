package agent

import (
	"fmt"
	"math"
	"sort"
	"time"

	"evenkeel/cluster/capacity"
	"evenkeel/hypervisor"
)

// Operation is one step on the host. Operations are values: equal inputs give
// equal lists.
type Operation interface{ String() string }

// The operations of an agent.
type (
	// Shutdown asks the guest to power off.
	Shutdown struct{ VM, Name string }
	// Destroy pulls the plug.
	Destroy struct{ VM, Name string }
	// SetCPU puts a share in force.
	SetCPU struct {
		VM, Name string
		From, To hypervisor.CPU
	}
	// SetBalloon sets a memory target, bytes.
	SetBalloon struct {
		VM, Name string
		From, To int64
		Why      string // where it is the host's own doing, and not the leader's
	}
	// Undefine removes what a VM that does not run has on the host.
	Undefine struct{ Spec hypervisor.Spec }
	// Start defines and boots a VM.
	Start struct{ Spec hypervisor.Spec }
	// ReportStatus the leader.
	ReportStatus struct{ Status Status }
	// Migrate hands a running VM over to another host.
	Migrate struct {
		Spec hypervisor.Spec
		Move Move
	}
	// Resume resumes a VM that its move left paused here: at the target once the source has reported that it left, at the
	// source where the migration ended without handing it over.
	Resume struct {
		VM, Name         string
		Generation, Move uint64 // Move.Open
		Leased           bool
		Here             bool // it is the source
	}
	// AbortMove gives a migration up that goes on.
	AbortMove struct {
		VM, Name string
		Move     uint64 // Move.Open
		Why      string
	}
	// Reset has a running guest boot again at once.
	Reset struct {
		VM, Name   string
		Generation uint64
		ID         string
	}
	// Blocked says why something that is wanted cannot be done yet. It does nothing.
	Blocked struct {
		VM, Name, Why string
		// More: a running VM goes without the CPU or memory that it is to have more; no other VM waits for that.
		More bool
	}
)

func (o Shutdown) String() string { return "shut down " + o.Name }
func (o Destroy) String() string  { return "destroy " + o.Name }
func (o SetCPU) String() string {
	return fmt.Sprintf("cap %s: %.4f -> %.4f cores", o.Name, o.From.Cap, o.To.Cap)
}
func (o SetBalloon) String() string {
	return fmt.Sprintf("balloon %s: %d -> %d bytes%s", o.Name, o.From, o.To, colon(o.Why))
}
func (o Undefine) String() string { return "remove " + o.Spec.Label() }
func (o Start) String() string {
	return fmt.Sprintf("start %s generation %d", o.Spec.Label(), o.Spec.Generation)
}
func (o ReportStatus) String() string {
	phase := string(o.Status.Phase)
	if o.Status.Left {
		phase = string(PhaseLeft)
	}
	return fmt.Sprintf("report %s generation %d %s", o.Status.VM, o.Status.Generation, phase)
}
func (o Migrate) String() string {
	s := "move " + o.Spec.Label() + " to " + o.Move.To
	if o.Move.MaxBytes > 0 {
		s += fmt.Sprintf(", at most %d bytes", o.Move.MaxBytes)
	}
	return s
}
func (o Resume) String() string {
	return fmt.Sprintf("resume %s generation %d", o.Name, o.Generation)
}
func (o Reset) String() string     { return fmt.Sprintf("reset %s generation %d", o.Name, o.Generation) }
func (o AbortMove) String() string { return "give up the move of " + o.Name + ": " + o.Why }
func (o Blocked) String() string   { return fmt.Sprintf("hold %s: %s", o.Name, o.Why) }

// Past is what the agent did before and cannot read off the host.
// Many fields: Decide takes values, and each field is one kind of fact that a step of the round remembers.
type Past struct {
	// Overdue: VMs that were asked to power off so long ago that they are destroyed now. Asked: all that were asked.
	Overdue map[string]bool
	Asked   map[string]bool
	// CPU is the cap last put in force, cores. What is read back may differ a little: a
	// quota is set in whole microseconds.
	CPU map[string]float64
	// Balloon is the last target set, bytes, as long as there is no point in setting it again.
	Balloon map[string]int64
	// FailedStart is which generation's start failed for good, and why, by VM id.
	FailedStart map[string]Failure
	// Cleared: generations whose disk was removed, by VM id. Once the disk is removed, the leader may start the VM elsewhere,
	// on a disk of the same name in a shared pool, before this host learns of it.
	Cleared map[string]uint64
	// Ended is the reason the hypervisor gave when a VM stopped, by VM id.
	Ended map[string]string
	// Lost: generations of VMs that were stopped for want of a lease, by VM id.
	Lost map[string]uint64
	// Lapsed: restartable VMs were stopped for want of a lease since the host last reported to the leader.
	Lapsed bool
	// Fresh: the machine was started since the host last reported to the leader.
	Fresh bool
	// Cores of the machine: a VM without a cap takes no more, however many vCPUs it has; 0 = not known.
	Cores float64
	// Guests are those whose memory the host looks after, by id: those that report, or did.
	Guests map[string]GuestNeed
	// Moving: VMs whose migration goes on. Moved: how the open move's migration ended. Handed: VMs that the open move may have
	// taken away: its migration ended well, or its end is not known.
	Moving map[string]bool
	Moved  map[string]MoveEnd
	Handed map[string]bool
	// Standing are VMs that came by a migration, and stand paused until they are resumed. Resumed: those that this agent resumed.
	Standing map[string]bool
	Resumed  map[string]bool
	// Unresumable are VMs that arrived and that the agent could not resume for resumeWithin.
	Unresumable map[string]bool
	// Starting: VMs whose start has not ended, by id. Such a VM may run at any moment.
	Starting map[string]Starting
	// Waited: VMs whose move has waited for room at its target for roomWithin.
	Waited map[string]bool
	// Leftover is for how long VMs are seen to be left over from a migration, by id.
	Leftover map[string]time.Duration
	// Waits are VMs that may start and are not here, by id. GivenUp are the generations that this host has reported that it
	// does not start.
	Waits   map[string]Waits
	GivenUp map[string]uint64
	// Resets are those that this agent asked for or made, by id.
	Resets map[string]ResetTry
}

// ResetTry is what this agent knows of a reset that it asked a permit for.
type ResetTry struct {
	Called bool   // the hypervisor was called
	Failed string // why it was not made, or is not known to be; "" = it was made, if Called
}

// Failure is a start that failed.
type Failure struct {
	Generation uint64
	Reason     string
}

// Decide returns the operations from what is there to what is wanted, in the order in which to carry them out. If a Destroy or
// a SetCPU fails, those after it must wait for the next round: they count on it.
//
// Invariants:
//
//   - After each operation the caps in force and the balloons are within the host's limits, with all VMs that may arrive or come
//     up at any moment. If they exceeded a limit before, they exceed it by no more than before.
//   - While the recovery freeze lasts there are no operations.
//   - Nothing is done to a VM that is foreign, unmanaged, or of another generation than the leader's. The one exception is a
//     leftover of a migration, which is cleared away by a permit.
//   - A VM is started only if no instance of it is here, and the leader permits this very generation.
//   - Equal inputs, in whatever order, give equal operations.
func Decide(want Desired, there []hypervisor.VM, past Past) []Operation {
	if want.Freeze != "" {
		return nil
	}
	d, vms := newDecider(want, there, past), enforceable(want)
	begun := d.begun(vms)
	d.reserve(vms, begun)
	for _, vm := range vms {
		if now, runs := d.there[vm.Spec.Identity.VM]; vm.Move != nil {
			d.move(vm, now, runs)
		}
	}
	d.clear(vms)
	d.keepMinBalloon(vms)
	d.cut(vms)
	d.each(vms, d.leave)
	d.each(vms, d.shrink)
	d.emergencyGrant(vms)
	d.each(vms, d.grow)
	d.each(vms, d.reset)
	d.each(vms, d.reportAndClear)
	for _, vm := range begun {
		d.waitForStart(vm)
	}
	d.each(vms, d.start)
	return d.ops
}

// newDecider counts what is in force on the host before the first operation.
func newDecider(want Desired, there []hypervisor.VM, past Past) *decider {
	d := &decider{want: want, past: past, there: map[string]hypervisor.VM{}, given: map[string]int64{}, due: map[string]int64{}, cuts: map[string]int64{}}
	unknown := map[string]bool{}
	for _, vm := range Unmanaged(want, there) {
		unknown[vm.Identity.VM] = true
	}
	for _, vm := range there {
		if vm.Foreign || vm.Cluster != want.Cluster {
			continue
		}
		id := vm.Identity.VM
		d.there[id] = vm
		if !unknown[id] {
			d.cpu += d.force(vm)
			d.memory += max(vm.Balloon, past.Balloon[id]) + want.Overhead
		}
	}
	use, _ := others(want.Cluster, want.Overhead, past.Cores, unknown, there)
	d.cpu += max(0, use.CPU-want.Foreign.CPU) // what these VMs take beyond what the leader left out for them
	d.memory += max(0, use.Memory-want.Foreign.Memory)
	return d
}

// enforceable returns the VMs that are wanted, by id, each with a share that a host can enforce.
func enforceable(want Desired) []VM {
	vms := append([]VM(nil), want.VMs...)
	sort.Slice(vms, func(a, b int) bool { return vms[a].Spec.Identity.VM < vms[b].Spec.Identity.VM })
	for i := range vms {
		cpu := &vms[i].Spec.CPU
		cpu.Cap, cpu.Weight = max(cpu.Cap, minCap), max(cpu.Weight, minCap)
	}
	return vms
}

// reserve counts the VMs that may come up here at any moment, by a move or a start that has not ended, as if they were here.
func (d *decider) reserve(vms, begun []VM) {
	for _, vm := range vms {
		if vm.Move != nil && vm.Move.Incoming {
			d.expect(vm)
		}
	}
	for _, vm := range begun {
		if _, runs := d.there[vm.Spec.Identity.VM]; !runs {
			d.cpu += vm.Spec.CPU.Cap
			d.memory += vm.Spec.Memory + d.want.Overhead
		}
	}
	d.fits = d.cpu <= d.maxCPU() && d.memory <= d.want.Memory
}

// begun returns the VMs whose start has not ended.
func (d *decider) begun(vms []VM) (out []VM) {
	for _, vm := range vms {
		if d.startsUp(vm) {
			out = append(out, vm)
		}
	}
	return out
}

// startsUp says whether the start of a VM has not ended: the VM may run at any moment. A VM that is listed while a call about it hangs
// has started.
func (d *decider) startsUp(vm VM) bool {
	s, starts := d.past.Starting[vm.Spec.Identity.VM]
	_, runs := d.there[vm.Spec.Identity.VM]
	return vm.Move == nil && starts && !(runs && s.Hung)
}

// each calls f for each VM of which neither a move nor a start is open, in order.
func (d *decider) each(vms []VM, f func(VM, hypervisor.VM, bool)) {
	for _, vm := range vms {
		if vm.Move == nil && !d.startsUp(vm) {
			now, runs := d.there[vm.Spec.Identity.VM]
			f(vm, now, runs)
		}
	}
}

// waitForStart reports on a VM whose start has not ended.
func (d *decider) waitForStart(vm VM) {
	why := d.past.Starting[vm.Spec.Identity.VM].Why
	if vm.Want == WantRun && vm.MayStart {
		d.waits(vm, why)
		return
	}
	d.add(Blocked{vm.Spec.Identity.VM, vm.Spec.Label(), why, false})
}

// Unmanaged returns the VMs that carry this cluster's mark but are not in the leader's desired state for this host. The agent
// reports them and leaves them alone.
func Unmanaged(want Desired, there []hypervisor.VM) []hypervisor.VM {
	known := map[string]bool{}
	for _, vm := range want.VMs {
		known[vm.Spec.Identity.VM] = true
	}
	var out []hypervisor.VM
	for _, vm := range there {
		if !vm.Foreign && vm.Cluster == want.Cluster && !known[vm.Identity.VM] {
			out = append(out, vm)
		}
	}
	return out
}

// others returns what VMs take that are not in the leader's desired state for this host, and how many there are: foreign VMs,
// and unmanaged ones. They keep what they have, so each counts with all its memory.
func others(cluster string, overhead int64, cores float64, unknown map[string]bool, there []hypervisor.VM) (use Limits, n int) {
	for _, vm := range there {
		if !vm.Foreign && vm.Cluster == cluster && !unknown[vm.Identity.VM] {
			continue
		}
		cpu := inForce(vm)
		if cores > 0 {
			cpu = min(cpu, cores)
		}
		n++
		use.CPU += cpu
		use.Memory += vm.Memory + overhead
	}
	return use, n
}

type decider struct {
	want   Desired
	past   Past
	there  map[string]hypervisor.VM
	cpu    float64          // cores in force or about to be, after the steps so far
	memory int64            // bytes, likewise
	fits   bool             // what is in force before the first operation, and what may come up, is within the limits
	given  map[string]int64 // what guests that are short of memory are to have after the steps so far
	due    map[string]int64 // balloon targets of the leader's desired state, before keepMinBalloon raises them
	cuts   map[string]int64 // balloon targets to which the host itself shrinks VMs: see cut
	ops    []Operation
}

func (d *decider) add(op Operation) { d.ops = append(d.ops, op) }

// inForce is the most CPU a VM can take now, cores.
func inForce(vm hypervisor.VM) float64 {
	if vm.CPU.Cap > 0 {
		return vm.CPU.Cap
	}
	return float64(vm.VCPUs)
}

// force is the cap in force on a VM: the cap that was set, if what is read back can be that.
func (d *decider) force(vm hypervisor.VM) float64 {
	read := inForce(vm)
	if set, known := d.past.CPU[vm.Identity.VM]; known && math.Abs(set-read) <= cpuSlack {
		return set
	}
	return read
}

// maxCPU is what the caps in force may sum to, cores; a sum of floats may be off by a little.
func (d *decider) maxCPU() float64 { return d.want.CPU*(1+tiny) + tiny }

// ours says whether the running instance is the one that the leader means. The agent never touches an instance of another
// generation: either this desired state is old, or something is wrong that only an operator can mend.
func ours(vm VM, now hypervisor.VM, runs bool) bool {
	return runs && now.Generation == vm.Spec.Generation
}

// expect counts a VM that may arrive at any moment as if it were here. It arrives with the cap that it has at its source, and no VM
// here may grow into its share.
func (d *decider) expect(vm VM) {
	now := d.there[vm.Spec.Identity.VM] // the domain that is here for it already, if any
	c := capacity.VM{Reported: vm.ChargedMemory, Target: vm.Spec.Balloon, Share: vm.Spec.CPU.Cap}.Charge(d.want.Overhead)
	if now.Identity.VM != "" { // newDecider has counted it
		c.CPU -= d.force(now)
		c.Memory -= d.want.Overhead
	}
	d.cpu += max(0, c.CPU)
	d.memory += max(0, c.Memory-max(now.Balloon, d.past.Balloon[vm.Spec.Identity.VM]))
}

// leave handles VMs that run and are to stop.
func (d *decider) leave(vm VM, now hypervisor.VM, runs bool) {
	id, name := vm.Spec.Identity.VM, vm.Spec.Label()
	if runs && now.Generation != vm.Spec.Generation {
		switch why := fmt.Sprintf("generation %d runs, %d is wanted", now.Generation, vm.Spec.Generation); {
		case (now.State == hypervisor.Incoming || d.past.Standing[id]) && vm.MayStart && !d.givenUp(vm):
			d.waits(vm, fmt.Sprintf("generation %d of it is here, paused by a migration", now.Generation))
		default:
			d.add(Blocked{id, name, why, false})
		}
		return
	}
	if !runs || vm.Want == WantRun {
		return
	}
	switch {
	case vm.Want == WantAbsent, d.past.Overdue[id], now.State == hypervisor.Crashed:
		d.add(Destroy{id, name})
		d.cpu -= d.force(now)
		d.memory -= max(now.Balloon, d.past.Balloon[id]) + d.want.Overhead
		delete(d.there, id)
	case !d.past.Asked[id]:
		d.add(Shutdown{id, name})
	}
}

// shrink takes CPU and memory back before any VM grows. VMs that stop keep what they have.
func (d *decider) shrink(vm VM, now hypervisor.VM, runs bool) {
	if !ours(vm, now, runs) || vm.Want != WantRun {
		return
	}
	id, name := vm.Spec.Identity.VM, vm.Spec.Label()
	if less := d.force(now) - vm.Spec.CPU.Cap; !vm.FreezeCPU && less > tiny {
		d.add(SetCPU{id, name, now.CPU, vm.Spec.CPU})
		d.cpu -= less
	}
	to, why := vm.Spec.Balloon, ""
	if cut, is := d.cuts[id]; is {
		to, why = cut, "guests of this host need more than there is, and it makes no use of that"
	}
	if to < now.Balloon-balloonSlack && d.past.Balloon[id] != to {
		d.add(SetBalloon{id, name, now.Balloon, to, why})
	}
}

// grow gives more CPU and memory as far as that fits with what is in force.
func (d *decider) grow(vm VM, now hypervisor.VM, runs bool) {
	if !ours(vm, now, runs) || vm.Want != WantRun {
		return
	}
	id, name := vm.Spec.Identity.VM, vm.Spec.Label()
	if more := vm.Spec.CPU.Cap - d.force(now); !vm.FreezeCPU && more > tiny {
		if d.cpu+more > d.maxCPU() {
			d.add(Blocked{id, name, fmt.Sprintf("%.3f cores more do not fit yet", more), true})
		} else {
			d.add(SetCPU{id, name, now.CPU, vm.Spec.CPU})
			d.cpu += more
		}
	}
	if _, is := d.cuts[id]; is {
		return
	}
	if more := vm.Spec.Balloon - now.Balloon; more > balloonSlack && d.past.Balloon[id] != vm.Spec.Balloon && d.given[id] < vm.Spec.Balloon {
		if d.memory+more > d.want.Memory {
			d.add(Blocked{id, name, fmt.Sprintf("%d bytes of memory more do not fit yet", more), true})
		} else {
			d.add(SetBalloon{id, name, now.Balloon, vm.Spec.Balloon, ""})
			d.memory += more
		}
	}
}

// reportAndClear reports to the leader what it does not know yet, and clears away what is left of the VM.
func (d *decider) reportAndClear(vm VM, now hypervisor.VM, runs bool) {
	switch {
	case runs && now.Generation != vm.Spec.Generation:
		// Blocked already.
	case runs && now.Leftover && vm.stays(): // its move is closed as one that it stayed in
		if d.past.Leftover[vm.Spec.Identity.VM] >= leftoverFor {
			d.add(Resume{vm.Spec.Identity.VM, vm.Spec.Label(), vm.Spec.Generation, 0, vm.Spec.Leased, true})
		}
	case runs:
		d.reportRunning(vm, now)
	case vm.Want == WantAbsent:
		d.undefine(vm)
		d.report(vm, Status{Phase: PhaseStopped, SourceLost: true, Reason: "deleted"})
	case vm.EndKnown:
	case vm.Want == WantStop:
		if vm.Spec.Disk.Ephemeral || !vm.Spec.Disk.Present() {
			d.undefine(vm)
		}
		d.report(vm, Status{Phase: PhaseStopped, Reason: "stopped as asked"})
	default:
		if phase, why := d.ended(vm); phase != "" {
			d.report(vm, Status{Phase: phase, Reason: why})
		}
	}
}

// reset resets a VM once, and reports how that ended. The leader permits a reset once. If this agent knows nothing of a permitted
// reset, the agent before it may have made it: it is not made again.
func (d *decider) reset(vm VM, now hypervisor.VM, runs bool) {
	id := vm.Spec.Identity.VM
	if vm.Reset == "" {
		return
	}
	switch try, known := d.past.Resets[vm.Reset]; {
	case vm.ResetPermitted && !known:
		d.report(vm, Status{Phase: PhaseReset, Reset: vm.Reset, Reason: "its host's agent was restarted meanwhile: whether the guest was reset is not known"})
	case vm.ResetPermitted && !try.Called:
		d.report(vm, Status{Phase: PhaseReset, Reset: vm.Reset, Reason: "the answer to its host was lost on the way: the guest was not reset"})
	case vm.ResetPermitted:
		d.report(vm, Status{Phase: PhaseReset, Reset: vm.Reset, Reason: try.Failed})
	case known && try.Called: // this order is older than the permit
	case ours(vm, now, runs) && now.State == hypervisor.Running && vm.Want == WantRun && vm.Seen:
		d.add(Reset{id, vm.Spec.Label(), vm.Spec.Generation, vm.Reset})
	}
}

// report reports on the instance that the leader means.
func (d *decider) report(vm VM, st Status) {
	st.VM, st.Generation = vm.Spec.Identity.VM, vm.Spec.Generation
	d.add(ReportStatus{st})
}

// undefine removes what is left of a VM that does not run, once.
func (d *decider) undefine(vm VM) {
	if cleared, is := d.past.Cleared[vm.Spec.Identity.VM]; !is || cleared != vm.Spec.Generation {
		d.add(Undefine{vm.Spec})
	}
}

// reportRunning reports a VM that runs, if the leader does not know that it runs or charges it other memory than it has. Without this
// condition the agent would report it in every round.
func (d *decider) reportRunning(vm VM, now hypervisor.VM) {
	st := Status{Phase: PhaseRunning}
	needs := max(now.Balloon, d.given[vm.Spec.Identity.VM])
	switch charged := max(now.Balloon, vm.Spec.Balloon); {
	case charged < vm.ChargedMemory && now.Balloon <= vm.Spec.Balloon+balloonSlack:
		st.ChargedMemory = charged // the guest has let go
	case needs > vm.ChargedMemory+balloonSlack:
		st.ChargedMemory = needs
	}
	if vm.Want == WantRun && (!vm.Seen || st.ChargedMemory > 0) {
		d.report(vm, st)
	}
}

// ended returns how and why a VM ended that is to run, if the leader does not know that; "" = the VM was not here yet. A VM that its
// host stopped or did not start is lost, and may start elsewhere. A VM that ended by itself has failed.
func (d *decider) ended(vm VM) (p Phase, why string) {
	switch {
	case vm.MayStart && d.givenUp(vm):
		return PhaseLost, "its host did not start it in time"
	case vm.Want == WantRun && d.lost(vm), vm.Want == WantRun && vm.Seen && d.past.Lapsed && vm.Spec.Leased:
		return PhaseLost, "stopped by its host, whose lease was over"
	case vm.Want == WantRun && vm.Seen && d.past.Fresh:
		return PhaseLost, "went when its host was restarted"
	case vm.Want == WantRun && vm.Seen:
		return PhaseFailed, "ended by itself" + colon(d.past.Ended[vm.Spec.Identity.VM])
	}
	return "", ""
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// lost says whether this very instance was stopped for want of a lease.
func (d *decider) lost(vm VM) bool {
	gen, is := d.past.Lost[vm.Spec.Identity.VM]
	return is && gen == vm.Spec.Generation
}

// givenUp: this host has reported, or is about to report, that it does not start this very instance.
func (d *decider) givenUp(vm VM) bool {
	gen, is := d.past.GivenUp[vm.Spec.Identity.VM]
	return is && gen == vm.Spec.Generation
}

// start boots a VM that is permitted and fits with what is in force.
func (d *decider) start(vm VM, _ hypervisor.VM, runs bool) {
	if runs || vm.Want != WantRun || !vm.MayStart || vm.Seen || vm.EndKnown || d.lost(vm) || d.givenUp(vm) {
		return
	}
	id := vm.Spec.Identity.VM
	if f, failed := d.past.FailedStart[id]; failed && f.Generation == vm.Spec.Generation {
		d.add(ReportStatus{Status{VM: id, Generation: vm.Spec.Generation, Phase: PhaseFailed, Reason: f.Reason}})
		return
	}
	memory := vm.Spec.Memory + d.want.Overhead
	switch {
	case len(d.past.Starting) >= startsAtOnce:
		d.waits(vm, d.past.othersStart())
	case d.cpu+vm.Spec.CPU.Cap > d.maxCPU():
		d.waits(vm, fmt.Sprintf("%.3f cores do not fit yet", vm.Spec.CPU.Cap))
	case d.memory+memory > d.want.Memory:
		d.waits(vm, fmt.Sprintf("%d bytes of memory do not fit yet", memory))
	default:
		d.add(Start{vm.Spec})
		d.add(ReportStatus{Status{VM: id, Generation: vm.Spec.Generation, Phase: PhaseRunning}})
		d.cpu += vm.Spec.CPU.Cap
		d.memory += memory
	}
}
