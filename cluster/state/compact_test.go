package state_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"
	"weak"

	"evenkeel/cluster/state"
)

// A state that was compacted is the same state, goes on as it would have, and wakes those who watch what it was.
func TestCompact(t *testing.T) {
	k, other := small(t, 3), small(t, 3)
	step := func(c *cluster, name, host string) {
		c.must(t, state.KindPlan, planOf(c.Snapshot(), name, 1, gib, host))
		c.must(t, state.KindVMReport, report(host, "vm-"+name+"-0", 1, state.Running))
	}
	step(k, "old", "h1")
	step(other, "old", "h1")
	read, watch, host := k.Snapshot(), k.Snapshot().Watch(), k.WatchHost("h1")
	if done, err := k.Compact(); !done || err != nil {
		t.Fatalf("compacted: %v, %v", done, err)
	}
	for name, woken := range map[string]<-chan struct{}{"the state": watch, "a host": host} {
		select {
		case <-woken:
		default:
			t.Errorf("who watches %s was not woken", name)
		}
	}
	if save(t, k.Snapshot()) != save(t, read) {
		t.Error("the state is another one")
	}
	watch = k.Snapshot().Watch()
	step(k, "new", "h2")
	step(other, "new", "h2")
	if save(t, k.Snapshot()) != save(t, other.Snapshot()) {
		t.Error("it goes on otherwise than one that was not compacted")
	}
	select {
	case <-watch:
	default:
		t.Error("the state changed and woke no watcher")
	}
}

// Entries that are applied while the state is compacted are not lost: either they are in the copy, or it is not taken.
func TestCompactUnderLoad(t *testing.T) {
	k, other := small(t, 2), small(t, 2)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := k.Compact(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for n := range 300 {
		for _, c := range []*cluster{k, other} {
			c.must(t, state.KindAdminToken, token(fmt.Sprint("t", n), state.RoleAdmin))
		}
	}
	close(stop)
	<-ended
	if save(t, k.Snapshot()) != save(t, other.Snapshot()) {
		t.Error("entries are missing")
	}
}

// What was compacted is not kept besides: it would take twice the memory.
func TestCompactLetsGo(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "old", 1, gib, "h1"))
	row, _ := k.Snapshot().SharedVC("vc-old")
	was := weak.Make(row)
	row = nil //nolint:ineffassign,wastedassign // or this function would keep it
	if done, err := k.Compact(); !done || err != nil {
		t.Fatalf("compacted: %v, %v", done, err)
	}
	runtime.GC()
	if was.Value() != nil {
		t.Error("the rows that were replaced are kept in memory")
	}
	runtime.KeepAlive(k)
}

// BenchmarkCompact creates and deletes 4,000 virtual clusters while the garbage collector leaves room for four times of what is live,
// and 64 KiB of other garbage are made in small pieces with each, as by its requests and streams. Then it compacts the state.
func BenchmarkCompact(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	const hosts, life = 100, 500
	k := small(b, hosts)
	index := uint64(len(k.log))
	apply := func(kind state.Kind, body any) {
		index++
		entry, err := state.Encode(kind, start.Add(time.Duration(index)*time.Millisecond), body)
		if err == nil {
			err = k.Apply(index, entry)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	var kept [][]byte
	name := func(n int) (vc, host string) { return fmt.Sprintf("load%d", n), fmt.Sprintf("h%d", n%hosts+1) }
	for n := range 4000 + life {
		if vc, host := name(n); n < 4000 {
			apply(state.KindPlan, planOf(k.Snapshot(), vc, 0.1, gib/16, host))
			apply(state.KindVMReport, report(host, "vm-"+vc+"-0", 1, state.Running))
		}
		if vc, host := name(n - life); n >= life {
			apply(state.KindPlan, leave(k.Snapshot(), vc, state.GoalDelete))
			apply(state.KindVMReport, report(host, "vm-"+vc+"-0", 1, state.Stopped))
		}
		kept = kept[:0]
		for made := 0; made < 64<<10; {
			kept = append(kept, make([]byte, 16<<rand.IntN(7)))
			made += len(kept[len(kept)-1])
		}
	}
	measure := func(when string) {
		debug.FreeOSMemory()
		samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
		metrics.Read(samples)
		b.ReportMetric(float64(samples[0].Value.Uint64())/(1<<20), "live-MiB-"+when)
		b.ReportMetric(float64(samples[1].Value.Uint64())/(1<<20), "between-MiB-"+when)
	}
	cpu := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	measure("before")
	debug.SetGCPercent(25) // as a server does meanwhile
	begin := cpu()
	for range b.N {
		if done, err := k.Compact(); !done || err != nil {
			b.Fatal(done, err)
		}
	}
	b.ReportMetric(float64((cpu()-begin).Milliseconds())/float64(b.N), "cpu-ms/op")
	measure("after")
	runtime.KeepAlive(kept)
	runtime.KeepAlive(k)
}
