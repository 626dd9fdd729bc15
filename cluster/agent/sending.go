package agent

import (
	"fmt"
	"maps"
)

// Sending is a move whose VM this host began to send. It is on disk for the next agent: if this agent ends without a report, the bytes
// sent may never be counted.
type Sending struct {
	Open     uint64 // of the move
	MaxBytes int64  // bytes it may send; 0 = no bound
	// Kept: the VM was observed to run here after an attempt, which may have left an older copy at the target. If the VM is gone when
	// the next agent begins, that does not prove that a later attempt handed it over.
	Kept bool `json:",omitempty"`
}

// sends stores, before the first byte is sent, that a move's VM is sent.
func (k *leaseManager) sends(id string, s Sending) error {
	if k.o.State == nil {
		return nil
	}
	k.mu.Lock()
	sending := maps.Clone(k.memory.Sending)
	if sending == nil {
		sending = map[string]Sending{}
	}
	before := sending[id]
	s.Kept = before.Open == s.Open && before.Kept
	sending[id] = s
	k.memory.Sending = sending
	k.mu.Unlock()
	if err := k.write(); err != nil {
		return fmt.Errorf("keep that VM %s is sent: %w", id, err)
	}
	return nil
}

// stayed notes that a move did not hand its VM over.
func (k *leaseManager) stayed(id string, open uint64) {
	if k.staysHere(id, func(s Sending) bool { return s.Open == open }) {
		k.save()
	}
}

// recordStay notes, on disk by the time it returns, that no move so far has handed a VM over.
func (k *leaseManager) recordStay(id string) error {
	k.staysHere(id, func(Sending) bool { return true })
	k.mu.Lock()
	now, sent := k.memory.Sending[id]
	done := !sent || k.persistent.Sending[id] == now
	k.mu.Unlock()
	if done || k.o.State == nil {
		return nil
	}
	if err := k.write(); err != nil {
		return fmt.Errorf("keep that VM %s stays: %w", id, err)
	}
	return nil
}

// staysHere notes that a move did not hand its VM over, and says whether that is news.
func (k *leaseManager) staysHere(id string, which func(Sending) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, is := k.memory.Sending[id]
	if !is || s.Kept || !which(s) {
		return false
	}
	s.Kept = true
	k.memory.Sending = maps.Clone(k.memory.Sending)
	k.memory.Sending[id] = s
	return true
}

// sent forgets moves that are open no more: their bytes were reported.
func (k *leaseManager) sent(open map[string]uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := maps.Clone(k.memory.Sending)
	maps.DeleteFunc(left, func(id string, s Sending) bool { return open[id] != s.Open })
	if len(left) < len(k.memory.Sending) {
		k.memory.Sending = left
		k.save()
	}
}

// sending returns the moves that an agent before this one began, by VM.
func (k *leaseManager) sending() map[string]Sending {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.Sending
}
