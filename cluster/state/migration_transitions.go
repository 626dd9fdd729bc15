package state

import (
	"fmt"
	"time"
)

// A migration is running from its opening to its end. No other file changes the state of one.
//
// While it is running: VM.MovingTo is To, VM.Host is From, and the VM has no other running migration. Permit, Left and SourceLost
// are 0 until their time, never fall, and none is above ModifyIndex. A permit is given to a source only while Ready is set and
// SourceLost is not, and Left is set only if Paused is. After the end only BytesMoved, DowntimeMs and Reported change.

// openedMigration returns the migration that a Move opens, at that time and log index.
func openedMigration(vm VM, b *Move, at time.Time, index uint64) Migration {
	return Migration{ID: b.ID, VM: vm.ID, VMName: vm.Name, VC: vm.VC, Generation: vm.Generation, From: vm.Host, To: b.To, Plan: b.Plan, Step: b.Step,
		State: MigrationRunning, Bytes: b.Bytes, MaxBytes: b.MaxBytes, Reason: b.Text, Options: b.Options, OpenedAt: at, Open: index, ModifyIndex: index}
}

// reported returns the migration after a host's report, and whether the report proves that the VM does not run on that host. A report
// of a third host, or by an agent that did not know of this migration, changes nothing. mayPermit: nothing outside the migration
// forbids the hand-over (the VM is to run, and there is no recovery freeze).
func (m Migration) reported(host string, st VMStatus, mayPermit bool, index uint64) (next Migration, lost bool) {
	if m.State != MigrationRunning || st.Move != m.Open || host != m.From && host != m.To {
		return m, false
	}
	switch {
	case st.Room && host == m.To:
		m = m.ready(st.Resumes, index)
	case st.Permit && host == m.From && mayPermit:
		m = m.permitted(index)
	}
	if st.Left && st.Phase == Lost && host == m.From {
		m = m.left(index)
	}
	return m, st.Phase == Lost
}

// ready returns the migration once its target has room for the VM. resumes: both agents know guests that arrive paused. A guest that
// runs on the target before all of its memory is there (post-copy) does not arrive paused.
func (m Migration) ready(resumes bool, index uint64) Migration {
	if !m.Ready {
		m.Ready, m.Paused, m.ModifyIndex = true, resumes && (!m.Options.PostCopy || m.Options.CopyStorage), index
	}
	return m
}

// permitted returns the migration once its source may hand the VM over.
func (m Migration) permitted(index uint64) Migration {
	if m.Ready && m.SourceLost == 0 {
		m.Permit, m.ModifyIndex = index, index
	}
	return m
}

// left returns the migration after its source's report that it handed the VM over.
func (m Migration) left(index uint64) Migration {
	if m.Paused && m.Left == 0 {
		m.Left, m.ModifyIndex = index, index
	}
	return m
}

// lostAt returns the migration once the VM is proved not to run on that host. lost: no host runs the VM. A VM goes from the source to
// the target, never back. So a proof for the target counts only after one for the source: until then the VM may still arrive.
func (m Migration) lostAt(host string, index uint64) (next Migration, lost bool) {
	switch {
	case host == m.To && m.SourceLost > 0:
		return m, true
	case host == m.From && m.SourceLost == 0:
		m.SourceLost, m.ModifyIndex = index, index
	}
	return m, false
}

// SourceLostSince returns the log index of the last entry that said that the source does not run the VM any more; 0: none did. A
// proof for the target that began before it proves nothing: the VM may have arrived, or been resumed there, since.
func (m Migration) SourceLostSince() uint64 {
	if m.SourceLost == 0 {
		return 0
	}
	return max(m.SourceLost, m.Left)
}

// aborting returns the migration once its source is to give it up.
func (m Migration) aborting(reason string, index uint64) (Migration, error) {
	if m.State != MigrationRunning {
		return m, fmt.Errorf("migration %s is %s: %w", m.ID, m.State, ErrConflict)
	}
	if m.Abort == "" {
		m.Abort, m.ModifyIndex = reason, index
	}
	return m, nil
}

// mayEnd says why a Move does not end the migration; nil if it does. The Move may report on another migration, or on an attempt before
// the last permit. A guest that arrives paused counts as arrived only once its source is proved not to run it.
func (m Migration) mayEnd(b *Move) error {
	switch {
	case b.Move != m.Open:
		return fmt.Errorf("VM %s is on its way to %s by move %d, not by move %d: %w", m.VMName, b.To, m.Open, b.Move, ErrConflict)
	case !b.Arrived && b.Permit != m.Permit:
		return fmt.Errorf("VM %s is handed over by permit %d, what is said is of permit %d: %w", m.VMName, m.Permit, b.Permit, ErrConflict)
	case b.Arrived && m.Paused && m.SourceLost == 0:
		return fmt.Errorf("VM %s: host %s has not said that it left, or may run it: %w", m.VMName, m.From, ErrConflict)
	}
	return nil
}

// outcome is the end of a migration.
type outcome struct {
	arrived           bool // the VM runs on the target
	reported          bool // bytes and downtimeMs are those that the source's agent reported
	bytes, downtimeMs int64
	text              string // why it did not arrive
}

// ended returns the migration after its end.
func (m Migration) ended(end outcome, at time.Time, index uint64) Migration {
	m.EndedAt, m.ModifyIndex, m.Reported = at, index, m.Reported || end.reported
	m.BytesMoved, m.DowntimeMs = max(m.BytesMoved, end.bytes), max(m.DowntimeMs, end.downtimeMs)
	switch {
	case end.arrived:
		m.State = MigrationDone
	case m.Abort != "":
		m.State, m.Error = MigrationAborted, end.text
	default:
		m.State, m.Error = MigrationFailed, end.text
	}
	return m
}

// sent returns the migration after its source's last report of what it sent, which may come before the end or after it.
func (m Migration) sent(bytes, downtimeMs int64, index uint64) Migration {
	if !m.Reported || bytes > m.BytesMoved || downtimeMs > m.DowntimeMs {
		m.Reported, m.BytesMoved, m.DowntimeMs, m.ModifyIndex = true, max(m.BytesMoved, bytes), max(m.DowntimeMs, downtimeMs), index
	}
	return m
}
