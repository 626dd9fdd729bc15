package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// KeepFile keeps a Memory in a file, which is there whole or not at all.
type KeepFile string

// Load implements Keep. A file that is not there is an empty memory.
func (f KeepFile) Load() (Memory, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return Memory{}, nil
	}
	var m Memory
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return Memory{}, fmt.Errorf("read %s: %w", string(f), err)
	}
	return m, nil
}

// Save implements Keep.
func (f KeepFile) Save(m Memory) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(string(f)), ".next")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) //nolint:errcheck // it is gone if all went well
	_, err = next.Write(append(b, '\n'))
	// Synced, or a power failure may leave an empty file, and with it an agent that does not start.
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), string(f))
}
