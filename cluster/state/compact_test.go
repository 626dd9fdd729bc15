package state_test

import (
	"fmt"
	"testing"

	"evenkeel/cluster/state"
)

// A state that was laid out anew is the same state, goes on as it would have, and wakes those who watch what it was.
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
		t.Error("it goes on otherwise than one that was not laid out anew")
	}
	select {
	case <-watch:
	default:
		t.Error("the state changed and woke nobody")
	}
}

// Entries that are applied while the state is laid out anew are not lost: either they are in the copy, or it is not taken.
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
