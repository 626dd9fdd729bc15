package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/history"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// limited is a VM with that cap in cores, whose guest is as busy as the command line says.
func limited(id string, limit float64, cmdline string) agent.VM {
	vm := wanted(id)
	vm.Spec.VCPUs, vm.Spec.CPU, vm.Spec.Boot.Cmdline = 1, hypervisor.CPU{Cap: limit, Weight: limit}, cmdline
	return vm
}

// recording runs an agent with a recorder on host h1.
func recording(t *testing.T, w *simulated.World, l agent.Leader, rec *agent.Recorder) (stop func()) {
	t.Helper()
	return recordingEvery(t, w, l, rec, 10*time.Second)
}

func recordingEvery(t *testing.T, w *simulated.World, l agent.Leader, rec *agent.Recorder, every time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{Host: "h1", Hypervisor: w.Host("h1"), Leader: l, Log: slog.New(slog.DiscardHandler), Recorder: rec,
			SampleEvery: every,
			Allowance:   func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
			Overhead:    func(hypervisor.Capacity) int64 { return 64 * mib }})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	}
}

func quietRecorder(dir string, fetch func(context.Context, string) ([]byte, error)) *agent.Recorder {
	return agent.OpenRecorder(agent.RecorderOptions{Dir: dir, Fetch: fetch, Log: slog.New(slog.DiscardHandler)})
}

// kept is what a recorder has of a VM.
func kept(t *testing.T, rec *agent.Recorder, id string) *history.History {
	t.Helper()
	data, err := rec.History(id)
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := history.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRecorderMeasures(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(limited("held", 0.25, "ek.burn=1"), limited("free", 1, "ek.burn=1 ek.duty=40"))
		rec := quietRecorder("", nil)
		defer recording(t, w, l, rec)()
		after(10*time.Minute + 5*time.Second)
		for id, want := range map[string]struct{ cpu, limit, throttled, censored float64 }{"held": {0.25, 0.25, 0.75, 1}, "free": {0.4, 1, 0, 0}} {
			raw := kept(t, rec, id).Buckets(history.Raw, time.Time{})
			if len(raw) < 58 {
				t.Fatalf("%s: %d samples in ten minutes", id, len(raw))
			}
			for i, b := range raw {
				if i > 2 && b.At.Sub(raw[i-1].At) != history.RawStep { // the agent begins whenever it does, not when its host is measured
					t.Errorf("%s: nothing between %v and %v", id, raw[i-1].At, b.At)
				}
				if over := b.Memory - b.Balloon; over < 0 || over > float64(512*mib) { // its guest reports nothing: what the host holds
					t.Errorf("%s: it uses %v bytes with a balloon of %v", id, b.Memory, b.Balloon)
				}
				if i < 3 { // it boots
					continue
				}
				if math.Abs(b.CPU-want.cpu) > 1e-3 || b.Cap != want.limit || math.Abs(b.Throttled-want.throttled) > 1e-3 || b.Censored != want.censored {
					t.Errorf("%s: %+v, want %+v", id, b, want)
				}
			}
			if m := kept(t, rec, id).Buckets(history.Minute, time.Time{}); len(m) < 10 || m[4].CPUSamples != 6 || math.Abs(m[4].CPU-want.cpu) > 1e-3 {
				t.Errorf("%s: minutes %+v", id, m)
			}
		}
	})
}

// While no leader is there, the host goes on measuring.
func TestRecorderNeedsNoLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(limited("a", 1, "ek.burn=1"))
		rec := quietRecorder("", nil)
		defer recording(t, w, l, rec)()
		after(time.Minute)
		l.mu.Lock()
		l.down = errors.New("no leader")
		l.mu.Unlock()
		before := len(kept(t, rec, "a").Buckets(history.Raw, time.Time{}))
		after(10 * time.Minute)
		if now := len(kept(t, rec, "a").Buckets(history.Raw, time.Time{})); now-before < 55 {
			t.Errorf("%d samples in ten minutes without a leader", now-before)
		}
	})
}

// What was measured outlasts the agent, also one that is killed: a minute is lost at most.
func TestRecorderOutlastsTheAgent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(limited("a", 1, "ek.burn=1"), limited("b", 1, "ek.burn=1 ek.duty=50"))
		dir := t.TempDir()
		stop := recording(t, w, l, quietRecorder(filepath.Join(dir, "live"), nil))
		after(25*time.Minute + 30*time.Second)
		if err := os.CopyFS(filepath.Join(dir, "killed"), os.DirFS(filepath.Join(dir, "live"))); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		stop()
		for _, which := range []string{"killed", "live"} {
			rec := quietRecorder(filepath.Join(dir, which), nil)
			for _, id := range []string{"a", "b"} {
				raw := kept(t, rec, id).Buckets(history.Raw, time.Time{})
				last, lost := raw[len(raw)-1].At, 70*time.Second
				if which == "live" {
					lost = 20 * time.Second
				}
				if now.Sub(last) > lost || len(raw) < 140 {
					t.Errorf("%s, %s: %d samples, the last %v before the end", which, id, len(raw), now.Sub(last))
				}
				n := 0
				for _, hour := range kept(t, rec, id).Buckets(history.Hour, time.Time{}) {
					n += hour.MemorySamples
				}
				if n != len(raw) {
					t.Errorf("%s, %s: hours of %d samples, and %d raw", which, id, n, len(raw))
				}
			}
		}
		// It goes on where it was, without a second history.
		rec := quietRecorder(filepath.Join(dir, "live"), nil)
		before := len(kept(t, rec, "a").Buckets(history.Raw, time.Time{}))
		defer recording(t, w, l, rec)()
		after(5 * time.Minute)
		if n := len(kept(t, rec, "a").Buckets(history.Raw, time.Time{})); n < before+28 || n > before+32 {
			t.Errorf("%d samples, and %d five minutes later", before, n)
		}
	})
}

// A directory that takes nothing, and files that are damaged, keep nothing from being measured.
func TestRecorderWithoutADisk(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		rec := agent.OpenRecorder(agent.RecorderOptions{Dir: filepath.Join(file, "below"), Log: slog.New(slog.NewTextHandler(&log, nil))})
		stop := recording(t, w, newLeader(limited("a", 1, "ek.burn=1")), rec)
		after(10 * time.Minute)
		if n := len(kept(t, rec, "a").Buckets(history.Raw, time.Time{})); n < 55 {
			t.Errorf("%d samples in ten minutes", n)
		}
		stop()
		if n := strings.Count(log.String(), "not written down"); n != 1 {
			t.Errorf("said %d times: %s", n, log.String())
		}

		damaged := filepath.Join(dir, "damaged")
		if err := os.MkdirAll(damaged, 0o700); err != nil {
			t.Fatal(err)
		}
		good := string(history.Encode(&history.History{}, nil))
		other := good[:6] + "\xff" + good[7:] // of a version to come
		files := map[string]string{"a.history": good[:len(good)-1] + "x", "recent": "\xff\xff\xff\xff", ".next123": "", "b.history": strings.Repeat("x", history.MaxEncoded+1),
			"c.history": other, "d.history": other}
		for name, text := range files {
			path := filepath.Join(damaged, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			written := time.Now()
			if name == "d.history" {
				written = written.Add(-8 * 24 * time.Hour)
			}
			if err := os.Chtimes(path, written, written); err != nil {
				t.Fatal(err)
			}
		}
		rec = quietRecorder(damaged, nil)
		if _, err := rec.History("a"); !errors.Is(err, hypervisor.ErrNotFound) {
			t.Errorf("of a damaged file: %v", err)
		}
		left, _ := os.ReadDir(damaged)
		var names []string
		for _, e := range left {
			names = append(names, e.Name())
		}
		if want := []string{"b.history", "c.history", "recent"}; !slices.Equal(names, want) {
			t.Errorf("left: %v, want %v", names, want)
		}
	})
}

// elsewhere has histories of VMs at another host, and gives the answers that the test sets.
type elsewhere struct {
	mu    sync.Mutex
	asked []time.Time
	data  []byte
	err   error
}

func (e *elsewhere) fetch(context.Context, string) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, time.Now())
	return e.data, e.err
}

func (e *elsewhere) say(data []byte, err error) (asked int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.data, e.err = data, err
	return len(e.asked)
}

// arrives runs a VM on h1 that the agent did not start.
func arrives(t *testing.T, w *simulated.World, id string) agent.VM {
	t.Helper()
	vm := limited(id, 1, "ek.burn=1")
	if err := w.Host("h1").Define(t.Context(), vm.Spec); err != nil {
		t.Fatal(err)
	}
	if err := w.Host("h1").Start(t.Context(), vm.Spec); err != nil {
		t.Fatal(err)
	}
	vm.Seen, vm.MayStart = true, false
	return vm
}

// A VM that came from another host brings its history along, however long it takes to get it. For a VM that was started here no
// host is asked.
func TestRecorderGetsTheHistoryOfWhatArrives(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		var before history.History
		begin := time.Now()
		for i := range 200 {
			before.Add(history.Sample{At: begin.Add(time.Duration(i-200) * history.RawStep), CPU: 0.125, Memory: 1})
		}
		other := &elsewhere{err: errors.New("host h2 does not answer")}
		dir := t.TempDir()
		rec := quietRecorder(dir, other.fetch)
		l := newLeader(arrives(t, w, "moved"), limited("started", 1, ""))
		stop := recording(t, w, l, rec)
		after(10 * time.Minute)
		other.mu.Lock()
		if n := len(other.asked); n < 5 || n > 9 {
			t.Errorf("asked %d times in ten minutes: %v", n, other.asked)
		}
		other.mu.Unlock()
		stop() // what is asked for is known again after a restart
		rec = quietRecorder(dir, other.fetch)
		defer recording(t, w, l, rec)()
		other.say(history.Encode(&before, nil), nil)
		after(5 * time.Minute)
		raw := kept(t, rec, "moved").Buckets(history.Raw, time.Time{})
		if raw[0].CPU != 0.125 || raw[len(raw)-1].CPU != 1 || len(raw) < 280 {
			t.Errorf("%d samples, from %+v to %+v", len(raw), raw[0], raw[len(raw)-1])
		}
		n := other.say(nil, nil)
		after(time.Hour)
		if again := other.say(nil, nil); again != n {
			t.Errorf("asked %d times more for what is there", again-n)
		}
	})
}

// A host whose clock was ahead goes on writing down what it measures once the clock is right.
func TestRecorderWritesAfterTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		dir := t.TempDir()
		ahead := time.Now().Add(3 * time.Hour)
		var before history.History
		for i := range 100 {
			before.Add(history.Sample{At: ahead.Add(time.Duration(i-100) * history.RawStep), CPU: 0.125, Memory: 1})
		}
		about, err := json.Marshal(map[string]any{"vm": "a", "generation": 1, "vcpus": 1, "seen": ahead})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a.history"), history.Encode(&before, history.Notes{0: about}), 0o600); err != nil {
			t.Fatal(err)
		}
		defer recording(t, w, newLeader(limited("a", 1, "ek.burn=1")), quietRecorder(dir, nil))()
		after(5*time.Minute + 30*time.Second)
		raw := kept(t, quietRecorder(dir, nil), "a").Buckets(history.Raw, time.Time{})
		if last := raw[len(raw)-1].At; last.After(time.Now()) || time.Since(last) > 70*time.Second {
			t.Errorf("%d samples are written down, the last of %v, now %v", len(raw), last, time.Now())
		}
	})
}

// A host that is asked and does not answer stops no writing.
func TestRecorderWritesWhileItAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		dir := t.TempDir()
		asked := make(chan struct{}, 1)
		rec := quietRecorder(dir, func(ctx context.Context, _ string) ([]byte, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-time.After(10 * time.Minute) // one that does not even give up in time
			return nil, context.Cause(ctx)
		})
		defer recording(t, w, newLeader(arrives(t, w, "moved")), rec)()
		after(5*time.Minute + 30*time.Second)
		if len(asked) == 0 {
			t.Error("no host was asked")
		}
		raw := kept(t, quietRecorder(dir, nil), "moved").Buckets(history.Raw, time.Time{})
		if last := raw[len(raw)-1].At; time.Since(last) > 70*time.Second {
			t.Errorf("%d samples are written down, the last of %v ago", len(raw), time.Since(last))
		}
	})
}

func TestRecorderGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		data        []byte
		err         error
		lowest, max int
		says        string
	}{
		"there is none":     {nil, fmt.Errorf("asked: %w", agent.ErrNoHistory), 1, 1, ""},
		"it is no history":  {[]byte("x"), nil, 1, 1, ""},
		"it cannot be had":  {nil, errors.New("host h2 does not answer"), 15, 30, "begins again"},
		"it is a long time": {nil, context.DeadlineExceeded, 15, 30, "begins again"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *simulated.World) {
				other := &elsewhere{data: c.data, err: c.err}
				var log bytes.Buffer
				rec := agent.OpenRecorder(agent.RecorderOptions{Fetch: other.fetch, Log: slog.New(slog.NewTextHandler(&log, nil))})
				stop := recording(t, w, newLeader(arrives(t, w, "moved")), rec)
				after(3 * time.Hour)
				if n := other.say(nil, nil); n < c.lowest || n > c.max {
					t.Errorf("asked %d times", n)
				}
				stop()
				if c.says != "" && strings.Count(log.String(), c.says) != 1 {
					t.Errorf("the log does not say once that it %s: %s", c.says, log.String())
				}
			})
		})
	}
}

// The host that a VM left keeps its history for an hour, that of a VM that was deleted too.
func TestRecorderForgets(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		dir := t.TempDir()
		rec := quietRecorder(dir, nil)
		l := newLeader(limited("a", 1, "ek.burn=1"), limited("b", 1, ""))
		stop := recording(t, w, l, rec)
		after(5 * time.Minute)
		l.order(func(d *agent.Desired) { d.VMs[0].Want, d.VMs[1].Want = agent.WantAbsent, agent.WantStop })
		after(55 * time.Minute)
		if n := len(kept(t, rec, "a").Buckets(history.Raw, time.Time{})); n < 25 {
			t.Errorf("%d samples of what ran five minutes", n)
		}
		after(10 * time.Minute)
		if _, err := rec.History("a"); !errors.Is(err, hypervisor.ErrNotFound) {
			t.Errorf("an hour after it was deleted: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "a.history")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its file: %v", err)
		}
		stop()
		for _, c := range []struct {
			away time.Duration
			kept bool
		}{{6 * 24 * time.Hour, true}, {24 * time.Hour, false}} { // it may be started again
			after(c.away)
			rec = quietRecorder(dir, nil)
			stop = recording(t, w, l, rec)
			after(2 * time.Minute)
			if _, err := rec.History("b"); (err == nil) != c.kept {
				t.Errorf("stopped %v more: %v", c.away, err)
			}
			stop()
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestMemoryUsed(t *testing.T) {
	for _, c := range []struct {
		s    hypervisor.Stats
		want float64
	}{
		{hypervisor.Stats{Balloon: 100, Available: 30, Resident: 500}, 70},
		{hypervisor.Stats{Balloon: 100, Available: 0, Resident: 500}, 100},
		{hypervisor.Stats{Balloon: 100, Available: 130, Resident: 500}, 0}, // the balloon has just shrunk
		{hypervisor.Stats{Balloon: 100, Available: hypervisor.Unknown, Resident: 500}, 500},
		{hypervisor.Stats{Balloon: 100, Available: hypervisor.Unknown}, math.NaN()},
	} {
		if got := agent.MemoryUsed(c.s); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%+v: %v, want %v", c.s, got, c.want)
		}
	}
}

// pressuredGuest is a host whose work waits.
type pressuredGuest struct{ hypervisor.Host }

func (pressuredGuest) Pressure(context.Context) (hypervisor.Pressure, error) {
	return hypervisor.Pressure{CPU: 0.5, Memory: hypervisor.Unknown, IO: 0}, nil
}

func TestPressureIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		for _, h := range []hypervisor.Host{pressuredGuest{w.Host("h1")}, w.Host("h1")} {
			l := newLeader()
			stop := runOn(t, h, l)
			after(5 * time.Second)
			_, is := h.(pressuredGuest)
			if p := l.last().Pressure; (p != nil) != is || is && p.CPU != 0.5 {
				t.Errorf("%T: %+v", h, p)
			}
			stop()
		}
	})
}
