package member

import (
	"runtime/debug"
	"testing"
)

func TestRoomForGarbage(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		kept    uint64
		highest uint64 // bytes of heap
	}{{0, 0}, {10 * mib, 50 * mib}, {140 * mib, 700 * mib}, {200 * mib, 700 * mib}, {300 * mib, 700 * mib}, {350 * mib, 700 * mib}, {2000 * mib, 4000 * mib}} {
		room := garbagePercent(c.kept)
		if heap := c.kept + c.kept*uint64(room)/100; heap > c.highest || heap+c.kept/50 < c.highest {
			t.Errorf("%d MiB kept: %d%%, %d MiB of heap, want %d", c.kept/mib, room, heap/mib, c.highest/mib)
		}
	}
}

func TestPaceGC(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	PaceGC("50")()
	if now := debug.SetGCPercent(100); now != 100 {
		t.Errorf("what an operator chose became %d%%", now)
	}
	stop := PaceGC("")
	if now := debug.SetGCPercent(maxGarbagePercent); now != maxGarbagePercent {
		t.Errorf("room for %d%%, want %d%%", now, maxGarbagePercent)
	}
	stop()
	if now := debug.SetGCPercent(100); now != 100 {
		t.Errorf("it left %d%%", now)
	}
}
