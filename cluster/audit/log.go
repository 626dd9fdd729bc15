package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options are the options of a Log.
type Options struct {
	Path   string // the file that is written; those before it are Path.1 (the newest), Path.2, ...
	Server string // of every record
	Log    *slog.Logger

	MaxBytes int64 // of one file; 0 = 16 MiB
	Files    int   // that are kept, the one that is written included; 0 = 8
	// MaxRefusals are the records of refusals in a minute; 0 = 60.
	MaxRefusals int
	Now         func() time.Time // nil: time.Now
}

const (
	defaultBytes    = 16 << 20
	defaultFiles    = 8
	defaultRefusals = 60
	flushEvery      = 5 * time.Second // how long a summary of refusals that is due waits at most
	complainEvery   = time.Minute     // between two lines of the program's log about records that are lost
	checkEvery      = time.Second     // between two looks at whether the file was moved away
	maxQueries      = 2               // that read the files at the same time
)

// Log is the audit log of one server: JSON lines in a file of its own, mode 0600, which is rotated by its size.
//
// A record is written when Add returns, but not synced to the disk. A record that cannot be written is counted and
// lost: the audit log never keeps the cluster from working. All methods may be called on a nil Log, which keeps nothing.
type Log struct {
	o       Options
	queries chan struct{}

	mu         sync.Mutex
	file       *os.File // nil: it could not be opened
	size       int64
	torn       bool // the last line may have no end
	seq        uint64
	checked    time.Time
	complained time.Time
	refusals   *Refusals
	closed     bool

	written, failed atomic.Uint64
	refused         [len(RefusalKinds)]atomic.Uint64

	stop chan struct{}
	done sync.WaitGroup
}

// Open opens the log at a path, and goes on after its last record.
func Open(o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultBytes
	}
	if o.Files == 0 {
		o.Files = defaultFiles
	}
	if o.MaxRefusals == 0 {
		o.MaxRefusals = defaultRefusals
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{o: o, queries: make(chan struct{}, maxQueries), refusals: NewRefusals(o.MaxRefusals), stop: make(chan struct{})}
	l.seq = l.lastSeq()
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l.done.Go(l.flushing)
	return l, nil
}

// lastSeq is the number of the last record that is kept, 0 if none is.
func (l *Log) lastSeq() (seq uint64) {
	files, err := l.files()
	if err != nil {
		return 0
	}
	defer closeAll(files)
	for _, f := range files {
		_ = backwards(f, func(line []byte) bool { // of what cannot be read nothing can be known
			var r Record
			if json.Unmarshal(line, &r) == nil {
				seq = r.Seq
			}
			return seq == 0
		})
		if seq > 0 {
			return seq
		}
	}
	return 0
}

// open opens the file for appending. Its mode is 0600 whatever program made it, and a symbolic link is not followed.
func (l *Log) open() error {
	f, err := os.OpenFile(l.o.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size, l.torn = f, info.Size(), false
	if l.size > 0 { // a crash may have left half a line
		last := make([]byte, 1)
		_, err := f.ReadAt(last, l.size-1)
		l.torn = err != nil || last[0] != '\n'
	}
	return nil
}

// Add writes a record. Its server and number are set here, and its time if it has none.
func (l *Log) Add(r Record) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(r)
}

func (l *Log) add(r Record) {
	now := l.o.Now()
	if r.At.IsZero() {
		r.At = now
	}
	l.seq++
	r.Server, r.Seq = l.o.Server, l.seq
	if err := l.write(r.bounded(), now); err != nil {
		l.failed.Add(1)
		if now.Sub(l.complained) >= complainEvery || now.Before(l.complained) {
			l.complained = now
			l.o.Log.Error("audit records are lost", "file", l.o.Path, "lost", l.failed.Load(), "error", err)
		}
		return
	}
	l.written.Add(1)
}

func (l *Log) write(r Record, now time.Time) error {
	if l.closed {
		return fs.ErrClosed
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(r); err != nil {
		return err
	}
	l.reopenMoved(now)
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+int64(b.Len()) > l.o.MaxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	line := b.Bytes()
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if n > 0 {
		l.torn = err != nil
	}
	return err
}

// reopenMoved makes the file again if it was moved or removed. It looks once a second.
func (l *Log) reopenMoved(now time.Time) {
	if d := now.Sub(l.checked); l.file == nil || d >= 0 && d < checkEvery {
		return
	}
	l.checked = now
	ours, err := l.file.Stat()
	there, err2 := os.Lstat(l.o.Path)
	if err == nil && err2 == nil && os.SameFile(ours, there) {
		return
	}
	_ = l.file.Close() // what was written is the operating system's
	l.file = nil
}

// rotate makes the file the first of the old ones, and drops the oldest. It closes the file that is written only once all is
// done that can fail without it.
func (l *Log) rotate() error {
	old := func(n int) string { return l.o.Path + "." + strconv.Itoa(n) }
	if l.o.Files > 1 {
		for n := l.o.Files - 2; n >= 1; n-- {
			if err := os.Rename(old(n), old(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("rotate: %w", err)
			}
		}
		if err := os.Rename(l.o.Path, old(1)); err != nil {
			return fmt.Errorf("rotate: %w", err)
		}
	} else if err := os.Remove(l.o.Path); err != nil {
		return fmt.Errorf("rotate: %w", err)
	}
	_ = l.file.Close() // what was written is the operating system's
	l.file = nil
	return l.open()
}

// Refuse counts what was refused to an address (host:port or host) that is not authenticated. Records of it are bounded
// in number, whatever is refused: see Refusals.
func (l *Log) Refuse(r Refusal) {
	if l == nil {
		return
	}
	for i, kind := range RefusalKinds {
		if kind == r.Kind {
			l.refused[i].Add(max(1, r.Count))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.refusals.Add(r, l.o.Now()) {
		l.add(s.record())
	}
}

// flushing writes summaries of refusals when they are due.
func (l *Log) flushing() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.flush()
		}
	}
}

func (l *Log) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.refusals.Due(l.o.Now()) {
		l.add(s.record())
	}
}

// Counts are the counts of a log since it was opened.
type Counts struct {
	Written, Failed uint64 // records
	Refused         map[string]uint64
}

// Counts returns the counts since the log was opened.
func (l *Log) Counts() Counts {
	out := Counts{Refused: map[string]uint64{}}
	for i, kind := range RefusalKinds {
		out.Refused[kind] = 0
		if l != nil {
			out.Refused[kind] = l.refused[i].Load()
		}
	}
	if l != nil {
		out.Written, out.Failed = l.written.Load(), l.failed.Load()
	}
	return out
}

// Close writes what is left to summarise, and closes the file. What is added after it is lost, and counted.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	for _, s := range l.refusals.Rest(l.o.Now()) {
		l.add(s.record())
	}
	l.closed = true
	close(l.stop)
	var err error
	if l.file != nil {
		err = l.file.Close()
		l.file = nil
	}
	l.mu.Unlock()
	l.done.Wait()
	return err
}
