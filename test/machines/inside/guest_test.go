package inside

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/test/patience"
)

// A guest boots with 30 to 35 s of CPU time, as the machine's kernel charges it, and nothing that is tested changes that. One that used bootCPU, or
// went on for bootTime without using that, does not boot any more: emulated CPUs lost it.
const (
	bootCPU  = 150 * time.Second
	bootTime = 220 * time.Second // less than the test outside allows without output
	boots    = 3                 // at a guest
)

// runBusy runs a guest until it has booted and computes, and says aloud when it takes more than one boot. It returns the VM that runs.
func runBusy(t *testing.T, h hypervisor.Host, s hypervisor.Spec) hypervisor.Spec {
	t.Helper()
	for boot := 1; ; boot++ {
		run(t, h, s)
		seen, ok := awaitBusy(t, h, s)
		if ok {
			return s
		}
		fmt.Printf("CAPS the guest %s did not boot (boot %d of %d): %s\n", s.Name, boot, boots, seen)
		if boot == boots {
			t.Fatalf("the guest %s did not boot", s.Name)
		}
		if err := h.Destroy(t.Context(), s.VM); err != nil {
			t.Fatal(err)
		}
		vcpus, name := s.VCPUs, s.Name
		s.VM, s.Name, s.VCPUs = spec("").VM, name+"b", vcpus
	}
}

// awaitBusy waits until a guest computes: it then prints beats. Of a guest that does not, it returns the end of the console and
// where its CPUs are.
func awaitBusy(t *testing.T, h hypervisor.Host, s hypervisor.Spec) (seen string, ok bool) {
	t.Helper()
	console, err := h.Console(t.Context(), s.VM)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text strings.Builder
	beats := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(console); lines.Scan(); {
			mu.Lock()
			fmt.Fprintln(&text, lines.Text())
			mu.Unlock()
			if strings.HasPrefix(lines.Text(), "BEAT ") {
				beats <- true
				return
			}
		}
		beats <- false
	}()
	defer console.Close()
	group, began := filepath.Join(groupOf(t, s.Name), "libvirt"), time.Now()
	for usage(t, group) < patience.Within(bootCPU) && time.Since(began) < patience.Within(bootTime) {
		select {
		case ok := <-beats:
			if ok {
				return "", true
			}
			t.Fatal("the console of the guest ended before it had booted")
		case <-time.After(time.Second):
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return fmt.Sprintf("%s of CPU time in %s; %s; console: %q", usage(t, group).Round(time.Second/10), time.Since(began).Round(time.Second), whereabouts(s.Name), text.String()[max(0, text.Len()-600):]), false
}

// whereabouts says where the CPUs of a guest are, and who has the machine's watchdog.
func whereabouts(name string) string {
	registers, err := exec.Command("virsh", "-q", "qemu-monitor-command", name, "--hmp", "info registers -a").CombinedOutput()
	at := []string{}
	for line := range strings.Lines(string(registers)) {
		if strings.HasPrefix(line, "CPU#") || strings.HasPrefix(line, "RIP=") {
			at = append(at, strings.TrimSpace(line))
		}
	}
	device, derr := exec.Command("bash", "-c", "cat /sys/class/watchdog/*/state; find /proc/[0-9]*/fd -lname '/dev/watchdog*' 2>/dev/null").CombinedOutput()
	return fmt.Sprintf("its CPUs: %q (%v); the watchdog: %q (%v)", at, err, device, derr)
}
