package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
	"evenkeel/test/patience"
)

const (
	baseSize  = 40 << 20 // of the test guest's disk
	otherSize = 64 << 20
)

// Images, disks, seeds and networks from the catalogue to the guest, and away again. The
// parts share their VMs, which take most of the time.
func TestImages(t *testing.T) {
	g := lab.Real(t)
	t.Parallel()
	h := lab.New(t, lab.Options{Hosts: 1}).Host(1)
	d := daemon.New(t, h, "--min-yield", "0.1", "--allowance-cpu", "2")
	base := filepath.Join(t.TempDir(), "base.qcow2")
	copyFile(t, filepath.Join(filepath.Dir(g.Kernel), "disk.qcow2"), base)
	before := sum(t, base)
	img := must(d.AddImage(t.Context(), v1.ImageSpec{Name: "small-linux", Kind: "disk", File: base}))(t)
	if img.DiskSize != baseSize || img.Size == 0 {
		t.Errorf("added as %+v", img)
	}
	// A network of libvirt's on the host's bridge, which has the lab's cable in it.
	virsh(t, h, "net-create", writeFile(t, "net.xml", `<network><name>wire</name><forward mode="bridge"/><bridge name="br0"/></network>`))

	t.Run("refused", func(t *testing.T) { imagesRefused(t, d, base) })
	t.Run("impossible", func(t *testing.T) { impossible(t, d, h, base) })
	disks(t, d, h, base)

	if after := sum(t, base); after != before {
		t.Errorf("the base image was %s before its VMs and is %s after them", before, after)
	}
	if err := d.DeleteImage(t.Context(), "small-linux"); err != nil {
		t.Errorf("delete an image that no VM uses any more: %v", err)
	}
	if _, err := os.Stat(base); err != nil {
		t.Errorf("the catalogue deleted the file: %v", err)
	}
}

// imagesRefused: the catalogue refuses a file that is no image, or not a safe one.
func imagesRefused(t *testing.T, d *daemon.Daemon, base string) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	qemuImg(t, "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", in("overlay.qcow2"))
	qemuImg(t, "create", "-q", "-f", "raw", in("disk.raw"), "1M")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file="+in("data")+",data_file_raw=on", in("external.qcow2"), "1M")
	if err := os.Symlink("/etc/passwd", in("link.qcow2")); err != nil {
		t.Fatal(err)
	}
	had := must(d.Images(t.Context()))(t)
	for _, c := range []struct {
		what, file, says string
		change           func(*v1.ImageSpec)
	}{
		{"backing file", in("overlay.qcow2"), "has a backing file", nil},
		{"external data file", in("external.qcow2"), "keeps its data in another file", nil},
		{"raw disk", in("disk.raw"), "no qcow2 image", nil},
		{"missing file", in("none.qcow2"), "no such file", nil},
		{"directory", dir, "no regular file", nil},
		{"link to a file that is no image", in("link.qcow2"), "no qcow2 image", nil},
		{"path traversal", dir + "/../" + filepath.Base(dir) + "/disk.raw", "without . or ..", nil},
		{"relative path", "base.qcow2", "absolute path", nil},
		{"disk as kernel", base, "no Linux kernel", func(s *v1.ImageSpec) { s.Kind = "kernel" }},
		{"path as name", base, "name", func(s *v1.ImageSpec) { s.Name = "../base" }},
	} {
		spec := v1.ImageSpec{Name: "bad", Kind: "disk", File: c.file}
		if c.change != nil {
			c.change(&spec)
		}
		_, err := d.AddImage(t.Context(), spec)
		if !client.IsProblem(err, v1.ProblemInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want it refused as invalid with %q", c.what, err, c.says)
		}
	}
	if _, err := d.AddImage(t.Context(), v1.ImageSpec{Name: "small-linux", Kind: "disk", File: base}); !client.IsProblem(err, v1.ProblemExists) {
		t.Errorf("a name that is taken: %v, want it refused as such", err)
	}
	if has := must(d.Images(t.Context()))(t); len(has) != len(had) {
		t.Errorf("refused images are in the catalogue: %+v", has)
	}
}

// impossible: a request for what no host has fails with a reason that names it, and leaves nothing behind.
func impossible(t *testing.T, d *daemon.Daemon, h *lab.Host, base string) {
	gone := filepath.Join(t.TempDir(), "gone.qcow2")
	copyFile(t, base, gone)
	if _, err := d.AddImage(t.Context(), v1.ImageSpec{Name: "gone", Kind: "disk", File: gone}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, says string
		change     func(*v1.GroupSpec)
	}{
		{"network", `no network "nowhere"`, func(g *v1.GroupSpec) { g.Network = "nowhere" }},
		{"bridge", `no bridge "br9"`, func(g *v1.GroupSpec) { g.Network = "bridge:br9" }},
		{"file", gone, func(g *v1.GroupSpec) { g.Image = "gone" }},
	} {
		s := spec(c.name, 2, 0.2)
		s.Groups[0].Boot, s.Groups[0].Image = nil, "small-linux"
		c.change(&s.Groups[0])
		r, err := d.Create(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		op := must(d.Wait(t.Context(), *r.Operation, nil))(t)
		vc := must(d.VirtualCluster(t.Context(), c.name))(t)
		if op.State != v1.OperationFailed || !strings.Contains(op.Text, c.says) || vc.State != "failed" || !strings.Contains(vc.Reason, c.says) {
			t.Errorf("%s: operation %s (%s), virtual cluster %s (%s); want both failed with %q", c.name, op.State, op.Text, vc.State, vc.Reason, c.says)
		}
		for _, vm := range must(d.VMs(t.Context(), c.name, ""))(t) {
			if vm.State != "failed" || !strings.Contains(vm.Reason, c.says) {
				t.Errorf("%s: VM %s is %s (%s)", c.name, vm.Name, vm.State, vm.Reason)
			}
		}
		d.Done(d.Delete(t.Context(), c.name))
	}
	pool := spec("pool", 2, 0.2) // agents say which pools there are
	pool.Groups[0].Boot, pool.Groups[0].Image, pool.Groups[0].Disk = nil, "small-linux", &v1.Disk{Pool: "slow"}
	if _, err := d.Create(t.Context(), pool); !client.IsProblem(err, v1.ProblemRefused) || !strings.Contains(err.Error(), "no host has the storage pool slow") {
		t.Errorf("a pool that no host has: %v, want it refused by name", err)
	}
	small := spec("small", 1, 0.2)
	small.Groups[0].Boot, small.Groups[0].Image, small.Groups[0].Disk = nil, "small-linux", &v1.Disk{Size: baseSize - 1}
	_, err := d.Create(t.Context(), small)
	if !client.IsProblem(err, v1.ProblemInvalid) || !strings.Contains(err.Error(), "groups[0].disk.size") {
		t.Errorf("a disk smaller than its image: %v, want it refused by the field's name", err)
	}
	if vcs := must(d.VirtualClusters(t.Context()))(t); len(vcs) > 0 {
		t.Errorf("virtual clusters left: %+v", vcs)
	}
	if there := d.Processes(); len(there) > 0 {
		t.Errorf("domains left: %v", there)
	}
	if left := volumes(t, d); len(left) > 0 {
		t.Errorf("volumes left: %v", left)
	}
	if err := d.DeleteImage(t.Context(), "gone"); err != nil {
		t.Error(err)
	}
}

const userData = "#cloud-config\nhostname: pebble\npassword: \"a secret\"\n"

// disks: one VC whose groups differ in their disks, through two starts.
func disks(t *testing.T, d *daemon.Daemon, h *lab.Host, base string) {
	userSum := fmt.Sprintf("SEED user-data bytes=%d sha256=%x first=#cloud-config", len(userData), sha256.Sum256([]byte(userData)))
	group := func(name string) v1.GroupSpec {
		return v1.GroupSpec{Name: name, CPU: 0.66, Memory: 96 << 20}
	}
	kept, fresh, empty := group("kept"), group("fresh"), group("empty")
	kept.Image, kept.Network, kept.CloudInit = "small-linux", "wire", &v1.CloudInit{UserData: userData}
	fresh.Image, fresh.Disk = "small-linux", &v1.Disk{Size: otherSize, Ephemeral: true}
	empty.Boot = &v1.Boot{Kernel: "tiny", Cmdline: lab.Guest{}.Cmdline("ek.ip=10.97.0.50/24")}
	empty.Disk, empty.Network = &v1.Disk{Size: otherSize}, "bridge:br0"
	d.Done(d.Create(t.Context(), v1.VirtualClusterSpec{Name: "store", OnFull: "reject", Groups: []v1.GroupSpec{kept, fresh, empty}}))

	ids := map[string]string{}
	for _, vm := range must(d.VMs(t.Context(), "store", ""))(t) {
		ids[vm.Name] = vm.ID
		if title := strings.TrimSpace(virsh(t, h, "desc", "--title", vm.Domain)); title != vm.Name {
			t.Errorf("the domain of %s has the title %q", vm.Name, title)
		}
	}
	// booted checks what each guest says of itself after the n-th start.
	booted := func(n int) {
		for name, want := range map[string][]string{
			"store-kept-0":  {fmt.Sprintf("DISK vda bytes=%d boots=%d", baseSize, n), userSum, "SEED meta-data", "first=instance-id: ", "NET eth0"},
			"store-fresh-0": {fmt.Sprintf("DISK vda bytes=%d boots=1", otherSize)},
			"store-empty-0": {fmt.Sprintf("DISK vda bytes=%d boots=%d", otherSize, n), "NET eth0"},
		} {
			said := report(t, d, name)
			for _, w := range want {
				if !strings.Contains(said, w) {
					t.Errorf("start %d: %s did not say %q but\n%s", n, name, w, said)
				}
			}
		}
	}
	booted(1)

	if err := d.DeleteImage(t.Context(), "small-linux"); !client.IsProblem(err, v1.ProblemConflict) || !strings.Contains(err.Error(), "store") {
		t.Errorf("an image in use: deleted with %v, want a conflict that names the virtual cluster", err)
	}
	there := volumes(t, d)
	if len(there) != 4 { // three disks, one seed
		t.Errorf("volumes of three VMs: %v", there)
	}
	overlays := 0
	for _, v := range there {
		if !strings.HasSuffix(v, ".qcow2") {
			continue
		}
		var info struct {
			Backing string `json:"full-backing-filename"`
		}
		out := qemuImg(t, "info", "-U", "--output=json", v)
		if err := json.Unmarshal(out, &info); err != nil {
			t.Fatal(err)
		}
		switch info.Backing {
		case base:
			overlays++
		case "":
		default:
			t.Errorf("%s lies over %s", v, info.Backing)
		}
	}
	if overlays != 2 {
		t.Errorf("%d disks lie over %s, want 2", overlays, base)
	}
	ping(t, h, "10.97.0.50")
	if got := virsh(t, h, "domiflist", "ek-"+ids["store-kept-0"]); !strings.Contains(got, "wire") || !strings.Contains(got, "virtio") {
		t.Errorf("the interface of store-kept-0 is not on network wire:\n%s", got)
	}
	// What it contains may be secret: only QEMU's user may read it.
	for _, v := range there {
		if info, err := os.Stat(v); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", v, info, err)
		}
	}

	d.Done(d.Stop(t.Context(), "store"))
	if left := volumes(t, d); len(left) != 3 {
		t.Errorf("after the stop two disks and a seed should be left, there are %v", left)
	}
	d.Done(d.Start(t.Context(), "store"))
	for _, vm := range must(d.VMs(t.Context(), "store", ""))(t) {
		if vm.ID != ids[vm.Name] {
			t.Errorf("%s is another VM after the stop", vm.Name)
		}
	}
	booted(2)

	d.Done(d.Delete(t.Context(), "store"))
	if left := volumes(t, d); len(left) > 0 {
		t.Errorf("left in the pool after the delete: %v", left)
	}
	if there := d.Processes(); len(there) > 0 {
		t.Errorf("domains left: %v", there)
	}
}

// attach opens a VM's console. A libvirt that shares two CPUs with other labs may take longer than a call may: vcd answers that it is out
// of reach, and a user tries again.
func attach(t *testing.T, d *daemon.Daemon, vm string) (console io.ReadWriteCloser) {
	t.Helper()
	d.Eventually(2*time.Minute, "the console of "+vm+" is open", func(context.Context) (bool, error) {
		var err error
		if console, err = d.Console(t.Context(), vm); err != nil && !client.IsProblem(err, v1.ProblemUnavailable) {
			t.Fatal(err)
		}
		return err == nil, err
	})
	return console
}

// report asks a guest, over its console, what it found when it booted.
func report(t *testing.T, d *daemon.Daemon, vm string) string {
	t.Helper()
	console := attach(t, d, vm)
	defer console.Close()
	said := make(chan string)
	go func() {
		defer close(said)
		b := make([]byte, 4096)
		for {
			n, err := console.Read(b)
			if n > 0 {
				select {
				case said <- string(b[:n]):
				case <-t.Context().Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	var all strings.Builder
	asked := false
	const limit = 5 * time.Minute // an emulated guest beside much other work says nothing for minutes
	for deadline := time.After(patience.Within(limit)); ; {
		select {
		case s, open := <-said:
			all.WriteString(s)
			if !open {
				t.Fatalf("the console of %s ended; it said %q", vm, all.String())
			}
			if !asked && strings.Contains(all.String(), "BEAT") { // it has booted
				asked = true
				all.Reset()
				if _, err := console.Write([]byte("report\n")); err != nil {
					t.Fatal(err)
				}
			}
			if asked && strings.Contains(all.String(), "OK report") {
				go func() { // until the console is closed
					for range said {
					}
				}()
				return all.String()
			}
		case <-deadline:
			t.Fatalf("%s did not report within %v; it said %q", vm, limit, all.String())
		}
	}
}

// volumes in the daemon's pool, by path.
func volumes(t *testing.T, d *daemon.Daemon) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.Dir, "libvirt", "pool"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, filepath.Join(d.Dir, "libvirt", "pool", e.Name()))
	}
	slices.Sort(out)
	return out
}

// ping an address from the host until it answers.
func ping(t *testing.T, h *lab.Host, address string) {
	t.Helper()
	var out []byte
	var err error
	for range 10 {
		if out, err = h.Command(t.Context(), "busybox", "ping", "-c", "1", "-W", "2", address).CombinedOutput(); err == nil {
			return
		}
	}
	t.Errorf("%s does not answer: %v: %s", address, err, out)
}

func virsh(t *testing.T, h *lab.Host, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "timeout", append([]string{"60", "virsh", "-q", "-c", h.URI()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("virsh %v: %v: %s", args, err, out)
	}
	return string(out)
}

func qemuImg(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %v: %v: %s", args, err, out)
	}
	return out
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sum of a file's content.
func sum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := sha256.New()
	if _, err := io.Copy(s, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", s.Sum(nil))
}
