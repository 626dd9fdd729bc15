package node

import (
	"bytes"
	"errors"
	"testing"
)

// What is loaded is what was saved, and nothing of the server that is asked changes.
func TestLoad(t *testing.T) {
	g := newGroup(t, 1)
	s := g.leader()
	s.found(t, "c1")
	g.put(0, 3)
	file := s.backup(t)
	g.put(3, 5)
	saved, state, err := Load(bytes.NewReader(file))
	if err != nil || saved.Cluster != "c1" || len(state.Snapshot().Images()) != 3 || len(state.Snapshot().Hosts()) != 1 {
		t.Errorf("%+v, %v", saved, err)
	}
	if n := len(s.store.Snapshot().Images()); n != 5 {
		t.Errorf("the server has %d images", n)
	}
	for _, bad := range [][]byte{nil, []byte("{}\n"), file[:len(file)-2], bytes.Replace(file, []byte("h1"), []byte("h2"), 1)} {
		if _, _, err := Load(bytes.NewReader(bad)); !errors.Is(err, ErrBadSnapshot) {
			t.Errorf("%v", err)
		}
	}
}
