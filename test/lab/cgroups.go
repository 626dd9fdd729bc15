package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupRoot  = "/sys/fs/cgroup"
	cgroupMagic = 0x27e0eb // of a v1 hierarchy; linux/magic.h
	periodUs    = 100_000
	// The kernel's limits of a group's weight among its siblings, in cgroup v2 and v1.
	maxWeight, maxShares = 10_000, 262_144
)

func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// cgroups are the directories of the host of that name (of the lab, for ""), one per hierarchy.
func (l *Lab) cgroups(host string) []string {
	below := filepath.Join(l.state.ID, host)
	if unified() {
		return []string{filepath.Join(cgroupRoot, below)}
	}
	var dirs []string
	entries, _ := os.ReadDir(cgroupRoot)
	for _, e := range entries {
		dir := filepath.Join(cgroupRoot, e.Name())
		var st syscall.Statfs_t
		if e.IsDir() && syscall.Statfs(dir, &st) == nil && st.Type == cgroupMagic {
			dirs = append(dirs, filepath.Join(dir, below))
		}
	}
	return dirs
}

func makeCgroups(dirs []string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		parent, top := filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))
		if unified() {
			// Controllers are handed down level by level, and a group that hands
			// them down holds no process of its own.
			all, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
			if err != nil {
				return err
			}
			for _, c := range strings.Fields(string(all)) {
				for _, d := range []string{top, parent} {
					_ = os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+"+c), 0o644) // some cannot be handed down
				}
			}
			if err := os.MkdirAll(filepath.Join(dir, "init"), 0o755); err != nil {
				return err
			}
			continue
		}
		// A new cpuset of v1 is empty and takes no process.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			for _, d := range []string{parent, dir} {
				if _, err := os.Stat(filepath.Join(d, f)); err != nil {
					continue
				}
				have, err := os.ReadFile(filepath.Join(filepath.Dir(d), f))
				if err == nil {
					err = os.WriteFile(filepath.Join(d, f), have, 0o644)
				}
				if err != nil {
					return fmt.Errorf("%s of %s: %w", f, d, err)
				}
			}
		}
	}
	return nil
}

// removeCgroups removes groups with all below them, once their last processes are gone.
func removeCgroups(dirs []string) error {
	return eventually(10*time.Second, func() error {
		var errs []error
		for _, dir := range dirs {
			var below []string
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err == nil && d.IsDir() {
					below = append(below, path)
				}
				return err
			})
			errs = append(errs, err)
			for i := len(below) - 1; i >= 0; i-- {
				if err := syscall.Rmdir(below[i]); err != nil && !errors.Is(err, syscall.ENOENT) {
					errs = append(errs, fmt.Errorf("remove cgroup %s: %w", below[i], err))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// set writes a setting to those of the groups that have it; an error if none has.
func set(dirs []string, file, value string) error {
	found := false
	for _, dir := range dirs {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		found = true
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no control group of the host has %s", file)
	}
	return nil
}

func limitCPU(dirs []string, cores float64) error {
	quota := fmt.Sprintf("%.0f", cores*periodUs)
	if unified() {
		if cores == 0 {
			quota = "max"
		}
		return set(dirs, "cpu.max", fmt.Sprintf("%s %d", quota, periodUs))
	}
	if cores == 0 {
		quota = "-1"
	}
	return errors.Join(set(dirs, "cpu.cfs_period_us", fmt.Sprint(periodUs)), set(dirs, "cpu.cfs_quota_us", quota))
}

// weigh gives the groups the weight of so many processes of nice 0 that are in no group.
func weigh(dirs []string, processes int) error {
	if unified() {
		return set(dirs, "cpu.weight", fmt.Sprint(min(100*processes, maxWeight)))
	}
	return set(dirs, "cpu.shares", fmt.Sprint(min(1024*processes, maxShares)))
}

// precede gives the groups the greatest weight there is among their siblings.
func precede(dirs []string) error { return weigh(dirs, maxShares/1024) }

func freeze(dirs []string, frozen bool) error {
	if unified() {
		value := "0"
		if frozen {
			value = "1"
		}
		return set(dirs, "cgroup.freeze", value)
	}
	value := "THAWED"
	if frozen {
		value = "FROZEN"
	}
	return set(dirs, "freezer.state", value)
}

// vcpuGroups are the groups of the vCPUs of the VM of that name, in the
// hierarchy that counts CPU time. libvirt names a VM's group after its number and
// name, here with nothing in it that would be escaped.
func vcpuGroups(dirs []string, vm string) ([]string, error) {
	for _, dir := range dirs {
		for _, sub := range []string{"", "libvirt"} { // cgroup v2: libvirt puts threads one level below
			groups, err := filepath.Glob(filepath.Join(dir, "machine", "qemu-*-"+vm+".libvirt-qemu", sub, "vcpu*"))
			if err != nil {
				return nil, err
			}
			if len(groups) > 0 {
				if _, err := cpuTime(groups[0]); err == nil {
					return groups, nil
				}
			}
		}
	}
	return nil, errors.New("no control groups of its vCPUs")
}

// throttled is how long a group and those below it were kept off the CPU by
// their quotas, one after the other.
func throttled(group string) (time.Duration, error) {
	var sum time.Duration
	found := false
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cpu.stat" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			unit := map[string]time.Duration{"throttled_time": 1, "throttled_usec": time.Microsecond}[key] // v1, v2
			if unit == 0 {
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err
			}
			found = true
			sum += time.Duration(n) * unit
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s counts no throttled time", group)
	}
	return sum, err
}

func cpuTime(group string) (time.Duration, error) {
	if text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage")); err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(ns), err
	}
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s counts no CPU time", group)
}
