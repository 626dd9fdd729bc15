package member

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// How a server's garbage is collected. What a server keeps, little changes of: looking through it as often as programs
// usually do takes an eighth of its time under load. Up to roomy bytes of heap it may have five times what it keeps, so
// that a server of 1,000 hosts and 10,000 VMs stays well under 1 GiB; beyond that less, down to twice, as programs have.
const (
	ampleMemory       = 700 << 20
	maxGarbagePercent = 400 // percent of what is kept
	minGarbagePercent = 100
	paceEvery         = 10 * time.Second
)

// garbagePercent garbage beside so many bytes that are kept, in percent of them.
func garbagePercent(kept uint64) int {
	if kept == 0 {
		return maxGarbagePercent
	}
	return int(max(minGarbagePercent, min(maxGarbagePercent, 100*(float64(ampleMemory)/float64(kept)-1))))
}

// PaceGC is for the program that runs a server: it fits the garbage collector to what the server keeps, until stop is
// called. set is what the environment has in GOGC: where an operator chose, nothing is done.
func PaceGC(set string) (stop func()) {
	if set != "" {
		return func() {}
	}
	kept := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	pace := func(now int) int {
		metrics.Read(kept)
		room := now
		if kept[0].Value.Kind() == metrics.KindUint64 {
			room = garbagePercent(kept[0].Value.Uint64())
		}
		if room != now {
			debug.SetGCPercent(room)
		}
		return room
	}
	was := debug.SetGCPercent(maxGarbagePercent)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(paceEvery)
		defer tick.Stop()
		for room := maxGarbagePercent; ; room = pace(room) {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
		debug.SetGCPercent(was)
	}
}
