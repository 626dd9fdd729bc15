package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience bounds what a host does in its own time: starting, or dying.
const patience = 60 * time.Second

// Host is one host of a lab.
type Host struct {
	Name string // its host name: h1, h2, ...

	lab    *Lab
	number int
	dir    string
	hold   io.Closer // while this process holds it, the host lives
}

// URI is libvirt's address of the host, from outside the lab.
func (h *Host) URI() string {
	return "qemu+unix:///system?socket=" + h.socket()
}

// MigrationURI is libvirt's address of the host for the other hosts.
func (h *Host) MigrationURI() string { return "qemu+tcp://" + h.address() + "/system" }

func (h *Host) socket() string  { return filepath.Join(h.dir, "run", "libvirt", "libvirt-sock") }
func (h *Host) address() string { return fmt.Sprintf("10.97.0.%d", h.number) }
func (h *Host) netns() string   { return h.lab.state.ID + "-" + h.Name }

// first is the host's first process, which all others end with.
func (h *Host) first() (process, bool) {
	var p process
	text, err := os.ReadFile(filepath.Join(h.dir, "first.json"))
	if err != nil || json.Unmarshal(text, &p) != nil {
		return process{}, false
	}
	return p, p.alive()
}

// Up says whether the host has power.
func (h *Host) Up() bool { _, up := h.first(); return up }

// PowerOn starts the host with its daemon. A host that is up is left as it is.
func (h *Host) PowerOn(ctx context.Context) error {
	if h.Up() {
		return nil
	}
	if err := h.powerOn(ctx); err != nil {
		return fmt.Errorf("start host %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) powerOn(ctx context.Context) error {
	if err := h.configure(); err != nil {
		return err
	}
	if err := h.wire(); err != nil {
		return err
	}
	dirs := h.lab.cgroups(h.Name)
	if err := makeCgroups(dirs); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.dir, "cgroups"), []byte(strings.Join(dirs, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(h.lab.dir, "host.sh"), "boot", h.dir, h.Name, h.netns(), h.lab.state.QEMU)
	cmd.Env = h.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C in a terminal is for the test, which takes the lab down
	logFile, err := os.Create(filepath.Join(h.dir, "boot.log"))
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := h.tie(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = eventually(patience, func() error {
		select {
		case err := <-ended:
			ended <- err
			return nil
		default:
		}
		_, err := os.Stat(filepath.Join(h.dir, "run", "ready"))
		return errors.Join(err, ctx.Err())
	})
	var first process
	if err == nil {
		first, err = childOf(cmd.Process.Pid)
	}
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(h.dir, "boot.log"))
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said)))
	}
	text, err := json.Marshal(first)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.dir, "first.json"), text, 0o644); err != nil {
		return err
	}
	return h.StartDaemon(ctx)
}

// tie gives the host's first process a standard input that ends with this
// process; or, for a lab that stays, one that never ends.
func (h *Host) tie(cmd *exec.Cmd) error {
	if h.lab.state.Stay {
		fifo := filepath.Join(h.dir, "stay")
		if err := os.Remove(fifo); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(fifo, os.O_RDWR, 0) // its own writer: no end of file
		if err != nil {
			return err
		}
		cmd.Stdin = f
		h.hold = f
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdin = r
	h.hold = closers{r, w}
	return nil
}

type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, x := range c {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

func (h *Host) environ() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}

// configure writes the host's libvirt configuration.
func (h *Host) configure() error {
	if err := os.RemoveAll(filepath.Join(h.dir, "run")); err != nil { // nothing of /run outlives a power failure
		return err
	}
	for _, d := range []string{"run", "etc/qemu", "lib", "log/qemu", "cache"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			return err
		}
	}
	acl := `"/dev/null", "/dev/full", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/userfaultfd"`
	if _, err := os.Stat("/dev/kvm"); err == nil {
		acl += `, "/dev/kvm"`
	}
	hosts := "127.0.0.1 localhost\n"
	for _, other := range h.lab.hosts {
		hosts += other.address() + " " + other.Name + "\n"
	}
	files := map[string]string{
		// The network of a lab is its own: nobody else can reach a host without authentication.
		"etc/libvirtd.conf": fmt.Sprintf(`host_uuid = "e7e2ee1a-0000-4000-8000-%012d"
listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
keepalive_interval = 1
keepalive_count = 3
`, h.number),
		"etc/qemu.conf": fmt.Sprintf(`user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = [ ]
stdio_handler = "file"
cgroup_controllers = [ "cpu", "cpuacct", "memory", "cpuset" ]
cgroup_device_acl = [ %s ]
keepalive_interval = 1
keepalive_count = 3
migration_host = "%s"
`, acl, h.address()),
		"etc/libvirt.conf": "",
		"hosts":            hosts,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// wire makes the host's network: a cable (eth0) to the lab's switch, in a
// bridge br0 that guests can join.
func (h *Host) wire() error {
	ns, sw, port := h.netns(), h.lab.switchNetns(), fmt.Sprintf("p%d", h.number)
	if _, err := os.Stat(filepath.Join("/run/netns", ns)); err == nil {
		return nil
	}
	for _, args := range [][]string{
		{"netns", "add", ns},
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", sw, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns},
		{"-n", sw, "link", "set", port, "master", "br0", "up"},
		{"-n", ns, "link", "add", "br0", "type", "bridge"},
		{"-n", ns, "link", "set", "eth0", "master", "br0", "up"},
		{"-n", ns, "link", "set", "br0", "up"},
		{"-n", ns, "addr", "add", h.address() + "/24", "dev", "br0"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// PowerOff is a power failure: every process of the host is killed at once.
// PowerOn starts it again.
func (h *Host) PowerOff() error {
	if first, up := h.first(); up {
		_ = h.Thaw() // a frozen process takes no signal on cgroup v1
		if err := first.kill(syscall.SIGKILL); err != nil {
			return fmt.Errorf("power off host %s: %w", h.Name, err)
		}
		if err := first.await(patience); err != nil {
			return fmt.Errorf("power off host %s: %w", h.Name, err)
		}
	}
	if h.hold != nil {
		_ = h.hold.Close()
		h.hold = nil
	}
	if err := os.Remove(filepath.Join(h.dir, "first.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Command runs a program in the host.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	first, _ := h.first()
	cmd := exec.CommandContext(ctx, filepath.Join(h.lab.dir, "host.sh"), append([]string{"enter", h.dir, strconv.Itoa(first.PID), name}, args...)...)
	cmd.Env = h.environ()
	return cmd
}

// daemon is the host's libvirtd.
func (h *Host) daemon() (process, bool) {
	first, up := h.first()
	text, err := os.ReadFile(filepath.Join(h.dir, "run", "libvirtd.pid"))
	if err != nil || !up {
		return process{}, false
	}
	inner, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return process{}, false
	}
	return insider(first, inner, "libvirtd")
}

// StartDaemon starts libvirtd, and returns when it takes connections.
func (h *Host) StartDaemon(ctx context.Context) error {
	if _, runs := h.daemon(); runs {
		return nil
	}
	if !h.Up() {
		return fmt.Errorf("start libvirtd on %s: the host has no power", h.Name)
	}
	if out, err := h.Command(ctx, "libvirtd", "--daemon", "--listen").CombinedOutput(); err != nil {
		return fmt.Errorf("start libvirtd on %s: %w: %s", h.Name, err, strings.TrimSpace(string(out)))
	}
	err := eventually(patience, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, runs := h.daemon(); !runs {
			return errors.New("libvirtd has no process")
		}
		c, err := net.Dial("unix", h.socket())
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(h.dir, "log", "libvirtd.log"))
		return fmt.Errorf("start libvirtd on %s: %w: %s", h.Name, err, said[max(0, len(said)-2000):])
	}
	return nil
}

// StopDaemon stops libvirtd in good order. VMs run on.
func (h *Host) StopDaemon() error { return h.endDaemon(syscall.SIGTERM) }

// KillDaemon kills libvirtd. VMs run on.
func (h *Host) KillDaemon() error { return h.endDaemon(syscall.SIGKILL) }

func (h *Host) endDaemon(sig syscall.Signal) error {
	d, runs := h.daemon()
	if !runs {
		return nil
	}
	if err := errors.Join(d.kill(sig), d.await(patience)); err != nil {
		return fmt.Errorf("end libvirtd on %s: %w", h.Name, err)
	}
	return nil
}

// CutCable pulls the host's network cable, or plugs it in again. The unix
// socket of URI is not on it.
func (h *Host) CutCable(cut bool) error {
	to := "up"
	if cut {
		to = "down"
	}
	return ip("-n", h.netns(), "link", "set", "eth0", to)
}

// Freeze hangs the host: nothing in it runs, everything is still there.
func (h *Host) Freeze() error { return freeze(h.lab.cgroups(h.Name), true) }

// Thaw ends Freeze.
func (h *Host) Thaw() error { return freeze(h.lab.cgroups(h.Name), false) }

// LimitCPU gives the whole host, with its daemon and all VMs, so many cores; 0 = no limit.
// On cgroup v1 a limit below that of a VM on it is an error of the kernel's.
func (h *Host) LimitCPU(cores float64) error {
	if err := limitCPU(h.lab.cgroups(h.Name), cores); err != nil {
		return fmt.Errorf("limit host %s to %g cores: %w", h.Name, cores, err)
	}
	return nil
}

// KillVM kills the QEMU process of the VM that libvirt knows by that name.
func (h *Host) KillVM(name string) error {
	first, up := h.first()
	text, err := os.ReadFile(filepath.Join(h.dir, "run", "libvirt", "qemu", name+".pid"))
	if err != nil || !up {
		return fmt.Errorf("VM %s on %s: no process: %w", name, h.Name, err)
	}
	inner, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("VM %s on %s: %w", name, h.Name, err)
	}
	p, ok := insider(first, inner, "qemu-system-x86")
	if !ok {
		return fmt.Errorf("VM %s on %s: no process %d in the host", name, h.Name, inner)
	}
	return p.kill(syscall.SIGKILL)
}

// VCPUTime is the CPU time that the vCPUs of the VM of that name have used
// since it started, as its control groups count it: in nanoseconds, where
// libvirt's own figure comes in clock ticks of 10 ms.
func (h *Host) VCPUTime(name string) (time.Duration, error) {
	groups, err := vcpuGroups(h.lab.cgroups(h.Name), name)
	if err != nil {
		return 0, fmt.Errorf("VM %s on %s: %w", name, h.Name, err)
	}
	var sum time.Duration
	for _, g := range groups {
		t, err := cpuTime(g)
		if err != nil {
			return 0, fmt.Errorf("VM %s on %s: %w", name, h.Name, err)
		}
		sum += t
	}
	return sum, nil
}

// Throttled is how long the VM of that name was kept off the CPU by quotas,
// its own and those of its threads, since it started. It tells a VM that its
// cap holds back from one that finds the machine busy.
func (h *Host) Throttled(name string) (time.Duration, error) {
	for _, dir := range h.lab.cgroups(h.Name) {
		groups, _ := filepath.Glob(filepath.Join(dir, "machine", "qemu-*-"+name+".libvirt-qemu"))
		for _, g := range groups {
			if t, err := throttled(g); err == nil {
				return t, nil
			}
		}
	}
	return 0, fmt.Errorf("VM %s on %s: no control group counts its throttled time", name, h.Name)
}
