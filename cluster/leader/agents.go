package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// Desired implements agent.Leader. It answers after a check of this server's leadership that began after the call.
func (c *Service) Desired(ctx context.Context, host string) (agent.Desired, <-chan struct{}, error) {
	t := c.current.Load() // before the check: other leaders may have sent newer desired states since an earlier term
	if err := c.o.Log.Linearize(ctx); err != nil {
		return agent.Desired{}, nil, fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	w := t.desired.to(c.o.State, host)
	return w.desired, w.changed, nil
}

// desired makes the desired state of a host from a snapshot. vms is how many VMs it is likely to have.
func desired(s *state.Snapshot, host string, vms int) agent.Desired {
	meta, _ := s.Meta()
	h, _ := s.Host(host)
	limit, set := h.Usable(), meta.Settings.Rightsizing.WithDefaults()
	freeze := ""
	if meta.RecoveryFreeze.On() {
		freeze = "held after a " + meta.RecoveryFreeze.Reason
	}
	out := agent.Desired{Cluster: meta.ID, Epoch: meta.Epoch, Freeze: freeze, Index: s.Index(), RequiredIndex: h.Version, CPU: limit.CPU, Memory: limit.Memory, Overhead: h.VMOverhead,
		Foreign: agent.Limits{CPU: h.Foreign.CPU, Memory: h.Foreign.Memory}, NoEmergencyGrants: !set.Runs(state.StageEmergency)}
	if vms > 0 {
		out.VMs = make([]agent.VM, 0, vms)
	}
	images := imagesOf(s)
	s.EachVMOn(host, func(vm *state.VM) bool {
		vc, _ := s.SharedVC(vm.VC)
		g := vc.SharedGroup(vm.Group)
		if g == nil {
			return true
		}
		if vm.KeepsMemory() {
			out.Memory -= vm.ChargeOn(h, *g).Memory
		}
		w := agent.VM{Spec: specOf(images, meta, g, vm), Want: agent.WantRun, ChargedMemory: vm.ChargedMemory,
			MayStart:  vm.Phase == state.Starting && vm.Goal == state.GoalRun,
			Seen:      vm.Phase == state.Running,
			EndKnown:  vm.Phase == state.Stopped || vm.Phase == state.Failed || vm.Phase == state.Lost,
			FreezeCPU: vm.Phase == state.Stopping || vm.MovingTo != ""}
		if vm.Phase == state.Starting {
			w.Waits = vm.Reason
		}
		if r := vm.Order.Reset; r.Pending() {
			w.Reset, w.ResetPermitted = r.ID, r.State == state.ResetPermitted
		}
		w.Spec.Leased = vc.Restartable()
		if vm.Target > 0 && set.Mode == state.RightsizingOn && set.Estimates(vc) {
			w.MinMemory = g.MemoryMin
		}
		if vm.MovingTo != "" {
			w.Move = moveOf(s, meta, g, vm, host)
			w.Spec.CPU = hypervisor.CPU{Cap: vm.Frozen, Weight: vm.Frozen} // the cap with which it moves; its group may get another share meanwhile
		}
		switch vm.Goal {
		case state.GoalStop:
			w.Want = agent.WantStop
		case state.GoalDelete:
			w.Want = agent.WantAbsent
		}
		out.VMs = append(out.VMs, w)
		return true
	})
	return out
}

// imagesOf returns the images of a snapshot by name, each looked up once: VMs on a host often have the same ones.
func imagesOf(s *state.Snapshot) func(name string) (state.Image, bool) {
	type found struct {
		image state.Image
		ok    bool
	}
	var seen map[string]found
	return func(name string) (state.Image, bool) {
		if name == "" {
			return state.Image{}, false
		}
		f, known := seen[name]
		if !known {
			if f.image, f.ok = s.Image(name); seen == nil {
				seen = map[string]found{}
			}
			seen[name] = f
		}
		return f.image, f.ok
	}
}

// specOf returns a VM's specification for its host.
func specOf(images func(string) (state.Image, bool), meta state.Meta, g *state.Group, vm *state.VM) hypervisor.Spec {
	spec := hypervisor.Spec{
		Identity: hypervisor.Identity{Cluster: meta.ID, VM: vm.ID, Generation: vm.Generation},
		Name:     vm.Domain(), Title: vm.Name, VCPUs: vm.VCPUs, Memory: vm.BootMemory, Balloon: min(vm.Due(*g), vm.BootMemory),
		CPU:     hypervisor.CPU{Cap: g.Allocation, Weight: g.Allocation},
		Network: g.Network,
		CloudInit: hypervisor.CloudInit{UserData: g.CloudInit.UserData, MetaData: g.CloudInit.MetaData,
			NetworkConfig: g.CloudInit.NetworkConfig},
	}
	kernel, initrd, cmdline := g.Boot.Kernel, g.Boot.Initrd, g.Boot.Cmdline
	base := ""
	if img, ok := images(g.Image); ok {
		if img.Kind == state.KernelImage {
			kernel = img.Name
		} else {
			base = img.File
		}
	}
	if img, ok := images(kernel); ok {
		spec.Boot.Kernel = img.File
		if initrd == "" {
			initrd = img.Initrd
		}
		if cmdline == "" {
			cmdline = img.Cmdline
		}
	}
	if img, ok := images(initrd); ok {
		spec.Boot.Initrd = img.File
	}
	spec.Boot.Cmdline = cmdline
	if base != "" || g.Disk.Size > 0 {
		spec.Disk = hypervisor.Disk{Base: base, Size: g.Disk.Size, Pool: g.Disk.Pool, Ephemeral: g.Disk.Ephemeral}
	}
	return spec
}

// Report implements agent.Leader. It proposes what must be in the log; the rest is kept as the latest report of that host.
func (c *Service) Report(ctx context.Context, r agent.Report) error {
	t := c.current.Load()
	s := c.o.State.Snapshot()
	if m, _ := s.Meta(); len(r.Statuses) > 0 && r.Epoch < m.Epoch {
		// The statuses are of steps that the state of before the restore wanted.
		return fmt.Errorf("report of host %s: it is of epoch %d, this is %d: %w", r.Host, r.Epoch, m.Epoch, ErrConflict)
	}
	if t.reports.unlist(r) {
		t.relisted.Add(1)
		c.wakeLoop()
	}
	if r.Reach {
		if err := c.recordHost(ctx, s, r); err != nil {
			return fmt.Errorf("report of host %s: %w", r.Host, err)
		}
		if err := c.recordVMs(ctx, t, s, r); err != nil {
			return fmt.Errorf("report of host %s: %w", r.Host, err)
		}
		if err := c.recordMoves(ctx, s, r); err != nil {
			return fmt.Errorf("report of host %s: %w", r.Host, err)
		}
		if err := c.recordResets(ctx, s, r); err != nil {
			return fmt.Errorf("report of host %s: %w", r.Host, err)
		}
		if err := c.recordSent(ctx, s, r); err != nil {
			return fmt.Errorf("report of host %s: %w", r.Host, err)
		}
		if err := c.recordInventory(ctx, s, r); err != nil {
			return fmt.Errorf("report of host %s: %w", r.Host, err)
		}
	}
	if t.over() { // the next term must know of hosts only what they reported in it
		return fmt.Errorf("report of host %s: %w: term %d is over", r.Host, ErrNoLeader, t.number)
	}
	t.rightsizing.Observe(s, r, c.o.Now().UTC())
	t.admissionMargin.heard(r.Host, r.Available, c.o.Now().UTC())
	n := t.reports.take(r, c.o.Now())
	if n.incoming {
		t.relisted.Add(1)
	}
	if n.reach || n.incoming || n.shrunk && t.moves.Running() { // a move may wait for it
		c.wakeLoop()
	}
	return nil
}

func (c *Service) recordHost(ctx context.Context, s *state.Snapshot, r agent.Report) error {
	now := state.HostReport{Name: r.Host,
		Capacity:   state.Resources{CPU: r.Capacity.CPU, Memory: r.Capacity.Memory},
		Allowance:  state.Resources(r.Allowance),
		Foreign:    state.Resources(r.Foreign),
		ForeignVMs: r.ForeignVMs, VMOverhead: r.Overhead, KVM: r.Capacity.KVM, Software: r.Capacity.Software, MigrateURI: r.MigrateURI}
	h, known := s.Host(r.Host)
	if known && now == (state.HostReport{Name: h.Name, Capacity: h.Capacity, Allowance: h.Allowance, Foreign: h.Foreign,
		ForeignVMs: h.ForeignVMs, VMOverhead: h.VMOverhead, KVM: h.KVM, Software: h.Software, MigrateURI: h.MigrateURI}) && h.Lost.Proof == "" {
		return nil
	}
	return c.propose(ctx, state.KindHostReport, now)
}

func (c *Service) recordVMs(ctx context.Context, t *term, s *state.Snapshot, r agent.Report) error {
	body := state.VMReport{Host: r.Host}
	for _, st := range r.Statuses {
		vm, ok := s.VM(st.VM)
		if !ok || vm.Host != r.Host && vm.MovingTo != r.Host || vm.Generation != st.Generation {
			continue
		}
		now := state.VMStatus{VM: st.VM, Generation: st.Generation, Move: st.Move, SourceLost: st.SourceLost, ChargedMemory: st.ChargedMemory, Reason: st.Reason}
		switch st.Phase {
		case agent.PhaseStayed, agent.PhaseArrived, agent.PhaseLeft, agent.PhaseReset: // the end of a move, or of a reset: see recordMoves, recordResets
			continue
		case agent.PhaseRoom:
			// Whether the source resumes VMs that a migration left paused there.
			from, reported := t.reports.of(vm.Host)
			if !reported { // the agent reports it again
				continue
			}
			now.Room, now.Resumes = true, st.Resumes && from.Resumes
		case agent.PhaseStarting:
			if now.Phase = state.Starting; vm.Phase != state.Starting || vm.Reason == st.Reason {
				continue
			}
		default:
			m, _ := s.MigrationOf(vm.ID)
			now.Phase, now.Left = state.Phase(st.Phase), st.Left && m.Paused
		}
		if now == (state.VMStatus{VM: vm.ID, Generation: vm.Generation, Phase: state.Running}) && vm.Phase == state.Running && vm.MovingTo == "" {
			continue // reported before
		}
		body.VMs = append(body.VMs, now)
	}
	if len(body.VMs) == 0 {
		return nil
	}
	sort.SliceStable(body.VMs, func(a, b int) bool { return body.VMs[a].VM < body.VMs[b].VM })
	return c.propose(ctx, state.KindVMReport, body)
}

// recordMoves closes moves by the reports of the hypervisors: a VM that runs on the target has arrived, one whose move ended
// and that runs on the source has stayed. The report names the move and the attempt, so that a late one closes no other.
func (c *Service) recordMoves(ctx context.Context, s *state.Snapshot, r agent.Report) error {
	var over []state.Move
	for _, st := range r.Statuses {
		vm, ok := s.VM(st.VM)
		if !ok || vm.MovingTo == "" || vm.Generation != st.Generation {
			continue
		}
		if m, _ := s.MigrationOf(vm.ID); m.Open != st.Move {
			continue
		}
		switch {
		case st.Phase == agent.PhaseArrived && vm.MovingTo == r.Host:
			over = append(over, state.Move{VM: vm.ID, Generation: vm.Generation, To: r.Host, Arrived: true, Move: st.Move, Bytes: sentBytes(s, st), DowntimeMs: st.Downtime.Milliseconds()})
		case st.Phase == agent.PhaseStayed && vm.Host == r.Host:
			over = append(over, state.Move{VM: vm.ID, Generation: vm.Generation, To: vm.MovingTo, Text: st.Reason, Move: st.Move, Permit: st.Permit,
				Bytes: sentBytes(s, st), DowntimeMs: st.Downtime.Milliseconds()})
		}
	}
	for _, m := range over {
		if err := c.propose(ctx, state.KindMove, m); err != nil && !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
	return nil
}

// recordInventory proposes the inventory of a host, during a recovery freeze that waits for it.
func (c *Service) recordInventory(ctx context.Context, s *state.Snapshot, r agent.Report) error {
	m, _ := s.Meta()
	// What was listed before the agent knew of this epoch may be from before the restore.
	if r.Running == nil || r.Epoch != m.Epoch || !slices.Contains(m.RecoveryFreeze.Pending, r.Host) {
		return nil
	}
	body := state.Inventory{Host: r.Host}
	for _, i := range r.Running {
		if i.Leftover { // it runs nothing, and is resumed or cleared away once it is known where the VM is, or that it is lost
			body.VMs = append(body.VMs, state.Instance{VM: i.VM, Generation: i.Generation, Leftover: true})
			continue
		}
		if i.Incoming || i.Leaving { // where it runs is not decided yet: the host reports again once it is
			return nil
		}
		body.VMs = append(body.VMs, state.Instance{VM: i.VM, Generation: i.Generation})
	}
	return c.propose(ctx, state.KindInventory, body)
}
