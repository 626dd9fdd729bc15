package state

import (
	"errors"
	"fmt"
	"io"
)

// Compact copies the rows to where they lie close together in memory, and says whether it did: not if the state changed meanwhile. The rows that outlive a load
// lie scattered among what the load left behind, and Go's runtime moves no objects: it cannot give those pages back. Compact copies
// the state as a snapshot is copied and puts the copy in its place, which no caller waits for: readers keep what they read, and
// entries are applied meanwhile.
func (s *Store) Compact() (bool, error) {
	from := s.current()
	was := s.Snapshot()
	out, in := io.Pipe()
	saved := make(chan error, 1)
	go func() {
		err := was.Save(in)
		in.CloseWithError(err) //nolint:errcheck // it returns none
		saved <- err
	}()
	db, err := load(out, FormatVersion)
	out.CloseWithError(err) //nolint:errcheck // it returns none
	if err := errors.Join(err, <-saved); err != nil {
		return false, fmt.Errorf("compact the state: %w", err)
	}
	s.applying.Lock() // no entry may be applied to what is replaced
	defer s.applying.Unlock()
	if s.current() != from || s.Snapshot().Index() != was.Index() {
		return false, nil
	}
	s.replace(db)
	return true, nil
}
