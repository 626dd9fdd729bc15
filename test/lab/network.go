package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The network of a lab is a bridge in a network namespace of its own, the switch, with a port
// p1, p2, ... for each host's cable. Addresses are the same in every lab: none of them is
// seen outside the lab. The bridge itself has one, for the desk.

const deskAddress = "10.97.0.254"

func (l *Lab) switchNetns() string { return l.state.ID + "-sw" }

func (l *Lab) makeSwitch() error {
	sw := l.switchNetns()
	for _, args := range [][]string{
		{"netns", "add", sw},
		{"-n", sw, "link", "set", "lo", "up"},
		// Without one of its own a bridge takes the lowest hardware address of its ports, and changes it when that host
		// loses power: what others have cached of the desk's leads nowhere for half a minute.
		{"-n", sw, "link", "add", "br0", "address", "52:54:00:97:01:fe", "type", "bridge"},
		{"-n", sw, "link", "set", "br0", "up"},
		{"-n", sw, "addr", "add", deskAddress + "/24", "dev", "br0"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// Address is the host's IP address in the lab's network.
func (h *Host) Address() string { return fmt.Sprintf("10.97.0.%d", h.number) }

func (h *Host) port() string { return fmt.Sprintf("p%d", h.number) }

// pulled is the file that is there while the host's cable is pulled.
func (h *Host) pulled() string { return filepath.Join(h.dir, "pulled") }

// wire makes the host's network: a cable (eth0) to the lab's switch, in a
// bridge br0 that guests can join.
func (h *Host) wire() error {
	if err := h.unwire(); err != nil {
		return err
	}
	ns, sw, port := h.netns(), h.lab.switchNetns(), h.port()
	if err := removeNetns(ns); err != nil {
		return err
	}
	state := "up"
	if _, err := os.Stat(h.pulled()); err == nil {
		state = "down"
	}
	for _, args := range [][]string{
		{"netns", "add", ns},
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", sw, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns},
		// Its hardware address stays the same from one start to the next, whatever guests join.
		{"-n", ns, "link", "add", "br0", "address", fmt.Sprintf("52:54:00:97:00:%02x", h.number), "type", "bridge"},
		{"-n", ns, "link", "set", "eth0", "master", "br0", "up"},
		{"-n", ns, "link", "set", "br0", "up"},
		{"-n", ns, "addr", "add", h.Address() + "/24", "dev", "br0"},
		{"-n", sw, "link", "set", port, "master", "br0", state},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// wired says whether there is a cable between the host and the switch.
func (h *Host) wired() bool {
	sw := h.lab.switchNetns()
	if _, err := os.Stat(filepath.Join("/run/netns", sw)); err != nil {
		return false
	}
	return ip("-n", sw, "link", "show", h.port()) == nil
}

// unwire takes the cable between the host and the switch away.
func (h *Host) unwire() error {
	if !h.wired() {
		return nil
	}
	if err := ip("-n", h.lab.switchNetns(), "link", "del", h.port()); err != nil && h.wired() { // else it went with the host's end
		return err
	}
	return nil
}

func (h *Host) setCable(to string) error {
	return ip("-n", h.lab.switchNetns(), "link", "set", h.port(), to)
}

// CutCable pulls the host's network cable, or plugs it in again; also of a host without
// power. The unix socket of URI is not on it.
func (h *Host) CutCable(cut bool) error {
	unlock, err := h.lockSwitch()
	if err != nil {
		return err
	}
	defer unlock()
	to := "up"
	if cut {
		to = "down"
		err = os.WriteFile(h.pulled(), nil, 0o644)
	} else if err = os.Remove(h.pulled()); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil || !h.Up() {
		return err
	}
	return h.setCable(to)
}

// Partition splits the hosts' network: hosts of different groups do not hear one another.
// Hosts in no group are a group, too. It replaces what an earlier Partition or Block did, all at
// once; Heal undoes it. The desk hears, and is heard by, all hosts.
func (l *Lab) Partition(groups ...[]*Host) error {
	group := map[*Host]int{}
	for i, hosts := range groups {
		for _, h := range hosts {
			if _, twice := group[h]; twice {
				return fmt.Errorf("partition: host %s is in two groups", h.Name)
			}
			group[h] = i + 1
		}
	}
	var rules strings.Builder
	rules.WriteString("*filter\n:FORWARD ACCEPT\n")
	for _, a := range l.hosts {
		for _, b := range l.hosts {
			if group[a] != group[b] {
				fmt.Fprintf(&rules, "-A FORWARD -i %s -o %s -j DROP\n", a.port(), b.port())
			}
		}
	}
	return inNetns(l.switchNetns(), rules.String(), "ebtables-restore")
}

// Block drops what one host sends to another, in this direction only, until Heal or Partition. The
// question for a hardware address, and its answer, still pass: without them the other direction
// would close as well, some seconds later.
func (l *Lab) Block(from, to *Host) error {
	return inNetns(l.switchNetns(), "", "ebtables", "-A", "FORWARD", "-p", "!", "ARP", "-i", from.port(), "-o", to.port(), "-j", "DROP")
}

// Heal ends Partition and Block. Cables that are pulled stay so.
func (l *Lab) Heal() error { return inNetns(l.switchNetns(), "", "ebtables", "-F", "FORWARD") }

// Lose drops this share, 0 to 1, of the packets that arrive at the host for the host itself, not for
// its guests, until it is called with 0 or the host's power goes.
func (h *Host) Lose(share float64) error {
	if !(share >= 0 && share <= 1) {
		return fmt.Errorf("host %s: lose a share of %g", h.Name, share)
	}
	rules := "*raw\n:PREROUTING ACCEPT\n"
	if share > 0 {
		rules += fmt.Sprintf("-A PREROUTING ! -i lo -m statistic --mode random --probability %g -j DROP\n", share)
	}
	return inNetns(h.netns(), rules+"COMMIT\n", "iptables-restore")
}

// Delay holds back each frame on the host's cable so long, in each direction; 0 ends it, and so
// does the host's power. Where the kernel cannot (no sch_netem) this process does it, for as long as it lives; frames that are under way
// when the delay ends are lost then.
func (h *Host) Delay(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("host %s: delay of %v", h.Name, d)
	}
	if ended, err := h.endRedirect(); err != nil || ended && d == 0 {
		return err
	}
	for _, end := range [][2]string{{h.lab.switchNetns(), h.port()}, {h.netns(), "eth0"}} {
		args := []string{"qdisc", "replace", "dev", end[1], "root", "netem", "delay", fmt.Sprintf("%dus", d.Microseconds())}
		if d == 0 {
			args = []string{"qdisc", "replace", "dev", end[1], "root", "pfifo"}
		}
		if err := inNetns(end[0], "", "tc", args...); err != nil {
			if strings.Contains(err.Error(), "qdisc kind is unknown") {
				return h.redirect(d)
			}
			return fmt.Errorf("host %s: delay: %w", h.Name, err)
		}
	}
	return nil
}

// inNetns runs a program to its end in a network namespace.
func inNetns(ns, stdin, tool string, args ...string) error {
	path, err := find(tool)
	if err != nil {
		return fmt.Errorf("%s: %w: run make setup", tool, err)
	}
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + ns, path}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// The desk is where an operator of the lab sits: on its network, on no host. It has this
// machine's files and processes.

// Desk is the desk's IP address in the lab's network.
func (l *Lab) Desk() string { return deskAddress }

// Command runs a program of this machine at the desk.
func (l *Lab) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + l.switchNetns(), "--", name}, args...)...)
}

// Dial connects from the desk, to an IP address and port.
func (l *Lab) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialFrom(ctx, l.switchNetns(), network, address)
}

func dialFrom(ctx context.Context, ns, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := within(ns, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Dial connects from the host, to an IP address and port.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialFrom(ctx, h.netns(), network, address)
}

// Listen takes connections at the desk.
func (l *Lab) Listen(network, address string) (net.Listener, error) {
	var listener net.Listener
	err := within(l.switchNetns(), func() (err error) {
		listener, err = net.Listen(network, address)
		return err
	})
	return listener, err
}

// within runs f in a network namespace. A socket belongs to the namespace it was made in, so
// that f only needs to make it: itself, in no other goroutine.
func within(ns string, f func() error) error {
	there, err := os.Open(filepath.Join("/run/netns", ns))
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer there.Close()
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err == nil {
		defer own.Close()
		err = setNetns(there)
	}
	if err == nil {
		err = f()
		if back := setNetns(own); back != nil {
			// The thread stays locked, and ends with its goroutine.
			return errors.Join(err, fmt.Errorf("return from network namespace %s: %w", ns, back))
		}
	}
	runtime.UnlockOSThread()
	return err
}

// setNetns puts the calling thread into a network namespace.
func setNetns(ns *os.File) error {
	const sysSetns = 308 // setns(2) on amd64, where alone the lab's guests run
	if _, _, errno := syscall.RawSyscall(sysSetns, ns.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
		return fmt.Errorf("setns: %w", errno)
	}
	return nil
}
