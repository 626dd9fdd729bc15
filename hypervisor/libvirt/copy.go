package libvirt

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// copied is a VM's disk and seed at the target of its move, where libvirt then fills the disk in.
type copied struct {
	to   string // libvirt's address of the target
	pool string
}

// prepareCopy makes what the VM needs at the target: an empty overlay over the same base, and the seed.
// It replaces a disk and a seed of the VM there: they are of an earlier move, and stale, since the VM
// runs here.
func (h *Host) prepareCopy(ctx context.Context, m hypervisor.Migration) (*copied, error) {
	spec := m.Spec
	var image []byte
	if spec.CloudInit != (hypervisor.CloudInit{}) {
		var err error
		if image, err = seedImage(ctx, spec); err != nil {
			return nil, fmt.Errorf("cloud-init seed: %w", err)
		}
	}
	var here parts
	err := do(calling(ctx, "virStoragePoolLookupByName "+spec.Disk.Pool, spec.VM, spec.Label()), h, h.slow(), func(c *libvirt.Connect) error {
		h.storage.Lock()
		defer h.storage.Unlock()
		p, err := h.pool(c, spec.Disk.Pool, false)
		if err != nil {
			return err
		}
		defer p.Free()
		return findParts(p, spec, &here)
	})
	if err != nil {
		return nil, fmt.Errorf("what there is to copy: %w", err)
	}
	d := &copied{to: h.peerURI(m.To), pool: poolName(spec.Disk.Pool)}
	err = d.at(ctx, h, func(c *libvirt.Connect) error {
		if err := absent(c, spec); err != nil {
			return fmt.Errorf("the VM is there: %w", err)
		}
		p, err := h.pool(c, spec.Disk.Pool, true)
		if err != nil {
			return err
		}
		defer p.Free()
		if spec.Disk.Present() {
			if err := deleteVolume(p, diskName(spec.VM)); err != nil {
				return err
			}
			if _, err := makeDisk(p, spec); err != nil {
				return err
			}
		}
		if image != nil {
			if err := makeSeed(c, p, spec.VM, image); err != nil {
				return err
			}
		}
		var there parts
		if err := findParts(p, spec, &there); err != nil {
			return err
		}
		if there != here {
			return fmt.Errorf("storage pool %q holds the VM's disk and seed at %q and %q here, and at %q and %q there: %w",
				d.pool, here.disk, here.seed, there.disk, there.seed, hypervisor.ErrInvalid)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("prepare its disk at the target: %w", err)
		return nil, errors.Join(err, d.removeStale(h, spec, false))
	}
	return d, nil
}

// removeStale removes the disk and the seed where the VM is not: here if it has moved, else there.
func (d *copied) removeStale(h *Host, spec hypervisor.Spec, moved bool) error {
	clear := func(c *libvirt.Connect) error {
		if err := absent(c, spec); err != nil {
			return err
		}
		p, err := h.pool(c, d.pool, false)
		if err != nil {
			return err
		}
		defer p.Free()
		return errors.Join(deleteVolume(p, diskName(spec.VM)), deleteVolume(p, seedName(spec.VM)))
	}
	if !moved {
		return d.at(context.Background(), h, clear)
	}
	return do(context.Background(), h, h.slow(), func(c *libvirt.Connect) error {
		h.storage.Lock()
		defer h.storage.Unlock()
		return clear(c)
	})
}

// at calls f with a connection to the target's daemon, within the time of a slow call.
func (d *copied) at(ctx context.Context, h *Host, f func(*libvirt.Connect) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.slow())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		c, err := libvirt.NewConnect(d.to)
		if err != nil {
			done <- fmt.Errorf("%w: %w", bareError(err), hypervisor.ErrUnavailable)
			return
		}
		defer c.Close()
		if ctx.Err() != nil {
			done <- errAbandoned
			return
		}
		done <- translate(nil, f(c))
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("libvirt at %s: no answer: %w: %w", d.to, ctx.Err(), hypervisor.ErrUnavailable)
	}
}
