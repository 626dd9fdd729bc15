package transport

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

// What a host reported itself, and indexes, can wait; all else cannot.
func TestWhatCanWait(t *testing.T) {
	vm := func(id string, change func(*agent.VM)) agent.VM {
		v := agent.VM{Spec: hypervisor.Spec{Identity: hypervisor.Identity{VM: id, Generation: 1}, CPU: hypervisor.CPU{Cap: 1}}, Want: agent.WantRun, MayStart: true}
		if change != nil {
			change(&v)
		}
		return v
	}
	runs := func(v *agent.VM) { v.MayStart, v.Seen = false, true }
	before := agent.Desired{Index: 5, RequiredIndex: 5, CPU: 4, VMs: []agent.VM{vm("a", nil), vm("b", nil)}}
	for name, c := range map[string]struct {
		change func(d *agent.Desired)
		wait   bool
	}{
		"nothing":  {func(*agent.Desired) {}, true},
		"indexes":  {func(d *agent.Desired) { d.Index, d.RequiredIndex = 9, 8 }, true},
		"one runs": {func(d *agent.Desired) { d.Index, d.VMs = 9, []agent.VM{vm("a", runs), vm("b", nil)} }, true},
		"both run": {func(d *agent.Desired) { d.VMs = []agent.VM{vm("a", runs), vm("b", runs)} }, true},
		"may not start": {func(d *agent.Desired) {
			d.VMs = []agent.VM{vm("a", func(v *agent.VM) { v.MayStart = false }), vm("b", nil)}
		}, false},
		"runs, and less": {func(d *agent.Desired) {
			d.VMs = []agent.VM{vm("a", func(v *agent.VM) { runs(v); v.Spec.CPU.Cap = 0.5 }), vm("b", nil)}
		}, false},
		"runs, and stops": {func(d *agent.Desired) {
			d.VMs = []agent.VM{vm("a", func(v *agent.VM) { runs(v); v.Want = agent.WantStop }), vm("b", nil)}
		}, false},
		"settled": {func(d *agent.Desired) {
			d.VMs = []agent.VM{vm("a", func(v *agent.VM) { v.MayStart, v.EndKnown = false, true }), vm("b", nil)}
		}, false},
		"runs, next": {func(d *agent.Desired) {
			d.VMs = []agent.VM{vm("a", func(v *agent.VM) { runs(v); v.Spec.Generation = 2 }), vm("b", nil)}
		}, false},
		"one left":    {func(d *agent.Desired) { d.VMs = []agent.VM{vm("a", nil)} }, false},
		"one came":    {func(d *agent.Desired) { d.VMs = []agent.VM{vm("a", nil), vm("b", nil), vm("c", nil)} }, false},
		"another":     {func(d *agent.Desired) { d.VMs = []agent.VM{vm("a", nil), vm("c", nil)} }, false},
		"less memory": {func(d *agent.Desired) { d.Memory = 1 }, false},
		"a hold":      {func(d *agent.Desired) { d.Freeze = "restore" }, false},
	} {
		var e desiredEncoder
		if _, differs := e.frame(before); !differs {
			t.Fatal("the first frame says nothing")
		}
		after := before
		after.VMs = []agent.VM{vm("a", nil), vm("b", nil)}
		c.change(&after)
		if got := e.canWait(after); got != c.wait {
			t.Errorf("%s: can wait: %v", name, got)
		}
	}
	var e desiredEncoder
	if e.canWait(before) {
		t.Error("the first word can wait")
	}
}

// An index for which no caller waits is no news. It goes along with the next report that there is.
func TestQuietIndexIsNoNews(t *testing.T) {
	var e reportEncoder
	r := agent.Report{Host: "h1", Reach: true, Index: 5}
	if _, news, err := e.change(r, true); err != nil || !news {
		t.Fatalf("the first report: %v, %v", news, err)
	}
	e.taken(1)
	r.Index, r.Quiet = 6, true
	if c, news, err := e.change(r, true); err != nil || news || c.Index == nil || *c.Index != 6 {
		t.Errorf("an index without a waiting caller: %+v, %v, %v", c, news, err)
	}
	r.Quiet = false
	if _, news, err := e.change(r, true); err != nil || !news {
		t.Errorf("an index with a waiting caller: %v, %v", news, err)
	}
	r.Quiet, r.Statuses = true, []agent.Status{{VM: "a", Generation: 1, Phase: agent.PhaseRunning}}
	if _, news, err := e.change(r, true); err != nil || !news {
		t.Errorf("a status: %v, %v", news, err)
	}
}

// frames that a stream wrote, and when.
type frames struct {
	http.ResponseWriter
	begin time.Time
	mu    sync.Mutex
	at    []time.Duration
	sent  []Frame
}

func (f *frames) Write(line []byte) (int, error) {
	var one Frame
	if err := json.Unmarshal(line, &one); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.sent = append(f.at, time.Since(f.begin)), append(f.sent, one)
	return len(line), nil
}

func (f *frames) Flush() {}

// A stream shows every two seconds that it lives, unless it sent something meanwhile; what can wait does so for one second.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBrain(), &lead{}
		l.set(true, "")
		b.set("h1", agent.Desired{Index: 1, CPU: 4})
		p := &Peers{o: PeersOptions{Leader: b, Lead: l.ask, Heartbeat: heartbeat, Log: quiet()}, draining: make(chan struct{})}
		ctx, end := context.WithCancel(context.Background())
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.SetPathValue("host", "h1")
		w := &frames{ResponseWriter: httptest.NewRecorder(), begin: time.Now()}
		done := make(chan struct{})
		go func() { p.desired(w, r); close(done) }()
		time.Sleep(4500 * time.Millisecond)
		b.set("h1", agent.Desired{Index: 2, CPU: 4}) // can wait
		time.Sleep(500 * time.Millisecond)
		b.set("h1", agent.Desired{Index: 3, CPU: 4})
		time.Sleep(2 * time.Second)
		b.set("h1", agent.Desired{Index: 4, CPU: 5}) // cannot
		time.Sleep(2500 * time.Millisecond)
		end()
		<-done
		seconds := []float64{}
		for _, at := range w.at {
			seconds = append(seconds, math.Round(at.Seconds()*10)/10)
		}
		if want := []float64{0, 2, 4, 5.5, 7, 9}; !slices.Equal(seconds, want) {
			t.Fatalf("frames after %v s, want %v: %+v", seconds, want, w.sent)
		}
		if w.sent[1].Head != nil || w.sent[3].Head == nil || w.sent[4].Head == nil || w.sent[5].Head != nil {
			t.Errorf("%+v", w.sent)
		}
	})
}
