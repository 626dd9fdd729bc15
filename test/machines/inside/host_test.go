package inside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/conformance"
	"evenkeel/hypervisor/libvirt"
	"evenkeel/test/patience"
)

// callTimeout allows for a machine that stands still, because the computer has other work: libvirt then answers nothing, either.
const callTimeout = 45 * time.Second

// guestDir has the test guest in the machine.
const guestDir = "/srv/guest/"

// kvmHost connects to the libvirt of the machine that the test runs on. It fails unless that has KVM and cgroup v2, so that no
// other accelerator is measured in silence.
func kvmHost(t *testing.T) *libvirt.Host {
	t.Helper()
	if os.Getenv("EVENKEEL_MACHINES") != "inside" {
		t.Skip("runs in a test machine only: make test-machines")
	}
	h, err := libvirt.Open(t.Context(), libvirt.Options{StateDir: t.TempDir(), CallTimeout: patience.Within(callTimeout)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	c, err := h.Capacity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !c.KVM || c.Cgroup != 2 {
		t.Fatalf("KVM %v and cgroup v%d, want KVM and v2: %+v", c.KVM, c.Cgroup, c)
	}
	return h
}

var serial int

// spec is an idle VM of one vCPU.
func spec(name string) hypervisor.Spec {
	serial++
	const memory = 128 << 20
	return hypervisor.Spec{
		Identity: hypervisor.Identity{Cluster: "test", VM: fmt.Sprintf("vm-%d", serial), Generation: 1}, Leased: true,
		Name: name, VCPUs: 1, Memory: memory, Balloon: memory,
		Boot: hypervisor.Boot{Kernel: guestDir + "vmlinuz", Initrd: guestDir + "initrd.img", Cmdline: guestLine("")},
	}
}

// guestLine is the guest's kernel command line with these settings of its workload.
func guestLine(settings string) string {
	return strings.TrimSpace("console=ttyS0 quiet panic=-1 " + settings)
}

func busy(s hypervisor.Spec, threads int) hypervisor.Spec {
	s.Boot.Cmdline = guestLine(fmt.Sprintf("ek.burn=%d", threads))
	return s
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// foreign runs a VM that carries no mark, paused.
func foreign(t *testing.T, name string) {
	t.Helper()
	file := t.TempDir() + "/foreign.xml"
	text := fmt.Sprintf(`<domain type='kvm'><name>%s</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features></domain>`, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "virsh", "create", "--paused", file)
	t.Cleanup(func() { command(t, "virsh", "destroy", name) })
}

// kill ends the QEMU of a VM as a crash would.
func kill(t *testing.T, h hypervisor.Host, id string) {
	t.Helper()
	vms, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		if vm.VM == id {
			pid, err := os.ReadFile("/run/libvirt/qemu/" + vm.Name + ".pid")
			if err != nil {
				t.Fatal(err)
			}
			command(t, "kill", "-9", strings.TrimSpace(string(pid)))
			return
		}
	}
	t.Fatalf("no VM %s to kill", id)
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Setup {
		h := kvmHost(t)
		return conformance.Setup{
			Host: h, Spec: spec, Busy: busy,
			Wait:   patience.Within(225 * time.Second), // less than the test outside allows without output, so that this one says what it waited for
			Window: 4 * time.Second,
			Poll:   200 * time.Millisecond,
			Abilities: conformance.Abilities{
				Foreign:   foreign,
				Throttles: true,
				Occupies: func(s hypervisor.Spec, bytes int64) hypervisor.Spec {
					s.Boot.Cmdline = guestLine(fmt.Sprintf("ek.touch=%d", bytes>>20))
					return s
				},
				Occupied:      func(bytes int64) string { return fmt.Sprintf(" touched=%d ", bytes/4096) },
				RestartDaemon: func(t *testing.T) { command(t, "systemctl", "restart", "libvirtd") },
				Reconnect:     func(t *testing.T) hypervisor.Host { return kvmHost(t) },
				Kill:          func(t *testing.T, id string) { kill(t, h, id) },
				Console:       &conformance.Console{Send: "echo pebble\n", Expect: "OK echo pebble"},
			},
		}
	})
}

// run starts a VM that goes when the test does.
func run(t *testing.T, h hypervisor.Host, s hypervisor.Spec) {
	t.Helper()
	if err := h.Define(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Destroy(context.Background(), s.VM); err != nil {
			t.Error(err)
		}
		if err := h.Undefine(context.Background(), s); err != nil {
			t.Error(err)
		}
	})
	if err := h.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
