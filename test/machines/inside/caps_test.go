package inside

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

const (
	capWindow = 8 * time.Second // over which CPU use is measured
	maxOver   = 0.05            // cores above a cap that are a failure, however busy the computer is
)

// TestCaps sets caps and compares the quota in the kernel with what the vCPUs got. The test outside
// judges what they got too little of: it knows whether the machine itself could run.
func TestCaps(t *testing.T) {
	h := kvmHost(t)
	var table strings.Builder
	fmt.Fprintf(&table, "CAPS %-6s %8s %-14s %16s %8s %8s\n", "VCPUS", "CAP", "GROUP", "CPU.MAX", "GOT", "ERROR")
	var sum, highest float64
	n := 0
	for _, vm := range []struct {
		vcpus int
		group string
		caps  []float64
	}{
		{1, "libvirt/vcpu0", inShort([]float64{0.05, 0.1, 0.2, 0.25, 0.4, 0.5, 0.6, 0.8})},
		{2, "libvirt", inShort([]float64{0.3, 0.5, 0.8, 1})},
	} {
		s := busy(spec(fmt.Sprintf("ek-caps-%d", vm.vcpus)), vm.vcpus)
		s.VCPUs, s.CPU = vm.vcpus, hypervisor.CPU{Cap: 0.8, Weight: 1}
		run(t, h, s)
		awaitBusy(t, h, s.VM)
		for _, c := range vm.caps {
			if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: c, Weight: 1}); err != nil {
				t.Fatal(err)
			}
			quota := read(t, groupOf(t, s.Name), vm.group, "cpu.max")
			got := use(t, h, s.VM, capWindow)
			off := got - c
			if off > maxOver {
				t.Errorf("a cap of %.2f cores lets %.3f through", c, off)
			}
			sum, highest, n = sum+math.Abs(off), max(highest, math.Abs(off)), n+1
			fmt.Fprintf(&table, "CAPS %-6d %8.2f %-14s %16s %8.3f %+8.3f\n", vm.vcpus, c, vm.group, quota, got, off)
		}
		if err := h.Destroy(t.Context(), s.VM); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%sCAPS mean error %.4f cores, maximal %.4f, of %d caps, windows of %s\n", table.String(), sum/float64(n), highest, n, capWindow)
}

// inShort is all caps, or in a short run the least, the middle and the greatest.
func inShort(caps []float64) []float64 {
	if !testing.Short() {
		return caps
	}
	return []float64{caps[0], caps[len(caps)/2], caps[len(caps)-1]}
}

// awaitBusy waits until a guest has booted and computes: it then prints beats. The test outside ends a wait without an end.
func awaitBusy(t *testing.T, h hypervisor.Host, id string) {
	t.Helper()
	console, err := h.Console(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	for lines := bufio.NewScanner(console); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "BEAT ") {
			return
		}
	}
	t.Fatal("the console of the guest ended before it had booted")
}

// use is the CPU that a VM's vCPUs get over a window, in cores.
func use(t *testing.T, h hypervisor.Host, id string, window time.Duration) float64 {
	t.Helper()
	sample := func() hypervisor.Stats {
		all, err := h.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.VM == id {
				return s
			}
		}
		t.Fatalf("no sample of %s", id)
		return hypervisor.Stats{}
	}
	first := sample()
	time.Sleep(window) // sleep: the window is what is measured
	last := sample()
	return float64(last.VCPUTime-first.VCPUTime) / float64(last.At.Sub(first.At))
}

// groupOf is the control group of a VM: the scope that machined made for it.
func groupOf(t *testing.T, name string) string {
	t.Helper()
	// systemd writes "-" as "\x2d" in the names of scopes.
	escaped := strings.ReplaceAll(name, "-", `\\x2d`)
	found, err := filepath.Glob(`/sys/fs/cgroup/machine.slice/machine-qemu\\x2d*\\x2d` + escaped + ".scope")
	if err != nil || len(found) != 1 {
		t.Fatalf("scopes of %s below machine.slice: %q, %v", name, found, err)
	}
	return found[0]
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
