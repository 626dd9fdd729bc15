package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// heard says whether a host hears another's answer to a ping.
func heard(t *testing.T, h *Host, address string) error {
	out, err := h.Command(t.Context(), "busybox", "ping", "-c", "1", "-W", "1", address).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ping from %s to %s: %w: %s", h.Name, address, err, out)
	}
	return nil
}

// TestHosts is about three hosts and what happens to them.
func TestHosts(t *testing.T) {
	Real(t)
	begin := time.Now()
	l, err := Start(t.Context(), Options{Hosts: 3, Shared: true, StateSize: 16 << 20, QEMU: os.Getenv("EVENKEEL_QEMU")})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("three hosts up in %v", time.Since(begin))
	defer l.Close()
	h1, h2, h3 := l.Host(1), l.Host(2), l.Host(3)

	t.Run("Network", func(t *testing.T) { testNetwork(t, l) })
	t.Run("Beside", func(t *testing.T) {
		// Another lab has the same addresses, and hosts of its own behind them.
		other := New(t, Options{})
		if err := other.Host(1).PowerOff(); err != nil {
			t.Fatal(err)
		}
		reach := func(l *Lab) error {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			c, err := l.Dial(ctx, "tcp", h1.Address()+":16509")
			if err == nil {
				err = c.Close()
			}
			return err
		}
		if reach(other) == nil {
			t.Error("a host without power is reached")
		}
		if err := reach(l); err != nil {
			t.Errorf("a host of that address in another lab has no power: %v", err)
		}
	})
	t.Run("Cable", func(t *testing.T) {
		if err := h2.CutCable(true); err != nil {
			t.Fatal(err)
		}
		if heard(t, h1, h2.Address()) == nil {
			t.Error("the cable is pulled, and the ping comes back")
		}
		if err := errors.Join(h2.PowerOff(), h2.PowerOn(t.Context())); err != nil {
			t.Fatal(err)
		}
		if heard(t, h1, h2.Address()) == nil {
			t.Error("the host was started again with its cable pulled, and the ping comes back")
		}
		if err := h2.CutCable(false); err != nil {
			t.Fatal(err)
		}
		if err := eventually(patience, func() error { return heard(t, h1, h2.Address()) }); err != nil {
			t.Errorf("plugged in again: %v", err)
		}
	})
	t.Run("Power", func(t *testing.T) { testPower(t, l) })
	t.Run("Switch", func(t *testing.T) {
		// Another process turns a host off and on; it stays on after that process has ended.
		for _, to := range []string{"off", "on"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSwitch$")
			cmd.Env = append(os.Environ(), switchVar+"="+to+" "+l.Dir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if on := h3.Up(); on != (to == "on") {
				t.Fatalf("turned %s, and it is up: %v", to, on)
			}
		}
		if err := h3.answers(); err != nil {
			t.Error(err)
		}
		if err := eventually(patience, func() error { return heard(t, h1, h3.Address()) }); err != nil {
			t.Error(err)
		}
	})
	t.Run("SwitchInside", func(t *testing.T) { testSwitchInside(t, l) })
	t.Run("Program", func(t *testing.T) { testProgram(t, h1) })
	t.Run("Disk", func(t *testing.T) {
		write := func(h *Host) error {
			return os.WriteFile(filepath.Join(h.State(), "log"), make([]byte, 4096), 0o644)
		}
		if err := h1.FillDisk(); err != nil {
			t.Fatal(err)
		}
		if err := write(h1); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the disk is full, and a write has the error %v", err)
		}
		if err := write(h2); err != nil {
			t.Errorf("another host's disk is full: %v", err)
		}
		if err := errors.Join(h1.FreeDisk(), write(h1)); err != nil {
			t.Errorf("freed: %v", err)
		}
	})
	t.Run("HangDaemon", func(t *testing.T) {
		if err := h1.HangDaemon(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "timeout", "1", "virsh", "-c", h1.URI(), "version")
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("libvirtd hangs, and answers: %s", out)
		}
		if err := h1.ResumeDaemon(); err != nil {
			t.Fatal(err)
		}
		virsh(t, h1, "version")
	})
	t.Run("LockManager", func(t *testing.T) { testLockManager(t, l) })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(l); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// switchVar holds "on" or "off" and the directory of a lab, in a process of TestHosts.
const switchVar = "EVENKEEL_LAB_SWITCH"

func TestSwitch(t *testing.T) {
	to, dir, ok := strings.Cut(os.Getenv(switchVar), " ")
	if !ok {
		t.Skip("runs for TestHosts, in a process of its own")
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if to == "off" {
		err = l.Host(3).PowerOff()
	} else {
		err = l.Host(3).PowerOn(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testSwitchInside: a program on one host can switch another host, of which it sees nothing else. While no process serves
// the switch, the program gets an error: the switch never reports that a host is off which is on.
func testSwitchInside(t *testing.T, l *Lab) {
	h1, h2 := l.Host(1), l.Host(2)
	labhost := filepath.Join(t.TempDir(), "labhost")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", labhost, "./cmd/labhost").CombinedOutput(); err != nil {
		t.Fatalf("build labhost: %v: %s", err, out)
	}
	ask := func(verb string) (string, error) {
		out, err := h1.Command(t.Context(), labhost, "-dir", l.Dir(), verb, h2.Name).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for _, verb := range []string{"state", "off", "uri"} {
		if out, err := ask(verb); err == nil {
			t.Errorf("%s inside, with no host to ask: %q", verb, out)
		}
	}
	stop, err := l.ServePower()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ verb, says string }{{"state", "on"}, {"off", ""}, {"state", "off"}, {"on", ""}, {"state", "on"}} {
		if out, err := ask(c.verb); err != nil || out != c.says {
			t.Errorf("%s: %q, %v", c.verb, out, err)
		}
		if c.says != "" && h2.Up() != (c.says == "on") {
			t.Errorf("said to be %s, and it is up: %v", c.says, h2.Up())
		}
	}
	if out, err := h1.Command(t.Context(), labhost, "-dir", l.Dir(), "off", "h9").CombinedOutput(); err == nil {
		t.Errorf("a host that is not there was turned off: %s", out)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func testNetwork(t *testing.T, l *Lab) {
	h1, h2, h3 := l.Host(1), l.Host(2), l.Host(3)
	type pair struct{ from, to *Host }
	all := []pair{{h1, h2}, {h1, h3}, {h2, h3}}
	check := func(when string, want ...pair) {
		t.Helper()
		for _, p := range all {
			if err := heard(t, p.from, p.to.Address()); (err == nil) != slices.Contains(want, p) {
				t.Errorf("%s: %s to %s: %v", when, p.from.Name, p.to.Name, err)
			}
		}
		for _, h := range l.Hosts() {
			c, err := l.Dial(t.Context(), "tcp", h.Address()+":16509") // libvirtd's
			if err != nil {
				t.Errorf("%s: from the desk: %v", when, err)
				continue
			}
			_ = c.Close()
		}
	}
	check("at first", all...)
	for _, c := range []struct {
		when   string
		groups [][]*Host
		want   []pair
	}{
		{"h1 and the rest", [][]*Host{{h1}}, []pair{{h2, h3}}},
		{"h3 and the rest", [][]*Host{{h1, h2}, {h3}}, []pair{{h1, h2}}},
		{"all alone", [][]*Host{{h1}, {h2}, {h3}}, nil},
	} {
		if err := l.Partition(c.groups...); err != nil {
			t.Fatal(err)
		}
		check(c.when, c.want...)
	}
	if err := l.Partition([]*Host{h1}, []*Host{h1, h2}); err == nil {
		t.Error("a host in two groups")
	}
	if err := l.Heal(); err != nil {
		t.Fatal(err)
	}
	check("healed", all...)

	if err := l.Block(h1, h2); err != nil {
		t.Fatal(err)
	}
	if err := arrives(h1, h2); err == nil {
		t.Error("h1 is blocked towards h2, and is heard")
	}
	if err := arrives(h2, h1); err != nil {
		t.Errorf("h1 is blocked towards h2, and does not hear h2: %v", err)
	}
	if err := errors.Join(l.Heal(), arrives(h1, h2)); err != nil {
		t.Errorf("healed: %v", err)
	}

	if err := h1.Lose(1); err != nil {
		t.Fatal(err)
	}
	if heard(t, h2, h1.Address()) == nil {
		t.Error("h1 loses all that arrives, and answers")
	}
	if err := errors.Join(h1.Lose(0), heard(t, h2, h1.Address())); err != nil {
		t.Errorf("h1 loses nothing: %v", err)
	}
	if err := h1.Lose(1.1); err == nil {
		t.Error("more is lost than there is")
	}

	if err := h1.Delay(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
	begin := time.Now()
	if err := heard(t, h1, h2.Address()); err != nil || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("100 ms each way: answered after %v: %v", time.Since(begin), err)
	}
	relays(t, l, h1)
	if err := errors.Join(h1.Delay(0), heard(t, h1, h2.Address())); err != nil {
		t.Errorf("no delay any more: %v", err)
	}
	relays(t, l, h1)

	listener, err := l.Listen("tcp", l.Desk()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	output(t, h2, "bash", "-c", "exec 3<>/dev/tcp/"+l.Desk()+"/"+port)
}

// relays checks that a long stream from a host comes to the desk as it was sent: in large frames, whose sums the last interface makes.
func relays(t *testing.T, l *Lab, from *Host) {
	t.Helper()
	const bytes = 4 << 20
	listener, err := l.Listen("tcp", l.Desk()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	sender := from.Command(t.Context(), "bash", "-c", fmt.Sprintf("head -c %d /dev/zero >/dev/tcp/%s/%s", bytes, l.Desk(), port))
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, err := io.Copy(io.Discard, c)
	if err := errors.Join(err, sender.Wait()); err != nil || n != bytes {
		t.Errorf("%d of %d bytes came: %v", n, bytes, err)
	}
}

// arrives says whether a datagram of one host reaches the other, whether or not an answer comes back.
func arrives(from, to *Host) error {
	var in net.PacketConn
	var out net.Conn
	err := within(to.netns(), func() (err error) {
		in, err = net.ListenPacket("udp", to.Address()+":0")
		return err
	})
	if err != nil {
		return err
	}
	defer in.Close()
	err = within(from.netns(), func() (err error) {
		out, err = net.Dial("udp", in.LocalAddr().String())
		return err
	})
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := out.Write([]byte("x")); err != nil {
		return err
	}
	if err := in.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		return err
	}
	_, _, err = in.ReadFrom(make([]byte, 8))
	return err
}

func testPower(t *testing.T, l *Lab) {
	h := l.Host(2)
	const mark = "for f in /var/lib/evenkeel /etc/evenkeel /run /run/board; do echo %s > $f/mark; done"
	output(t, h, "bash", "-c", fmt.Sprintf(mark, "kept"))
	boot, machine := output(t, h, "cat", "/proc/sys/kernel/random/boot_id"), output(t, h, "cat", "/etc/machine-id")
	if other := output(t, l.Host(1), "cat", "/proc/sys/kernel/random/boot_id"); other == boot {
		t.Errorf("two hosts have the boot id %s", boot)
	}
	c, err := l.Dial(t.Context(), "tcp", h.Address()+":16509")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := h.Freeze(); err != nil { // also a frozen host loses its power
		t.Fatal(err)
	}
	if err := h.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if h.Up() || h.answers() == nil {
		t.Error("the host has no power, and is up")
	}
	// A cut of power closes no connection: a connection to the host is just silent.
	if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to a host without power: %v", err)
	}
	if _, err := h.Launch("", "true"); err == nil {
		t.Error("a program was launched on a host without power")
	}
	if err := h.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := output(t, h, "cat", "/var/lib/evenkeel/mark", "/etc/evenkeel/mark", "/run/board/mark"); got != "kept\nkept\nkept" {
		t.Errorf("on the disk: %q", got)
	}
	if _, err := os.Stat(filepath.Join(h.Run(), "mark")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/run after a power failure: %v", err)
	}
	if got := output(t, h, "cat", "/proc/sys/kernel/random/boot_id"); got == boot || len(got) != len(boot) {
		t.Errorf("boot id %q, before it was %q", got, boot)
	}
	if got := output(t, h, "cat", "/etc/machine-id"); got != machine {
		t.Errorf("machine id %q, before it was %q", got, machine)
	}
	if _, err := os.Stat("/proc/self/ns/time"); err == nil {
		var up, outside float64
		text, _ := os.ReadFile("/proc/uptime")
		_, err := fmt.Sscan(output(t, h, "cat", "/proc/uptime"), &up)
		if _, oerr := fmt.Sscan(string(text), &outside); err != nil || oerr != nil || outside > 600 && up > 300 {
			t.Errorf("up for %v s, the machine for %v s: %v, %v", up, outside, err, oerr)
		}
	}
}

func testProgram(t *testing.T, h *Host) {
	if _, err := h.Launch("", "no-such-program"); err == nil {
		t.Error("launched what is not there")
	}
	log := filepath.Join(t.TempDir(), "log")
	ends, err := h.Launch(log, "bash", "-c", "echo on $HOSTNAME; exit 3")
	if err != nil && !strings.Contains(err.Error(), "exit status 3") { // it may have ended within Launch
		t.Fatal(err)
	}
	if err == nil {
		if err := ends.Wait(patience); err != nil {
			t.Fatal(err)
		}
		if ends.Err() == nil || ends.Err().Error() != "exit status 3" {
			t.Errorf("ended with %v", ends.Err())
		}
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "on "+h.Name+"\n" {
		t.Errorf("printed %q, %v", text, err)
	}

	// A program that counts: it goes on, or stands. It writes by itself, in one go: what a child of its own writes is not stopped with it.
	count := func() int {
		text, _ := os.ReadFile(filepath.Join(h.Run(), "count"))
		n, _ := strconv.Atoi(string(text))
		return n
	}
	launch := func() *Program {
		p, err := h.Launch(log, "bash", "-c", "for ((i = 1; ; i++)); do printf %09d $i 1<>/run/count; read -t 0.01 < <(:) || true; done")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	goesOn := func() {
		t.Helper()
		from := count()
		err := eventually(patience, func() error {
			if n := count(); n <= from {
				return fmt.Errorf("the program stands at %d", n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	p := launch()
	goesOn()
	for range 10 {
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		from := count()
		time.Sleep(100 * time.Millisecond) // sleep: nothing happens meanwhile, that is the point
		if n := count(); n != from {
			t.Errorf("paused at %d, now at %d", from, n)
		}
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
		goesOn()
	}
	if err := errors.Join(p.Pause(), p.Kill()); err != nil {
		t.Fatal(err)
	}
	if p.Err() == nil {
		t.Error("killed, and ended well")
	}
	p = launch()
	goesOn()
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := h.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(patience); err != nil {
		t.Errorf("after a power failure: %v", err)
	}
	if err := h.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func virsh(t *testing.T, h *Host, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "timeout", append([]string{"60", "virsh", "-q", "-c", h.URI()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("virsh %s on %s: %v: %s", strings.Join(args, " "), h.Name, err, out)
	}
	return string(out)
}

// testLockManager starts a VM twice, on two hosts. The VM boots no system, but uses its disk.
func testLockManager(t *testing.T, l *Lab) {
	h1, h2, h3 := l.Host(1), l.Host(2), l.Host(3)
	// Each time it is another file of that name, so that the refusal is not by QEMU's own lock, which is on the file.
	image := func() {
		t.Helper()
		path := filepath.Join(l.Shared(), "disk.img")
		if err := errors.Join(os.WriteFile(path+".new", make([]byte, 1<<20), 0o644), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	image()
	for _, h := range l.Hosts() {
		virsh(t, h, "pool-refresh", "shared")
		if out := virsh(t, h, "vol-list", "shared"); !strings.Contains(out, SharedPath+"/disk.img") {
			t.Errorf("pool shared on %s: %s", h.Name, out)
		}
	}
	file := filepath.Join(t.TempDir(), "vm.xml")
	xml := fmt.Sprintf(`<domain type='qemu'><name>locked</name><uuid>%s</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features><cpu mode='custom' match='exact' check='none'><model>qemu64</model></cpu>
<devices><disk type='file'><driver name='qemu' type='raw' cache='none'/><source file='%s/disk.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>`, uuid(), SharedPath)
	if err := os.WriteFile(file, []byte(xml), 0o644); err != nil {
		t.Fatal(err)
	}
	refused := func(h *Host) {
		t.Helper()
		image()
		out, err := exec.CommandContext(t.Context(), "virsh", "-c", h.URI(), "create", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "resource busy") {
			t.Errorf("started on %s while it runs on another host: %v: %s", h.Name, err, out)
		}
	}
	virsh(t, h1, "create", file)
	refused(h2)
	if err := h1.KillDaemon(); err != nil { // without its daemon the VM runs on, and keeps its disk
		t.Fatal(err)
	}
	refused(h2)
	if err := h1.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("EVENKEEL_QEMU") != "" { // older QEMUs crash emulated VMs that move while they run
		// libvirt takes the directory for one host's own, as it is on no network file system.
		virsh(t, h1, "migrate", "locked", "--live", "--p2p", "--unsafe", h3.MigrationURI())
		refused(h2)
		refused(h1)
		if err := h3.PowerOff(); err != nil {
			t.Fatal(err)
		}
	} else if err := h1.PowerOff(); err != nil {
		t.Fatal(err)
	}
	virsh(t, h2, "create", file)
	virsh(t, h2, "destroy", "locked")
}
