package node

import (
	"bytes"
	"fmt"
	"io"

	"evenkeel/cluster/state"
)

// Load reads a saved snapshot into a state of its own, to be read. Nothing is put in force.
func Load(r io.Reader) (Saved, *state.Store, error) {
	saved, body, err := inspect(r)
	if err != nil {
		return saved, nil, fmt.Errorf("load snapshot: %w: %w", ErrBadSnapshot, err)
	}
	s := state.New()
	if err := s.Restore(bytes.NewReader(body)); err != nil {
		return saved, nil, fmt.Errorf("load snapshot: %w: %w", ErrBadSnapshot, err)
	}
	return saved, s, nil
}
