package libvirt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

// defaultPool is the pool of a Spec that names none: a directory under Options.StateDir. It is the
// only pool that is made where the host does not have it.
const defaultPool = "default"

func poolName(name string) string {
	if name == "" {
		return defaultPool
	}
	return name
}

// diskName and seedName name volumes after the VM's libvirt UUID, so that any id makes a good file name.
func diskName(id string) string { return "ek-" + uuidOf(id) + ".qcow2" }
func seedName(id string) string { return "ek-" + uuidOf(id) + "-seed.iso" }

func needsPool(spec hypervisor.Spec) bool {
	return spec.Disk.Present() || spec.CloudInit != (hypervisor.CloudInit{})
}

// checkPool says whether the pool is there or will be made.
func (h *Host) checkPool(c *libvirt.Connect, name string) error {
	name = poolName(name)
	p, err := c.LookupStoragePoolByName(name)
	switch {
	case err == nil:
		return p.Free()
	case isCode(err, libvirt.ERR_NO_STORAGE_POOL) && name == defaultPool && h.opts.StateDir != "":
		return nil
	case isCode(err, libvirt.ERR_NO_STORAGE_POOL):
		return fmt.Errorf("no storage pool %q: %w", name, hypervisor.ErrInvalid)
	}
	return fmt.Errorf("storage pool %q: %w", name, err)
}

// pool finds a storage pool, started; the caller frees it. With create the
// pool "default" is made if it is not there, or its directory is not.
func (h *Host) pool(c *libvirt.Connect, name string, create bool) (*libvirt.StoragePool, error) {
	name = poolName(name)
	p, err := c.LookupStoragePoolByName(name)
	create = create && name == defaultPool && h.opts.StateDir != ""
	if err == nil && create && isMade(p) && p.Refresh(0) != nil {
		// Its directory is gone: it was of a state directory that is no more.
		_ = p.Destroy()
		_ = p.Free()
		p, err = h.makeDefaultPool(c)
	}
	if isCode(err, libvirt.ERR_NO_STORAGE_POOL) && create {
		p, err = h.makeDefaultPool(c)
	}
	if isCode(err, libvirt.ERR_NO_STORAGE_POOL) {
		return nil, fmt.Errorf("no storage pool %q: %w", name, hypervisor.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("storage pool %q: %w", name, err)
	}
	if active, err := p.IsActive(); err != nil || !active {
		if err == nil {
			err = p.Create(libvirt.STORAGE_POOL_CREATE_NORMAL)
		}
		if err != nil {
			_ = p.Free()
			return nil, fmt.Errorf("start storage pool %q: %w", name, err)
		}
	}
	return p, nil
}

// makeDefaultPool makes the pool transient: it lasts as long as the machine is
// up, or until the last volume in it is gone, and then leaves nothing in
// libvirt's configuration. Its files stay, for the next one.
func (h *Host) makeDefaultPool(c *libvirt.Connect) (*libvirt.StoragePool, error) {
	x, err := (&libvirtxml.StoragePool{
		Type: "dir", Name: defaultPool,
		Target: &libvirtxml.StoragePoolTarget{Path: h.poolDir(), Permissions: &libvirtxml.StoragePoolTargetPermissions{Mode: "0711"}},
	}).Marshal()
	if err != nil {
		return nil, err
	}
	return c.StoragePoolCreateXML(x, libvirt.STORAGE_POOL_CREATE_WITH_BUILD)
}

func (h *Host) poolDir() string { return filepath.Join(h.opts.StateDir, "pool") }

// isMade reports whether makeDefaultPool made the pool, for this StateDir or an earlier one.
func isMade(p *libvirt.StoragePool) bool {
	name, err := p.GetName()
	if err != nil || name != defaultPool {
		return false
	}
	persistent, err := p.IsPersistent()
	return err == nil && !persistent
}

// dropPool stops the pool that makeDefaultPool made once it is empty.
func dropPool(p *libvirt.StoragePool) {
	if !isMade(p) {
		return
	}
	if n, err := p.NumOfStorageVolumes(); err == nil && n == 0 {
		_ = p.Destroy()
	}
}

// findVolume looks a volume up, the second time after the pool has read its
// directory again; nil if there is none.
func findVolume(p *libvirt.StoragePool, name string) (*libvirt.StorageVol, error) {
	v, err := p.LookupStorageVolByName(name)
	if isCode(err, libvirt.ERR_NO_STORAGE_VOL) {
		if err := p.Refresh(0); err != nil {
			return nil, fmt.Errorf("refresh storage pool: %w", err)
		}
		v, err = p.LookupStorageVolByName(name)
	}
	if isCode(err, libvirt.ERR_NO_STORAGE_VOL) {
		return nil, nil
	}
	return v, err
}

// makeDisk makes a VM's disk, a qcow2 overlay over its base (or an empty disk) and says whether it
// did: one that is there is kept.
func makeDisk(p *libvirt.StoragePool, spec hypervisor.Spec) (bool, error) {
	name := diskName(spec.VM)
	v, err := findVolume(p, name)
	if err != nil {
		return false, fmt.Errorf("disk %s: %w", name, err)
	}
	if v != nil {
		return false, v.Free()
	}
	x := libvirtxml.StorageVolume{
		Name:       name,
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes"},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:      &libvirtxml.StorageVolumeTargetFormat{Type: formatQcow2},
			Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: "0600"},
		},
	}
	if spec.Disk.Size > 0 {
		x.Capacity = &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(spec.Disk.Size)}
	}
	if spec.Disk.Base != "" {
		x.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path: spec.Disk.Base, Format: &libvirtxml.StorageVolumeTargetFormat{Type: formatQcow2},
		}
	}
	text, err := x.Marshal()
	if err != nil {
		return false, err
	}
	v, err = p.StorageVolCreateXML(text, 0)
	if err != nil {
		return false, fmt.Errorf("make disk %s: %w", name, err)
	}
	return true, v.Free()
}

// makeSeed makes a VM's cloud-init seed and says whether it did. One that is there is made
// again: unlike a disk it holds nothing but what the Spec says.
func makeSeed(c *libvirt.Connect, p *libvirt.StoragePool, id string, image []byte) error {
	name := seedName(id)
	if err := deleteVolume(p, name); err != nil {
		return err
	}
	text, err := (&libvirtxml.StorageVolume{
		Name:     name,
		Capacity: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(len(image))},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:      &libvirtxml.StorageVolumeTargetFormat{Type: formatRaw},
			Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: "0600"}, // user data may hold secrets
		},
	}).Marshal()
	if err != nil {
		return err
	}
	v, err := p.StorageVolCreateXML(text, 0)
	if err != nil {
		return fmt.Errorf("make seed %s: %w", name, err)
	}
	defer v.Free()
	if err := upload(c, v, image); err != nil {
		return errors.Join(fmt.Errorf("fill seed %s: %w", name, err), v.Delete(libvirt.STORAGE_VOL_DELETE_NORMAL))
	}
	return nil
}

func upload(c *libvirt.Connect, v *libvirt.StorageVol, data []byte) error {
	st, err := c.NewStream(0)
	if err != nil {
		return err
	}
	defer st.Free()
	if err := v.Upload(st, 0, uint64(len(data)), 0); err != nil {
		return err
	}
	for len(data) > 0 {
		n, err := st.Send(data[:min(len(data), 64<<10)])
		if err != nil {
			_ = st.Abort()
			return err
		}
		data = data[n:]
	}
	return st.Finish()
}

// deleteVolume removes a volume; one that is not there is no error.
func deleteVolume(p *libvirt.StoragePool, name string) error {
	v, err := findVolume(p, name)
	if err != nil || v == nil {
		return err
	}
	defer v.Free()
	if err := v.Delete(libvirt.STORAGE_VOL_DELETE_NORMAL); err != nil && !isCode(err, libvirt.ERR_NO_STORAGE_VOL) {
		return fmt.Errorf("delete volume %s: %w", name, err)
	}
	return nil
}

// Define makes the VM's disk and seed. An ephemeral disk is Start's to make.
func (h *Host) Define(ctx context.Context, spec hypervisor.Spec) error {
	if err := h.define(ctx, spec); err != nil {
		return fmt.Errorf("define VM %s (%s): %w", spec.VM, spec.Label(), err)
	}
	return nil
}

func (h *Host) define(ctx context.Context, spec hypervisor.Spec) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	var image []byte
	if spec.CloudInit != (hypervisor.CloudInit{}) {
		var err error
		if image, err = seedImage(ctx, spec); err != nil {
			return fmt.Errorf("cloud-init seed: %w", err)
		}
	}
	if err := h.checkHost(ctx, spec); err != nil {
		return err
	}
	keepDisk := spec.Disk.Present() && !spec.Disk.Ephemeral
	if !keepDisk && image == nil {
		return nil
	}
	return do(calling(ctx, "virStorageVolCreateXML in pool "+spec.Disk.Pool, spec.VM, spec.Label()), h, h.slow(), func(c *libvirt.Connect) (err error) {
		h.storage.Lock()
		defer h.storage.Unlock()
		p, err := h.pool(c, spec.Disk.Pool, true)
		if err != nil {
			return err
		}
		defer p.Free()
		made := false
		if keepDisk {
			if made, err = makeDisk(p, spec); err != nil {
				return err
			}
		}
		if image != nil {
			if err := makeSeed(c, p, spec.VM, image); err != nil {
				if made {
					err = errors.Join(err, deleteVolume(p, diskName(spec.VM)))
				}
				return err
			}
		}
		return nil
	})
}

// Undefine removes the VM's disk, seed and console log.
func (h *Host) Undefine(ctx context.Context, spec hypervisor.Spec) error {
	err := doAwaited(calling(ctx, "virStorageVolDelete", spec.VM, spec.Label()), h, h.slow(), func(c *libvirt.Connect, wanted func() error) error {
		// Whatever mark it carries or does not: nothing that runs loses its disk.
		dom, err := c.LookupDomainByUUIDString(uuidOf(spec.VM))
		if err == nil {
			_ = dom.Free()
			return errors.New("it still runs")
		}
		if !isCode(err, libvirt.ERR_NO_DOMAIN) {
			return err
		}
		h.removeLog(spec.VM)
		if !needsPool(spec) {
			return nil
		}
		h.storage.Lock()
		defer h.storage.Unlock()
		p, err := h.pool(c, spec.Disk.Pool, false)
		if errors.Is(err, hypervisor.ErrInvalid) {
			return nil // no pool, so nothing in it
		}
		if err != nil {
			return err
		}
		defer p.Free()
		defer dropPool(p) // before it is freed
		if err := wanted(); err != nil {
			return err
		}
		return errors.Join(deleteVolume(p, diskName(spec.VM)), deleteVolume(p, seedName(spec.VM)))
	})
	if err != nil {
		return fmt.Errorf("undefine VM %s (%s): %w", spec.VM, spec.Label(), err)
	}
	return nil
}
