package hostcheck

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"evenkeel/hypervisor"
)

// StorageDir is where libvirt keeps disks by default.
const StorageDir = "/var/lib/libvirt/images"

// Libvirt is the libvirt of the machine, if it answers.
type Libvirt interface {
	Capacity(context.Context) (hypervisor.Capacity, error)
	ReportsPages(context.Context) (bool, error)
}

// Machine is what is looked at.
type Machine struct {
	Root       string  // its files are below that: "/" but in tests
	Libvirt    Libvirt // may be nil where Down is not
	Down       error   // why libvirt does not answer
	Emulation  bool    // VMs are not to use KVM: none is booted
	MigrateURI string  // where other hosts reach its libvirt; "" is by TLS, with the usual files
}

// Collect reads a machine.
func Collect(ctx context.Context, m Machine) Facts {
	root, h, down := m.Root, m.Libvirt, m.Down
	f := Facts{KVM: text(usableKVM(filepath.Join(root, "dev/kvm"))), StorageFree: -1}
	if f.Emulation = m.Emulation; f.KVM == "" && !m.Emulation {
		f.Boot = bootKernel(ctx, root)
	}
	f.readFiles(root)
	f.Moves = moves(reader(root), m.MigrateURI, time.Now())
	var t unix.Timex
	if state, err := unix.Adjtimex(&t); err == nil {
		f.ClockSynced = state != unix.TIME_ERROR
	}
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Join(root, StorageDir), &fs) == nil {
		f.StorageFree = int64(fs.Bavail) * fs.Bsize
	}
	if down == nil {
		var c hypervisor.Capacity
		if c, down = h.Capacity(ctx); down == nil {
			f.Software, f.LibvirtKVM = c.Software, c.KVM
			f.ReportsPages, down = h.ReportsPages(ctx)
		}
	}
	f.Libvirt = text(down)
	return f
}

// readFiles fills in what files below root say.
func (f *Facts) readFiles(root string) {
	in := reader(root)
	cpu := strings.Fields(in("proc/cpuinfo"))
	f.Virtual = slices.Contains(cpu, "vmx") || slices.Contains(cpu, "svm")

	f.Controllers = strings.Fields(in("sys/fs/cgroup/cgroup.controllers"))
	if f.Cgroup = 2; len(f.Controllers) == 0 {
		f.Cgroup = 1
		for _, dir := range []string{"cpu", "memory"} {
			if _, err := os.Stat(filepath.Join(root, "sys/fs/cgroup", dir, "cgroup.procs")); err == nil {
				f.Controllers = append(f.Controllers, dir)
			}
		}
		if len(f.Controllers) == 0 {
			f.Cgroup = 0
		}
	}
	f.Watchdog, f.NoWayOut = in("sys/class/watchdog/watchdog0/identity"), in("sys/class/watchdog/watchdog0/nowayout") == "1"
	f.Confined = in("sys/module/apparmor/parameters/enabled") == "Y" || in("sys/fs/selinux/enforce") == "1"
	memory := meminfo(in("proc/meminfo"))
	f.SwapTotal, f.HugePagesSize = memory["SwapTotal"], memory["Hugetlb"]
	nodes, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/node/node[0-9]*"))
	f.NUMANodes = len(nodes)
}

// meminfo reads proc_meminfo(5), in bytes.
func meminfo(file string) map[string]int64 {
	values := map[string]int64{}
	for lines := bufio.NewScanner(strings.NewReader(file)); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			values[name] = n << 10
		}
	}
	return values
}

// usableKVM has KVM make a VM, which goes with its file. Linux, Documentation/virt/kvm/api.rst: KVM_CREATE_VM is _IO(0xAE, 0x01).
func usableKVM(device string) error {
	const createVM = 0xAE01
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", device, err)
	}
	defer unix.Close(fd)
	vm, err := unix.IoctlRetInt(fd, createVM)
	if err != nil {
		return fmt.Errorf("%s makes no VM: %w", device, err)
	}
	return unix.Close(vm)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
