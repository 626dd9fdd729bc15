package machines

import "testing"

// TestMachine is what all else rests on: the machine is emulated, and has KVM, cgroup v2, systemd and a watchdog device.
func TestMachine(t *testing.T) {
	fresh(t, host)
}

func host(t *testing.T, m *Machine, s *site) {
	packages, err := s.img.Packages()
	if err != nil {
		t.Fatal(err)
	}
	report("machine under %s: kernel %s, libvirt %s, QEMU %s, systemd %s", s.img.Version, do(t, m, "uname -r"),
		packages["libvirt-daemon"], packages["qemu-system-x86"], packages["systemd"])
	for name, want := range map[string][2]string{
		"EmulatedOutside": {"systemd-detect-virt || true", "qemu"}, // "kvm" if another accelerator had been taken
		"CgroupV2":        {"stat -fc %T /sys/fs/cgroup", "cgroup2fs"},
		"Systemd":         {"cat /proc/1/comm", "systemd"},
		"KVM":             {"test -c /dev/kvm && lsmod | grep -o ^kvm_amd", "kvm_amd"},
		"NestedPaging":    {"cat /sys/module/kvm_amd/parameters/npt", "Y"},
		"AppArmor":        {"cat /sys/module/apparmor/parameters/enabled", "Y"},
		"WatchdogDevice":  {"cat /sys/class/watchdog/watchdog0/identity", "i6300ESB timer"},
		"NoWayOut":        {"cat /sys/class/watchdog/watchdog0/nowayout", "0"},
		"OneWatchdog":     {"ls /sys/class/watchdog", "watchdog0"},
		"WatchdogIsFree":  {"cat /sys/class/watchdog/watchdog0/state; find /proc/[0-9]*/fd -lname '/dev/watchdog*' 2>/dev/null || true", "inactive"},
	} {
		check(t, m, name, func(t *testing.T) {
			if got := do(t, m, "%s", want[0]); got != want[1] {
				t.Errorf("%s: %q, want %q", want[0], got, want[1])
			}
		})
	}
}
