package machines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Saved is a machine that was saved as it ran: memory, devices and disk.
type Saved struct {
	img Image
	dir string
}

// Prepare finds the saved machine of an image in dir, or boots one, has ready run on it, and saves it. Saved machines of
// other images of its release are removed.
func Prepare(ctx context.Context, img Image, dir string, ready func(context.Context, *Machine) error) (s Saved, made bool, err error) {
	s = Saved{img, filepath.Join(dir, "saved-"+img.Release+"-"+img.fingerprint())}
	if _, err := os.Stat(s.memory()); err == nil {
		return s, false, nil
	}
	old, err := filepath.Glob(filepath.Join(dir, "saved-"+img.Release+"-*"))
	for _, o := range old {
		err = errors.Join(err, os.RemoveAll(o))
	}
	if err = errors.Join(err, os.MkdirAll(s.dir, 0o755)); err != nil {
		return s, false, err
	}
	m, err := Boot(ctx, img, s.dir)
	if err != nil {
		return s, false, err
	}
	if err = ready(ctx, m); err == nil {
		err = m.save(ctx, s.memory()+".new")
	}
	if err = errors.Join(err, m.Close()); err == nil {
		err = os.Rename(s.memory()+".new", s.memory())
	}
	return s, true, err
}

func (s Saved) memory() string { return filepath.Join(s.dir, "memory") }

// save writes the machine's memory and devices to a file; it stands still from then on.
func (m *Machine) save(ctx context.Context, path string) error {
	m.hangUp()
	const unlimited = 1 << 40 // bytes/s
	if err := errors.Join(m.monitor.call(ctx, "stop", nil, nil),
		m.monitor.call(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": unlimited}, nil),
		m.monitor.call(ctx, "migrate", map[string]any{"uri": "file:" + path}, nil)); err != nil {
		return fmt.Errorf("save the machine: %w", err)
	}
	return m.migrated(ctx, "the machine is saved")
}

// migrated waits for the end of a migration to or from a file.
func (m *Machine) migrated(ctx context.Context, what string) error {
	var state struct {
		Status string `json:"status"`
		Why    string `json:"error-desc"`
		RAM    struct {
			Transferred int64 `json:"transferred"`
		} `json:"ram"`
	}
	var failed error
	err := m.Until(ctx, restoreStall, what, func() string { return fmt.Sprintf("%+v", state) }, func() bool {
		if failed = m.monitor.call(ctx, "query-migrate", nil, &state); failed == nil && state.Status == "failed" {
			failed = fmt.Errorf("%s: %s", what, state.Why)
		}
		return failed != nil || state.Status == "completed"
	})
	return errors.Join(err, failed)
}

// Restore gives the saved machine with a disk of its own in dir, on that network, and with the time of now.
func (s Saved) Restore(ctx context.Context, dir string, on lan) (*Machine, error) {
	if err := overlay(ctx, filepath.Join(s.dir, "disk.qcow2"), filepath.Join(dir, "disk.qcow2")); err != nil {
		return nil, err
	}
	m, err := start(ctx, s.img, dir, on, "-incoming", "defer")
	if err != nil {
		return nil, err
	}
	err = m.monitor.call(ctx, "migrate-incoming", map[string]any{"uri": "file:" + s.memory()}, nil)
	if err == nil {
		err = m.migrated(ctx, "the machine is restored")
	}
	if err == nil {
		err = m.monitor.call(ctx, "cont", nil, nil)
	}
	if err == nil {
		_, err = m.Run(ctx, fmt.Sprintf("date -s @%d", time.Now().Unix()))
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}
