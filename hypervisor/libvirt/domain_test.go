package libvirt

import (
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

var update = flag.Bool("update", false, "write the golden files")

func baseSpec() hypervisor.Spec {
	return hypervisor.Spec{
		Identity: hypervisor.Identity{Cluster: "c1", VM: "vm1", Generation: 3}, Name: "ek-vm1", Title: "film/render-worker-0",
		VCPUs: 1, Memory: 256 << 20, Balloon: 128 << 20, CPU: hypervisor.CPU{Cap: 0.25, Weight: 0.25},
		Boot: hypervisor.Boot{Kernel: "/img/vmlinuz", Initrd: "/img/initrd", Cmdline: "console=ttyS0 a=\"<&>\""},
	}
}

// The whole XML of the kinds of VM there are, as libvirt gets it.
func TestDomainXML(t *testing.T) {
	disk := baseSpec()
	disk.Boot = hypervisor.Boot{}
	disk.VCPUs = 4
	disk.CPU.Cap = 2
	disk.Disk = hypervisor.Disk{Base: "/img/debian.qcow2", Size: 10 << 30, Pool: "fast", Ephemeral: true}
	disk.Network = "default"
	disk.CloudInit.UserData = "#cloud-config\n"
	empty := baseSpec()
	empty.Disk = hypervisor.Disk{Size: 1 << 30}
	bridge := baseSpec()
	bridge.Network = "bridge:br0"
	bridge.CPU = hypervisor.CPU{}
	cases := []struct {
		name   string
		spec   hypervisor.Spec
		parts  parts
		can    abilities
		cgroup int
	}{
		{"kernel", baseSpec(), parts{log: "/s/console/vm1.log"}, abilitiesOf(false, 9_000_000, 7_002_022), 1},
		{"disk", disk, parts{disk: "/pool/d.qcow2", seed: "/pool/s.iso"}, abilitiesOf(true, 9_000_000, 7_002_022), 2},
		{"empty-disk", empty, parts{disk: "/pool/e.qcow2"}, abilitiesOf(false, 9_000_000, 7_002_022), 1},
		{"bridge", bridge, parts{}, abilitiesOf(false, 6_000_000, 4_002_000), 2}, // cannot report free pages
	}
	for _, c := range cases {
		got, err := domainXML(c.spec, c.parts, c.can, c.cgroup)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		golden := filepath.Join("testdata", "domain-"+c.name+".xml")
		if *update {
			if err := os.WriteFile(golden, []byte(got+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got+"\n" != string(want) {
			t.Errorf("%s differs from %s (go test -update writes it again):\n%s", c.name, golden, got)
		}
		var back libvirtxml.Domain
		if err := back.Unmarshal(got); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if back.OnPoweroff != "destroy" || back.CPUTune == nil || back.Metadata == nil {
			t.Errorf("%s: a VM must say what becomes of it, have its CPU share and its mark from the start", c.name)
		}
	}
}

// Every image of every kind of disk names its format, and every chain ends: else libvirt and QEMU go by what the file says.
func TestDiskChains(t *testing.T) {
	cases := []struct {
		name string
		disk hypervisor.Disk
		seed bool
		want []string // format and file of each image, disk by disk
	}{
		{"none", hypervisor.Disk{}, false, nil},
		{"empty", hypervisor.Disk{Size: 1 << 30}, false, []string{"qcow2 /pool/d"}},
		{"empty, ephemeral", hypervisor.Disk{Size: 1 << 30, Ephemeral: true}, false, []string{"qcow2 /pool/d"}},
		{"overlay", hypervisor.Disk{Base: "/img/b"}, false, []string{"qcow2 /pool/d", "qcow2 /img/b"}},
		{"overlay and seed", hypervisor.Disk{Base: "/img/b"}, true, []string{"qcow2 /pool/d", "qcow2 /img/b", "raw /pool/s"}},
		{"seed alone", hypervisor.Disk{}, true, []string{"raw /pool/s"}},
	}
	for _, c := range cases {
		spec := baseSpec()
		spec.Disk = c.disk
		var p parts
		if spec.Disk.Present() {
			p.disk = "/pool/d"
		}
		if c.seed {
			p.seed = "/pool/s"
		}
		text, err := domainXML(spec, p, abilitiesOf(false, 9_000_000, 7_002_022), 1)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var d libvirtxml.Domain
		if err := d.Unmarshal(text); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, disk := range d.Devices.Disks {
			if disk.Driver == nil {
				t.Errorf("%s: a disk without a driver: its format is guessed", c.name)
				continue
			}
			got = append(got, disk.Driver.Type+" "+disk.Source.File.File)
			below := disk.BackingStore
			for below != nil && below.Source != nil && below.Source.File != nil {
				if below.Format == nil {
					t.Fatalf("%s: a base without a format: it is guessed", c.name)
				}
				got = append(got, below.Format.Type+" "+below.Source.File.File)
				below = below.BackingStore
			}
			if below == nil {
				t.Errorf("%s: no <backingStore/> at the end of %s: libvirt follows what the file's header names", c.name, disk.Source.File.File)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: images %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCheckSpec(t *testing.T) {
	if err := checkSpec(baseSpec()); err != nil {
		t.Errorf("a good spec: %v", err)
	}
	bad := map[string]func(*hypervisor.Spec){
		"no cluster":         func(s *hypervisor.Spec) { s.Cluster = "" },
		"no id":              func(s *hypervisor.Spec) { s.VM = "" },
		"no name":            func(s *hypervisor.Spec) { s.Name = "" },
		"title of two lines": func(s *hypervisor.Spec) { s.Title = "a\nb" },
		"long title":         func(s *hypervisor.Spec) { s.Title = strings.Repeat("a", hypervisor.MaxTitle+1) },
		"name with a slash":  func(s *hypervisor.Spec) { s.Name = "a/b" },
		"no vCPU":            func(s *hypervisor.Spec) { s.VCPUs = 0 },
		"no memory":          func(s *hypervisor.Spec) { s.Memory = 0 },
		"balloon too large":  func(s *hypervisor.Spec) { s.Balloon = s.Memory + 1 },
		"negative balloon":   func(s *hypervisor.Spec) { s.Balloon = -1 },
		"negative disk":      func(s *hypervisor.Spec) { s.Disk.Size = -1 },
		"cap not a number":   func(s *hypervisor.Spec) { s.CPU.Cap = math.NaN() },
		"nothing to boot":    func(s *hypervisor.Spec) { s.Boot = hypervisor.Boot{} },
		"relative kernel":    func(s *hypervisor.Spec) { s.Boot.Kernel = "vmlinuz" },
		"relative disk base": func(s *hypervisor.Spec) { s.Disk.Base = "../x" },
	}
	for name, spoil := range bad {
		s := baseSpec()
		spoil(&s)
		if err := checkSpec(s); !errors.Is(err, hypervisor.ErrInvalid) {
			t.Errorf("%s: error is %v, want ErrInvalid", name, err)
		}
	}
}

func TestOffersKVM(t *testing.T) {
	guest := func(domains string) string {
		return "<capabilities><guest><os_type>hvm</os_type><arch name='x86_64'><wordsize>64</wordsize>" + domains + "</arch></guest></capabilities>"
	}
	cases := []struct {
		name, caps string
		want, ok   bool
	}{
		{"both", guest("<domain type='qemu'/><domain type='kvm'/>"), true, true},
		{"emulation only", guest("<domain type='qemu'/>"), false, true},
		{"no guests", "<capabilities/>", false, false},
		{"other machines only", "<capabilities><guest><os_type>hvm</os_type><arch name='aarch64'><domain type='kvm'/></arch></guest></capabilities>", false, false},
		{"no XML", "nonsense", false, false},
	}
	for _, c := range cases {
		got, err := offersKVM(c.caps)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
