package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The name of a saved snapshot's file gives its time, so that names alone decide which files are kept.
const (
	backupPrefix = "evenkeel-"
	backupSuffix = ".snapshot"
	backupTime   = "20060102T150405Z"
	savingPrefix = ".saving-" // until it is whole
)

// backupName is the file name of a snapshot saved at that time with that index.
func backupName(at time.Time, index uint64) string {
	return fmt.Sprintf("%s%s-%d%s", backupPrefix, at.UTC().Format(backupTime), index, backupSuffix)
}

// backupAt reads the time and the index from a file's name.
func backupAt(name string) (at time.Time, index uint64, ok bool) {
	rest, ok1 := strings.CutPrefix(name, backupPrefix)
	rest, ok2 := strings.CutSuffix(rest, backupSuffix)
	stamp, num, ok3 := strings.Cut(rest, "-")
	if !ok1 || !ok2 || !ok3 {
		return at, 0, false
	}
	at, err := time.Parse(backupTime, stamp)
	if err != nil {
		return at, 0, false
	}
	if _, err := fmt.Sscanf(num, "%d", &index); err != nil || backupName(at, index) != name {
		return at, 0, false
	}
	return at, index, true
}

// expired returns those of a directory's files that need not be kept: snapshots, by their names, except the latest ones and the
// last one of each of the last days (UTC) that have any. It never returns other files.
func expired(names []string, latest, days int) []string {
	type file struct {
		name  string
		at    time.Time
		index uint64
	}
	var files []file
	for _, name := range names {
		if at, index, ok := backupAt(name); ok {
			files = append(files, file{name, at, index})
		}
	}
	slices.SortFunc(files, func(a, b file) int { // newest first
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.index, a.index))
	})
	var out []string
	seen := map[string]bool{}
	for n, f := range files {
		day := f.at.Format(time.DateOnly)
		daily := !seen[day] && len(seen) < days
		seen[day] = true
		if n >= max(1, latest) && !daily {
			out = append(out, f.name)
		}
	}
	slices.Sort(out)
	return out
}

// Backups saves the state of this server at intervals. Every server saves its own, leader or not, so that no lost server takes
// the only backups with it.
type Backups struct {
	Node   *Node
	Dir    string
	Every  time.Duration
	Latest int // that many of the newest are kept
	Days   int // and the last one of each of this many days

	writing sync.Mutex // one writer at a time
	mu      sync.Mutex
	last    time.Time
	err     error
}

// Last is when the state was last saved, or found saved already, and the error of the last attempt.
func (b *Backups) Last() (time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.err
}

// Run saves until ctx is done. An attempt that fails is made again after a tenth of the interval.
func (b *Backups) Run(ctx context.Context) {
	wait := time.Duration(0)
	if newest, _ := b.newest(); !newest.IsZero() {
		b.mu.Lock()
		b.last = newest
		b.mu.Unlock()
		wait = max(0, min(b.Every, b.Every-time.Since(newest)))
	}
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := b.Once()
		b.mu.Lock()
		if b.err = err; err == nil {
			b.last = time.Now()
		}
		b.mu.Unlock()
		switch wait = b.Every; {
		case errors.Is(err, errEmpty): // the log is about to come
			wait = min(b.Every, time.Second)
		case err != nil:
			wait = max(time.Second, b.Every/10)
			b.Node.log.Warn("scheduled snapshot", "dir", b.Dir, "err", err)
		}
	}
}

// newest returns the time and the index of the newest file in the directory.
func (b *Backups) newest() (at time.Time, index uint64) {
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return at, 0
	}
	for _, e := range entries {
		if t, i, ok := backupAt(e.Name()); ok && !t.Before(at) {
			at, index = t, i
		}
	}
	return at, index
}

// Once saves now, unless the newest file has it all, and removes files that need not be kept.
func (b *Backups) Once() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	if _, index := b.newest(); index == 0 || index != b.Node.state.Snapshot().Index() {
		if err := b.write(); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return fmt.Errorf("old snapshots: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	gone := expired(names, b.Latest, b.Days)
	for _, name := range names {
		if strings.HasPrefix(name, savingPrefix) { // its writer crashed
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		if err := os.Remove(filepath.Join(b.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("old snapshots: %w", err)
		}
	}
	return nil
}

// write writes one file: it has its name only once it is whole and on disk.
func (b *Backups) write() (err error) {
	f, err := os.CreateTemp(b.Dir, savingPrefix+"*")
	if err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriter(f)
	h, err := b.Node.save(w)
	if err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	if err := os.Rename(f.Name(), filepath.Join(b.Dir, backupName(h.Time, h.Index))); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	return errors.Join(f.Close(), syncDir(b.Dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
