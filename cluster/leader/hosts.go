package leader

import (
	"context"
	"errors"
	"fmt"
	"io"

	"evenkeel/cluster/state"
)

// Cordon closes a host for new VMs, or opens it again.
func (c *Service) Cordon(ctx context.Context, host string, on bool, reason string, dryRun bool) error {
	if err := checkReason("reason", reason); err != nil {
		return err
	}
	h, ok := c.o.State.Snapshot().Host(host)
	switch {
	case !ok:
		return fmt.Errorf("host %s: %w", host, ErrNotFound)
	case !on && h.Drain.State != "":
		return fmt.Errorf("host %s is %s for maintenance: undrain it: %w", host, h.Drain.State, ErrConflict)
	case dryRun:
		return nil
	}
	if !on {
		reason = ""
	}
	if err := c.propose(ctx, state.KindHostCordon, state.HostCordon{Host: host, Cordoned: on, Reason: reason}); err != nil {
		return fmt.Errorf("cordon host %s: %w", host, err)
	}
	return nil
}

// once carries out a change of the catalogue that ends with its log entry. f plans on a snapshot, and proposes. If the
// idempotency key was used for the same request before, once changes nothing, however long ago that was.
func (c *Service) once(ctx context.Context, verb, name string, body any, call Call, f func(*state.Snapshot, *state.Remembered) error) (replayed bool, err error) {
	if call.IdempotencyKey == "" {
		return false, f(c.o.State.Snapshot(), nil)
	}
	if err := c.o.Log.Linearize(ctx); err != nil {
		return false, fmt.Errorf("%s %s: %w: %w", verb, name, ErrNoLeader, err)
	}
	print := fingerprint(verb, name, body)
	for n := 0; ; n++ {
		s := c.o.State.Snapshot()
		if _, done, err := remembered(s, print, call); done || err != nil {
			return done, err
		}
		err := f(s, &state.Remembered{Key: call.IdempotencyKey, Fingerprint: print})
		if n > 0 || !errors.Is(err, state.ErrConflict) { // else the same request may have come before this one
			return false, err
		}
	}
}

// AddImage adds an entry for a file that lies on the hosts to the catalogue.
func (c *Service) AddImage(ctx context.Context, img state.Image, call Call) (added state.Image, replayed bool, err error) {
	replayed, err = c.once(ctx, "image add", img.Name, img, call, func(s *state.Snapshot, r *state.Remembered) error {
		added, err = c.addImage(ctx, s, img, r, call.DryRun)
		return err
	})
	if replayed {
		if added, _ = c.o.State.Snapshot().Image(img.Name); added.Name == "" { // it was deleted since
			added = img
		}
	}
	return added, replayed, err
}

func (c *Service) addImage(ctx context.Context, s *state.Snapshot, img state.Image, r *state.Remembered, dryRun bool) (state.Image, error) {
	var f faults
	if _, taken := s.Image(img.Name); taken {
		return img, &Exists{Field: "name", Text: "name: image " + img.Name + " is in the catalogue already; delete it first"}
	}
	if img.Kind == state.KernelImage {
		checkImage(&f, "initrd", img.Initrd, func(name string) (state.Image, bool) { return s.ImageFor(img.Tenant(), name) }, state.InitrdImage)
	}
	if err := f.err(); err != nil {
		return img, err
	}
	img, err := c.o.Inspect(img)
	if err != nil {
		return img, &Invalid{Fields: []FieldError{{Field: "file", Text: err.Error(), Value: clip(img.File)}}}
	}
	if err := s.CheckImagePut(img); err != nil || dryRun {
		return img, err
	}
	if err := c.propose(ctx, state.KindImagePut, state.ImagePut{Image: img, Remembered: r}); err != nil {
		return img, fmt.Errorf("add image %s: %w", img.Name, err)
	}
	img, _ = c.o.State.Snapshot().Image(img.Name)
	return img, nil
}

// DeleteImage deletes an image from the catalogue. The file stays.
func (c *Service) DeleteImage(ctx context.Context, name string, call Call) error {
	_, err := c.once(ctx, "image delete", name, nil, call, func(s *state.Snapshot, r *state.Remembered) error {
		return c.deleteImage(ctx, s, name, r, call.DryRun)
	})
	return err
}

func (c *Service) deleteImage(ctx context.Context, s *state.Snapshot, name string, r *state.Remembered, dryRun bool) error {
	if _, ok := s.Image(name); !ok {
		return fmt.Errorf("image %s: %w", name, ErrNotFound)
	}
	if dryRun {
		return imageFree(s, name)
	}
	if err := c.propose(ctx, state.KindImageDrop, state.ImageDrop{Name: name, Remembered: r}); errors.Is(err, state.ErrInUse) {
		return err // it names the image
	} else if err != nil {
		return fmt.Errorf("delete image %s: %w", name, err)
	}
	return nil
}

// imageFree returns the error that deleting an image would meet; the deletion checks again when it is applied.
func imageFree(s *state.Snapshot, name string) error {
	for _, vc := range s.VCs() {
		for _, g := range vc.Groups {
			if g.Image == name || g.Boot.Kernel == name || g.Boot.Initrd == name {
				return fmt.Errorf("image %s: virtual cluster %s, group %s uses it: %w", name, vc.Name, g.Name, state.ErrInUse)
			}
		}
	}
	for _, img := range s.Images() {
		if img.Initrd == name {
			return fmt.Errorf("image %s: kernel image %s boots with it: %w", name, img.Name, state.ErrInUse)
		}
	}
	return nil
}

// Console attaches to the serial console of a VM, by its name or id.
func (c *Service) Console(ctx context.Context, name string) (io.ReadWriteCloser, error) {
	s := c.o.State.Snapshot()
	vm, ok := s.VMNamed(name)
	if !ok {
		vm, ok = s.VM(name)
	}
	if !ok {
		return nil, fmt.Errorf("VM %s: %w", name, ErrNotFound)
	}
	if vm.Phase != state.Running {
		return nil, fmt.Errorf("VM %s is %s, it has a console only while it runs: %w", vm.Name, vm.Phase, ErrConflict)
	}
	rw, err := c.o.Console(ctx, vm.Host, vm.ID)
	if err != nil {
		return nil, fmt.Errorf("console of VM %s on host %s: %w", vm.Name, vm.Host, err)
	}
	return rw, nil
}
