package agent

import (
	"fmt"
	"maps"
)

// Sending is a move whose VM this host began to send, as the next agent must know of it: what was sent when this one ended
// without a word may have been counted by nobody.
type Sending struct {
	Open uint64 // of the move
	Most int64  // bytes it may send; 0 = no bound
	// Kept: by the hypervisor's word it ended and the VM was not handed over.
	Kept bool `json:",omitempty"`
}

// sends keeps, before the first byte goes, that a move's VM is sent.
func (k *keeper) sends(id string, s Sending) error {
	if k.o.Keep == nil {
		return nil
	}
	k.mu.Lock()
	sending := maps.Clone(k.memory.Sending)
	if sending == nil {
		sending = map[string]Sending{}
	}
	sending[id] = s
	k.memory.Sending = sending
	k.mu.Unlock()
	if err := k.write(); err != nil {
		return fmt.Errorf("keep that VM %s is sent: %w", id, err)
	}
	return nil
}

// stayed notes that a move did not hand its VM over.
func (k *keeper) stayed(id string, open uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, is := k.memory.Sending[id]
	if !is || s.Open != open || s.Kept {
		return
	}
	s.Kept = true
	k.memory.Sending = maps.Clone(k.memory.Sending)
	k.memory.Sending[id] = s
	k.save()
}

// sent forgets moves that are open no more: what they sent was told.
func (k *keeper) sent(open map[string]uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := maps.Clone(k.memory.Sending)
	maps.DeleteFunc(left, func(id string, s Sending) bool { return open[id] != s.Open })
	if len(left) < len(k.memory.Sending) {
		k.memory.Sending = left
		k.save()
	}
}

// sending are the moves that an agent before this one began, by VM.
func (k *keeper) sending() map[string]Sending {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.Sending
}
