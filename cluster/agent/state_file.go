package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"evenkeel/internal/statefile"
)

// StateFile keeps a PersistentState in a file with a checksum and a second copy, each there whole or not at all.
//
// The copy may stand in for the file: an agent reports to the leader, or begins, only what Save has returned from, and by then
// both have it. An older state must not stand in. It may lack that the end of the lease stops VMs (the leader counts on that), an
// epoch whose orders replaced others, or a move whose bytes are to be counted.
type StateFile string

// Load implements StateStore. If neither the file nor its copy is there, the state is empty.
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

// Save implements StateStore.
func (f StateFile) Save(m PersistentState) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode what the agent must know again: %w", err)
	}
	return statefile.WriteIn(string(f), b)
}
