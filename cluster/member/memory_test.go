package member

import (
	"runtime/debug"
	"testing"
	"time"
)

func TestRoomForGarbage(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		kept    uint64
		pace    float64 // MiB a second
		highest uint64  // bytes of heap
	}{
		{0, 0, 0}, {10 * mib, 100, 50 * mib}, {140 * mib, 100, 700 * mib}, {200 * mib, 100, 700 * mib}, {300 * mib, 100, 700 * mib}, {350 * mib, 100, 700 * mib}, {2000 * mib, 500, 4000 * mib},
		{100 * mib, 0, 200 * mib}, {100 * mib, 10, 200 * mib}, {100 * mib, 20, 300 * mib}, {200 * mib, 30, 500 * mib}, {300 * mib, 1, 600 * mib},
	} {
		room := garbagePercent(c.kept, c.pace*mib)
		if heap := c.kept + c.kept*uint64(room)/100; heap > c.highest || heap+c.kept/50 < c.highest {
			t.Errorf("%d MiB kept, %.0f MiB a second: %d%%, %d MiB of heap, want %d", c.kept/mib, c.pace, room, heap/mib, c.highest/mib)
		}
	}
}

// A load counts from its first step on; a minute after its end a server is at rest again.
func TestPace(t *testing.T) {
	pace := paced(1, 50)
	if pace != 50 {
		t.Errorf("%v at the begin of a load of 50", pace)
	}
	for after := paceEvery; after <= time.Minute; after += paceEvery {
		pace = paced(pace, 1)
		if after == 4*time.Second && pace < 30 {
			t.Errorf("%v after %v without load", pace, after)
		}
	}
	if pace > 1.1 {
		t.Errorf("%v after a minute without load", pace)
	}
}

// A server comes to rest once after each load.
func TestRests(t *testing.T) {
	p, times := pacer{room: maxGarbagePercent}, 0
	for _, room := range []int{400, 300, 150, 100, 100, 120, 100, 400, 100, 100} {
		if p.room = room; p.rests() {
			times++
		}
	}
	if times != 2 {
		t.Errorf("it came to rest %d times after two loads", times)
	}
}

func TestPaceGC(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	(&Member{}).PaceGC("50")()
	if now := debug.SetGCPercent(100); now != 100 {
		t.Errorf("what an operator chose became %d%%", now)
	}
	stop := (&Member{}).PaceGC("")
	if now := debug.SetGCPercent(maxGarbagePercent); now != maxGarbagePercent {
		t.Errorf("room for %d%%, want %d%%", now, maxGarbagePercent)
	}
	stop()
	if now := debug.SetGCPercent(100); now != 100 {
		t.Errorf("it left %d%%", now)
	}
}
