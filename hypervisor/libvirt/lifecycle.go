package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/imagefile"
)

// Start boots the VM as a transient domain.
func (h *Host) Start(ctx context.Context, spec hypervisor.Spec) error {
	if err := h.start(ctx, spec); err != nil {
		return fmt.Errorf("start VM %s (%s): %w", spec.VM, spec.Label(), err)
	}
	return nil
}

func (h *Host) start(ctx context.Context, spec hypervisor.Spec) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	caps, err := h.hostCaps(ctx)
	if err != nil {
		return err
	}
	if err := do(calling(ctx, "virDomainLookupByUUID", spec.VM, spec.Label()), h, h.opts.CallTimeout, func(c *libvirt.Connect) error { return absent(c, spec) }); err != nil {
		return err
	}
	if err := h.checkHost(ctx, spec); err != nil {
		return err
	}
	uuid := uuidOf(spec.VM)
	ctx = calling(ctx, "virStoragePoolLookupByName "+spec.Disk.Pool, spec.VM, spec.Label())
	now := calledBy(ctx)
	return doAwaited(ctx, h, h.slow(), func(c *libvirt.Connect, wanted func() error) error {
		p, undo, err := h.gather(c, spec, wanted)
		if err != nil {
			return err
		}
		undo = func(undo func() error) func() error {
			return func() error {
				if err := wanted(); err != nil {
					return err // the disk may be another's by now
				}
				return undo()
			}
		}(undo)
		if err := h.checkDisk(p.disk); err != nil {
			return errors.Join(err, undo())
		}
		text, err := domainXML(spec, p, caps.abilities, h.cgroup)
		if err != nil {
			return errors.Join(err, undo())
		}
		if err := wanted(); err != nil {
			return err
		}
		// Events name the VM from the first one on.
		h.remember(uuid, knownVM{Identity: spec.Identity, name: spec.Name})
		now.becomes("virDomainCreateXML")
		dom, err := c.DomainCreateXML(text, 0)
		now.becomes("virDomainLookupByUUID")
		if err != nil {
			if there := absent(c, spec); there != nil {
				return fmt.Errorf("%w: %w", err, there) // lost a race: the disk is the other's too
			}
			h.forget(uuid)
			return errors.Join(err, undo())
		}
		return dom.Free()
	})
}

// checkDisk refuses a disk that keeps its data in a file of its own: QEMU opens the file that the image's header names,
// no definition can forbid that, and the guest's QEMU could have written the header. A file that cannot be read from here
// is not checked: on a share that maps root to another user (root squash), or where libvirt sees another file system than this process.
func (h *Host) checkDisk(path string) error {
	if path == "" || !h.local {
		return nil
	}
	err := imagefile.CheckOwnData(path)
	switch {
	case err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, imagefile.ErrNot):
		return fmt.Errorf("disk: %w: %w", err, hypervisor.ErrInvalid)
	}
	return fmt.Errorf("disk: %w", err)
}

// absent is nil if neither the VM nor anything of its name is on the host.
func absent(c *libvirt.Connect, spec hypervisor.Spec) error {
	look := []func() (*libvirt.Domain, error){
		func() (*libvirt.Domain, error) { return c.LookupDomainByUUIDString(uuidOf(spec.VM)) },
		func() (*libvirt.Domain, error) { return c.LookupDomainByName(spec.Name) },
	}
	for _, by := range look {
		dom, err := by()
		if err == nil {
			_ = dom.Free()
			return hypervisor.ErrExists
		}
		if !isCode(err, libvirt.ERR_NO_DOMAIN) {
			return err
		}
	}
	return nil
}

// gather finds the parts Define made, and makes those that are made at each
// start; undo takes the latter away.
func (h *Host) gather(c *libvirt.Connect, spec hypervisor.Spec, wanted func() error) (p parts, undo func() error, err error) {
	undo = func() error { return nil }
	p.started = time.Now().Unix()
	if p.log, err = h.makeLog(spec.VM); err != nil {
		return parts{}, nil, err
	}
	if !needsPool(spec) {
		return p, undo, nil
	}
	h.storage.Lock()
	defer h.storage.Unlock()
	sp, err := h.pool(c, spec.Disk.Pool, true)
	if err != nil {
		return parts{}, nil, err
	}
	defer sp.Free()
	ephemeral := spec.Disk.Present() && spec.Disk.Ephemeral
	if ephemeral {
		if err := wanted(); err != nil {
			return parts{}, nil, err
		}
		if err := deleteVolume(sp, diskName(spec.VM)); err != nil {
			return parts{}, nil, err
		}
		if _, err := makeDisk(sp, spec); err != nil {
			return parts{}, nil, err
		}
		undo = func() error { return h.removeVolume(c, spec.Disk.Pool, diskName(spec.VM)) }
	}
	if err := findParts(sp, spec, &p); err != nil {
		if ephemeral {
			err = errors.Join(err, deleteVolume(sp, diskName(spec.VM)))
		}
		return parts{}, nil, err
	}
	return p, undo, nil
}

func findParts(sp *libvirt.StoragePool, spec hypervisor.Spec, p *parts) (err error) {
	if spec.Disk.Present() {
		if p.disk, err = volumePath(sp, diskName(spec.VM)); err != nil {
			return fmt.Errorf("disk: %w", err)
		}
	}
	if spec.CloudInit != (hypervisor.CloudInit{}) {
		if p.seed, err = volumePath(sp, seedName(spec.VM)); err != nil {
			return fmt.Errorf("cloud-init seed: %w", err)
		}
	}
	return nil
}

func volumePath(p *libvirt.StoragePool, name string) (string, error) {
	v, err := findVolume(p, name)
	if err != nil {
		return "", err
	}
	if v == nil {
		return "", fmt.Errorf("no volume %s: the VM is not defined here: %w", name, hypervisor.ErrInvalid)
	}
	defer v.Free()
	return v.GetPath()
}

func (h *Host) removeVolume(c *libvirt.Connect, pool, name string) error {
	h.storage.Lock()
	defer h.storage.Unlock()
	p, err := h.pool(c, pool, false)
	if err != nil {
		return err
	}
	defer p.Free()
	return deleteVolume(p, name)
}

// logPath is where the VM's console is logged; "" if it is not.
func (h *Host) logPath(id string) string {
	if h.opts.consoleDir() == "" {
		return ""
	}
	name := id
	if !domainName.MatchString(id) {
		name = uuidOf(id)
	}
	return filepath.Join(h.opts.consoleDir(), name+".log")
}

func (h *Host) makeLog(id string) (string, error) {
	path := h.logPath(id)
	if path == "" {
		return "", nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return "", fmt.Errorf("console log: %w", err)
	}
	return path, nil
}

func (h *Host) removeLog(id string) {
	if path := h.logPath(id); path != "" {
		_ = os.Remove(path)
	}
}

// Stop presses the guest's power button.
func (h *Host) Stop(ctx context.Context, id string) error {
	_, err := onVM(calling(ctx, "virDomainShutdownFlags", id, ""), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		return struct{}{}, dom.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
	})
	if err != nil {
		return fmt.Errorf("stop VM %s: %w", id, err)
	}
	return nil
}

// Reset presses the guest's reset button.
func (h *Host) Reset(ctx context.Context, id string, generation uint64) error {
	_, err := onVM(calling(ctx, "virDomainReset", id, ""), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, m mark) (struct{}, error) {
		if m.Generation != generation {
			return struct{}{}, fmt.Errorf("generation %d runs, not %d: %w", m.Generation, generation, hypervisor.ErrNotFound)
		}
		return struct{}{}, dom.Reset(0)
	})
	if err != nil {
		return fmt.Errorf("reset VM %s: %w", id, err)
	}
	return nil
}

// Destroy pulls the VM's plug. Its ephemeral disk goes with it.
func (h *Host) Destroy(ctx context.Context, id string) error {
	var over atomic.Bool // given up: the disk may be another host's by now
	defer over.Store(true)
	_, err := onVM(calling(ctx, "virDomainDestroyFlags", id, ""), h, h.slow(), id, func(c *libvirt.Connect, dom *libvirt.Domain, m mark) (struct{}, error) {
		err := dom.DestroyFlags(libvirt.DOMAIN_DESTROY_DEFAULT)
		if err != nil && !isCode(err, libvirt.ERR_NO_DOMAIN) {
			if active, aerr := dom.IsActive(); aerr == nil && active || aerr != nil && !isCode(aerr, libvirt.ERR_NO_DOMAIN) {
				return struct{}{}, err
			}
		}
		h.notifyStopped(uuidOf(id))
		if m.Ephemeral != nil && over.Load() {
			return struct{}{}, errAbandoned
		}
		if m.Ephemeral != nil {
			return struct{}{}, h.removeVolume(c, m.Ephemeral.Pool, m.Ephemeral.Volume)
		}
		return struct{}{}, nil
	})
	if err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
		return fmt.Errorf("destroy VM %s: %w", id, err)
	}
	return nil
}

// notifyStopped makes sure that readers get an event for the end of a VM that was destroyed.
// libvirt sends one, except for a daemon that was restarted a moment ago and is still
// finding its VMs again: then a VM ends with no event.
func (h *Host) notifyStopped(uuid string) {
	for range 50 {
		if _, known := h.lookupKnown(uuid); !known {
			return // its event was sent and the VM forgotten
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.raw.put(rawEvent{kind: hypervisor.Stopped, at: time.Now(), uuid: uuid, reason: "destroyed", inferred: true})
}

// SetCPU puts cap and weight in force in the kernel's control groups.
func (h *Host) SetCPU(ctx context.Context, id string, cpu hypervisor.CPU) error {
	err := checkCPU(cpu)
	if err == nil {
		_, err = onVM(calling(ctx, "virDomainSetSchedulerParametersFlags", id, ""), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, m mark) (struct{}, error) {
			return struct{}{}, schedParams(m.VCPUs, cpu, h.cgroup).apply(dom, m.VCPUs)
		})
	}
	if err != nil {
		return fmt.Errorf("set CPU of VM %s to cap %.3f, weight %.3f: %w", id, cpu.Cap, cpu.Weight, err)
	}
	return nil
}

// SetBalloon sets the memory target. libvirt takes it whether or not the guest
// follows: VM.Balloon says what came of it.
func (h *Host) SetBalloon(ctx context.Context, id string, bytes int64) error {
	err := error(nil)
	if bytes < 1<<20 {
		err = fmt.Errorf("%d bytes: %w", bytes, hypervisor.ErrInvalid)
	} else {
		_, err = onVM(calling(ctx, "virDomainSetMemoryFlags", id, ""), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
			return struct{}{}, dom.SetMemoryFlags(uint64(kib(bytes)), libvirt.DOMAIN_MEM_LIVE)
		})
	}
	if err != nil {
		return fmt.Errorf("set memory of VM %s to %d bytes: %w", id, bytes, err)
	}
	return nil
}
