package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

// What VMs are made as: the emulated CPU is the same whatever the host's.
const (
	machineType = "q35"
	emulatedCPU = "qemu64"
)

// agentChannel is where QEMU's guest agent listens in a guest.
const agentChannel = "org.qemu.guest_agent.0"

// statsPeriod is how often, in seconds, the guest's balloon driver reports.
const statsPeriod = 1

// parts are the things outside libvirt's definition that a VM is made of.
type parts struct {
	disk string // path of its disk's volume; "" = none
	seed string // path of its cloud-init seed; "" = none
	log  string // path of its console log; "" = none
	// started is when it is started, seconds since 1970.
	started int64
}

// domainXML is the VM as libvirt is to start it.
func domainXML(spec hypervisor.Spec, p parts, can abilities, cgroup int) (string, error) {
	m := mark{Cluster: spec.Cluster, ID: spec.VM, Generation: spec.Generation, VCPUs: spec.VCPUs, Leased: spec.Leased, Started: p.started}
	if spec.Disk.Present() && spec.Disk.Ephemeral {
		m.Ephemeral = &markedVol{Pool: poolName(spec.Disk.Pool), Volume: diskName(spec.VM)}
	}
	metadata, err := m.metadata()
	if err != nil {
		return "", err
	}
	port := uint(0)
	d := libvirtxml.Domain{
		Type: "qemu",
		Name: spec.Name, Title: spec.Title,
		UUID: uuidOf(spec.VM),
		// The balloon's target is in force before the guest runs; the guest
		// itself follows once its driver is up.
		Metadata:      &libvirtxml.DomainMetadata{XML: metadata},
		Memory:        &libvirtxml.DomainMemory{Value: uint(kib(spec.Memory)), Unit: "KiB"},
		CurrentMemory: &libvirtxml.DomainCurrentMemory{Value: uint(kib(spec.Balloon)), Unit: "KiB"},
		VCPU:          &libvirtxml.DomainVCPU{Placement: "static", Value: uint(spec.VCPUs)},
		CPUTune:       schedParams(spec.VCPUs, spec.CPU, cgroup).tune(),
		OS: &libvirtxml.DomainOS{
			Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: machineType, Type: "hvm"},
			Kernel: spec.Boot.Kernel, Initrd: spec.Boot.Initrd, Cmdline: spec.Boot.Cmdline,
		},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		CPU:      &libvirtxml.DomainCPU{Mode: "custom", Match: "exact", Check: "none", Model: &libvirtxml.DomainCPUModel{Fallback: "forbid", Value: emulatedCPU}},
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		// A guest that powers off or dies is gone, and says so by an event: what becomes of it is
		// the leader's to decide.
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		PM: &libvirtxml.DomainPM{SuspendToMem: &libvirtxml.DomainPMPolicy{Enabled: "no"}, SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"}},
		Devices: &libvirtxml.DomainDeviceList{
			Controllers: []libvirtxml.DomainController{{Type: "usb", Model: "none"}},
			Serials: []libvirtxml.DomainSerial{{
				Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
				Target: &libvirtxml.DomainSerialTarget{Port: &port},
			}},
			Consoles: []libvirtxml.DomainConsole{{
				Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
				Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: &port},
			}},
			MemBalloon: &libvirtxml.DomainMemBalloon{
				Model: "virtio", AutoDeflate: onIf(can.autoDeflate), FreePageReporting: onIf(can.reportsPages),
				Stats: &libvirtxml.DomainMemBalloonStats{Period: statsPeriod},
			},
			RNGs: []libvirtxml.DomainRNG{{
				Model:   "virtio",
				Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
			}},
		},
	}
	if can.kvm {
		d.Type = "kvm"
		d.CPU = &libvirtxml.DomainCPU{Mode: "host-model", Check: "partial"}
	}
	if p.log != "" {
		d.Devices.Serials[0].Log = &libvirtxml.DomainChardevLog{File: p.log, Append: "on"}
	}
	if p.disk != "" {
		disk := fileDisk(p.disk, formatQcow2, "vda")
		disk.Driver.Discard = "unmap"
		if spec.Disk.Base != "" {
			disk.BackingStore = backing(spec.Disk.Base)
		}
		if spec.Boot.Kernel == "" {
			disk.Boot = &libvirtxml.DomainDeviceBoot{Order: 1}
		}
		d.Devices.Disks = append(d.Devices.Disks, disk)
	}
	if p.seed != "" {
		// A virtio disk and no CD-ROM: kernels made for clouds (Debian's, for one) have no driver for
		// AHCI, and cloud-init looks for the label on whatever disks there are.
		seed := fileDisk(p.seed, formatRaw, "vdb")
		seed.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
		d.Devices.Disks = append(d.Devices.Disks, seed)
	}
	if spec.Network != "" {
		d.Devices.Interfaces = []libvirtxml.DomainInterface{{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: macOf(spec.VM)},
			Source: interfaceSource(spec.Network),
			Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
			ROM:    &libvirtxml.DomainROM{Enabled: "no"},
		}}
		// A guest agent, where the image has one, reports its addresses here.
		d.Devices.Channels = []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind"}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentChannel}},
		}}
	}
	return d.Marshal()
}

// onIf is libvirt's value for a feature of a device; "" leaves out one that is not supported.
func onIf(can bool) string {
	if can {
		return "on"
	}
	return ""
}

// Formats of disk images, as libvirt and QEMU name them. Each image in a definition names its format: libvirt and
// QEMU would else take it from the file, into which the guest or its QEMU may have written.
const (
	formatQcow2 = "qcow2"
	formatRaw   = "raw"
)

// noBacking ends a chain of images: <backingStore/>. Without it libvirt reads the header of the last image, labels
// the file that the header names and lets QEMU open it.
func noBacking() *libvirtxml.DomainDiskBackingStore { return &libvirtxml.DomainDiskBackingStore{} }

// backing is the base of an overlay; the chain ends with it. The base is shared and only read, so libvirt must leave
// its owner as it is: by default it gives the file to QEMU's user, who could then write to it.
func backing(path string) *libvirtxml.DomainDiskBackingStore {
	return &libvirtxml.DomainDiskBackingStore{
		Format: &libvirtxml.DomainDiskFormat{Type: formatQcow2},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{
			File: path, SecLabel: []libvirtxml.DomainDeviceSecLabel{{Model: "dac", Relabel: "no"}},
		}},
		BackingStore: noBacking(),
	}
}

// fileDisk is a disk on one image file, with no image below it.
func fileDisk(path, format, dev string) libvirtxml.DomainDisk {
	return libvirtxml.DomainDisk{
		Device:       "disk",
		Driver:       &libvirtxml.DomainDiskDriver{Name: "qemu", Type: format},
		Source:       &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}},
		BackingStore: noBacking(),
		Target:       &libvirtxml.DomainDiskTarget{Dev: dev, Bus: "virtio"},
	}
}

// bridgePrefix marks a network that is a bridge of the host and not one of libvirt's.
const bridgePrefix = "bridge:"

func interfaceSource(network string) *libvirtxml.DomainInterfaceSource {
	if bridge, ok := strings.CutPrefix(network, bridgePrefix); ok {
		return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: bridge}}
	}
	return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: network}}
}

func kib(bytes int64) int64 { return bytes / 1024 }

// domainName is what libvirt and file systems take without surprises.
var domainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+:-]{0,127}$`)

// checkSpec refuses what no host can start.
func checkSpec(spec hypervisor.Spec) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if spec.Cluster == "" || spec.VM == "" {
		bad("cluster %q and VM %q: both ids must be given", spec.Cluster, spec.VM)
	}
	if !domainName.MatchString(spec.Name) {
		bad("name %q", spec.Name)
	}
	if len(spec.Title) > hypervisor.MaxTitle || strings.ContainsFunc(spec.Title, unicode.IsControl) {
		bad("title %.300q must be one line of at most %d bytes", spec.Title, hypervisor.MaxTitle)
	}
	if spec.VCPUs < 1 {
		bad("%d vCPUs", spec.VCPUs)
	}
	if spec.Memory < 1<<20 {
		bad("memory of %d bytes", spec.Memory)
	}
	if spec.Balloon < 1<<20 || spec.Balloon > spec.Memory {
		bad("memory target of %d bytes, memory of %d", spec.Balloon, spec.Memory)
	}
	if spec.Disk.Size < 0 {
		bad("disk of %d bytes", spec.Disk.Size)
	}
	if spec.Boot.Kernel == "" && !spec.Disk.Present() {
		bad("nothing to boot from: no kernel and no disk")
	}
	for what, path := range map[string]string{"kernel": spec.Boot.Kernel, "initrd": spec.Boot.Initrd, "disk base": spec.Disk.Base} {
		if path != "" && !filepath.IsAbs(path) {
			bad("%s %q is no absolute path", what, path)
		}
	}
	if err := checkCPU(spec.CPU); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errors.Join(errs...), hypervisor.ErrInvalid)
}

// checkHost refuses what this host has not: image files, pool, network. It
// changes nothing (but for the pool "default": see pool).
func (h *Host) checkHost(ctx context.Context, spec hypervisor.Spec) error {
	if h.local {
		for _, f := range []struct{ what, path string }{
			{"kernel", spec.Boot.Kernel}, {"initrd", spec.Boot.Initrd}, {"disk base", spec.Disk.Base},
		} {
			if f.path == "" {
				continue
			}
			if info, err := os.Stat(f.path); errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%s: %w (an image's files must be on every host: copy it to this one): %w", f.what, err, hypervisor.ErrInvalid)
			} else if err == nil && !info.Mode().IsRegular() {
				return fmt.Errorf("%s: %s is no file: %w", f.what, f.path, hypervisor.ErrInvalid)
			}
		}
	}
	if err := do(calling(ctx, "virNetworkLookupByName "+spec.Network, spec.VM, spec.Label()), h, h.opts.CallTimeout, func(c *libvirt.Connect) error { return checkNetwork(c, spec.Network) }); err != nil {
		return err
	}
	if needsPool(spec) {
		return do(calling(ctx, "virStoragePoolLookupByName "+spec.Disk.Pool, spec.VM, spec.Label()), h, h.opts.CallTimeout, func(c *libvirt.Connect) error { return h.checkPool(c, spec.Disk.Pool) })
	}
	return nil
}

func checkNetwork(c *libvirt.Connect, network string) error {
	if network == "" {
		return nil
	}
	if bridge, ok := strings.CutPrefix(network, bridgePrefix); ok {
		iface, err := c.LookupInterfaceByName(bridge)
		if isCode(err, libvirt.ERR_NO_INTERFACE) {
			return fmt.Errorf("no bridge %q: %w", bridge, hypervisor.ErrInvalid)
		}
		if err == nil {
			_ = iface.Free()
		}
		return nil // libvirt without an interface driver cannot say: starting the VM will
	}
	n, err := c.LookupNetworkByName(network)
	if isCode(err, libvirt.ERR_NO_NETWORK) {
		return fmt.Errorf("no network %q: %w", network, hypervisor.ErrInvalid)
	}
	if err != nil {
		return fmt.Errorf("network %q: %w", network, err)
	}
	defer n.Free()
	if active, err := n.IsActive(); err == nil && !active {
		return fmt.Errorf("network %q is not started: %w", network, hypervisor.ErrInvalid)
	}
	return nil
}
