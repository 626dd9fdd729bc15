package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/imagefile"
	"evenkeel/hypervisor/libvirt"
	"evenkeel/hypervisor/simulated"
)

// fleet is the hosts that this process is the agent of.
type fleet struct {
	kind    string
	hosts   map[string]hypervisor.Host
	world   *simulated.World // nil on real hosts
	closers []func() error
}

const systemURI = "qemu:///system"

// ownerFile of a data directory names the hypervisor that it belongs to. It is
// there once the directory was used.
const ownerFile = "hypervisor"

// openFleet opens the hypervisor of the flag --hypervisor. A data directory belongs to the
// hypervisor it was first used with: a state of real VMs must never be carried out on
// simulated hosts because libvirt was slow to answer once.
func openFleet(ctx context.Context, c *cli.Context, dir string, log *slog.Logger) (*fleet, error) {
	owner := filepath.Join(dir, ownerFile)
	b, err := os.ReadFile(owner)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	kind, before := c.String("hypervisor"), strings.TrimSpace(string(b))
	switch {
	case before != "" && kind == "auto":
		kind = before
	case before != "" && kind != before:
		return nil, cli.Exit(fmt.Sprintf("--hypervisor %q: the data directory %s belongs to %q; use another --data-dir", kind, dir, before), 2)
	}
	f, err := openKind(ctx, c, kind, dir, log)
	if err != nil || before != "" {
		return f, err
	}
	if err := os.WriteFile(owner, []byte(f.kind+"\n"), 0o600); err != nil {
		f.close()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return f, nil
}

func openKind(ctx context.Context, c *cli.Context, kind, dir string, log *slog.Logger) (*fleet, error) {
	switch {
	case kind == "simulated":
		return simulate(c, dir)
	case kind == "auto":
		if !slices.ContainsFunc(sockets, exists) {
			log.Warn("no libvirt on this machine: its hosts are simulated, no VM is real")
			return simulate(c, dir)
		}
		f, err := connect(ctx, c, systemURI, dir, log)
		if err == nil {
			return f, nil
		}
		log.Warn("the libvirt of this machine does not answer: hosts are simulated, no VM is real", "uri", systemURI, "error", err)
		return simulate(c, dir)
	case strings.Contains(kind, ":"):
		return connect(ctx, c, kind, dir, log)
	default:
		return nil, cli.Exit(fmt.Sprintf("--hypervisor %q: must be auto, simulated or a libvirt URI such as %s", kind, systemURI), 2)
	}
}

// sockets of a libvirt that serves qemu:///system.
var sockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// connectTimeout is patient: a daemon that was just started first asks QEMU what it can do.
const connectTimeout = 30 * time.Second

func simulate(c *cli.Context, dir string) (*fleet, error) {
	machines, err := machinesOf(c.String("hosts"))
	if err != nil {
		return nil, cli.Exit(err, 2)
	}
	w, err := simulated.New(simulated.Options{Machines: machines, StateFile: filepath.Join(dir, "simulated.journal")})
	if err != nil {
		return nil, err
	}
	f := &fleet{kind: "simulated", hosts: map[string]hypervisor.Host{}, world: w, closers: []func() error{w.Close}}
	for _, name := range w.Hosts() {
		f.hosts[name] = w.Host(name)
	}
	return f, nil
}

var notInName = regexp.MustCompile(`[^a-z0-9-]+`)

func connect(ctx context.Context, c *cli.Context, uri, dir string, log *slog.Logger) (*fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	lv := filepath.Join(dir, "libvirt")
	if err := os.MkdirAll(lv, 0o711); err != nil {
		return nil, fmt.Errorf("directory for disks and consoles: %w", err)
	}
	h, err := libvirt.Open(ctx, libvirt.Options{URI: uri, Logger: log, ForceEmulation: c.Bool("emulation"), StateDir: lv})
	if err != nil {
		return nil, lookAt(uri, err)
	}
	capacity, err := h.Capacity(ctx)
	if err != nil {
		return nil, errors.Join(lookAt(uri, err), h.Close())
	}
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(capacity.Name), "-"), "-")
	if name == "" {
		name = "localhost"
	}
	how := "software emulation"
	if capacity.KVM {
		how = "KVM"
	}
	log.Info("connected", "host", name, "uri", uri, "software", capacity.Software, "virtualization", how, "cgroup", capacity.Cgroup)
	return &fleet{kind: uri, hosts: map[string]hypervisor.Host{name: h}, closers: []func() error{h.Close}}, nil
}

// lookAt adds to an error of a libvirt how to look at it.
func lookAt(uri string, err error) error {
	if !errors.Is(err, hypervisor.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w; look at it with: virsh -c '%s' list --all, and at libvirtd's log; a libvirtd that hangs is restarted (VMs run on)", err, uri)
}

// hanging says which calls of these hosts hang, "" = none, or it is not known.
func (f *fleet) hanging() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.hosts)) {
		for _, h := range hypervisor.HangingOf(f.hosts[name]) {
			out = append(out, fmt.Sprintf("host %s: %s has been waiting for %s", name, h.Call, time.Since(h.Since).Round(time.Second)))
		}
	}
	return strings.Join(out, "; ")
}

func (f *fleet) close() {
	for _, c := range f.closers {
		if err := c(); err != nil {
			slog.Error("close hypervisor", "error", err)
		}
	}
}

// inspector looks at an image's file. Simulated hosts have no files.
func inspector(simulated bool) func(state.Image) (state.Image, error) {
	return func(img state.Image) (state.Image, error) {
		if simulated {
			return img, nil
		}
		info, err := imagefile.Check(img.File, string(img.Kind))
		img.Size, img.DiskSize = info.Size, info.DiskSize
		return img, err
	}
}

// defaultGuestDir is where make setup leaves the test guest, as seen from the program.
func defaultGuestDir() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(filepath.Dir(exe)), "build", "guest")
}

// seed puts the tiny guest into an empty catalogue, and on simulated hosts the
// name of a disk image as well.
func (f *fleet) seed(ctx context.Context, ctl *leader.Service, guest, dir string, log *slog.Logger) error {
	v, err := ctl.View(ctx, true)
	if err != nil {
		return err
	}
	if len(v.Images()) > 0 {
		return nil
	}
	images := []state.Image{
		{Name: "tiny-initrd", Kind: state.InitrdImage, File: "/simulated/initrd.img"},
		{Name: "tiny", Kind: state.KernelImage, File: "/simulated/vmlinuz", Initrd: "tiny-initrd", Cmdline: tinyCmdline},
		{Name: "debian-12", Kind: state.DiskImage, File: "/simulated/debian-12.qcow2"},
	}
	if f.world == nil {
		initrd, kernel, err := copyGuest(guest, filepath.Join(dir, "images"))
		if errors.Is(err, os.ErrNotExist) {
			log.Info("no guest to put into the catalogue; add images with vcctl image add", "guest", guest)
			return nil
		}
		if err != nil {
			return err
		}
		images[0].File, images[1].File = initrd, kernel
		images = images[:2]
	}
	for _, img := range images {
		if _, _, err := ctl.AddImage(ctx, img, leader.Call{}); err != nil {
			return err
		}
	}
	return nil
}

// tinyCmdline boots the tiny guest: console on the serial port, every vCPU busy. no_timer_check is for emulation on a busy machine, where
// the kernel may give up its timer at boot.
const tinyCmdline = "console=ttyS0 quiet no_timer_check panic=-1 ek.burn=all"

// copyGuest to where the hypervisor's user can read it.
func copyGuest(from, to string) (initrd, kernel string, err error) {
	initrd, kernel = filepath.Join(to, "tiny-initrd.img"), filepath.Join(to, "tiny-vmlinuz")
	for src, dst := range map[string]string{"initrd.img": initrd, "vmlinuz": kernel} {
		if err := copyFile(filepath.Join(from, src), dst); err != nil {
			return "", "", fmt.Errorf("copy the tiny guest: %w", err)
		}
	}
	return initrd, kernel, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(to), "copy-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := errors.Join(out.Chmod(0o644), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
