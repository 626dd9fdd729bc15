package libvirt

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

const (
	period    = 100_000   // microseconds over which a quota is counted
	maxPeriod = 1_000_000 // the kernel's longest
	minQuota  = 1_000     // the kernel's least

	// marginCores and marginFraction are what QEMU's own threads may use beyond the cap where one
	// quota covers them and the vCPUs together. A guest that is busy computing costs its
	// emulator 0.01 to 0.02 cores (timers, balloon statistics, console), one
	// busy with I/O more, in proportion to its I/O.
	marginCores    = 0.02
	marginFraction = 0.02

	// headroom is added to the quota of a vCPU that may use a whole core. A thread cannot use more
	// than one core, so this allows no more CPU, while a quota of exactly one
	// core makes the kernel throttle the thread for the rest of every period in
	// which its clock ran slightly ahead.
	headroom = 0.05

	// sharesPerCore are the shares of one core. On cgroup v1 1024 is the kernel's default; v2 counts
	// weights from 1 to 10000 around a default of 100.
	sharesPerCoreV1, minSharesV1, maxSharesV1 = 1024.0, 2, 262144
	sharesPerCoreV2, minSharesV2, maxSharesV2 = 100.0, 1, 10000
)

// sched is a VM's CPU share in libvirt's terms. Quotas are in microseconds per
// period; -1 is none.
type sched struct {
	Shares       uint64
	VCPUPeriod   uint64
	VCPUQuota    int64 // of each vCPU; QEMU's other threads do not count
	GlobalPeriod uint64
	GlobalQuota  int64 // of the VM with all its threads
}

// schedParams says how a CPU share is enforced.
//
// One vCPU: its thread gets the cap as quota, and QEMU's other threads none, so
// that they cannot stall the vCPU. Several vCPUs: any one of them may use the whole
// cap, so the quota is that of the whole VM, with a margin for QEMU's own
// threads. A quota below the kernel's least of 1 ms is spread over a longer
// period, down to 0.001 core. Cap 0 is no quota at all.
//
// The weight becomes shares in proportion, within the bounds of the cgroup
// version (1 or 2); weight 0 is the weight of one core, libvirt's default.
func schedParams(vcpus int, cpu hypervisor.CPU, cgroup int) sched {
	s := sched{Shares: shares(cpu.Weight, cgroup), VCPUPeriod: period, VCPUQuota: -1, GlobalPeriod: period, GlobalQuota: -1}
	switch {
	case cpu.Cap <= 0:
	case vcpus <= 1:
		s.VCPUPeriod, s.VCPUQuota = quota(withMargin(vcpus, cpu.Cap))
	default:
		s.GlobalPeriod, s.GlobalQuota = quota(withMargin(vcpus, cpu.Cap))
	}
	return s
}

// cpu is the inverse of schedParams: caps to within 1e-5 core (quotas are whole
// microseconds), weights to one share. It also reads the quotas of VMs that are
// not ours, for which nothing is taken off as a margin.
func (s sched) cpu(vcpus int, cgroup int, ours bool) hypervisor.CPU {
	c := hypervisor.CPU{Weight: weight(s.Shares, cgroup)}
	if r := ratio(s.GlobalQuota, s.GlobalPeriod); r > 0 {
		c.Cap = r
		if ours && vcpus > 1 {
			c.Cap = (r - marginCores) / (1 + marginFraction)
		}
	}
	if r := ratio(s.VCPUQuota, s.VCPUPeriod); r > 0 {
		if ours && vcpus <= 1 && r >= 1+headroom-1e-9 {
			r -= headroom
		}
		all := r * float64(max(vcpus, 1))
		if c.Cap == 0 || all < c.Cap {
			c.Cap = all
		}
	}
	c.Cap = math.Round(c.Cap*1e6) / 1e6
	return c
}

func withMargin(vcpus int, cores float64) float64 {
	switch {
	case vcpus > 1:
		return cores + marginCores + marginFraction*cores
	case cores >= 1:
		return cores + headroom
	}
	return cores
}

// quota is cores as microseconds per period.
func quota(cores float64) (uint64, int64) {
	p := float64(period)
	if cores*p < minQuota {
		p = math.Min(maxPeriod, math.Ceil(minQuota/cores))
	}
	return uint64(p), int64(math.Max(minQuota, math.Round(cores*p)))
}

// ratio is the cores a quota stands for; 0 if there is none. libvirt's
// greatest quota (2^44-1 us) is how some remove one.
func ratio(quota int64, period uint64) float64 {
	if quota <= 0 || period == 0 || quota >= noQuota {
		return 0
	}
	return float64(quota) / float64(period)
}

// noQuota is the greatest quota that libvirt and the kernel take. libvirt 8.3 on
// cgroup v2 refuses -1, and understands this.
const noQuota = 1<<44 - 1

func shares(cores float64, cgroup int) uint64 {
	if cores <= 0 {
		cores = 1
	}
	if cgroup == 2 {
		return uint64(min(max(math.Round(cores*sharesPerCoreV2), minSharesV2), maxSharesV2))
	}
	return uint64(min(max(math.Round(cores*sharesPerCoreV1), minSharesV1), maxSharesV1))
}

func weight(shares uint64, cgroup int) float64 {
	if cgroup == 2 {
		return float64(shares) / sharesPerCoreV2
	}
	return float64(shares) / sharesPerCoreV1
}

// tune is s in the XML a VM is started with: what is not limited is left out.
func (s sched) tune() *libvirtxml.DomainCPUTune {
	t := &libvirtxml.DomainCPUTune{Shares: &libvirtxml.DomainCPUTuneShares{Value: uint(s.Shares)}}
	if s.VCPUQuota > 0 {
		t.Period = &libvirtxml.DomainCPUTunePeriod{Value: s.VCPUPeriod}
		t.Quota = &libvirtxml.DomainCPUTuneQuota{Value: s.VCPUQuota}
	}
	if s.GlobalQuota > 0 {
		t.GlobalPeriod = &libvirtxml.DomainCPUTunePeriod{Value: s.GlobalPeriod}
		t.GlobalQuota = &libvirtxml.DomainCPUTuneQuota{Value: s.GlobalQuota}
	}
	return t
}

// apply puts s in force on a running VM. Only the kind of quota that the VM's number of
// vCPUs calls for is touched: the other was never set.
func (s sched) apply(dom *libvirt.Domain, vcpus int) error {
	p := &libvirt.DomainSchedulerParameters{CpuSharesSet: true, CpuShares: s.Shares}
	if vcpus <= 1 {
		p.VcpuPeriodSet, p.VcpuPeriod, p.VcpuQuotaSet, p.VcpuQuota = true, s.VCPUPeriod, true, s.VCPUQuota
	} else {
		p.GlobalPeriodSet, p.GlobalPeriod, p.GlobalQuotaSet, p.GlobalQuota = true, s.GlobalPeriod, true, s.GlobalQuota
	}
	err := dom.SetSchedulerParametersFlags(p, libvirt.DOMAIN_AFFECT_LIVE)
	if err == nil || s.VCPUQuota > 0 || s.GlobalQuota > 0 {
		return err
	}
	// Some releases know "none" only as the greatest quota there is.
	p.VcpuQuota, p.GlobalQuota = noQuota, noQuota
	if dom.SetSchedulerParametersFlags(p, libvirt.DOMAIN_AFFECT_LIVE) == nil {
		return nil
	}
	return err
}

// readSched is what is in force on a running VM now.
func readSched(dom *libvirt.Domain) (sched, error) {
	p, err := dom.GetSchedulerParametersFlags(libvirt.DOMAIN_AFFECT_LIVE)
	if err != nil {
		return sched{}, err
	}
	return sched{
		Shares: p.CpuShares, VCPUPeriod: p.VcpuPeriod, VCPUQuota: p.VcpuQuota,
		GlobalPeriod: p.GlobalPeriod, GlobalQuota: p.GlobalQuota,
	}, nil
}

// checkCPU refuses a share that is no number or negative.
func checkCPU(c hypervisor.CPU) error {
	for _, v := range []struct {
		name  string
		value float64
	}{{"cap", c.Cap}, {"weight", c.Weight}} {
		if !(v.value >= 0) || math.IsInf(v.value, 0) {
			return fmt.Errorf("CPU %s of %v cores: %w", v.name, v.value, hypervisor.ErrInvalid)
		}
	}
	return nil
}

// detectCgroup finds the version of the control groups that has the CPU
// controller mounted under root. Where both versions are mounted libvirt takes
// v1 for what is there.
func detectCgroup(root string) int {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return 2
	}
	for _, dir := range []string{"cpu", "cpu,cpuacct", "cpuacct,cpu"} {
		if _, err := os.Stat(filepath.Join(root, dir, "cpu.shares")); err == nil {
			return 1
		}
	}
	if _, err := os.Stat(filepath.Join(root, "unified", "cgroup.controllers")); err == nil {
		return 2
	}
	return 1
}
