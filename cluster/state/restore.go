package state

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// keepParts is how long the parts of a restore that was not ended are kept.
const keepParts = 10 * time.Minute

// Restore is a part of a saved state that is put in force. Parts come in order. With the last one the whole state is replaced
// by what the parts hold together, under the recovery freeze of PrepareRestore, or nothing is changed. So all servers change it
// at the same place in the log.
type Restore struct {
	ID   string `json:"id"` // of all parts
	Part int    `json:"part"`
	Of   int    `json:"of"`
	Data []byte `json:"data"` // of what Save wrote

	Foreign bool     `json:"foreign,omitempty"` // it may be of another cluster
	WaitFor []string `json:"waitFor,omitempty"` // hosts, besides those that are known
	Text    string   `json:"text,omitempty"`    // for the event
}

// maxParts is how many parts a restore may have.
const maxParts = 1 << 16

func (b *Restore) valid() error {
	if b.Of < 1 || b.Of > maxParts || b.Part < 0 || b.Part >= b.Of {
		return fmt.Errorf("restore %q: part %d of %d: %w", b.ID, b.Part, b.Of, ErrInvalid)
	}
	for _, name := range b.WaitFor {
		if err := check("host", name, "name", name); err != nil {
			return err
		}
	}
	return check("restore", b.ID, "id", b.ID)
}

// restorePart is a row: a part that waits for the last.
type restorePart struct {
	Key  string    `json:"key"` // its number, so that they are in order
	ID   string    `json:"id"`
	Data []byte    `json:"data"`
	At   time.Time `json:"at"`
}

func (w *writer) restore(b *Restore) error {
	parts := all[restorePart](w.read(), tRestore, "id")
	if b.Part == 0 { // one that was begun before is given up
		forgetRows(w, tRestore, every[restorePart])
		parts = nil
	}
	if len(parts) != b.Part || len(parts) > 0 && parts[0].ID != b.ID {
		return fmt.Errorf("restore %s: part %d of %d follows on %d that are here: %w", b.ID, b.Part, b.Of, len(parts), ErrConflict)
	}
	if b.Part+1 < b.Of {
		w.put(tRestore, &restorePart{Key: fmt.Sprintf("%08d", b.Part), ID: b.ID, Data: b.Data, At: w.at})
		return nil
	}
	var whole []io.Reader
	for _, p := range parts {
		whole = append(whole, bytes.NewReader(p.Data))
	}
	s, err := prepareRestore(io.MultiReader(append(whole, bytes.NewReader(b.Data))...), "restore", w.at, w.read(), w.version, b.WaitFor...)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	if at := s.Snapshot().Index(); at >= w.index { // the saved state's rows have the indexes of their changes
		return fmt.Errorf("it is of index %d, this is %d: %w", at, w.index, ErrConflict)
	}
	is, known := w.read().Meta()
	saved, _ := s.Snapshot().Meta()
	if known && is.ID != saved.ID && !b.Foreign {
		return fmt.Errorf("it is of cluster %s, this is %s: %w", saved.ID, is.ID, ErrConflict)
	}
	w.replaceBy(s.Snapshot())
	w.event("snapshot-restored", "cluster", saved.ID, "%s", b.Text)
	return nil
}

// replaceBy replaces the whole state by another one.
func (w *writer) replaceBy(s *Snapshot) {
	for table := range schema().Tables {
		if _, err := w.txn.DeleteAll(table, "id"); err != nil {
			panic("state: delete all of " + table + ": " + err.Error())
		}
		rows, err := s.txn.Get(table, "id")
		if err != nil {
			panic("state: " + table + ": " + err.Error())
		}
		for row := rows.Next(); row != nil; row = rows.Next() {
			if err := w.txn.Insert(table, row); err != nil {
				panic("state: insert into " + table + ": " + err.Error())
			}
		}
	}
	w.pos, w.all, w.replaced = position{Key: "log"}, true, true
	if p, ok := first[position](s, tIndex, "id", "log"); ok {
		w.pos = p
	}
	clear(w.cache.vcs) // of what was
	w.cache.vcs, w.cache.ops, w.cache.events = nil, unknown, eventCounts{}
}

// every says of every row of a table that it is to be dropped.
func every[T any](*T) bool { return true }

// forgetParts drops the parts of restores that no client goes on with: those older than keepParts.
func (w *writer) forgetParts() {
	forgetRows(w, tRestore, func(p *restorePart) bool { return w.at.Sub(p.At) > keepParts })
}
