package machines

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMoves moves a VM between two hosts with KVM that were set up as the documentation says, by its own commands.
func TestMoves(t *testing.T) {
	if testing.Short() {
		left(t, "Live migration between two hosts with KVM", short)
		return
	}
	on, err := newLAN()
	if err != nil {
		t.Fatal(err)
	}
	together(t, 2, on, moves)
}

func moves(t *testing.T, all []*Machine, s *site) {
	for i, m := range all {
		must(t, m, m.identify(t.Context(), i+1))
	}
	h1, h2 := all[0], all[1]
	keys(t, all, s)
	for i, m := range all {
		install(t, m, s, fmt.Sprintf("advertise: %s:7480\n", lanAddress(i+1)))
	}
	do(t, h1, "vcctl cluster init")
	token := do(t, h1, "vcctl cluster join-token")
	must(t, h2, h2.Write(t.Context(), token, "/srv/token"))
	do(t, h2, "vcctl cluster join --join-token-file /srv/token %s", lanAddress(1))
	catalogue(t, h1)
	await(t, h1, "both hosts are ready", "vcctl host list -o json | grep -c '\"state\": *\"ready\"'", func(out string) bool { return out == "2" })
	create(t, h1, "web", 1, "")
	from := 0
	if do(t, h1, "virsh -q list --name") == "" {
		from = 1
	}
	source, target := all[from], all[1-from]
	check(t, h1, "RouteIsOpen", func(t *testing.T) {
		await(t, h1, "the VM can move", "vcctl vm migrate web-vm-0 --dry-run", func(out string) bool {
			return strings.Contains(out, fmt.Sprintf("h%d", 2-from)) && !strings.Contains(out, "missing")
		})
	})
	age := func(t *testing.T, m *Machine) string {
		return do(t, m, "d=$(virsh -q list --name); virsh -q qemu-monitor-command $d --hmp 'info kvm'; virsh -q domstats --vcpu $d | sed -n 's/.*vcpu.0.time=//p'")
	}
	check(t, h1, "Moves", func(t *testing.T) {
		began := time.Now()
		t.Logf("before: %s", age(t, source))
		do(t, h1, "vcctl vm migrate web-vm-0 --to h%d --wait --timeout 10m", 2-from)
		report("a busy guest of 128 MiB moved from host to host under KVM: %.0f s from the command to its end", time.Since(began).Seconds())
		if got := do(t, source, "virsh -q list --all --name"); got != "" {
			t.Errorf("left on the source: %q", got)
		}
		if got := age(t, target); !strings.Contains(got, "kvm support: enabled") {
			t.Errorf("on the target: %s", got)
		}
	})
	check(t, h1, "ComputesOn", func(t *testing.T) {
		first := do(t, target, "cat /sys/fs/cgroup/machine.slice/cpu.stat | sed -n 's/usage_usec //p'")
		await(t, target, "the guest uses CPU", "cat /sys/fs/cgroup/machine.slice/cpu.stat | sed -n 's/usage_usec //p'", func(out string) bool { return out > first || len(out) > len(first) })
		if got := do(t, h1, "vcctl vm list -o json | grep '\"generation\"'"); !strings.Contains(got, ": 1") {
			t.Errorf("the VM that moved was started again: %s", got)
		}
	})
	check(t, h1, "CableOutAndIn", func(t *testing.T) {
		before := guests(t, target)
		must(t, h2, h2.Cable(t.Context(), false))
		await(t, h1, "a server without the other says so", "vcctl cluster status 2>&1 || true", func(out string) bool { return strings.Contains(out, "No leader") })
		goOn(t, target, before)
		must(t, h2, h2.Cable(t.Context(), true))
		await(t, h1, "both hosts are ready again", "vcctl host list -o json | grep -c '\"state\": *\"ready\"'", func(out string) bool { return out == "2" })
		goOn(t, target, before)
	})
}

// keys makes and installs the keys of live migration by the commands of the page that has operators do it.
func keys(t *testing.T, all []*Machine, s *site) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(s.root, "docs", "how-to", "set-up-live-migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	addresses := strings.NewReplacer("192.0.2.1", "10.9.0.") // h1 is 192.0.2.11
	section := func(title string) []string {
		blocks := commands(string(page), title)
		if len(blocks) == 0 {
			t.Fatalf("set-up-live-migration.md has no commands below %q", title)
		}
		return blocks
	}
	do(t, all[0], "mkdir -p /srv/keys && cd /srv/keys && %s", addresses.Replace(section("1. Make the keys")[0]))
	files, err := base64.StdEncoding.DecodeString(do(t, all[0], "tar -C /srv/keys -c --exclude '*-ca.key' . | base64 -w 0"))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range all {
		name := fmt.Sprintf("h%d", i+1)
		if i > 0 {
			must(t, m, m.Write(t.Context(), string(files), "/srv/keys.tar"))
			do(t, m, "mkdir -p /srv/keys && tar -C /srv/keys -xf /srv/keys.tar")
		}
		do(t, m, "cd /srv/keys && %s", strings.ReplaceAll(section("2. Install them")[0], "h1-", name+"-"))
		configure := section("3. Configure libvirt and QEMU")
		if len(configure) != 3 {
			t.Fatalf("set-up-live-migration.md has %d blocks in its third section, want a line for libvirtd.conf, one for qemu.conf, and commands", len(configure))
		}
		do(t, m, "echo %s >>/etc/libvirt/libvirtd.conf; echo %s >>/etc/libvirt/qemu.conf; %s", quote(configure[0]), quote(configure[1]), configure[2])
	}
	check(t, all[0], "LibvirtReachesTheOther", func(t *testing.T) { do(t, all[0], "virsh -c qemu+tls://%s/system list", lanAddress(2)) })
	check(t, all[0], "QEMUsKeysOpenNothing", func(t *testing.T) {
		lines := strings.Split(addresses.Replace(section("4. Check it")[1]), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "virsh ") {
				line, _, _ = strings.Cut(line, "#")
				lines[i] = "if " + line + "; then echo OPENED; fi"
			}
		}
		if got := do(t, all[0], "%s", strings.Join(lines, "\n")); strings.Contains(got, "OPENED") {
			t.Errorf("libvirt takes a client with QEMU's keys: %s", got)
		}
	})
}

// commands are the blocks of code of a section of a page, without their margin.
func commands(page, title string) (blocks []string) {
	inside, block := false, []string{}
	flush := func() {
		if len(block) > 0 {
			blocks = append(blocks, strings.Join(block, "\n"))
		}
		block = nil
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			flush()
			inside = heading == title
		}
		if code, ok := strings.CutPrefix(line, "    "); ok && inside {
			block = append(block, code)
		} else {
			flush()
		}
	}
	flush()
	return blocks
}
