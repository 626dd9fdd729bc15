package state

import (
	"errors"
	"fmt"
	"time"

	memdb "github.com/hashicorp/go-memdb"
)

var (
	// ErrConflict: the state is no longer the one that the command was made for. Plan again.
	ErrConflict = errors.New("changed meanwhile")
	// ErrNotFound: the command names something that is not there.
	ErrNotFound = errors.New("not found")
	// ErrInUse: the command would remove something that others need.
	ErrInUse = errors.New("in use")
)

// Limits of the past that is kept.
const (
	keepEvents     = 10_000
	keepOperations = 10_000
	keepRevoked    = 7 * 24 * time.Hour // beyond the end of what was revoked
	forgetEvery    = 256                // log entries, between two looks at what is too old
)

// Apply applies the log entry at the given index and returns the outcome that its
// proposer gets: nil, or an error that wraps one of the sentinels above. In
// both cases the state has moved on to the index.
//
// An entry that cannot be decoded panics: the log is corrupt or written by a
// newer program, and going on would make this copy differ from the others.
func (s *Store) Apply(index uint64, entry []byte) error {
	return s.ApplyAll([]Entry{{index, entry}})[0]
}

// Entry is one entry of the log.
type Entry struct {
	Index uint64
	Data  []byte
}

// ApplyAll applies entries one after the other, as Apply does, and returns the outcome of each. A reader sees the state before
// all of them, after all of them, or after some that came first. One transaction serves many entries, because a transaction for
// each would take most of the time.
func (s *Store) ApplyAll(entries []Entry) []error {
	s.applying.Lock()
	defer s.applying.Unlock()
	out := make([]error, len(entries))
	for from := 0; from < len(entries); {
		from += s.applySome(entries[from:], out[from:])
	}
	return out
}

// applySome applies the first of some entries in one transaction and returns how many those were: up to the first that is
// refused. A refused entry takes back all that came before it in the transaction; applySome then applies the earlier ones once
// more.
func (s *Store) applySome(entries []Entry, out []error) (n int) {
	db := s.current()
	if s.cache.db != db {
		s.cache = applyCache{db: db, vcs: map[string]*VC{}, ops: unknown}
	}
	w := newWriter(db.Txn(true), 0, time.Time{})
	w.cache = s.cache.begin()
	for n < len(entries) && (n == 0 || out[n-1] == nil) && !w.replaced {
		if out[n] = w.apply(entries[n]); out[n] == nil {
			w.finish()
		}
		n++
	}
	if out[n-1] != nil {
		last := *w
		w.txn.Abort()
		for _, id := range w.cache.changed { // the cache may have rows that the aborted transaction wrote
			delete(s.cache.vcs, id)
		}
		w = newWriter(db.Txn(true), 0, time.Time{})
		w.cache = s.cache.begin()
		for _, e := range entries[:n-1] {
			if err := w.apply(e); err != nil {
				panic(fmt.Sprintf("state: log entry %d is refused, and was not before: %v", e.Index, err))
			}
			w.finish()
		}
		w.index, w.at, w.version = last.index, last.at, last.version
		w.finish()
	}
	w.txn.Commit()
	s.cache.ops, s.cache.events = w.cache.ops, w.cache.events.commit()
	s.watches.fire(w.hosts, w.all)
	return n
}

// apply applies an entry. After an error the caller must abort the transaction.
func (w *writer) apply(e Entry) error {
	cmd, body, err := Decode(e.Data)
	if err != nil {
		panic(fmt.Sprintf("state: log entry %d: %v", e.Index, err))
	}
	w.index, w.at, w.version = e.Index, cmd.At, cmd.Version
	if err := valid(body); err != nil {
		return err
	}
	return present.kinds[cmd.Kind].apply(w, body)
}

func (w *writer) audit(b *Audit) error {
	w.event(b.Kind, b.Object, b.Name, "%s", b.Text)
	return nil
}

// writer is one transaction of Apply.
type writer struct {
	txn   *memdb.Txn
	index uint64
	at    time.Time
	pos   position
	// version is the format version of the entry. The entry is applied by the rules of that version, also by a server that knows newer
	// ones: all servers get the same state.
	version int

	// replaced: the entry replaced the whole state. applySome ends the transaction after it. Otherwise a refused later entry would make
	// it replace the state twice.
	replaced bool

	hosts map[string]bool // whose watches fire at the end of the transaction
	all   bool            // the watches of every host fire

	cache applyCache
}

func newWriter(txn *memdb.Txn, index uint64, at time.Time) *writer {
	w := &writer{txn: txn, index: index, at: at, pos: position{Key: "log"}, hosts: map[string]bool{}}
	if p, ok := first[position](w.read(), tIndex, "id", "log"); ok {
		w.pos = p
	}
	return w
}

func (w *writer) read() *Snapshot { return &Snapshot{txn: w.txn} }

func (w *writer) put(table string, row any) {
	w.concern(row)
	if err := w.txn.Insert(table, row); err != nil {
		panic("state: insert into " + table + ": " + err.Error())
	}
	w.cache.put(row)
}

func (w *writer) drop(table string, row any) {
	w.concern(row)
	if err := w.txn.Delete(table, row); err != nil {
		panic("state: delete from " + table + ": " + err.Error())
	}
	w.cache.drop(row)
}

func (w *writer) finish() {
	w.pos.Index = w.index
	p := w.pos
	w.put(tIndex, &p)
	if w.index%forgetEvery == 0 {
		w.forget()
	}
}

// forget drops what is old.
func (w *writer) forget() {
	forgetRows(w, tRevoked, func(r *Revoked) bool { return w.at.Sub(r.Until) > keepRevoked })
	forgetRows(w, tTokens, func(t *JoinToken) bool { return w.at.Sub(t.Until) > keepRevoked })
	w.forgetEndedTokens()
	w.forgetRevocations()
	w.forgetParts()
	w.forgetRemembered()
	w.forgetOperations()
}

// forgetRows drops the rows of a table that are too old. It reads them in place: most are kept.
func forgetRows[T any](w *writer, table string, tooOld func(*T) bool) {
	var rows []*T
	each(w.read(), func(row *T) bool {
		if tooOld(row) {
			rows = append(rows, row)
		}
		return true
	}, table, "id")
	for _, row := range rows {
		w.drop(table, row)
	}
}

// event records what happened, and drops an old event when there are more than keepEvents.
func (w *writer) event(kind, object, name, format string, args ...any) {
	w.pos.Seq++
	e := &Event{Seq: w.pos.Seq, Index: w.index, At: w.at, Kind: kind, Object: object, Name: name, Text: fmt.Sprintf(format, args...)}
	w.numberForTenant(e)
	w.put(tEvents, e)
	w.forgetEvents(e)
}

// touch marks a host as changed, so that a plan made on an older snapshot conflicts.
func (w *writer) touch(host string) {
	if h, ok := w.read().Host(host); ok && h.Version != w.index {
		h.Version = w.index
		w.put(tHosts, &h)
	}
}

func (w *writer) init(b *Init) error {
	if _, ok := w.read().Meta(); ok {
		return nil
	}
	w.put(tMeta, &Meta{ID: b.ID, CreatedAt: w.at, Settings: b.Settings})
	w.event("cluster-created", "cluster", b.ID, "cluster %s created", b.ID)
	return nil
}

func (w *writer) hostReport(b *HostReport) error {
	h, known := w.read().Host(b.Name)
	if !known {
		h = Host{Name: b.Name, CreateIndex: w.index}
	}
	old := h
	h.Capacity, h.Allowance, h.Foreign, h.ForeignVMs = b.Capacity, b.Allowance, b.Foreign, b.ForeignVMs
	h.VMOverhead, h.KVM, h.Software, h.MigrateURI = b.VMOverhead, b.KVM, b.Software, b.MigrateURI
	h.Lost = Loss{}
	if known && h == old {
		return nil
	}
	h.Version = w.index
	w.put(tHosts, &h)
	switch {
	case known && old.Lost != (Loss{}):
		w.event("host-returned", "host", h.Name, "it reports again; it was %s", old.Lost.Text)
	case !known:
		w.event("host-joined", "host", h.Name, "host joined: %.2f cores and %d MiB allowed", h.Allowance.CPU, h.Allowance.Memory>>20)
	case old.Foreign != h.Foreign:
		w.event("host-foreign", "host", h.Name, "%d VMs that are not ours take %.2f cores and %d MiB", h.ForeignVMs, h.Foreign.CPU, h.Foreign.Memory>>20)
	case old.Allowance != h.Allowance:
		w.event("host-allowance", "host", h.Name, "allowance is now %.2f cores and %d MiB", h.Allowance.CPU, h.Allowance.Memory>>20)
	}
	return nil
}

func (w *writer) hostCordon(b *HostCordon) error {
	h, ok := w.read().Host(b.Host)
	if !ok {
		return fmt.Errorf("host %s: %w", b.Host, ErrNotFound)
	}
	if h.Cordoned == b.Cordoned && h.CordonReason == b.Reason {
		return nil
	}
	if !b.Cordoned && h.Drain.State != "" {
		return fmt.Errorf("host %s is %s: undrain it: %w", h.Name, h.Drain.State, ErrConflict)
	}
	h.Cordoned, h.CordonReason, h.Version = b.Cordoned, b.Reason, w.index
	h.Drain = h.Drain.cordoned(w.index, w.read().Format())
	w.put(tHosts, &h)
	if b.Cordoned {
		w.event("host-cordoned", "host", h.Name, "takes no new VMs%s", because(b.Reason))
	} else {
		w.event("host-uncordoned", "host", h.Name, "takes new VMs again")
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (w *writer) imagePut(b *ImagePut) error {
	if _, ok := w.read().Image(b.Name); ok {
		return fmt.Errorf("image %s is in the catalogue already: %w", b.Name, ErrConflict)
	}
	if err := w.read().CheckImagePut(b.Image); err != nil {
		return err
	}
	img := b.Image
	img.CreateIndex, img.AddedAt = w.index, w.at
	w.put(tImages, &img)
	w.event("image-added", "image", b.Name, "%s image added", b.Kind)
	return w.remember(nil, b.Remembered)
}

func (w *writer) imageDrop(b *ImageDrop) error {
	img, ok := w.read().Image(b.Name)
	if !ok {
		return fmt.Errorf("image %s: %w", b.Name, ErrNotFound)
	}
	for _, vc := range w.read().VCs() {
		for _, g := range vc.Groups {
			if g.Image == b.Name || g.Boot.Kernel == b.Name || g.Boot.Initrd == b.Name {
				return fmt.Errorf("image %s: virtual cluster %s, group %s uses it: %w", b.Name, vc.Name, g.Name, ErrInUse)
			}
		}
	}
	for _, i := range w.read().Images() {
		if i.Initrd == b.Name {
			return fmt.Errorf("image %s: kernel image %s boots with it: %w", b.Name, i.Name, ErrInUse)
		}
	}
	w.drop(tImages, &img)
	w.event("image-deleted", "image", b.Name, "image deleted")
	return w.remember(nil, b.Remembered)
}
