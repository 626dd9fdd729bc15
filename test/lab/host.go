package lab

import (
	"encoding/json"
	"fmt"
	"os"
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

	detoured redirects
}

// URI is libvirt's address of the host, from outside the lab.
func (h *Host) URI() string {
	return "qemu+unix:///system?socket=" + h.socket()
}

// MigrationURI is libvirt's address of the host for the other hosts.
func (h *Host) MigrationURI() string {
	if h.lab.state.TLS {
		return "qemu+tls://" + h.Name + "/system?pkipath=" + keysPath
	}
	return "qemu+tcp://" + h.Address() + "/system"
}

func (h *Host) socket() string { return filepath.Join(h.dir, "run", "libvirt", "libvirt-sock") }
func (h *Host) netns() string  { return h.lab.state.ID + "-" + h.Name }

// Board is a directory outside the lab that the host sees as /run/board, whether its power is
// on or off: for sockets of what stands in for the hardware of a main board, and lives outside.
func (h *Host) Board() string { return filepath.Join(h.dir, "board") }

// Config is the directory outside the lab that the host sees as /etc/evenkeel.
func (h *Host) Config() string { return filepath.Join(h.dir, "config") }

// State is the directory outside the lab that the host sees as /var/lib/evenkeel.
func (h *Host) State() string { return filepath.Join(h.dir, "disk", "state") }

// Run is the directory outside the lab that the host sees as /run. It is emptied by PowerOn.
func (h *Host) Run() string { return filepath.Join(h.dir, "run") }

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
// its own and those of its threads, since it started. So a test can
// distinguish a VM that is throttled by its cap from one on a busy machine.
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
