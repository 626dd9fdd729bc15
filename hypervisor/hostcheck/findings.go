// Package hostcheck says what is missing on a machine before it joins a cluster as a host, and how to mend it. Collect reads the
// machine; Findings judges what was read, and reads nothing itself. It changes nothing, but makes one VM of KVM without
// memory and drops it.
package hostcheck

import (
	"fmt"
	"slices"
	"strings"
)

// Facts are what a machine says of itself.
type Facts struct {
	KVM           string   `json:"kvm"`           // why KVM cannot make a VM; "" if it can
	Virtual       bool     `json:"virtual"`       // the CPU offers virtualization
	Cgroup        int      `json:"cgroup"`        // version, 1 or 2; 0 if there are none
	Controllers   []string `json:"controllers"`   // of control groups
	Libvirt       string   `json:"libvirt"`       // why it does not answer; "" if it does
	Software      string   `json:"software"`      // versions of libvirt and QEMU; "" without an answer
	LibvirtKVM    bool     `json:"libvirtKVM"`    // libvirt offers KVM
	ReportsPages  bool     `json:"reportsPages"`  // guests give back what they free, through their balloon
	ClockSynced   bool     `json:"clockSynced"`   // the kernel's clock follows a time source
	Watchdog      string   `json:"watchdog"`      // identity of the device; "" if there is none
	NoWayOut      bool     `json:"noWayOut"`      // the watchdog cannot be disarmed
	MissingKeys   []string `json:"missingKeys"`   // files that live migration needs
	Confined      bool     `json:"confined"`      // AppArmor or SELinux is in force
	StorageFree   int64    `json:"storageFree"`   // bytes where VMs have their disks; -1 if that is not known
	SwapTotal     int64    `json:"swapTotal"`     // bytes
	NUMANodes     int      `json:"numaNodes"`     // 0 if that is not known
	HugePagesSize int64    `json:"hugePagesSize"` // bytes set aside as huge pages, which VMs of Evenkeel do not use
}

// Level says how bad a finding is.
type Level string

const (
	OK      Level = "ok"
	Note    Level = "note"    // nothing to mend, but good to know
	Warning Level = "warning" // part of Evenkeel will not work here
	Problem Level = "problem" // no VM can run here as it should
)

// Finding is one thing that was checked.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Mend  string `json:"mend,omitempty"` // a command, or where it is described; "" if there is nothing to do
}

// minStorage is as much as a cloud image and its first VMs take, bytes.
const minStorage = 10 << 30

const installLibvirt = "apt-get install libvirt-daemon-system qemu-system-x86 qemu-utils && systemctl enable --now libvirtd"

// Findings are one for each check, in the order in which they are to be mended.
func Findings(f Facts) []Finding {
	return []Finding{f.kvm(), f.groups(), f.libvirt(), f.balloon(), f.clock(), f.watchdog(), f.moves(), f.confinement(), f.storage(), f.swap(), f.numa(), f.hugePages()}
}

// Worst is the worst level among findings.
func Worst(findings []Finding) Level {
	order := []Level{OK, Note, Warning, Problem}
	worst := 0
	for _, f := range findings {
		worst = max(worst, slices.Index(order, f.Level))
	}
	return order[worst]
}

func (f Facts) kvm() Finding {
	switch {
	case f.KVM == "" && f.Libvirt == "" && !f.LibvirtKVM:
		return Finding{"kvm", Problem, "KVM makes VMs, but libvirt does not offer it", "systemctl restart libvirtd"}
	case f.KVM == "":
		return Finding{"kvm", OK, "KVM makes VMs; whether guests run at speed shows only when one boots", ""}
	case f.Virtual:
		return Finding{"kvm", Problem, "the CPU offers virtualization, but KVM is not usable: " + f.KVM, "modprobe kvm_intel || modprobe kvm_amd"}
	}
	return Finding{"kvm", Problem, "the CPU offers no virtualization, and guests run in slow software emulation: " + f.KVM, "enable VT-x or AMD-V in the firmware; of a VM, nested virtualization"}
}

func (f Facts) groups() Finding {
	var missing []string
	for _, c := range []string{"cpu", "memory"} {
		if !slices.Contains(f.Controllers, c) {
			missing = append(missing, c)
		}
	}
	switch {
	case f.Cgroup == 0:
		return Finding{"cgroups", Problem, "no control groups are mounted: caps cannot be set", "mount -t cgroup2 cgroup2 /sys/fs/cgroup"}
	case len(missing) > 0:
		return Finding{"cgroups", Problem, fmt.Sprintf("cgroup v%d has no controller %s: caps and weights need cpu, figures need memory", f.Cgroup, strings.Join(missing, ", ")),
			"remove cgroup_disable= from the kernel's command line, and update-grub && reboot"}
	}
	return Finding{"cgroups", OK, fmt.Sprintf("cgroup v%d with cpu and memory", f.Cgroup), ""}
}

func (f Facts) libvirt() Finding {
	if f.Libvirt != "" {
		return Finding{"libvirt", Problem, "libvirt does not answer: " + f.Libvirt, installLibvirt}
	}
	return Finding{"libvirt", OK, f.Software, ""}
}

func (f Facts) balloon() Finding {
	switch {
	case f.Libvirt != "":
		return Finding{"balloon", Note, "not known without libvirt", ""}
	case !f.ReportsPages:
		return Finding{"balloon", Warning, "guests do not give back memory that they free by themselves: that needs libvirt 6.9 and QEMU 5.1", "apt-get install libvirt-daemon-system qemu-system-x86"}
	}
	return Finding{"balloon", OK, "guests give back memory that they free", ""}
}

func (f Facts) clock() Finding {
	if !f.ClockSynced {
		return Finding{"clock", Warning, "the clock follows no time source: certificates and histories need the time", "apt-get install chrony"}
	}
	return Finding{"clock", OK, "the clock follows a time source", ""}
}

func (f Facts) watchdog() Finding {
	const page = "docs/how-to/set-up-a-watchdog.md"
	switch {
	case f.Watchdog == "":
		return Finding{"watchdog", Warning, "there is no watchdog: VMs restart elsewhere only if a fence device or an operator proves this host dead", page + ", or docs/how-to/set-up-fence-devices.md"}
	case f.NoWayOut:
		return Finding{"watchdog", Warning, f.Watchdog + " cannot be disarmed (nowayout): it resets the host whenever vcd wants that", page}
	}
	return Finding{"watchdog", OK, f.Watchdog, ""}
}

func (f Facts) moves() Finding {
	if len(f.MissingKeys) > 0 {
		return Finding{"moves", Warning, "VMs cannot move to and from this host: it has no " + strings.Join(f.MissingKeys, ", "), "docs/how-to/set-up-live-migration.md"}
	}
	return Finding{"moves", OK, "the keys of live migration are there", ""}
}

func (f Facts) confinement() Finding {
	if !f.Confined {
		return Finding{"confinement", Warning, "neither AppArmor nor SELinux confines guests: one that breaks out of QEMU reaches the others", "apt-get install apparmor && systemctl restart libvirtd"}
	}
	return Finding{"confinement", OK, "AppArmor or SELinux is in force", ""}
}

func (f Facts) storage() Finding {
	switch {
	case f.StorageFree < 0:
		return Finding{"storage", Note, StorageDir + " is not there yet", installLibvirt}
	case f.StorageFree < minStorage:
		return Finding{"storage", Warning, fmt.Sprintf("%s has %s free, less than %s", StorageDir, gib(f.StorageFree), gib(minStorage)), "mount a larger file system at " + StorageDir}
	}
	return Finding{"storage", OK, fmt.Sprintf("%s has %s free", StorageDir, gib(f.StorageFree)), ""}
}

func (f Facts) swap() Finding {
	if f.SwapTotal == 0 {
		return Finding{"swap", Note, "no swap: where guests take back more than the reserve, the kernel ends one of them", ""}
	}
	return Finding{"swap", OK, gib(f.SwapTotal), ""}
}

func (f Facts) numa() Finding {
	if f.NUMANodes > 1 {
		return Finding{"numa", Note, fmt.Sprintf("%d nodes: Evenkeel counts the host as one, and the kernel places VMs on nodes", f.NUMANodes), ""}
	}
	return Finding{"numa", OK, "one node", ""}
}

func (f Facts) hugePages() Finding {
	if f.HugePagesSize > 0 {
		return Finding{"hugepages", Warning, gib(f.HugePagesSize) + " are set aside as huge pages, which VMs of Evenkeel do not use, but the allowance counts", "sysctl vm.nr_hugepages=0"}
	}
	return Finding{"hugepages", OK, "none set aside", ""}
}

func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
