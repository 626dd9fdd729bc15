package member

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// How often a server's memory is collected. Little of it changes, and marking it at the usual rate takes an eighth of the server's time
// under load. So garbage may grow for garbageTime at the pace at which it is made, but at most to four times the live memory while that
// is below ampleMemory/5: a server of 1,000 hosts and 10,000 VMs stays well under 1 GiB under load. Above that less is allowed, down to
// as much as is live, as in other programs. A server at rest makes little garbage. When it comes to rest, unused heap goes back to the
// kernel at once, which the runtime alone does only over minutes. Then scattered rows are copied together (Store.Compact), because the
// runtime moves no objects.
const (
	ampleMemory       = 700 << 20
	maxGarbagePercent = 400 // percent of what is kept
	minGarbagePercent = 100
	compactPercent    = 25               // while the state is compacted: little garbage comes to lie between the new rows
	garbageTime       = 10 * time.Second // between two collections
	paceEvery         = 2 * time.Second
	paceFalls         = 5 // the pace falls by a fifth of the difference in a step, by two thirds in 10 s: a load that comes in bursts is one load
)

// garbagePercent is how much garbage there may be beside that many live bytes, in percent of them, where so many bytes a second
// become garbage.
func garbagePercent(kept uint64, pace float64) int {
	if kept == 0 {
		return maxGarbagePercent
	}
	room := min(pace*garbageTime.Seconds()/float64(kept), float64(ampleMemory)/float64(kept)-1)
	return int(100 * max(minGarbagePercent/100., min(maxGarbagePercent/100., room)))
}

// paced is the pace to count with after a step in which so many bytes a second were made: more counts at once, less slowly.
func paced(pace, now float64) float64 { return max(now, pace-(pace-now)/paceFalls) }

// PaceGC is for the program that runs a member: it fits the garbage collector to the live memory and to how fast garbage
// is made, until stop is called. set is the environment's GOGC: if an operator set it, PaceGC does nothing.
func (m *Member) PaceGC(set string) (stop func()) {
	if set != "" {
		return func() {}
	}
	return paceGC(func() {
		if m.State == nil {
			return // it is no server
		}
		if _, err := m.State.Compact(); err != nil {
			m.log.Warn("memory stays as it is", "error", err)
		}
	})
}

// paceGC calls compact when the program has come to rest and less than half of its heap's pages is live.
func paceGC(compact func()) (stop func()) {
	p := pacer{samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}, room: maxGarbagePercent}
	p.step(0) // from here on
	was := debug.SetGCPercent(p.room)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(paceEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if p.step(paceEvery) {
				debug.SetGCPercent(p.room)
			}
			if p.rests() {
				debug.FreeOSMemory()
				if scattered() {
					debug.SetGCPercent(compactPercent)
					compact()
					debug.SetGCPercent(p.room)
					debug.FreeOSMemory()
				}
				p.step(0) // that was no load
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
		debug.SetGCPercent(was)
	}
}

// scattered says whether more of the heap's pages lies between objects than is live, after a collection.
func scattered() bool {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(samples)
	return samples[1].Value.Uint64() > samples[0].Value.Uint64()
}

// pacer is what paceGC knows between two steps.
type pacer struct {
	samples []metrics.Sample // live bytes, and all that were ever made
	made    uint64
	pace    float64 // bytes a second
	room    int     // percent
	busy    bool    // there was a load since the server last came to rest
}

// rests says whether the server has come to rest after a load, once each time.
func (p *pacer) rests() bool {
	switch {
	case p.room >= 2*minGarbagePercent:
		p.busy = true
	case p.room == minGarbagePercent && p.busy:
		p.busy = false
		return true
	}
	return false
}

// step takes in what was made in a time, and says whether there is another room for garbage: a fifth more or less, because each
// change stops the program for a moment.
func (p *pacer) step(in time.Duration) (changed bool) {
	metrics.Read(p.samples)
	if p.samples[0].Value.Kind() != metrics.KindUint64 || p.samples[1].Value.Kind() != metrics.KindUint64 {
		return false
	}
	made := p.samples[1].Value.Uint64()
	if in > 0 {
		p.pace = paced(p.pace, float64(made-p.made)/in.Seconds())
		room := garbagePercent(p.samples[0].Value.Uint64(), p.pace)
		if d := room - p.room; 5*max(d, -d) > p.room || d != 0 && room == minGarbagePercent {
			p.room, changed = room, true
		}
	}
	p.made = made
	return changed
}
