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

const capWindow = 8 * time.Second // over which CPU use is measured

// TestCaps sets caps, checks that the kernel has the quota and throttles by it, and prints what the vCPUs got. The test outside
// judges that: it knows whether the machine itself could run. While it cannot, the machine's clock goes on, and counts as use.
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
			group := filepath.Join(groupOf(t, s.Name), vm.group)
			quota := read(t, group, "cpu.max")
			if want := fmt.Sprintf("%.0f 100000", c*100000); vm.vcpus == 1 && quota != want { // with several: decision 0005
				t.Errorf("at a cap of %.2f cores cpu.max is %q, want %q", c, quota, want)
			}
			before := throttled(t, group)
			got := use(t, h, s.VM, capWindow)
			off := got - c
			if after := throttled(t, group); after <= before {
				t.Errorf("at a cap of %.2f cores the kernel throttled a busy guest in no period of %s", c, capWindow)
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

// TestQuotas checks what the kernel has for a cap that is taken away, and for vCPUs that come while the guest runs: libvirt gives a group to
// each, and the quota of the domain to each group.
func TestQuotas(t *testing.T) {
	h := kvmHost(t)
	s := busy(spec("ek-quotas"), 1)
	s.CPU = hypervisor.CPU{Cap: 0.4, Weight: 1}
	run(t, h, s)
	awaitBusy(t, h, s.VM)
	group := filepath.Join(groupOf(t, s.Name), "libvirt", "vcpu0")
	for _, step := range []struct {
		cap  float64
		want string
	}{{0.4, "40000 100000"}, {0, "max 100000"}, {0.3, "30000 100000"}} {
		if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: step.cap, Weight: 1}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, group, "cpu.max"); got != step.want {
			t.Errorf("at a cap of %v cores cpu.max is %q, want %q", step.cap, got, step.want)
		}
	}
	// As an operator would by hand, past Evenkeel.
	command(t, "virsh", "schedinfo", "--live", s.Name, "vcpu_quota=-1")
	if got := read(t, group, "cpu.max"); got != "max 100000" {
		t.Errorf("at a quota of -1 cpu.max is %q, want no limit", got)
	}
	if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: 0.3, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, group, "cpu.max"); got != "30000 100000" {
		t.Errorf("after the quota was taken away by hand the cap of 0.3 cores makes cpu.max %q", got)
	}
}

// TestWeights has two guests compete for one core, and prints what share the one of three times the weight got.
func TestWeights(t *testing.T) {
	h := kvmHost(t)
	light, heavy := busy(spec("ek-light"), 1), busy(spec("ek-heavy"), 1)
	light.CPU, heavy.CPU = hypervisor.CPU{Cap: 1, Weight: 0.25}, hypervisor.CPU{Cap: 1, Weight: 0.75}
	for _, s := range []hypervisor.Spec{light, heavy} {
		run(t, h, s)
		awaitBusy(t, h, s.VM)
	}
	command(t, "systemctl", "set-property", "--runtime", "machine.slice", "AllowedCPUs=0")
	time.Sleep(2 * time.Second) // sleep: until all their threads have moved to the one CPU, before the window
	all := used(t, h, capWindow, light.VM, heavy.VM)
	fmt.Printf("WEIGHTS share %.3f of %.3f cores, cpu.weight %s and %s\n", all[1]/(all[0]+all[1]), all[0]+all[1],
		read(t, groupOf(t, heavy.Name), "cpu.weight"), read(t, groupOf(t, light.Name), "cpu.weight"))
}

// throttled is in how many periods the kernel has throttled a group.
func throttled(t *testing.T, group string) int {
	t.Helper()
	for line := range strings.Lines(read(t, group, "cpu.stat")) {
		var n int
		if _, err := fmt.Sscanf(line, "nr_throttled %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no nr_throttled in cpu.stat of %s", group)
	return 0
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
	return used(t, h, window, id)[0]
}

// used is the CPU that the vCPUs of VMs get over one window, in cores.
func used(t *testing.T, h hypervisor.Host, window time.Duration, ids ...string) []float64 {
	t.Helper()
	sample := func() map[string]hypervisor.Stats {
		all, err := h.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]hypervisor.Stats{}
		for _, s := range all {
			of[s.VM] = s
		}
		return of
	}
	first := sample()
	time.Sleep(window) // sleep: the window is what is measured
	last := sample()
	var cores []float64
	for _, id := range ids {
		a, had := first[id]
		b, has := last[id]
		if !had || !has {
			t.Fatalf("no sample of %s", id)
		}
		cores = append(cores, float64(b.VCPUTime-a.VCPUTime)/float64(b.At.Sub(a.At)))
	}
	return cores
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
