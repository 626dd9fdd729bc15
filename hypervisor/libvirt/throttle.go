package libvirt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// Libvirt reports no throttled time, and no path of a VM's control group. Both are read from the kernel: the QEMU process
// by its command line, which names the VM's UUID, its group by /proc/PID/cgroup. That works where libvirt runs on this
// machine, also if it runs in a PID namespace below this one.

// The wait before the control groups of a VM that were not found are looked for again. It doubles each time, up to searchLast,
// because a search reads every process of the machine.
const (
	searchAgain = time.Minute
	searchLast  = time.Hour
)

// groups are the control groups of one VM that may hold its threads back: its own, and those of its vCPUs.
type groups struct {
	dirs   []string
	next   time.Time     // when to look for them again
	waited time.Duration // after they were not found the last time
}

// throttled is how long the cap throttled a VM's threads; hypervisor.Unknown where the kernel does not report it.
func (h *Host) throttled(g *groups, uuid string, now time.Time, all *processes) time.Duration {
	if !h.local {
		return hypervisor.Unknown
	}
	if len(g.dirs) > 0 {
		if d, err := throttledIn(g.dirs); err == nil {
			return d
		}
		*g = groups{} // it was started again, or has moved
	}
	if now.Before(g.next) {
		return hypervisor.Unknown
	}
	dirs, err := groupsOf(all, uuid, h.cgroup)
	if err == nil {
		var d time.Duration
		if d, err = throttledIn(dirs); err == nil {
			*g = groups{dirs: dirs}
			return d
		}
	}
	g.waited = min(max(2*g.waited, searchAgain), searchLast)
	g.next = now.Add(g.waited)
	h.log.Debug("throttled time of a VM cannot be read", "uuid", uuid, "error", err)
	return hypervisor.Unknown
}

// throttledIn adds up what the groups say of themselves: a group does not count what is below it.
func throttledIn(dirs []string) (time.Duration, error) {
	var sum time.Duration
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			return 0, err
		}
		d, err := throttledOf(text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", dir, err)
		}
		sum += d
	}
	return sum, nil
}

// throttledOf reads a cpu.stat of version 1 (throttled_time, ns) or 2 (throttled_usec).
func throttledOf(text []byte) (time.Duration, error) {
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		unit := time.Nanosecond
		switch name {
		case "throttled_usec":
			unit = time.Microsecond
		case "throttled_time":
		default:
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > int64(1<<62)/int64(unit) {
			return 0, fmt.Errorf("%s is %q", name, value)
		}
		return time.Duration(n) * unit, nil
	}
	return 0, errors.New("cpu.stat has no throttled time")
}

// groupsOf finds the control groups of the VM of that UUID by its process.
func groupsOf(all *processes, uuid string, version int) ([]string, error) {
	pid, err := all.of(uuid)
	if err != nil {
		return nil, err
	}
	proc := all.proc
	cgroup, err := os.ReadFile(filepath.Join(proc, pid, "cgroup"))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return nil, err
	}
	emulator, err := groupDir(cgroup, mounts, version)
	if err != nil {
		return nil, err
	}
	// The process is in "emulator", beside it a group for each vCPU, both below the VM's own. Under systemd that one is
	// called "libvirt", and what is above it belongs to the VM, too.
	if filepath.Base(emulator) != "emulator" {
		return nil, fmt.Errorf("process %s of the VM is in %s, which is no group that libvirt made for it", pid, emulator)
	}
	own := filepath.Dir(emulator)
	dirs := []string{own}
	if filepath.Base(own) == "libvirt" {
		dirs = append(dirs, filepath.Dir(own))
	}
	// Not by filepath.Glob: systemd's names have backslashes, which a pattern takes for escapes.
	entries, err := os.ReadDir(own)
	if err != nil {
		return nil, err
	}
	above := len(dirs)
	for _, e := range entries {
		number, is := strings.CutPrefix(e.Name(), "vcpu")
		if _, err := strconv.Atoi(number); is && err == nil {
			dirs = append(dirs, filepath.Join(own, e.Name()))
		}
	}
	if len(dirs) == above {
		return nil, fmt.Errorf("no groups of vCPUs in %s", own)
	}
	return dirs, nil
}

// processes are those of VMs, by the UUIDs in their command lines. They are looked for once, when they are first needed: that
// reads the command line of every process of the machine.
type processes struct {
	proc string
	once sync.Once
	pids map[string][]string
	err  error
}

// look for them.
func (p *processes) look() {
	p.pids = map[string][]string{}
	entries, err := os.ReadDir(p.proc)
	if err != nil {
		p.err = err
		return
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(p.proc, e.Name(), "cmdline"))
		if err != nil {
			continue // it ended
		}
		_, rest, is := bytes.Cut(line, []byte("\x00-uuid\x00"))
		if uuid, _, ends := bytes.Cut(rest, []byte{0}); is && ends {
			p.pids[string(uuid)] = append(p.pids[string(uuid)], e.Name())
		}
	}
}

// of a VM, the one process whose command line has "-uuid UUID".
func (p *processes) of(uuid string) (string, error) {
	p.once.Do(p.look)
	switch found := p.pids[uuid]; {
	case p.err != nil:
		return "", p.err
	case len(found) > 1: // as a VM moves from one host to another in namespaces of one machine
		return "", fmt.Errorf("processes %s and %s are both of VM %s", found[0], found[1], uuid)
	case len(found) == 1:
		return found[0], nil
	}
	return "", fmt.Errorf("no process of VM %s is seen here", uuid)
}

// groupDir is where the group of a process (its /proc/PID/cgroup) that has the CPU controller is mounted here.
func groupDir(cgroup, mountinfo []byte, version int) (string, error) {
	path := ""
	for line := range bytes.Lines(cgroup) {
		part := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3) // number:controllers:path
		if len(part) == 3 && (version == 2 && part[1] == "" || version == 1 && has(part[1], "cpu")) {
			path = part[2]
		}
	}
	if path == "" {
		return "", fmt.Errorf("the process is in no group with the CPU controller of version %d", version)
	}
	if strings.HasPrefix(path, "/..") {
		return "", fmt.Errorf("group %s is outside of what is seen here", path)
	}
	for line := range bytes.Lines(mountinfo) {
		head, tail, ok := strings.Cut(string(line), " - ")
		of, kind := strings.Fields(head), strings.Fields(tail)
		if !ok || len(of) < 5 || len(kind) < 3 {
			continue
		}
		if version == 2 && kind[0] != "cgroup2" || version == 1 && (kind[0] != "cgroup" || !has(kind[2], "cpu")) {
			continue
		}
		root, at := of[3], of[4]
		if rest, within := strings.CutPrefix(path, strings.TrimSuffix(root, "/")); within && (rest == "" || rest[0] == '/') {
			return filepath.Join(at, rest), nil
		}
	}
	return "", fmt.Errorf("group %s is not mounted here", path)
}

// has says whether a list with commas has that entry.
func has(list, entry string) bool {
	for e := range strings.SplitSeq(list, ",") {
		if e == entry {
			return true
		}
	}
	return false
}
