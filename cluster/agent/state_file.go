package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"evenkeel/internal/statefile"
)

// StateFile keeps a Memory in a file with a checksum and a second copy, each there whole or not at all.
//
// The copy may stand in for the file: what an agent has told the leader, or has begun, is what Save had returned from, and by
// then both have it. An older memory may not: it may lack that the end of the lease stops VMs (the leader counts on it), an
// epoch whose orders replaced others, or a move whose bytes are to be counted.
type StateFile string

// Load implements Keep. A file that is not there, nor its copy, is an empty memory.
func (f StateFile) Load() (PersistentState, error) {
	var m PersistentState
	fallback, err := statefile.Read(string(f), func(b []byte) error {
		m = PersistentState{}
		return json.Unmarshal(b, &m)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return PersistentState{}, nil
	}
	if err != nil {
		return PersistentState{}, err
	}
	if fallback != nil {
		slog.Warn("the agent's file is damaged: its copy is used", "file", string(f), "error", fallback)
	}
	return m, nil
}

// Save implements Keep.
func (f StateFile) Save(m PersistentState) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode what the agent must know again: %w", err)
	}
	return statefile.WriteIn(string(f), b)
}
