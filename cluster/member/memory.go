package member

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// How a server's garbage is collected. Little of a server's memory changes: marking it as often as programs usually do takes an
// eighth of the server's time under load. Up to roomy bytes of live heap the heap may be five times as large, so that a server
// of 1,000 hosts and 10,000 VMs stays well under 1 GiB; beyond that less, down to twice, as in other programs.
const (
	ampleMemory       = 700 << 20
	maxGarbagePercent = 400 // percent of what is kept
	minGarbagePercent = 100
	paceEvery         = 10 * time.Second
)

// garbagePercent is how much garbage there may be beside that many live bytes, in percent of them.
func garbagePercent(kept uint64) int {
	if kept == 0 {
		return maxGarbagePercent
	}
	return int(max(minGarbagePercent, min(maxGarbagePercent, 100*(float64(ampleMemory)/float64(kept)-1))))
}

// PaceGC is for the program that runs a server: it fits the garbage collector to the server's live memory, until stop is
// called. set is the environment's GOGC: if an operator set it, PaceGC does nothing.
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
