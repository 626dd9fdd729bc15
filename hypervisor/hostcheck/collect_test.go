package hostcheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"evenkeel/hypervisor"
)

// machine writes files below a directory, as the root of a machine.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

type daemon struct{ broken error }

func (d daemon) Capacity(context.Context) (hypervisor.Capacity, error) {
	return hypervisor.Capacity{KVM: true, Software: "libvirt 9.0.0, QEMU 7.2.22"}, d.broken
}
func (d daemon) ReportsPages(context.Context) (bool, error) { return true, nil }

func TestCollect(t *testing.T) {
	f := Collect(t.Context(), Machine{Libvirt: daemon{}, Root: machine(t, map[string]string{
		"proc/cpuinfo":                             "processor\t: 0\nflags\t\t: fpu svm lm\n",
		"proc/meminfo":                             "MemTotal:  2048 kB\nSwapTotal:  1024 kB\nHugePages_Total:  3\nHugetlb:  4096 kB\n",
		"sys/fs/cgroup/cgroup.controllers":         "cpuset cpu io memory\n",
		"sys/class/watchdog/watchdog0/identity":    "i6300ESB timer\n",
		"sys/class/watchdog/watchdog0/nowayout":    "1\n",
		"sys/module/apparmor/parameters/enabled":   "Y\n",
		"sys/devices/system/node/node0/cpulist":    "0\n",
		"sys/devices/system/node/node1/cpulist":    "1\n",
		"etc/pki/CA/cacert.pem":                    "x",
		"var/lib/libvirt/images/an-image/of.qcow2": "x",
	})})
	if !f.Virtual || f.Cgroup != 2 || !slices.Contains(f.Controllers, "memory") || f.Watchdog != "i6300ESB timer" || !f.NoWayOut || !f.Confined {
		t.Errorf("%+v", f)
	}
	if f.SwapTotal != 1<<20 || f.HugePagesSize != 4<<20 || f.NUMANodes != 2 || f.StorageFree < 0 || len(f.Moves.Missing) != 9 {
		t.Errorf("%+v", f)
	}
	if f.Libvirt != "" || !f.LibvirtKVM || !f.ReportsPages || !strings.Contains(f.KVM, "no such file") {
		t.Errorf("%+v", f)
	}
}

func TestCollectWithout(t *testing.T) {
	f := Collect(t.Context(), Machine{Root: machine(t, map[string]string{"sys/fs/cgroup/cpu/cgroup.procs": "1\n"}), Down: errors.New("refused")})
	if f.Cgroup != 1 || !slices.Equal(f.Controllers, []string{"cpu"}) || f.Libvirt != "refused" || f.StorageFree != -1 || f.Watchdog != "" {
		t.Errorf("%+v", f)
	}
	if f := Collect(t.Context(), Machine{Root: t.TempDir(), Libvirt: daemon{errors.New("hangs")}}); f.Cgroup != 0 || f.Libvirt != "hangs" || f.Software != "" {
		t.Errorf("%+v", f)
	}
}

// A file that is no KVM makes no VM.
func TestUsableKVM(t *testing.T) {
	if err := usableKVM("/dev/null"); err == nil {
		t.Error("/dev/null made a VM")
	}
}
