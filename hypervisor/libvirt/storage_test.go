package libvirt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// base makes a qcow2 image of that size.
func base(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "base.qcow2")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-f", "qcow2", path, fmt.Sprint(size)).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	return path
}

func (b bench) volume(name string) string { return filepath.Join(b.opts.StateDir, "pool", name) }

// A VM's disk is an overlay over its base, of the size asked for, kept by
// Define and gone after Undefine; its seed holds the cloud-init data.
func TestDisk(t *testing.T) {
	b := realHost(t)
	const baseSize, size = 48 << 20, 80 << 20
	s := b.spec("ek-disk-a-0", "")
	s.Disk = hypervisor.Disk{Base: base(t, baseSize), Size: size}
	s.CloudInit = hypervisor.CloudInit{UserData: "#cloud-config\nhostname: pebble\n", NetworkConfig: "version: 2\n"}
	b.run(t, s)
	disk, seed := b.volume(diskName(s.VM)), b.volume(seedName(s.VM))
	image, err := os.ReadFile(seed)
	if err != nil {
		t.Fatal(err)
	}
	if label := image[16<<10<<1+40:][:6]; string(label) != "cidata" && string(label) != "CIDATA" { // ISO 9660: primary volume descriptor
		t.Errorf("the seed's label is %q", label)
	}
	if !bytes.Contains(image, []byte("hostname: pebble")) || !bytes.Contains(image, []byte("instance-id: "+uuidOf(s.VM))) {
		t.Error("the seed lacks user data or the instance id")
	}
	if info, err := os.Stat(seed); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the seed may hold secrets, and is %v, %v", info.Mode(), err)
	}

	g := b.attachAll(t, s.VM)
	if want := fmt.Sprintf("DISK vda bytes=%d", size); !g.observed(want) {
		t.Errorf("the guest did not say %q", want)
	}
	before, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Undefine(t.Context(), s); err == nil {
		t.Error("a running VM was undefined")
	}
	if err := b.Destroy(t.Context(), s.VM); err != nil {
		t.Fatal(err)
	}
	if err := b.Define(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(disk); err != nil || !os.SameFile(before, after) {
		t.Errorf("Define did not keep the disk: %v", err)
	}
	if err := b.Undefine(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(b.volume("*")); len(left) > 0 {
		t.Errorf("Undefine left %v", left)
	}
	if _, err := os.Stat(s.Disk.Base); err != nil {
		t.Errorf("Undefine touched the base: %v", err)
	}
}

// attachAll opens the console before the guest has booted, and keeps all it says.
func (b bench) attachAll(t *testing.T, id string) *guest {
	t.Helper()
	c, err := b.Console(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{console: c}
	var all strings.Builder
	t.Cleanup(func() { _ = c.Close() })
	buf := make([]byte, 4096)
	for end := time.Now().Add(guestTime); !strings.Contains(all.String(), "BEAT") && time.Now().Before(end); {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(buf[:n])
	}
	g.lines = make(chan string, 1)
	g.lines <- all.String()
	close(g.lines)
	return g
}

func (g *guest) observed(want string) bool { return strings.Contains(<-g.lines, want) }

// A disk with no size of its own is as large as its base; an ephemeral one is
// made at each start and goes with the VM.
func TestEphemeralDisk(t *testing.T) {
	b := realHost(t)
	const size = 48 << 20
	s := b.spec("ek-eph-a-0", "")
	s.Disk = hypervisor.Disk{Base: base(t, size), Ephemeral: true}
	b.run(t, s)
	disk := b.volume(diskName(s.VM))
	out, err := exec.CommandContext(t.Context(), "qemu-img", "info", "-U", "--output=json", disk).Output()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf(`"virtual-size": %d`, size)) {
		t.Errorf("disk: %v: %s", err, out)
	}
	if err := b.Destroy(t.Context(), s.VM); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(disk); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ephemeral disk outlives its VM: %v", err)
	}
	if err := b.Start(t.Context(), s); err != nil {
		t.Errorf("second start: %v", err)
	}
}

// What a host has not is refused before anything is made, by its name.
func TestUnknownParts(t *testing.T) {
	b := realHost(t)
	cases := []struct {
		name, says string
		spoil      func(*hypervisor.Spec)
	}{
		{"network", `no network "nowhere"`, func(s *hypervisor.Spec) { s.Network = "nowhere" }},
		{"bridge", `no bridge "brX"`, func(s *hypervisor.Spec) { s.Network = "bridge:brX" }},
		{"pool", `no storage pool "slow"`, func(s *hypervisor.Spec) { s.Disk.Pool = "slow" }},
		{"kernel", "/nowhere/vmlinuz", func(s *hypervisor.Spec) { s.Boot.Kernel = "/nowhere/vmlinuz" }},
		{"base", "/nowhere/base", func(s *hypervisor.Spec) { s.Disk.Base = "/nowhere/base" }},
		{"base that is a directory", "is no file", func(s *hypervisor.Spec) { s.Disk.Base = b.opts.StateDir }},
	}
	for _, c := range cases {
		s := b.spec("ek-unknown-a-0", "")
		s.Disk = hypervisor.Disk{Size: 16 << 20}
		c.spoil(&s)
		for what, err := range map[string]error{"Define": b.Define(t.Context(), s), "Start": b.Start(t.Context(), s)} {
			if !errors.Is(err, hypervisor.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, unknown %s: error is %v, want ErrInvalid with %q", what, c.name, err, c.says)
			}
		}
		if _, err := os.Stat(filepath.Join(b.opts.StateDir, "pool")); err == nil {
			t.Errorf("unknown %s: refused, but the pool was made", c.name)
		}
	}
	s := b.spec("ek-unknown-a-0", "")
	s.Disk = hypervisor.Disk{Size: 16 << 20}
	if err := b.Start(t.Context(), s); !errors.Is(err, hypervisor.ErrInvalid) {
		t.Errorf("Start of what was not defined: %v", err)
	}
	if vms, err := b.List(t.Context()); err != nil || len(vms) > 0 {
		t.Errorf("List: %+v, %v", vms, err)
	}
}

// A start that fails late takes back what it made.
func TestStartUndone(t *testing.T) {
	b := realHost(t)
	s := b.spec("ek-undone-a-0", "")
	s.Disk = hypervisor.Disk{Size: 16 << 20, Ephemeral: true}
	s.Boot.Kernel = filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(s.Boot.Kernel, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context(), s); err == nil {
		t.Fatal("a VM with an empty kernel was started")
	}
	if left, _ := filepath.Glob(b.volume("*.qcow2")); len(left) > 0 {
		t.Errorf("the failed start left %v", left)
	}
	if vms, err := b.List(t.Context()); err != nil || len(vms) > 0 {
		t.Errorf("List: %+v, %v", vms, err)
	}
	if err := b.Undefine(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// The pool "default" is made when it is needed, again if its directory went,
// and leaves no trace in libvirt once it is empty. A pool of the host's own
// is left alone.
func TestDefaultPool(t *testing.T) {
	b := realHost(t)
	conn, err := libvirt.NewConnect(b.lab.URI())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close() })
	pools := func() int {
		all, err := conn.ListAllStoragePools(0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			_ = all[i].Free()
		}
		return len(all)
	}
	s := b.spec("ek-pool-a-0", "")
	s.Disk = hypervisor.Disk{Size: 16 << 20}
	if err := b.Define(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if pools() != 1 {
		t.Errorf("%d pools, want the default one", pools())
	}
	if err := os.RemoveAll(filepath.Join(b.opts.StateDir, "pool")); err != nil {
		t.Fatal(err)
	}
	if err := b.Define(t.Context(), s); err != nil {
		t.Errorf("Define after the pool's directory was removed: %v", err)
	}
	if err := b.Undefine(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if pools() != 0 {
		t.Errorf("%d pools are left", pools())
	}
}

func TestSeedFiles(t *testing.T) {
	spec := baseSpec()
	spec.CloudInit.UserData = "u"
	files := seedFiles(spec)
	if len(files) != 2 || files[0] != (seedFile{"user-data", "u"}) || files[1].name != "meta-data" || !strings.Contains(files[1].text, uuidOf("vm1")) {
		t.Errorf("files: %+v", files)
	}
	spec.CloudInit = hypervisor.CloudInit{MetaData: "m", NetworkConfig: "n"}
	files = seedFiles(spec)
	if len(files) != 3 || files[0].text != "" || files[1].text != "m" || files[2] != (seedFile{"network-config", "n"}) {
		t.Errorf("files: %+v", files)
	}
}
