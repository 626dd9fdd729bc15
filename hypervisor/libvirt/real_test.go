package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/conformance"
	"evenkeel/test/lab"
)

// bench is one lab host with a real libvirt, and a Host connected to it.
type bench struct {
	*Host
	lab   *lab.Host
	guest lab.Guest
	opts  Options
}

// labs that tests share, one after another: each leaves the hosts as it found them. After a test that failed the next one gets
// new hosts.
var labs struct{ one, pair *lab.Lab }

func TestMain(m *testing.M) {
	code := m.Run()
	if err := errors.Join(closeLab(&labs.one), closeLab(&labs.pair)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func closeLab(l **lab.Lab) error {
	if *l == nil {
		return nil
	}
	err := (*l).Close()
	*l = nil
	return err
}

// sharedLab is the lab of these options, which is started if there is none. EVENKEEL_QEMU names a tree of another QEMU that the
// hosts are to have.
func sharedLab(t *testing.T, l **lab.Lab, opts lab.Options) *lab.Lab {
	t.Helper()
	if *l == nil {
		opts.QEMU = os.Getenv("EVENKEEL_QEMU")
		var err error
		if *l, err = lab.Start(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if err := closeLab(l); err != nil {
			t.Error(err)
		}
	})
	return *l
}

// pairLab is two hosts with TLS and a shared pool.
func pairLab(t *testing.T) *lab.Lab {
	t.Helper()
	return sharedLab(t, &labs.pair, lab.Options{Hosts: 2, TLS: true, Shared: true})
}

// realHost connects to a lab host.
func realHost(t *testing.T) bench {
	t.Helper()
	guest := lab.Real(t)
	l := sharedLab(t, &labs.one, lab.Options{})
	if err := l.Precede(); err != nil {
		t.Fatal(err)
	}
	b := connectTo(t, l.Host(1), guest)
	t.Cleanup(func() { b.empty(t) })
	return b
}

// empty checks that a test leaves no VM behind on its host.
func (b bench) empty(t *testing.T) {
	if t.Failed() { // its lab goes
		return
	}
	out, err := exec.Command("virsh", "-q", "-c", b.lab.URI(), "list", "--all", "--name").CombinedOutput()
	if left := strings.TrimSpace(string(out)); err != nil || left != "" {
		t.Errorf("left behind on %s: %v: %s", b.lab.Name, err, left)
	}
}

func connectTo(t *testing.T, l *lab.Host, guest lab.Guest) bench {
	t.Helper()
	kvm, err := lab.KVM(t.Context(), guest)
	if err != nil {
		t.Fatal(err)
	}
	b := bench{lab: l, guest: guest, opts: Options{URI: l.URI(), ForceEmulation: !kvm, StateDir: t.TempDir()}}
	b.Host = b.open(t)
	return b
}

func (b bench) open(t *testing.T) *Host {
	t.Helper()
	h, err := Open(t.Context(), b.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

var serial int

// spec is a guest with these settings of its workload.
func (b bench) spec(name, settings string) hypervisor.Spec {
	serial++
	const memory = 128 << 20
	return hypervisor.Spec{
		Identity: hypervisor.Identity{Cluster: "test", VM: fmt.Sprintf("vm-%d", serial), Generation: 1}, Leased: true,
		Name: name, VCPUs: 1, Memory: memory, Balloon: memory,
		Boot: hypervisor.Boot{Kernel: b.guest.Kernel, Initrd: b.guest.Initrd, Cmdline: b.guest.Cmdline(settings)},
	}
}

// run starts a VM that goes when the test does.
func (b bench) run(t *testing.T, spec hypervisor.Spec) {
	t.Helper()
	if err := b.Define(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.Destroy(ctx, spec.VM); err != nil {
			t.Error(err)
		}
		if err := b.Undefine(ctx, spec); err != nil {
			t.Error(err)
		}
	})
	if err := b.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// foreign runs a VM that carries no mark. It is paused and costs nothing.
func (b bench) foreign(t *testing.T, name string) {
	t.Helper()
	text, err := (&libvirtxml.Domain{
		Type: "qemu", Name: name,
		Memory:   &libvirtxml.DomainMemory{Value: 32, Unit: "MiB"},
		VCPU:     &libvirtxml.DomainVCPU{Value: 1},
		OS:       &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"}},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}, // newer QEMUs cannot do without
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := libvirt.NewConnect(b.lab.URI())
	if err != nil {
		t.Fatal(err)
	}
	dom, err := conn.DomainCreateXML(text, libvirt.DOMAIN_START_PAUSED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dom.Destroy(); err != nil {
			t.Error(err)
		}
		_ = dom.Free()
		_, _ = conn.Close()
	})
}

func TestConformance(t *testing.T) {
	guest := lab.Real(t)
	// QEMU 7.2 crashes emulated guests that move while they run, so the move needs another.
	two := os.Getenv("EVENKEEL_QEMU") != ""
	var l *lab.Lab
	if two {
		l = pairLab(t)
	} else {
		l = sharedLab(t, &labs.one, lab.Options{})
	}
	if err := l.Precede(); err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, func(t *testing.T) conformance.Setup {
		b := connectTo(t, l.Host(1), guest)
		s := conformance.Setup{
			Host: b.Host,
			Spec: func(name string) hypervisor.Spec { return b.spec(name, "") },
			Busy: func(spec hypervisor.Spec, threads int) hypervisor.Spec {
				spec.Boot.Cmdline = guest.Cmdline(fmt.Sprintf("ek.burn=%d", threads))
				return spec
			},
			Wait:   2 * time.Minute,
			Window: 2 * time.Second,
			Poll:   50 * time.Millisecond,
			Abilities: conformance.Abilities{
				Foreign:   b.foreign,
				Throttles: true, // the lab's processes are seen from here
				Occupies: func(spec hypervisor.Spec, bytes int64) hypervisor.Spec {
					spec.Boot.Cmdline = guest.Cmdline(fmt.Sprintf("ek.touch=%d", bytes>>20))
					return spec
				},
				Occupied: func(bytes int64) string { return fmt.Sprintf(" touched=%d ", bytes/4096) },
				RestartDaemon: func(t *testing.T) {
					if err := b.lab.StopDaemon(); err != nil {
						t.Fatal(err)
					}
					if err := b.lab.StartDaemon(t.Context()); err != nil {
						t.Fatal(err)
					}
				},
				Reconnect: func(t *testing.T) hypervisor.Host { return b.open(t) },
				Kill: func(t *testing.T, id string) {
					vms, err := b.List(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, vm := range vms {
						if vm.VM == id {
							if err := b.lab.KillVM(vm.Name); err != nil {
								t.Fatal(err)
							}
							return
						}
					}
					t.Fatalf("no VM %s to kill", id)
				},
				Console: &conformance.Console{Send: "echo pebble\n", Expect: "OK echo pebble"},
			},
		}
		if two {
			s.Second = &conformance.Second{Host: connectTo(t, l.Host(2), guest).Host, Address: l.Host(2).MigrationURI(), Back: l.Host(1).MigrationURI()}
		}
		return s
	})
}

func isUnavailable(err error) bool { return errors.Is(err, hypervisor.ErrUnavailable) }
