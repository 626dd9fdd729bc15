package simulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"evenkeel/hypervisor"
)

// The state file is a list of changes, one JSON object to a line, each with
// the instant it took effect at. Since everything else about a world follows
// from its changes and the time, a world that reads them through goes on as
// if it had never ended. Now and then the file is replaced by
// a shorter one, which begins with the VMs as they are (opVM).

// op is a kind of change.
type op string

const (
	opWorld    op = "world" // first line of a file
	opVM       op = "vm"    // a VM as it stood
	opDefine   op = "define"
	opUndefine op = "undefine"
	opStart    op = "start"
	opStop     op = "stop"
	opEnd      op = "end"
	opCPU      op = "cpu"
	opBalloon  op = "balloon"
	opMove     op = "move"
	opResume   op = "resume"
	opReset    op = "reset"
	opOff      op = "off"
	opOn       op = "on"
)

// format is the version of the file that this package writes and reads.
const format = 1

// record is one change on one host.
type record struct {
	At     int64           `json:"at"` // ns since 1970
	Op     op              `json:"op"`
	Host   string          `json:"host,omitempty"`
	Format int             `json:"format,omitempty"`
	VM     string          `json:"vm,omitempty"`
	Name   string          `json:"name,omitempty"` // of a foreign VM
	State  *saved          `json:"state,omitempty"`
	CPU    *hypervisor.CPU `json:"cpu,omitempty"`
	Bytes  int64           `json:"bytes,omitempty"`
	GoneAt int64           `json:"goneAt,omitempty"`
	BootAt int64           `json:"bootAt,omitempty"`
	To     string          `json:"to,omitempty"`
	Paused bool            `json:"paused,omitempty"` // it arrives paused
	Source source          `json:"source,omitempty"` // what is left where it came from
	Reason string          `json:"reason,omitempty"`
}

// source is what a hand-over leaves on the host that it is from; "" is nothing.
type source string

const (
	stays  source = "stays" // the VM as a Leftover
	runsOn source = "runs"  // the VM, which goes on
)

// saved is a VM at the instant of its record.
type saved struct {
	Spec      hypervisor.Spec `json:"spec"` // with CPU and Balloon as they are now to be
	Foreign   bool            `json:"foreign,omitempty"`
	BootAt    int64           `json:"bootAt"`
	GoneAt    int64           `json:"goneAt"`
	Used      float64         `json:"used"`                // ns of vCPU time
	Throttled float64         `json:"throttled,omitempty"` // ns that threads were held back by the cap
	Balloon   int64           `json:"balloon"`
	BalloonAt int64           `json:"balloonAt"`
	Stuck     bool            `json:"stuck,omitempty"`
	Paused    bool            `json:"paused,omitempty"`
	PausedAt  int64           `json:"pausedAt,omitempty"`
	Leftover  bool            `json:"leftover,omitempty"`
	Memory    *guestMemory    `json:"memory,omitempty"` // nil: nothing is known of its memory
}

// saved is the VM as it stands at now.
func (v *vm) saved(now int64) *saved {
	s := &saved{
		Spec: v.spec, Foreign: v.foreign, BootAt: v.bootAt, GoneAt: v.goneAt, Used: v.vcpuTime(now), Throttled: v.throttled(now),
		Balloon: v.balloon, BalloonAt: v.balloonAt, Stuck: v.stuck, Paused: v.paused, PausedAt: v.pausedAt, Leftover: v.leftover,
	}
	if v.guest.Memory != nil {
		m := v.memory
		s.Memory = &m
	}
	return s
}

// vm makes the VM that was saved at an instant.
func (s *saved) vm(w *World, at int64) *vm {
	v := &vm{
		spec: s.Spec, foreign: s.Foreign, load: w.workload(s.Spec), bootAt: s.BootAt, goneAt: s.GoneAt,
		used: s.Used, throttledFor: s.Throttled, since: at, balloon: s.Balloon, balloonAt: s.BalloonAt, stuck: s.Stuck,
		paused: s.Paused, pausedAt: s.PausedAt, incoming: s.Leftover, leftover: s.Leftover,
	}
	if !s.Foreign {
		v.guest = w.guest(s.Spec)
	}
	v.stuck = v.stuck || v.guest.Deaf
	if s.Memory != nil && v.guest.Memory != nil {
		v.memory = *s.Memory
	}
	return v
}

// commit makes a change at m.at: first in the journal, then on the machine.
func (m *machine) commit(r *record) error {
	r.At, r.Host = m.at, m.name
	if m.w.journal != nil {
		if err := m.w.journal.append(r); err != nil {
			return fmt.Errorf("keep the change: %w: %w", err, hypervisor.ErrUnavailable)
		}
	}
	return m.apply(r)
}

// apply makes a change at m.at, live or read from a journal.
func (m *machine) apply(r *record) error {
	v := m.ours(r.VM)
	if r.Name != "" {
		v = m.byName[r.Name]
	}
	switch r.Op {
	case opEnd, opStop, opCPU, opBalloon, opMove, opResume, opReset:
		if v == nil {
			return fmt.Errorf("%s of VM %q: %w", r.Op, r.VM+r.Name, hypervisor.ErrNotFound)
		}
	case opStart, opVM:
		if r.State == nil {
			return fmt.Errorf("%s without a VM", r.Op)
		}
		if m.byName[r.State.Spec.Name] != nil || m.ours(r.State.Spec.VM) != nil {
			return fmt.Errorf("%s of VM %s: %w", r.Op, r.State.Spec.Name, hypervisor.ErrExists)
		}
	}
	switch r.Op {
	case opDefine:
		m.defined[r.VM] = true
	case opUndefine:
		delete(m.defined, r.VM)
	case opStart, opVM:
		v = r.State.vm(m.w, m.at)
		m.add(v)
		m.armBalloon(v)
		m.armMemory(v)
		if r.Op == opStart {
			m.notify(hypervisor.Started, v, "booted")
		}
	case opStop:
		v.goneAt = r.GoneAt
		if v.goneAt <= m.at { // advance looks only at what is to come
			m.remove(v, hypervisor.Stopped, "shutdown")
			break
		}
		m.dirty = true
		m.armStop(v)
	case opEnd:
		m.remove(v, hypervisor.Stopped, r.Reason)
	case opCPU:
		if r.CPU == nil {
			return fmt.Errorf("no CPU for VM %s", r.VM)
		}
		v.spec.CPU = *r.CPU
		m.changed()
	case opBalloon:
		v.retarget(m.at, m.w.timing.Balloon, r.Bytes)
		m.changed()
		m.armBalloon(v)
	case opMove:
		to := m.w.byName[r.To]
		if to == nil || to == m {
			return fmt.Errorf("move VM %s to host %q: there is none", r.VM, r.To)
		}
		to.advance(m.at)
		return to.take(v, m, r)
	case opResume, opReset:
		m.goOn(v, r)
	case opOff:
		for len(m.vms) > 0 {
			m.remove(m.vms[0], "", "")
		}
		m.off = true
	case opOn:
		m.off = false
	default:
		return fmt.Errorf("unknown change %q", r.Op)
	}
	return nil
}

// journal is the open state file.
type journal struct {
	path string

	mu      sync.Mutex
	file    *os.File
	records int // in the file
	base    int // records it began with after the last compaction
	err     error
}

// minJournal is how many records a file may hold before it is worth compacting.
const minJournal = 4096

// append writes one record. A write that fails half way leaves the file
// unusable for more, since a line after half a line would be lost too: it is
// taken back, or else every later change is refused.
func (j *journal) append(r *record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.Op, err)
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if n, err := j.file.Write(line); err != nil {
		if n > 0 {
			if at, serr := j.file.Seek(int64(-n), io.SeekCurrent); serr != nil {
				j.err = errors.Join(err, serr)
			} else if terr := j.file.Truncate(at); terr != nil {
				j.err = errors.Join(err, terr)
			}
		}
		return fmt.Errorf("write %s: %w", j.path, err)
	}
	j.records++
	return nil
}

func (j *journal) due() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err == nil && j.records > max(minJournal, 4*j.base)
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = os.ErrClosed
	}
	return j.file.Close()
}

// open opens a file that no other world has open. The lock of a process that was just killed may
// last a moment longer: open tries for up to a second.
func open(path string, flag int) (f *os.File, err error) {
	for range 50 {
		if f, err = openNow(path, flag); !errors.Is(err, errTaken) {
			return f, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

var errTaken = errors.New("another world has it open")

func openNow(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errTaken
		}
		return nil, fmt.Errorf("lock it: %w", err)
	}
	// The lock is worth nothing if its owner replaced the file meanwhile.
	mine, err := f.Stat()
	if err == nil {
		var now os.FileInfo
		if now, err = os.Stat(path); err == nil && !os.SameFile(mine, now) {
			err = errTaken
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// restore reads the state file, if there is one, and opens it for what follows.
func (w *World) restore(path string) error {
	f, err := open(path, 0)
	if err != nil {
		return err
	}
	j := &journal{path: path, file: f}
	if err := w.read(j); err != nil {
		_ = f.Close()
		return err
	}
	w.journal = j
	if j.records == 0 {
		if err := j.append(&record{At: w.now(), Op: opWorld, Format: format}); err != nil {
			_ = f.Close()
			return err
		}
	}
	for _, m := range w.machines {
		m.mu.Lock()
		for _, v := range m.vms {
			m.armStop(v)
			m.armBalloon(v)
			m.armMemory(v)
		}
		m.mu.Unlock()
	}
	return nil
}

// read replays a file and leaves it open for appending. A last line without
// its end is a change whose call never returned: it is cut off.
func (w *World) read(j *journal) error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	w.restoring = true
	defer func() { w.restoring = false }()
	last, whole := int64(0), int64(0)
	for n := 1; len(data) > 0; n++ {
		line, rest, ended := bytes.Cut(data, []byte{'\n'})
		if !ended {
			break
		}
		data = rest
		whole += int64(len(line)) + 1
		j.records++
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		last = max(last, r.At)
		if n == 1 {
			if r.Op != opWorld || r.Format != format {
				return fmt.Errorf("line 1: not a state file of format %d", format)
			}
			for _, m := range w.machines {
				m.at = r.At
			}
			continue
		}
		m := w.byName[r.Host]
		if m == nil {
			return fmt.Errorf("line %d: host %q is not in this world", n, r.Host)
		}
		m.advance(r.At)
		if err := m.apply(&r); err != nil {
			return fmt.Errorf("line %d: host %s: %w", n, r.Host, err)
		}
	}
	if err := j.file.Truncate(whole); err != nil {
		return err
	}
	if _, err := j.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	// The wall clock may have been set back meanwhile: time goes on from the last change.
	w.base = max(w.base, last)
	return nil
}

func (w *World) compactIfDue() {
	if w.journal.due() {
		// A failure leaves the longer file in use, which is just as good.
		_ = w.compact()
	}
}

// compact replaces the file by one that holds the present state, without the changes that led to it.
// It locks every machine: the caller must hold no machine's lock.
func (w *World) compact() error {
	w.compactMu.Lock()
	defer w.compactMu.Unlock()
	j := w.journal
	for _, m := range w.machines {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	now := w.now()
	for _, m := range w.machines {
		now = m.advance(now)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	records := 0
	put := func(r record) error {
		records++
		return enc.Encode(r)
	}
	if err := put(record{At: now, Op: opWorld, Format: format}); err != nil {
		return err
	}
	for _, m := range w.machines {
		now = m.advance(now)
		for _, id := range slices.Sorted(maps.Keys(m.defined)) {
			if err := put(record{At: now, Op: opDefine, Host: m.name, VM: id}); err != nil {
				return err
			}
		}
		for _, v := range m.vms {
			if v.incoming && !v.leftover {
				continue
			}
			if err := put(record{At: now, Op: opVM, Host: m.name, State: v.saved(now)}); err != nil {
				return err
			}
		}
		if m.off {
			if err := put(record{At: now, Op: opOff, Host: m.name}); err != nil {
				return err
			}
		}
	}
	temp := j.path + ".new"
	f, err := open(temp, os.O_TRUNC)
	if err != nil {
		return err
	}
	if _, err = f.Write(b.Bytes()); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(temp, j.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact %s: %w", filepath.Base(j.path), err), f.Close(), os.Remove(temp))
	}
	old := j.file
	j.file, j.records, j.base = f, records, records
	_ = old.Close() // nothing is read or written through it any more
	return nil
}
