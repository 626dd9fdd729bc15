// Package watch lists all QEMU processes of a lab's hosts, from outside, and finds VMs that have two at a time. That must
// never be, whatever vcd and libvirt report.
//
// From outside it is not visible in which of two processes a VM runs while one hands it over to the other. The guest's own
// heartbeat shows that (lab.Beats).
package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tick is the precision with which the kernel knows when a process began.
const tick = 10 * time.Millisecond

// execWindow is the time after which a process that was first seen has its final program: libvirt forks before it becomes QEMU.
const execWindow = 5 * time.Second

// Instance is one process of QEMU that runs, or ran, a VM.
type Instance struct {
	Domain  string
	UUID    string
	Host    string
	PID     int
	Comes   bool      // it was started to take a VM over from another host
	Started time.Time // of its process, by the kernel
	Seen    time.Time // when it was last seen
	Gone    time.Time // when it was first seen to be gone; zero while it is there
}

// String names the process.
func (i Instance) String() string {
	return fmt.Sprintf("%s on %s (process %d)", i.Domain, i.Host, i.PID)
}

// book has the processes that were seen, listing by listing.
type book struct {
	live   map[int]*Instance
	all    []*Instance
	double map[string]span // processes that were seen at once
	last   time.Time       // of the looks
	gap    time.Duration   // the longest between two
	looks  int
}

// span of looks.
type span struct{ first, last time.Time }

// take one listing in: the processes that are there, with no time of their end.
func (b *book) take(now time.Time, there []Instance) {
	if b.live == nil {
		b.live, b.double = map[int]*Instance{}, map[string]span{}
	}
	if b.looks++; !b.last.IsZero() {
		b.gap = max(b.gap, now.Sub(b.last))
	}
	b.last = now
	seen := map[int]bool{}
	for _, i := range there {
		seen[i.PID] = true
		known := b.live[i.PID]
		if known == nil || !known.Started.Equal(i.Started) {
			if known != nil {
				known.Gone = now
			}
			known = &i
			b.live[i.PID] = known
			b.all = append(b.all, known)
		}
		known.Seen = now
	}
	for pid, i := range b.live {
		if !seen[pid] {
			i.Gone = now
			delete(b.live, pid)
		}
	}
	runs := map[string][]*Instance{}
	for _, i := range b.live {
		runs[i.UUID] = append(runs[i.UUID], i)
	}
	for _, of := range runs {
		slices.SortFunc(of, func(x, y *Instance) int { return x.Started.Compare(y.Started) })
		if oneRuns(of) {
			continue
		}
		both := fmt.Sprint(of)
		d, known := b.double[both]
		if !known {
			d.first = now
		}
		d.last = now
		b.double[both] = d
	}
}

// handsOver says whether one process may be handing its VM over to another, later one.
func handsOver(from, to *Instance) bool { return to.Comes && from.Host != to.Host }

// oneRuns says whether at most one of a VM's processes, oldest first, runs its guest: each later one was started to take the VM over, and
// each is on a host of its own. There are three while a copy that stands paused, left by a migration that ended badly, has not been destroyed
// and the next migration has begun.
func oneRuns(of []*Instance) bool {
	on := map[string]bool{}
	for n, i := range of {
		if n > 0 && !i.Comes || on[i.Host] {
			return false
		}
		on[i.Host] = true
	}
	return true
}

// duplicates are the VMs that ran twice at a time: VMs with two processes in one listing, and VMs with a process that
// began before the one before it was last seen.
func (b *book) duplicates() []string {
	var out []string
	for both, d := range b.double {
		out = append(out, fmt.Sprintf("seen at once from %s to %s: %s", d.first.Format(time.StampMilli), d.last.Format(time.StampMilli), both))
	}
	slices.Sort(out)
	last := map[string]*Instance{}
	for _, i := range b.all {
		if before := last[i.UUID]; before != nil && !handsOver(before, i) && i.Started.Add(2*tick).Before(before.Seen) {
			out = append(out, fmt.Sprintf("%s began at %s, %s was there at %s", i, i.Started.Format(time.StampMilli), before, before.Seen.Format(time.StampMilli)))
		}
		last[i.UUID] = i
	}
	return out
}

// Watcher looks at the machine's processes until it is closed.
type Watcher struct {
	labID string
	boot  time.Time
	first map[int]time.Time // processes that may yet become QEMU, since when they are known
	other map[int]bool      // processes that are not QEMU
	known map[int]Instance
	stop  chan struct{}
	done  chan struct{}

	mu   sync.Mutex
	book book
}

// Start to watch the lab in a directory.
func Start(dir string, every time.Duration) (*Watcher, error) {
	text, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	var names struct{ ID string }
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	up, err2 := os.ReadFile("/proc/uptime")
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("watch the lab in %s: %w", dir, err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(up))[0], 64)
	if err != nil {
		return nil, fmt.Errorf("watch the lab in %s: /proc/uptime: %w", dir, err)
	}
	w := &Watcher{labID: names.ID, boot: time.Now().Add(-time.Duration(seconds * float64(time.Second))),
		first: map[int]time.Time{}, other: map[int]bool{}, known: map[int]Instance{}, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		look := time.NewTicker(every)
		defer look.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-look.C:
				if there, ok := w.scan(time.Now()); ok {
					w.mu.Lock()
					w.book.take(time.Now(), there)
					w.mu.Unlock()
				}
			}
		}
	}()
	return w, nil
}

// Close ends it. What was seen can still be asked for.
func (w *Watcher) Close() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
}

// scan looks at all processes once.
func (w *Watcher) scan(now time.Time) ([]Instance, bool) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	names, err := d.Readdirnames(-1)
	_ = d.Close()
	if err != nil {
		return nil, false
	}
	var out []Instance
	there := map[int]bool{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		there[pid] = true
		if w.other[pid] {
			continue
		}
		if i, ok := w.known[pid]; ok {
			if ticks, ok := stat(pid); ok && w.boot.Add(time.Duration(ticks)*tick).Equal(i.Started) {
				out = append(out, i)
				continue
			}
			delete(w.known, pid)
		}
		if _, known := w.first[pid]; !known {
			w.first[pid] = now
		}
		if i, ok := w.read(pid); ok {
			w.known[pid] = i
			out = append(out, i)
		} else if now.Sub(w.first[pid]) > execWindow {
			w.other[pid] = true
		}
	}
	gone := func(pid int) bool { return !there[pid] }
	maps.DeleteFunc(w.known, func(pid int, _ Instance) bool { return gone(pid) })
	maps.DeleteFunc(w.other, func(pid int, _ bool) bool { return gone(pid) })
	maps.DeleteFunc(w.first, func(pid int, _ time.Time) bool { return gone(pid) || w.other[pid] })
	return out, true
}

// read a process that may be a VM of this lab.
func (w *Watcher) read(pid int) (Instance, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil || !strings.HasPrefix(string(comm), "qemu-system-") {
		return Instance{}, false
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	groups, err2 := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil || err2 != nil {
		return Instance{}, false
	}
	i := Instance{PID: pid}
	_, below, ok := strings.Cut(string(groups), "/"+w.labID+"/")
	if !ok {
		return i, false // of another lab
	}
	i.Host, _, _ = strings.Cut(strings.TrimSpace(strings.SplitN(below, "\n", 2)[0]), "/")
	args := strings.Split(string(line), "\x00")
	for n, arg := range args[:max(0, len(args)-1)] {
		switch arg {
		case "-name":
			i.Domain, _, _ = strings.Cut(strings.TrimPrefix(args[n+1], "guest="), ",")
		case "-uuid":
			i.UUID = args[n+1]
		case "-incoming":
			i.Comes = true
		}
	}
	ticks, ok := stat(pid)
	if !ok || i.UUID == "" || !strings.HasPrefix(i.Domain, "ek-") {
		return i, false // libvirt asks QEMU what it can do, or a process on its way out
	}
	i.Started = w.boot.Add(time.Duration(ticks) * tick)
	return i, true
}

// stat is the process's start time, unless it has ended.
func stat(pid int) (ticks int64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	ticks, err = strconv.ParseInt(fields[19], 10, 64)
	return ticks, err == nil
}

// Now are the VMs that run.
func (w *Watcher) Now() []Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Instance
	for _, i := range w.book.live {
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b Instance) int { return strings.Compare(a.Domain, b.Domain) })
	return out
}

// Of a VM: its process, if it runs.
func (w *Watcher) Of(domain string) (Instance, bool) {
	for _, i := range w.Now() {
		if i.Domain == domain {
			return i, true
		}
	}
	return Instance{}, false
}

// Processes that run, by the VM's name: what a test compares before and after.
func (w *Watcher) Processes() map[string]int {
	out := map[string]int{}
	for _, i := range w.Now() {
		out[i.Domain] = i.PID
	}
	return out
}

// History of a VM since then, "" of all: its processes in the order in which they were seen.
func (w *Watcher) History(domain string, since time.Time) []Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Instance
	for _, i := range w.book.all {
		if (domain == "" || i.Domain == domain) && (i.Gone.IsZero() || i.Gone.After(since)) {
			out = append(out, *i)
		}
	}
	return out
}

// Duplicates are the VMs that ran twice at a time, by the listings and by the start times of the processes.
func (w *Watcher) Duplicates() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.book.duplicates()
}

// Looks are how many listings there were, and the longest time between two.
func (w *Watcher) Looks() (n int, gap time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.book.looks, w.book.gap
}
