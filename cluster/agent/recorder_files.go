package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/history"
)

// Each VM has a file with its whole history, which is written every ten minutes; what was measured since is in one file for
// all VMs, which is written every minute: some 40 bytes for each sample. So a host with 100 VMs writes 13 kB a second.
const (
	wholeName = ".history"
	tailsName = "recent"

	aboutNote = 0 // what the recorder knows of the VM besides
)

// aboutVM is that note.
type aboutVM struct {
	VM         string    `json:"vm"`
	Generation uint64    `json:"generation"`
	VCPUs      int       `json:"vcpus"`
	Seen       time.Time `json:"seen"`
	Left       time.Time `json:"left,omitzero"`
	AskedSince time.Time `json:"askedSince,omitzero"` // its history is to be had elsewhere, since then
}

func (v *recorded) note(id string) []byte {
	a := aboutVM{VM: id, Generation: v.generation, VCPUs: v.vcpus, Seen: v.seen, Left: v.left}
	if v.ask != nil {
		a.AskedSince = v.ask.since
	}
	b, _ := json.Marshal(a) // strings, numbers and times: it cannot fail
	return b
}

// diskHealth is the outcome of writing: each error is logged once, and files that have not changed are not written again.
type diskHealth struct {
	failed bool
	tails  []byte
}

// fileOf returns the file of a VM's history; "" for an id that cannot be a file's name.
func (r *Recorder) fileOf(id string) string {
	ok := id != "" && len(id) <= 64 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == ""
	if r.o.Dir == "" || !ok {
		return ""
	}
	return filepath.Join(r.o.Dir, id+wholeName)
}

func (r *Recorder) remove(id string) {
	if file := r.fileOf(id); file != "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Debug("remove a history", "error", err)
		}
	}
}

// write writes what was not written yet. A full disk does not stop measurements.
func (r *Recorder) write(now time.Time) {
	if r.o.Dir == "" {
		return
	}
	err := os.MkdirAll(r.o.Dir, 0o700)
	if err == nil {
		err = errors.Join(r.writeWhole(now), r.writeTails())
	}
	switch {
	case err != nil && !r.disk.failed:
		r.log.Warn("histories are not written down: what is measured from now on is lost when the agent is restarted", "error", err)
	case err == nil && r.disk.failed:
		r.log.Info("histories are written down again")
	}
	r.disk.failed = err != nil
}

// writeWhole writes the whole histories that are due. They are spread over the time between two writes.
func (r *Recorder) writeWhole(now time.Time) error {
	type file struct {
		id   string
		name string
		data []byte
		of   *recorded
		had  *history.History // of the VM, then
		last time.Time
	}
	var files []file
	states := map[string]history.Notes{}
	for _, id := range r.dueWhole(now) {
		states[id] = r.forecasts.notes(id)
	}
	r.mu.Lock()
	for id, v := range r.vms {
		notes, due := states[id]
		if !due {
			continue
		}
		notes[aboutNote] = v.note(id)
		last, _ := v.history.Last()
		files = append(files, file{id, r.fileOf(id), history.Encode(v.history, notes), v, v.history, last})
	}
	r.mu.Unlock()
	var failed error
	for _, f := range files {
		if err := replaceFile(f.name, f.data); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		r.mu.Lock()
		switch {
		case f.of.history != f.had: // it got a history from another host meanwhile: that is due at once
		case f.of.whole.IsZero(): // its first time: spread the later ones
			f.of.whole, f.of.written = now.Add(-spread(f.id)), f.last
		default:
			f.of.whole, f.of.written = now, f.last
		}
		r.mu.Unlock()
	}
	return failed
}

// dueWhole returns the VMs whose whole history is due to be written.
func (r *Recorder) dueWhole(now time.Time) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, v := range r.vms {
		last, any := v.history.Last()
		if last.Before(v.written) { // the clock was set back: what was written is not there any more
			v.whole, v.written = time.Time{}, time.Time{}
		}
		if any && now.Sub(v.whole) >= wholeEvery && r.fileOf(id) != "" && (v.whole.IsZero() || last.After(v.written)) {
			out = append(out, id)
		}
	}
	return out
}

// writeTails writes what was measured since the whole histories were written: for each VM its length (u32) and an encoded history.
func (r *Recorder) writeTails() error {
	var all []byte
	r.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(r.vms)) {
		v := r.vms[id]
		if r.fileOf(id) == "" {
			continue
		}
		one := history.Encode(v.history.Tail(v.written), history.Notes{aboutNote: v.note(id)})
		all = binary.LittleEndian.AppendUint32(all, uint32(len(one))) //nolint:gosec // bounded
		all = append(all, one...)
	}
	r.mu.Unlock()
	if r.disk.tails != nil && bytes.Equal(all, r.disk.tails) {
		return nil
	}
	r.disk.tails = nil
	if err := replaceFile(filepath.Join(r.o.Dir, tailsName), all); err != nil {
		return err
	}
	r.disk.tails = append([]byte{}, all...)
	return nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".next")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) //nolint:errcheck // it is gone if all went well
	_, err = next.Write(data)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(next.Name(), path)
}

// load reads what an agent before this one wrote.
func (r *Recorder) load(now time.Time) {
	if r.o.Dir == "" {
		return
	}
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("histories of before cannot be read: they begin again", "error", err)
		}
		return
	}
	for _, e := range entries {
		path := filepath.Join(r.o.Dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), ".next"): // of an agent that was killed
			_ = os.Remove(path)
		case strings.HasSuffix(e.Name(), wholeName) && len(r.vms) < maxHistories:
			if err := r.loadWhole(path, now); err != nil {
				r.log.Warn("the history of a VM cannot be read: it begins again", "file", path, "error", err)
				if errors.Is(err, history.ErrDamaged) || oldFile(path, now) { // else it may be read the next time, or by another version
					_ = os.Remove(path)
				}
			}
		}
	}
	if err := r.loadTails(filepath.Join(r.o.Dir, tailsName), now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("what was measured right before the restart cannot be read", "error", err)
	}
}

// oldFile says whether no VM that is kept can have written the file.
func oldFile(path string, now time.Time) bool {
	info, err := os.Stat(path)
	return err == nil && now.Sub(info.ModTime()) > keptStopped
}

func (r *Recorder) loadWhole(path string, now time.Time) error {
	data, err := readFile(path, history.MaxEncoded)
	if err != nil {
		return err
	}
	v, id, notes, err := r.readOne(data, now)
	if err != nil {
		return err
	}
	if r.fileOf(id) != path {
		return fmt.Errorf("it is of VM %.80q", id)
	}
	v.written, _ = v.history.Last()
	v.whole = now.Add(-spread(id))
	r.vms[id] = v
	r.takeForecasts(id, notes)
	return nil
}

// spread is when, within the time between two writes, a VM's history is first written.
func spread(id string) time.Duration {
	var n uint32
	for _, b := range []byte(id) {
		n = n*31 + uint32(b)
	}
	return time.Duration(n%uint32(wholeEvery/time.Second)) * time.Second
}

func readFile(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > int64(limit) {
		return nil, fmt.Errorf("%d bytes, and at most %d are a history", info.Size(), limit)
	}
	return os.ReadFile(path)
}

func (r *Recorder) readOne(data []byte, now time.Time) (*recorded, string, history.Notes, error) {
	h, notes, err := history.Decode(data)
	if err != nil {
		return nil, "", nil, err
	}
	var a aboutVM
	if err := json.NewDecoder(bytes.NewReader(notes[aboutNote])).Decode(&a); err != nil || a.VM == "" {
		return nil, "", nil, fmt.Errorf("it does not say of which VM: %w", err)
	}
	v := &recorded{history: h, generation: a.Generation, vcpus: a.VCPUs, seen: a.Seen, left: a.Left}
	if v.seen.After(now) {
		v.seen = now
	}
	if !a.AskedSince.IsZero() && r.o.Fetch != nil {
		v.ask = &asking{since: a.AskedSince, next: now.Add(firstAsk), wait: firstAsk}
	}
	delete(notes, aboutNote)
	return v, a.VM, notes, nil
}

func (r *Recorder) loadTails(path string, now time.Time) error {
	data, err := readFile(path, maxTails)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.LittleEndian.Uint32(data)) {
			return errors.New("it is cut off")
		}
		n := binary.LittleEndian.Uint32(data)
		tail, id, _, err := r.readOne(data[4:4+n], now)
		if err != nil {
			return err
		}
		data = data[4+n:]
		v := r.vms[id]
		if v == nil {
			if r.fileOf(id) == "" || len(r.vms) >= maxHistories {
				continue
			}
			v = &recorded{history: &history.History{}}
			r.vms[id] = v
		}
		v.history.Extend(tail.history)
		v.generation, v.vcpus, v.seen, v.left, v.ask = tail.generation, tail.vcpus, tail.seen, tail.left, tail.ask
	}
	return nil
}
