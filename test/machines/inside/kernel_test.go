package inside

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/test/patience"
)

// quotas checks what the kernel has for a cap that is taken away.
func quotas(t *testing.T, h hypervisor.Host, s hypervisor.Spec, group string) {
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

// pressure checks that the kernel has tasks of a throttled guest wait, in the group's own file and in the machine's, which Evenkeel reads.
func pressure(t *testing.T, h hypervisor.Host, s hypervisor.Spec, group string) {
	if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: 0.2, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	const want = 30 // percent of ten seconds; a guest that is kept to a fifth of a core waits for 80
	var share float64
	text := ""
	for began := time.Now(); share < want && time.Since(began) < patience.Within(time.Minute); time.Sleep(time.Second) { // sleep: between two readings
		text = read(t, group, "cpu.pressure")
		if _, err := fmt.Sscanf(text, "some avg10=%f", &share); err != nil {
			t.Fatalf("cpu.pressure is %q", text)
		}
	}
	if share < want {
		t.Errorf("a guest that is kept to a fifth of a core waits for %.0f%% of the time by cpu.pressure %q, want %d%%", share, text, want)
	}
	var memory float64
	scope := groupOf(t, s.Name)
	if _, err := fmt.Sscanf(read(t, scope, "memory.pressure"), "some avg10=%f", &memory); err != nil || memory > 50 {
		t.Errorf("memory.pressure of a guest that lacks no memory is %q: %v", read(t, scope, "memory.pressure"), err)
	}
	p, err := h.Pressure(t.Context())
	if err != nil || p.CPU < 0 || p.Memory < 0 || p.IO < 0 {
		t.Errorf("the pressure of the machine is not known: %+v, %v", p, err)
	}
	fmt.Printf("CAPS cpu.pressure of the group of a guest with a cap of 0.2 cores: %.0f%% of 10 s; of the machine: %.0f%%; memory.pressure of its scope: %.0f%%\n", share, 100*p.CPU, memory)
}

// fewerVCPUs takes a vCPU from a guest by hand, past Evenkeel, as far as guest and libvirt allow it: the quota stays in force, and follows the next cap.
func fewerVCPUs(t *testing.T, h hypervisor.Host, s hypervisor.Spec, group string) {
	before := read(t, group, "cpu.max")
	out, err := exec.Command("virsh", "setvcpus", "--live", s.Name, "1").CombinedOutput()
	said := strings.Join(strings.Fields(string(out)), " ")
	if err != nil {
		said = "refused: " + said
	}
	fmt.Printf("CAPS virsh setvcpus of a guest of %d vCPUs to 1: %q\n", s.VCPUs, said)
	if got := read(t, group, "cpu.max"); got != before || strings.HasPrefix(got, "max") {
		t.Errorf("cpu.max was %q before a vCPU was taken, and is %q", before, got)
	}
	if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: 0.4, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, group, "cpu.max"); got == before || strings.HasPrefix(got, "max") {
		t.Errorf("after the next cap cpu.max is still %q", got)
	}
}
