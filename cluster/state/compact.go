package state

import (
	"errors"
	"fmt"
	"io"
)

// Compact copies the rows to where they lie close together in memory. It returns false if the state changed meanwhile. After a load the
// remaining rows lie scattered among freed ones. Go's runtime moves no objects, so it cannot give those pages back. Compact loads a
// saved snapshot into a new database and swaps that in. No caller waits for the copying: readers keep their snapshots, and entries are
// applied meanwhile.
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
