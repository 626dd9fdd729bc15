package libvirt

import (
	"context"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

// hostCaps is what libvirt says of the machine. It stays as long as the connection.
type hostCaps struct {
	capacity hypervisor.Capacity
	abilities
}

// abilities are what a host can give its VMs.
type abilities struct {
	kvm          bool
	autoDeflate  bool // a guest that runs out of memory takes it back from its balloon before it kills anything
	reportsPages bool // a guest says which pages it freed, and the host has them back
}

// abilitiesOf libvirt and QEMU of these versions, as libvirt packs them. Under other names both have been in QEMU for long;
// libvirt knows them since 1.3.1 and 6.9.0.
func abilitiesOf(kvm bool, lib, qemu uint32) abilities {
	return abilities{kvm: kvm, autoDeflate: lib >= 1_003_001 && qemu >= 2_001_000, reportsPages: lib >= 6_009_000 && qemu >= 5_001_000}
}

func (h *Host) hostCaps(ctx context.Context) (*hostCaps, error) {
	h.mu.Lock()
	caps := h.caps
	if h.session == nil {
		caps = nil // call says why
	}
	h.mu.Unlock()
	if caps != nil {
		return caps, ctx.Err()
	}
	caps, err := call(calling(ctx, "virConnectGetCapabilities", "", ""), h, h.slow(), func(c *libvirt.Connect) (*hostCaps, error) { // a new daemon asks every QEMU first
		text, err := c.GetCapabilities()
		if err != nil {
			return nil, err
		}
		kvm, err := offersKVM(text)
		if err != nil {
			return nil, err
		}
		kvm = kvm && !h.opts.ForceEmulation
		info, err := c.GetNodeInfo()
		if err != nil {
			return nil, err
		}
		// NodeInfo adds up NUMA nodes, which on some virtual machines are a
		// fraction of the memory there is.
		total := int64(info.Memory)
		if ms, err := c.GetMemoryStats(libvirt.NODE_MEMORY_STATS_ALL_CELLS, 0); err == nil && ms.TotalSet {
			total = int64(ms.Total)
		}
		name, err := c.GetHostname()
		if err != nil {
			return nil, err
		}
		lib, err := c.GetLibVersion()
		if err != nil {
			return nil, err
		}
		qemu, err := c.GetVersion()
		if err != nil {
			return nil, err
		}
		return &hostCaps{abilities: abilitiesOf(kvm, lib, qemu), capacity: hypervisor.Capacity{
			Name: name, CPU: float64(info.Cpus), Memory: total * 1024, KVM: kvm,
			Software: fmt.Sprintf("libvirt %s, QEMU %s", version(lib), version(qemu)), Cgroup: h.cgroup,
		}}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("host capabilities: %w", err)
	}
	h.mu.Lock()
	h.caps = caps
	h.mu.Unlock()
	return caps, nil
}

// offersKVM reads libvirt's capabilities: does it run x86-64 guests by KVM?
// ErrInvalid if it runs none at all.
func offersKVM(text string) (bool, error) {
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(text); err != nil {
		return false, fmt.Errorf("read capabilities: %w", err)
	}
	any := false
	for _, g := range caps.Guests {
		if g.OSType != "hvm" || g.Arch.Name != "x86_64" {
			continue
		}
		any = true
		for _, d := range g.Arch.Domains {
			if d.Type == "kvm" {
				return true, nil
			}
		}
	}
	if !any {
		return false, fmt.Errorf("libvirt offers no x86-64 guests (is qemu-system-x86 installed?): %w", hypervisor.ErrInvalid)
	}
	return false, nil
}

// version is libvirt's way to pack three numbers in one.
func version(v uint32) string { return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1_000%1_000, v%1_000) }

// Capacity is the machine as libvirt sees it: its online CPUs and its memory.
func (h *Host) Capacity(ctx context.Context) (hypervisor.Capacity, error) {
	caps, err := h.hostCaps(ctx)
	if err != nil {
		return hypervisor.Capacity{}, err
	}
	return caps.capacity, nil
}

// ReportsPages says whether guests give back the memory that they free, without being asked.
func (h *Host) ReportsPages(ctx context.Context) (bool, error) {
	caps, err := h.hostCaps(ctx)
	if err != nil {
		return false, err
	}
	return caps.reportsPages, nil
}

// List is every active domain. A cap is read back from the control groups and
// comes out within 1e-5 core of what was set, weights within one share.
func (h *Host) List(ctx context.Context) ([]hypervisor.VM, error) {
	vms, err := call(calling(ctx, "virConnectGetAllDomainStats", "", ""), h, h.slow(), func(c *libvirt.Connect) ([]hypervisor.VM, error) {
		stats, err := c.GetAllDomainStats(nil, libvirt.DOMAIN_STATS_STATE|libvirt.DOMAIN_STATS_BALLOON|libvirt.DOMAIN_STATS_VCPU,
			libvirt.CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE|libvirt.CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
		if err != nil {
			return nil, err
		}
		defer free(stats)
		vms := make([]hypervisor.VM, 0, len(stats))
		for i := range stats {
			vm, err := h.describe(&stats[i])
			if err != nil {
				if active, aerr := stats[i].Domain.IsActive(); isCode(aerr, libvirt.ERR_NO_DOMAIN) || aerr == nil && !active {
					continue // it ended meanwhile
				}
				return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
			}
			if vm.State != "" {
				vms = append(vms, vm)
			}
		}
		return vms, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list VMs: %w", err)
	}
	return vms, nil
}

func free(stats []libvirt.DomainStats) {
	for i := range stats {
		_ = stats[i].Domain.Free()
	}
}

func (h *Host) describe(s *libvirt.DomainStats) (hypervisor.VM, error) {
	dom := s.Domain
	var vm hypervisor.VM
	var err error
	if vm.Name, err = dom.GetName(); err != nil {
		return vm, err
	}
	uuid, err := dom.GetUUIDString()
	if err != nil {
		return vm, err
	}
	m, err := markOf(dom)
	switch {
	case err == nil && uuid == uuidOf(m.ID):
		vm.Identity, vm.Leased = m.identity(), m.Leased
		if m.Started > 0 {
			vm.Started = time.Unix(m.Started, 0).UTC()
		}
		h.remember(uuid, knownVM{Identity: vm.Identity, name: vm.Name})
	case err == nil || isCode(err, libvirt.ERR_NO_DOMAIN_METADATA):
		vm.Foreign = true // a copy of one of ours under another UUID is not ours either
	default:
		return vm, err
	}
	h.mu.Lock()
	_, from := h.moves[uuid]
	h.mu.Unlock()
	if s.State == nil || !s.State.StateSet {
		return vm, fmt.Errorf("the state of VM %s is not known", vm.Name)
	}
	vm.State, vm.Leftover = stateOf(dom, s.State.State, s.State.Reason, from)
	vm.Standing = vm.State == hypervisor.Paused && libvirt.DomainPausedReason(s.State.Reason) == libvirt.DOMAIN_PAUSED_USER && cameIn(dom)
	vm.VCPUs = max(len(s.Vcpu), m.VCPUs)
	if s.Balloon != nil {
		vm.Memory, vm.Balloon = int64(s.Balloon.Maximum)*1024, int64(s.Balloon.Current)*1024
	}
	sc, err := readSched(dom)
	// A daemon that was restarted a moment ago knows its VMs before it has found
	// their control groups again.
	for end := time.Now().Add(settling); !vm.Foreign && vm.State != hypervisor.Incoming && unsettled(err) && time.Now().Before(end); {
		if active, aerr := dom.IsActive(); aerr != nil || !active {
			return vm, err
		}
		time.Sleep(10 * time.Millisecond)
		sc, err = readSched(dom)
	}
	if unsettled(err) || err != nil && vm.Foreign {
		// It runs, so it counts; that no cap is known to be in force is what Cap 0 says.
		h.shareRead(uuid, vm, err)
		return vm, nil
	}
	if err != nil {
		return vm, err
	}
	h.shareRead(uuid, vm, nil)
	vm.CPU = sc.cpu(vm.VCPUs, h.cgroup, !vm.Foreign)
	return vm, nil
}

// shareRead logs that the CPU share of a VM of ours cannot be read, once until it can be read again. A VM that libvirt
// starts, or that arrives, has no control groups yet: that is no fault.
func (h *Host) shareRead(uuid string, vm hypervisor.VM, err error) {
	if vm.Foreign || vm.State == hypervisor.Incoming {
		return
	}
	h.mu.Lock()
	known, still := h.known[uuid]
	first := still && err != nil && !known.noShare
	if still {
		known.noShare = err != nil
		h.known[uuid] = known
	}
	h.mu.Unlock()
	if first {
		h.log.Warn("CPU share cannot be read", "vm", vm.Identity.VM, "error", err)
	}
}

// unsettled says whether a VM's control groups are not there: not yet, or not any more.
func unsettled(err error) bool {
	return isCode(err, libvirt.ERR_OPERATION_INVALID) || isCode(err, libvirt.ERR_SYSTEM_ERROR)
}

// stateOf is libvirt's state in our words; "" for a domain that is off. from: this process moves it away just now. leftover: see
// hypervisor.VM.
func stateOf(dom *libvirt.Domain, state libvirt.DomainState, reason int, from bool) (is hypervisor.State, leftover bool) {
	switch state {
	case libvirt.DOMAIN_SHUTOFF:
		return "", false
	case libvirt.DOMAIN_SHUTDOWN:
		return hypervisor.Stopping, false
	case libvirt.DOMAIN_CRASHED:
		return hypervisor.Crashed, false
	case libvirt.DOMAIN_PMSUSPENDED:
		return hypervisor.Paused, false
	case libvirt.DOMAIN_PAUSED:
		switch libvirt.DomainPausedReason(reason) {
		case libvirt.DOMAIN_PAUSED_MIGRATION, libvirt.DOMAIN_PAUSED_STARTING_UP:
			// Both sides of a migration may be "paused (migration)": the source for the instant of the hand-over, the
			// target once QEMU waits; before that the target is "paused (starting up)". Where the job does not show the
			// side, a VM that is not sent from here counts as not arrived: else it would count as here while it runs at
			// the source.
			job, err := dom.GetJobStats(0)
			if from || err == nil && job.OperationSet && job.Operation == libvirt.DOMAIN_JOB_OPERATION_MIGRATION_OUT {
				return hypervisor.Paused, false
			}
			// A target has a job from before its QEMU starts until its guest runs: libvirt then answers with an error here.
			return hypervisor.Incoming, libvirt.DomainPausedReason(reason) == libvirt.DOMAIN_PAUSED_MIGRATION && err == nil && job.Type == libvirt.DOMAIN_JOB_NONE
		case libvirt.DOMAIN_PAUSED_POSTCOPY, libvirt.DOMAIN_PAUSED_POSTCOPY_FAILED:
			// At a source: the guest runs at the target already, and some of its pages have yet to go. At a target: the guest waits for
			// such pages in vain.
			job, err := dom.GetJobStats(0)
			if !from && !(err == nil && job.OperationSet && job.Operation == libvirt.DOMAIN_JOB_OPERATION_MIGRATION_IN) {
				return hypervisor.Incoming, false
			}
		}
		return hypervisor.Paused, false
	}
	return hypervisor.Running, false
}

// cameIn reports whether a migration brought the VM, and its figures were not dropped since.
func cameIn(dom *libvirt.Domain) bool {
	info, err := dom.GetJobStats(libvirt.DOMAIN_JOB_STATS_COMPLETED | libvirt.DOMAIN_JOB_STATS_KEEP_COMPLETED)
	return err == nil && arrivalIn(info)
}

// lastStats is what a VM's statistics said last: while it is busy with a
// migration or another slow call, or the daemon has just been restarted, some are missing.
type lastStats struct {
	resident int64
	total    time.Duration
	guest    guestReport
	groups   groups
}

// Stats samples all VMs of ours in one call of libvirt, and waits for none
// that is busy.
func (h *Host) Stats(ctx context.Context) ([]hypervisor.Stats, error) {
	out, err := call(calling(ctx, "virConnectGetAllDomainStats", "", ""), h, h.opts.CallTimeout, func(c *libvirt.Connect) ([]hypervisor.Stats, error) {
		stats, err := c.GetAllDomainStats(nil,
			libvirt.DOMAIN_STATS_CPU_TOTAL|libvirt.DOMAIN_STATS_VCPU|libvirt.DOMAIN_STATS_BALLOON|libvirt.DOMAIN_STATS_BLOCK|libvirt.DOMAIN_STATS_INTERFACE,
			libvirt.CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE|libvirt.CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
		if err != nil {
			return nil, err
		}
		defer free(stats)
		at, all := time.Now(), &processes{proc: "/proc"}
		out := make([]hypervisor.Stats, 0, len(stats))
		for i := range stats {
			uuid, err := stats[i].Domain.GetUUIDString()
			if err != nil {
				return nil, err
			}
			vm, ok := h.lookupKnown(uuid)
			if !ok {
				if known, err := nameOf(stats[i].Domain); err == nil && uuid == uuidOf(known.VM) {
					h.remember(uuid, known)
					vm, ok = known, true
				}
			}
			if ok && complete(&stats[i]) {
				out = append(out, h.sample(&stats[i], vm, uuid, at, all))
			}
		}
		return out, nil
	})
	if err != nil {
		return nil, fmt.Errorf("sample VMs: %w", err)
	}
	return out, nil
}

// complete says whether the CPU time of all vCPUs is there: without, a VM's
// time would seem to fall.
func complete(s *libvirt.DomainStats) bool {
	for _, v := range s.Vcpu {
		if !v.TimeSet {
			return false
		}
	}
	return len(s.Vcpu) > 0
}

func (h *Host) sample(s *libvirt.DomainStats, vm knownVM, uuid string, at time.Time, all *processes) hypervisor.Stats {
	r := hypervisor.Stats{Identity: vm.Identity, Name: vm.name, At: at}
	for _, v := range s.Vcpu {
		r.VCPUTime += time.Duration(v.Time)
	}
	h.mu.Lock()
	last, ok := h.stats[uuid]
	h.mu.Unlock()
	if !ok {
		last.guest = noReport
	}
	if s.Cpu != nil && s.Cpu.TimeSet {
		last.total = time.Duration(s.Cpu.Time)
	}
	if b := s.Balloon; b != nil {
		r.Balloon = int64(b.Current) * 1024
		if b.RssSet {
			last.resident = int64(b.Rss) * 1024
		}
		last.guest.take(b, at)
	}
	r.Throttled = h.throttled(&last.groups, uuid, at, all)
	h.mu.Lock()
	if _, still := h.known[uuid]; still {
		h.stats[uuid] = last
	}
	h.mu.Unlock()
	g := last.guest
	g.unused, g.available = g.left(g.unused, r.Balloon), g.left(g.available, r.Balloon)
	if g.unused >= 0 || g.available >= 0 {
		r.Reported = g.at
	}
	r.Unused, r.Available, r.SwapIn, r.SwapOut, r.MajorFaults = g.stats()
	r.Resident, r.TotalTime = last.resident, max(last.total, r.VCPUTime)
	for _, b := range s.Block {
		r.ReadBytes += int64(b.RdBytes)
		r.WriteBytes += int64(b.WrBytes)
	}
	for _, n := range s.Net {
		r.ReceiveBytes += int64(n.RxBytes)
		r.TransmitBytes += int64(n.TxBytes)
	}
	return r
}
