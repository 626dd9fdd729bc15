// Package hostcheck says what is missing on a machine before it joins a cluster as a host, and how to mend it. Collect reads the
// machine; Findings judges what was read, and reads nothing itself. It changes nothing, but boots the machine's own kernel in a VM
// of KVM, which it ends.
package hostcheck

import (
	"fmt"
	"slices"
	"strings"
)

// Facts are what a machine says of itself.
type Facts struct {
	KVM           string   `json:"kvm"`           // why KVM cannot make a VM; "" if it can
	Boot          Boot     `json:"boot"`          // of a kernel, where KVM makes VMs
	Emulation     bool     `json:"emulation"`     // vcd.yaml lets VMs use no KVM
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
	Moves         Moves    `json:"moves"`         // what live migration needs
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
	case f.Emulation:
		return Finding{"kvm", Warning, "emulation: true: guests run in slow software emulation, whatever KVM there is", "remove emulation from vcd.yaml and restart vcd"}
	case f.KVM == "" && f.Libvirt == "" && !f.LibvirtKVM:
		return Finding{"kvm", Problem, "KVM makes VMs, but libvirt does not offer it", "systemctl restart libvirtd"}
	case f.KVM == "" && f.Boot.Kernel == "":
		return Finding{"kvm", Note, "KVM makes VMs; whether one boots was not tried: " + f.Boot.Why, ""}
	case f.KVM == "" && f.Boot.Why != "":
		return Finding{"kvm", Problem, fmt.Sprintf("KVM makes VMs, but %s does not boot in one: %s", f.Boot.Kernel, f.Boot.Why), "vcd's setting emulation: true, or another machine: this KVM runs no kernel"}
	case f.KVM == "" && f.Boot.Seconds > bootSlow.Seconds():
		return Finding{"kvm", Warning, fmt.Sprintf("%s needs %.0f s to boot with KVM, which takes at most 3 s on hardware: guests will be slow", f.Boot.Kernel, f.Boot.Seconds), "use a machine whose hypervisor passes virtualization on, or hardware"}
	case f.KVM == "":
		return Finding{"kvm", OK, fmt.Sprintf("%s boots with KVM in %.1f s", f.Boot.Kernel, f.Boot.Seconds), ""}
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
	for _, b := range badPairs {
		if b.when(f) {
			return Finding{"libvirt", Warning, f.Software + ": " + b.text, b.mend}
		}
	}
	return Finding{"libvirt", OK, f.Software, ""}
}

// badPairs are versions that do not go together, or with this machine, each with what was seen of them.
var badPairs = []struct {
	when       func(Facts) bool
	text, mend string
}{
	// Decision 0006: 11 of 12 guests came to harm with QEMU 7.2, none of 91 with 10.0.
	{func(f Facts) bool { return (f.Emulation || !f.LibvirtKVM) && older(f.version("QEMU"), 10, 0) }, "without KVM, a QEMU before 10.0 breaks guests that move while they run",
		"install the QEMU of Debian's backports, or use a machine with KVM"},
}

// version of libvirt or QEMU as Software has it, such as 7.2.22; "" if that is not known.
func (f Facts) version(of string) string {
	for part := range strings.SplitSeq(f.Software, ", ") {
		if v, ok := strings.CutPrefix(part, of+" "); ok {
			return v
		}
	}
	return ""
}

// older says whether a version is known, and before major.minor.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
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
	const page = "docs/how-to/set-up-live-migration.md"
	m := f.Moves
	switch {
	case m.Keyless:
		return Finding{"moves", Note, "migrateURI names no TLS: any host that reaches this libvirt controls it", ""}
	case len(m.Missing) > 0:
		return Finding{"moves", Warning, "VMs cannot move to and from this host: it has no " + strings.Join(m.Missing, ", "), page}
	case len(m.Expired) > 0:
		return Finding{"moves", Warning, "VMs cannot move to and from this host: not valid now are " + strings.Join(m.Expired, ", "), page}
	case !m.Listens:
		return Finding{"moves", Warning, fmt.Sprintf("the keys of live migration are there, but nothing listens on port %d for other hosts", m.Port),
			"systemctl stop libvirtd && systemctl enable --now libvirtd-tls.socket && systemctl start libvirtd"}
	case !m.Verifies:
		return Finding{"moves", Warning, "QEMU takes VMs from any host that reaches it: migrate_tls_x509_verify is not 1 in /etc/libvirt/qemu.conf", page}
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
