package server

import (
	"testing"

	"evenkeel/cluster/state"
)

// What had ended before the first look was counted by a server before; the rest is counted once, bytes as they grow.
func TestMoveMeter(t *testing.T) {
	m := newMoveMeter()
	row := func(id string, s state.MigrationState, bytes, ms int64) state.Migration {
		return state.Migration{ID: id, State: s, BytesMoved: bytes, DowntimeMs: ms}
	}
	want := func(done, failed, bytes float64, times uint64) {
		t.Helper()
		if m.results[state.MigrationDone] != done || m.results[state.MigrationFailed] != failed || m.bytes != bytes || m.times != times {
			t.Errorf("done %v, failed %v, %v bytes, %d times; want %v, %v, %v, %d", m.results[state.MigrationDone], m.results[state.MigrationFailed], m.bytes, m.times, done, failed, bytes, times)
		}
	}
	old, running := row("a", state.MigrationDone, 100, 50), row("b", state.MigrationRunning, 0, 0)
	m.observe([]state.Migration{old, running})
	want(0, 0, 0, 0)
	m.observe([]state.Migration{old, row("b", state.MigrationDone, 40, 0), row("c", state.MigrationFailed, 7, 0)})
	want(1, 1, 47, 0)
	// The source's last report comes after the end.
	m.observe([]state.Migration{old, row("b", state.MigrationDone, 60, 80), row("c", state.MigrationFailed, 7, 0)})
	want(1, 1, 67, 1)
	if m.downtime[.1] != 1 || m.downtime[.03] != 0 || m.sum != .08 {
		t.Errorf("downtime %v, sum %v", m.downtime, m.sum)
	}
	m.observe([]state.Migration{row("b", state.MigrationDone, 60, 80), row("c", state.MigrationFailed, 7, 0)}) // old rows are dropped
	want(1, 1, 67, 1)
}
