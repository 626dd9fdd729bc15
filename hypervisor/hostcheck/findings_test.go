package hostcheck

import (
	"strings"
	"testing"
)

// fit is a machine on which there is nothing to mend.
func fit() Facts {
	return Facts{
		Boot:    Boot{Kernel: "/boot/vmlinuz", Seconds: 1.5},
		Virtual: true, Cgroup: 2, Controllers: []string{"cpuset", "cpu", "io", "memory"}, Software: "libvirt 9.0.0, QEMU 7.2.22", LibvirtKVM: true,
		ReportsPages: true, ClockSynced: true, Watchdog: "i6300ESB timer", Confined: true, StorageFree: 50 << 30, SwapTotal: 4 << 30, NUMANodes: 1,
		Moves: Moves{Port: 16514, Listens: true, Verifies: true},
	}
}

func TestFindings(t *testing.T) {
	for _, f := range Findings(fit()) {
		if f.Level != OK || f.Mend != "" || f.Text == "" {
			t.Errorf("a machine that is fit: %+v", f)
		}
	}
	for _, tt := range []struct {
		name  string
		spoil func(*Facts)
		check string
		level Level
		text  string // part of the finding's
		mend  string // likewise
	}{
		{"no module", func(f *Facts) { f.KVM = "no such file" }, "kvm", Problem, "no such file", "modprobe"},
		{"no virtualization", func(f *Facts) { f.KVM, f.Virtual = "no such file", false }, "kvm", Problem, "emulation", "firmware"},
		{"libvirt offers no KVM", func(f *Facts) { f.LibvirtKVM = false }, "kvm", Problem, "does not offer", "restart libvirtd"},
		{"KVM does not wait for libvirt", func(f *Facts) { f.LibvirtKVM, f.Libvirt = false, "refused" }, "kvm", OK, "boots with KVM in 1.5 s", ""},
		{"no kernel to boot", func(f *Facts) { f.Boot = Boot{Why: "there is no /boot/vmlinuz"} }, "kvm", Note, "not tried", ""},
		{"it does not boot", func(f *Facts) { f.Boot = Boot{Kernel: "/boot/vmlinuz", Why: "it was not up"} }, "kvm", Problem, "does not boot in one: it was not up", "emulation"},
		{"it boots slowly", func(f *Facts) { f.Boot.Seconds = 21 }, "kvm", Warning, "21 s", "hardware"},
		{"emulation is asked for", func(f *Facts) { f.Emulation, f.Boot, f.Software = true, Boot{}, "libvirt 9.0.0, QEMU 10.0.2" }, "kvm", Warning, "emulation: true", "remove emulation"},
		{"guests that break when they move", func(f *Facts) { f.KVM, f.LibvirtKVM = "no such file", false }, "libvirt", Warning, "before 10.0", "backports"},
		{"guests that do not", func(f *Facts) { f.LibvirtKVM, f.Software = false, "libvirt 9.0.0, QEMU 10.0.2" }, "libvirt", OK, "QEMU 10.0.2", ""},
		{"versions that are not known", func(f *Facts) { f.LibvirtKVM, f.Software = false, "a libvirt" }, "libvirt", OK, "a libvirt", ""},
		{"no groups", func(f *Facts) { f.Cgroup, f.Controllers = 0, nil }, "cgroups", Problem, "no control groups", "mount"},
		{"no memory controller", func(f *Facts) { f.Controllers = []string{"cpu"} }, "cgroups", Problem, "controller memory", "cgroup_disable"},
		{"version 1", func(f *Facts) { f.Cgroup = 1 }, "cgroups", OK, "v1", ""},
		{"no libvirt", func(f *Facts) { f.Libvirt = "refused" }, "libvirt", Problem, "refused", "apt-get install libvirt"},
		{"no libvirt, no balloon", func(f *Facts) { f.Libvirt = "refused" }, "balloon", Note, "not known", ""},
		{"old QEMU", func(f *Facts) { f.ReportsPages = false }, "balloon", Warning, "5.1", "apt-get"},
		{"own time", func(f *Facts) { f.ClockSynced = false }, "clock", Warning, "no time source", "chrony"},
		{"no watchdog", func(f *Facts) { f.Watchdog = "" }, "watchdog", Warning, "fence device", "set-up-a-watchdog"},
		{"no way out", func(f *Facts) { f.NoWayOut = true }, "watchdog", Warning, "nowayout", "set-up-a-watchdog"},
		{"no keys", func(f *Facts) { f.Moves.Missing = []string{"/etc/a", "/etc/b"} }, "moves", Warning, "/etc/a, /etc/b", "set-up-live-migration"},
		{"keys that have run out", func(f *Facts) { f.Moves.Expired = []string{"/etc/a.pem"} }, "moves", Warning, "not valid now are /etc/a.pem", "set-up-live-migration"},
		{"nothing listens", func(f *Facts) { f.Moves.Listens = false }, "moves", Warning, "port 16514", "libvirtd-tls.socket"},
		{"QEMU asks for nothing", func(f *Facts) { f.Moves.Verifies = false }, "moves", Warning, "migrate_tls_x509_verify", "set-up-live-migration"},
		{"no TLS", func(f *Facts) { f.Moves = Moves{Keyless: true} }, "moves", Note, "no TLS", ""},
		{"not confined", func(f *Facts) { f.Confined = false }, "confinement", Warning, "AppArmor", "apt-get install apparmor"},
		{"full", func(f *Facts) { f.StorageFree = 9 << 30 }, "storage", Warning, "9.0 GiB", "mount"},
		{"no images", func(f *Facts) { f.StorageFree = -1 }, "storage", Note, "not there", "apt-get"},
		{"no swap", func(f *Facts) { f.SwapTotal = 0 }, "swap", Note, "no swap", ""},
		{"nodes", func(f *Facts) { f.NUMANodes = 2 }, "numa", Note, "2 nodes", ""},
		{"huge pages", func(f *Facts) { f.HugePagesSize = 2 << 30 }, "hugepages", Warning, "2.0 GiB", "nr_hugepages=0"},
	} {
		facts := fit()
		tt.spoil(&facts)
		found := 0
		for _, f := range Findings(facts) {
			if f.Check != tt.check {
				continue
			}
			found++
			if f.Level != tt.level || !strings.Contains(f.Text, tt.text) || !strings.Contains(f.Mend, tt.mend) || (f.Mend == "") != (tt.mend == "") {
				t.Errorf("%s: %+v", tt.name, f)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d findings of %s", tt.name, found, tt.check)
		}
	}
}

func TestWorst(t *testing.T) {
	if got := Worst([]Finding{{Level: OK}, {Level: Warning}, {Level: Note}}); got != Warning {
		t.Errorf("%q, want a warning", got)
	}
	if got := Worst(nil); got != OK {
		t.Errorf("of nothing: %q", got)
	}
}
