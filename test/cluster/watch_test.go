package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// watchEvery is how often the machine's processes are looked at.
const watchEvery = 40 * time.Millisecond

// tick is how exact the kernel is about when a process began.
const tick = 10 * time.Millisecond

// settled is how long after it was first seen a process is what it will be: libvirt forks before it becomes QEMU.
const settled = 5 * time.Second

// instance is one process of QEMU that runs, or ran, a VM.
type instance struct {
	domain  string
	uuid    string
	host    string
	pid     int
	comes   bool      // it was started to take a VM over from another host
	started time.Time // of its process, by the kernel
	seen    time.Time // when it was last seen
	gone    time.Time // when it was first seen to be gone; zero while it is there
}

func (i instance) String() string {
	return fmt.Sprintf("%s on %s (process %d)", i.domain, i.host, i.pid)
}

// watcher looks at all processes of QEMU on all hosts, from outside, for as long as the test
// runs. A VM of which there are two at a time is what must never be.
type watcher struct {
	labID string
	boot  time.Time

	mu     sync.Mutex
	first  map[int]time.Time // processes that may yet become QEMU, since when they are known
	other  map[int]bool      // processes that are not QEMU
	live   map[int]*instance
	all    []*instance
	double []string
	scans  int
}

func newWatcher(t *testing.T, s *site) *watcher {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.lab.Dir(), "lab.json"))
	var names struct{ ID string }
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	up, err2 := os.ReadFile("/proc/uptime")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(up))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{labID: names.ID, boot: time.Now().Add(-time.Duration(seconds * float64(time.Second))),
		first: map[int]time.Time{}, other: map[int]bool{}, live: map[int]*instance{}}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		look := time.NewTicker(watchEvery)
		defer look.Stop()
		for {
			select {
			case <-stop:
				return
			case <-look.C:
				w.scan(time.Now())
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return w
}

// scan looks at all processes once.
func (w *watcher) scan(now time.Time) {
	d, err := os.Open("/proc")
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scans++
	there := map[int]bool{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		there[pid] = true
		if _, known := w.live[pid]; known || w.other[pid] {
			continue
		}
		if _, known := w.first[pid]; !known {
			w.first[pid] = now
		}
		if i, ok := w.read(pid); ok {
			i.seen = now
			w.live[pid] = i
			w.all = append(w.all, i)
		} else if now.Sub(w.first[pid]) > settled {
			w.other[pid] = true
		}
	}
	for pid, i := range w.live {
		if there[pid] && w.runs(i) {
			i.seen = now
			continue
		}
		i.gone = now
		delete(w.live, pid)
	}
	for pid := range w.other {
		if !there[pid] {
			delete(w.other, pid)
		}
	}
	for pid := range w.first {
		if !there[pid] || w.other[pid] {
			delete(w.first, pid)
		}
	}
	runs := map[string][]*instance{}
	for _, i := range w.live {
		runs[i.uuid] = append(runs[i.uuid], i)
	}
	for _, of := range runs {
		slices.SortFunc(of, func(a, b *instance) int { return a.started.Compare(b.started) })
		if len(of) == 1 || len(of) == 2 && handsOver(of[0], of[1]) {
			continue
		}
		w.double = append(w.double, fmt.Sprintf("%s: %s", now.Format(time.TimeOnly), of))
	}
}

// handsOver says whether one process may be handing its VM over to another, later one. Which of the two the VM runs in nobody
// can tell from outside: its own heartbeat does.
func handsOver(from, to *instance) bool { return to.comes && from.host != to.host }

// read a process that may be a VM of this lab.
func (w *watcher) read(pid int) (*instance, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil || !strings.HasPrefix(string(comm), "qemu-system-") {
		return nil, false
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	groups, err2 := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil || err2 != nil {
		return nil, false
	}
	i := &instance{pid: pid}
	_, below, ok := strings.Cut(string(groups), "/"+w.labID+"/")
	if !ok {
		return nil, false // of another lab
	}
	i.host, _, _ = strings.Cut(strings.TrimSpace(strings.SplitN(below, "\n", 2)[0]), "/")
	args := strings.Split(string(line), "\x00")
	for n, arg := range args[:max(0, len(args)-1)] {
		switch arg {
		case "-name":
			i.domain, _, _ = strings.Cut(strings.TrimPrefix(args[n+1], "guest="), ",")
		case "-uuid":
			i.uuid = args[n+1]
		case "-incoming":
			i.comes = true
		}
	}
	ticks, ok := w.stat(i)
	if !ok || i.uuid == "" || !strings.HasPrefix(i.domain, "ek-") {
		return nil, false // libvirt asks QEMU what it can do, or a process on its way out
	}
	i.started = w.boot.Add(time.Duration(ticks) * tick)
	return i, true
}

func (w *watcher) runs(i *instance) bool {
	_, ok := w.stat(i)
	return ok
}

// stat is the process's start time, unless it has ended.
func (w *watcher) stat(i *instance) (ticks int64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.pid))
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

// now are the VMs that run.
func (w *watcher) now() []instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []instance
	for _, i := range w.live {
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b instance) int { return strings.Compare(a.domain, b.domain) })
	return out
}

// of a VM: its process, if it runs.
func (w *watcher) of(domain string) (instance, bool) {
	for _, i := range w.now() {
		if i.domain == domain {
			return i, true
		}
	}
	return instance{}, false
}

// processes that run, by the VM's name: what a test compares before and after.
func (w *watcher) processes() map[string]int {
	out := map[string]int{}
	for _, i := range w.now() {
		out[i.domain] = i.pid
	}
	return out
}

// history of a VM since then: its processes in the order of their start.
func (w *watcher) history(domain string, since time.Time) []instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []instance
	for _, i := range w.all {
		if i.domain == domain && (i.gone.IsZero() || i.gone.After(since)) {
			out = append(out, *i)
		}
	}
	return out
}

// check that no VM ever ran twice at a time, by what was seen at once and by the times of the processes.
func (w *watcher) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.double {
		t.Errorf("a VM ran twice: %s", d)
	}
	w.double = nil
	last := map[string]*instance{}
	for _, i := range w.all {
		if before := last[i.uuid]; before != nil && !handsOver(before, i) && i.started.Add(2*tick).Before(before.seen) {
			t.Errorf("a VM ran twice: %s began at %s, %s was there at %s", i, i.started.Format(time.StampMilli), before, before.seen.Format(time.StampMilli))
		}
		last[i.uuid] = i
	}
}
