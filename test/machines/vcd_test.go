package machines

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// config is what an operator adds to the shipped vcd.yaml on this host.
const config = `advertise: 10.0.2.15:7480
watchdog: {device: /dev/watchdog, timeout: 15s}
`

// cluster installs Evenkeel's packages in a machine and makes a cluster of this one host, with the test guest in the catalogue.
func cluster(t *testing.T, m *Machine, s *site) {
	t.Helper()
	install(t, m, s, config)
	do(t, m, "vcctl cluster init")
	catalogue(t, m)
}

// install installs Evenkeel's packages, as the docs say, adds to the shipped vcd.yaml, and starts vcd.
func install(t *testing.T, m *Machine, s *site, config string) {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(s.root, "build", "packages", "*.deb"))
	if err != nil || len(debs) != 2 {
		t.Fatalf("packages: %q, %v: run make packages", debs, err)
	}
	for _, deb := range debs {
		must(t, m, m.Copy(t.Context(), deb, "/srv/packages/"+filepath.Base(deb), "644"))
	}
	began := time.Now()
	do(t, m, "apt-get install -q -y /srv/packages/*.deb")
	report("%s: packages installed in %s", t.Name(), time.Since(began).Round(time.Second))
	m.watched.Store(strings.Contains(config, "watchdog:"))
	do(t, m, "cat >>/etc/evenkeel/vcd.yaml <<'END'\n%sEND", config)
	do(t, m, "systemctl enable --now vcd")
}

// catalogue adds the test guest, whose files are at the same path in every machine.
func catalogue(t *testing.T, m *Machine) {
	t.Helper()
	do(t, m, "vcctl image add tiny-initrd --kind initrd --file /srv/guest/initrd.img")
	do(t, m, "vcctl image add tiny --kind kernel --file /srv/guest/vmlinuz --initrd tiny-initrd --cmdline 'console=ttyS0 quiet panic=-1 ek.burn=1'")
}

// create runs a virtual cluster of busy guests and waits until they run.
func create(t *testing.T, m *Machine, name string, count int, more string) {
	t.Helper()
	file := fmt.Sprintf("name: %s\nminYield: 0.3\n%sgroups:\n  - {name: vm, count: %d, cpu: 1, memory: 128MiB, image: tiny}\n", name, more, count)
	must(t, m, m.Write(t.Context(), file, "/srv/"+name+".yaml"))
	do(t, m, "vcctl vc create -f /srv/%s.yaml --wait", name)
}

// guests are the processes of the machine's guests, with the times at which they began.
func guests(t *testing.T, m *Machine) string {
	t.Helper()
	return do(t, m, "ps -o pid=,lstart= -C qemu-system-x86_64 || true")
}

// goOn checks that the same guests run as before and use CPU.
func goOn(t *testing.T, m *Machine, before string) {
	t.Helper()
	if after := guests(t, m); after != before || before == "" {
		t.Fatalf("guests were\n%s\nand are\n%s", before, after)
	}
	first := do(t, m, "cat /sys/fs/cgroup/machine.slice/cpu.stat | sed -n 's/usage_usec //p'")
	await(t, m, "the guests use CPU", "cat /sys/fs/cgroup/machine.slice/cpu.stat | sed -n 's/usage_usec //p'", func(out string) bool { return out > first || len(out) > len(first) })
}

// ready waits until the cluster says that its host and so many VMs are well.
func ready(t *testing.T, m *Machine, vms int) {
	t.Helper()
	await(t, m, "vcd serves, and VMs run", "vcctl host list -o json | grep -c '\"state\": *\"ready\"' && vcctl vm list -o json | grep -c '\"state\": *\"running\"'", func(out string) bool {
		return out == fmt.Sprintf("1\n%d", vms)
	})
}

func TestVcd(t *testing.T) {
	t.Run("Unit", func(t *testing.T) { fresh(t, unit) })
	t.Run("Watchdog", func(t *testing.T) { fresh(t, watchdog) })
	t.Run("NoWayOut", func(t *testing.T) {
		if testing.Short() {
			left(t, "DisarmingResets", short)
			return
		}
		fresh(t, noWayOut)
	})
	t.Run("PowerCut", func(t *testing.T) {
		if testing.Short() {
			left(t, "BootsAgain", short)
			return
		}
		fresh(t, powerCut)
	})
}

// unit goes through the life of vcd under its shipped unit: guests go on through all of it.
func unit(t *testing.T, m *Machine, s *site) {
	cluster(t, m, s)
	hostCheck(t, m)
	create(t, m, "web", 2, "")
	ready(t, m, 2)
	before := guests(t, m)
	check(t, m, "KVMDomains", func(t *testing.T) {
		if got := do(t, m, "for d in $(virsh -q list --name); do virsh dumpxml $d | grep -o \"<domain type='kvm'\"; done | wc -l"); got != "2" {
			t.Errorf("%s domains of type kvm, want 2", got)
		}
	})
	check(t, m, "CapsInTheKernel", func(t *testing.T) {
		// 1.75 cores may be used, and the two need one each.
		await(t, m, "each vCPU has its quota", "cat /sys/fs/cgroup/machine.slice/*.scope/libvirt/vcpu0/cpu.max", func(out string) bool {
			return out == "87500 100000\n87500 100000"
		})
	})
	check(t, m, "AppArmorConfinesGuests", func(t *testing.T) {
		if got := do(t, m, "for p in $(pgrep qemu-system); do cat /proc/$p/attr/current; done | grep -c 'libvirt-.* (enforce)'"); got != "2" {
			t.Errorf("%s guests are confined by AppArmor, want 2", got)
		}
	})
	pid := func(t *testing.T) string { return do(t, m, "systemctl show --property MainPID --value vcd") }
	for _, step := range []struct {
		name, command string
		check         func(*testing.T, *Machine, string, func(*testing.T))
	}{
		{"Restart", "systemctl restart vcd", always},
		{"Kill", "kill -9 $(systemctl show --property MainPID --value vcd)", always},
		{"Upgrade", "apt-get install -q -y --reinstall /srv/packages/evenkeel-vcd_*.deb", inFull},
		{"LibvirtRestart", "systemctl restart libvirtd; systemctl restart vcd", inFull},
	} {
		step.check(t, m, step.name, func(t *testing.T) {
			old := pid(t)
			began := time.Now()
			do(t, m, "%s", step.command)
			await(t, m, "another vcd serves", "systemctl is-active vcd >/dev/null && systemctl show --property MainPID --value vcd", func(now string) bool { return now != old && now != "0" })
			ready(t, m, 2)
			report("%s: %s: ready again after %.0f s", t.Name(), step.command, time.Since(began).Seconds())
			goOn(t, m, before)
		})
	}
	inFull(t, m, "Stop", func(t *testing.T) {
		do(t, m, "systemctl stop vcd")
		if state := do(t, m, "systemctl is-active vcd || true"); state != "inactive" {
			t.Fatalf("vcd is %s after the stop", state)
		}
		goOn(t, m, before)
		do(t, m, "systemctl start vcd")
		ready(t, m, 2)
		goOn(t, m, before)
	})
	check(t, m, "Scopes", func(t *testing.T) {
		if got := do(t, m, "cat /proc/$(pgrep -o qemu-system)/cgroup"); !strings.HasPrefix(got, `0::/machine.slice/machine-qemu\x2d`) {
			t.Errorf("a guest is in %s, outside of machined's slice", got)
		}
	})
	check(t, m, "Delete", func(t *testing.T) {
		do(t, m, "vcctl vc delete web --wait")
		if left := guests(t, m); left != "" {
			t.Errorf("left after the deletion: %s", left)
		}
	})
}

// hostCheck has vcd say what the host lacks. Its KVM boots a kernel, slower than hardware.
func hostCheck(t *testing.T, m *Machine) {
	check(t, m, "HostCheck", func(t *testing.T) {
		var said struct {
			Findings []struct{ Check, Level, Text string } `json:"findings"`
			Facts    struct {
				Boot struct {
					Seconds float64 `json:"seconds"`
				} `json:"boot"`
			} `json:"facts"`
		}
		text := do(t, m, "vcd check -o json || true")
		if err := json.Unmarshal([]byte(text), &said); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		levels := map[string]string{}
		for _, f := range said.Findings {
			levels[f.Check] = f.Level
			t.Logf("%s: %s: %s", f.Level, f.Check, f.Text)
		}
		want := map[string]string{"cgroups": "ok", "libvirt": "ok", "balloon": "ok", "watchdog": "ok", "confinement": "ok", "moves": "warning"}
		for name, level := range want {
			if levels[name] != level {
				t.Errorf("vcd check says %q of %s, want %q: %s", levels[name], name, level, text)
			}
		}
		if levels["kvm"] == "problem" || said.Facts.Boot.Seconds <= 0 {
			t.Errorf("vcd check booted no kernel with KVM: %s", text)
		}
		report("vcd check boots the machine's own kernel with KVM in %.1f s, and calls that %s", said.Facts.Boot.Seconds, levels["kvm"])
	})
}

func always(t *testing.T, m *Machine, name string, f func(*testing.T)) { check(t, m, name, f) }

// watchdog stops vcd while restartable VMs run: the device resets the machine.
func watchdog(t *testing.T, m *Machine, s *site) {
	cluster(t, m, s)
	armed := func(t *testing.T) float64 {
		var host struct {
			Watchdog float64 `json:"watchdog"`
		}
		text := do(t, m, "vcctl host get machine -o json")
		if err := json.Unmarshal([]byte(text), &host); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return host.Watchdog
	}
	check(t, m, "NotArmedBefore", func(t *testing.T) {
		if got := armed(t); got != 0 {
			t.Errorf("armed with %v s without a restartable VM", got)
		}
	})
	create(t, m, "db", 1, "onHostLoss: restart\n")
	check(t, m, "Armed", func(t *testing.T) {
		if got := armed(t); got < 14 || got > 16 {
			t.Errorf("the watchdog bites after %v s, want 15", got)
		}
		if got := do(t, m, "cat /sys/class/watchdog/watchdog0/state"); got != "active" {
			t.Errorf("the kernel says %q of the device", got)
		}
	})
	check(t, m, "RestartWithinTheTimeOut", func(t *testing.T) {
		do(t, m, "systemctl restart vcd")
		ready(t, m, 1)
		if n := len(m.Events("WATCHDOG")); n > 0 {
			t.Fatal("the watchdog bit while vcd was restarted")
		}
		if got := armed(t); got < 14 {
			t.Errorf("after the restart it is armed with %v s", got)
		}
	})
	inFull(t, m, "FencingDisabledForAnUpgrade", func(t *testing.T) {
		before := guests(t, m)
		do(t, m, "vcctl cluster fencing disable -m upgrade")
		await(t, m, "the watchdog is disarmed", "cat /sys/class/watchdog/watchdog0/state", func(out string) bool { return out == "inactive" })
		do(t, m, "systemctl stop vcd && sleep 20 && apt-get install -q -y --reinstall /srv/packages/evenkeel-vcd_*.deb && systemctl start vcd")
		if n := len(m.Events("WATCHDOG")); n > 0 {
			t.Fatal("the watchdog bit while fencing was disabled and vcd was stopped")
		}
		ready(t, m, 1)
		goOn(t, m, before)
		if got := do(t, m, "cat /sys/class/watchdog/watchdog0/state"); got != "inactive" {
			t.Errorf("the device is %s after the upgrade, and fencing is disabled", got)
		}
		do(t, m, "vcctl cluster fencing enable")
		await(t, m, "the watchdog is armed again", "cat /sys/class/watchdog/watchdog0/state", func(out string) bool { return out == "active" })
	})
	boot := do(t, m, "cat /proc/sys/kernel/random/boot_id")
	bitten := check(t, m, "Bites", func(t *testing.T) {
		do(t, m, "kill -STOP $(systemctl show --property MainPID --value vcd)")
		stopped := time.Now()
		err := m.Until(t.Context(), 2*time.Minute, "the watchdog bites", func() string { return "" }, func() bool { return len(m.Events("WATCHDOG")) > 0 && len(m.Events("RESET")) > 0 })
		must(t, m, err)
		after := m.Events("WATCHDOG")[0].At.Sub(stopped)
		report("SIGSTOP of vcd with restartable VMs: the watchdog resets the machine after %.1f s", after.Seconds())
		if after > 16*time.Second {
			t.Errorf("it bit after %s, with a time-out of 15 s", after)
		}
	})
	if !bitten {
		return
	}
	check(t, m, "BootsAgain", func(t *testing.T) {
		m.hangUp()
		must(t, m, m.Ready(t.Context()))
		if again := do(t, m, "cat /proc/sys/kernel/random/boot_id"); again == boot {
			t.Error("the same boot as before")
		}
		ready(t, m, 1)
		var list struct {
			Items []struct {
				Generation uint64 `json:"generation"`
			} `json:"items"`
		}
		if err := json.Unmarshal([]byte(do(t, m, "vcctl vm list -o json")), &list); err != nil || len(list.Items) != 1 || list.Items[0].Generation != 2 {
			t.Errorf("VMs after the reset: %+v, %v; want one, of generation 2", list.Items, err)
		}
		report("the machine is up and the VM runs again %.0f s after the reset", time.Since(m.Events("RESET")[0].At).Seconds())
	})
}

// noWayOut has a kernel that stops no watchdog: the host is reset when vcd disarms it, as vcd check and the documentation say.
func noWayOut(t *testing.T, m *Machine, s *site) {
	do(t, m, "modprobe -r i6300esb && modprobe i6300esb nowayout=1")
	cluster(t, m, s)
	check(t, m, "HostCheckWarns", func(t *testing.T) {
		if got := do(t, m, "vcd check | grep ^warning.*watchdog"); !strings.Contains(got, "nowayout") {
			t.Errorf("vcd check says %q", got)
		}
	})
	create(t, m, "db", 1, "onHostLoss: restart\n")
	await(t, m, "the watchdog is armed", "cat /sys/class/watchdog/watchdog0/state", func(out string) bool { return out == "active" })
	check(t, m, "DisarmingResets", func(t *testing.T) {
		do(t, m, "vcctl vc delete db --wait")
		deleted := time.Now()
		err := m.Until(t.Context(), 2*time.Minute, "the watchdog bites", func() string { return "" }, func() bool { return len(m.Events("WATCHDOG")) > 0 && len(m.Events("RESET")) > 0 })
		must(t, m, err)
		report("nowayout: the watchdog resets the machine %.1f s after its last restartable VM was deleted", m.Events("WATCHDOG")[0].At.Sub(deleted).Seconds())
	})
	check(t, m, "BootsAgain", func(t *testing.T) {
		m.hangUp()
		must(t, m, m.Ready(t.Context()))
		await(t, m, "the host is ready without VMs", "vcctl host list -o json | grep -c '\"state\": *\"ready\"'; vcctl vm list -o json | grep -c '\"state\"' || true", func(out string) bool { return out == "1\n0" })
	})
}

// powerCut cuts the power while VMs run and right after a write was acknowledged: the host comes back with all of it.
func powerCut(t *testing.T, m *Machine, s *site) {
	cluster(t, m, s)
	create(t, m, "web", 1, "")
	create(t, m, "db", 1, "onHostLoss: restart\n")
	ready(t, m, 2)
	boot := do(t, m, "cat /proc/sys/kernel/random/boot_id")
	do(t, m, "vcctl vc scale web --group vm --count 2")
	must(t, m, m.Cut(t.Context()))
	cut := time.Now()
	check(t, m, "BootsAgain", func(t *testing.T) {
		must(t, m, m.Ready(t.Context()))
		if again := do(t, m, "cat /proc/sys/kernel/random/boot_id"); again == boot {
			t.Error("the same boot as before")
		}
		ready(t, m, 3)
		report("the machine is up and all VMs run again %.0f s after the power was cut", time.Since(cut).Seconds())
	})
	check(t, m, "EachVMOnce", func(t *testing.T) {
		if got := do(t, m, "virsh -q list --title | awk '{print $4}' | sort"); got != "db-vm-0\nweb-vm-0\nweb-vm-1" {
			t.Errorf("domains after the cut: %q", got)
		}
		if got := do(t, m, "pgrep -c qemu-system"); got != "3" {
			t.Errorf("%s guests run, want 3", got)
		}
	})
}
