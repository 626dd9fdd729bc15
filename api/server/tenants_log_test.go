package server_test

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"evenkeel/test/quota"
)

// logAgain stops a server and plays the log on its disk again, entry by entry.
func (x *tenancy) logAgain(t *testing.T, server string) quota.Report {
	t.Helper()
	committed := x.Member(server).State.Snapshot().Index()
	must(t, x.Stop(server))
	disk, err := raftboltdb.NewBoltStore(filepath.Join(x.Dir(server), "raft", "raft.db"))
	must(t, err)
	defer disk.Close() //nolint:errcheck // read to its end
	first, err := disk.FirstIndex()
	must(t, err)
	if first != 1 {
		t.Fatalf("the log of %s begins at %d: its beginning was forgotten", server, first)
	}
	var log quota.Log
	for index := first; index <= committed; index++ {
		var e raft.Log
		must(t, disk.GetLog(index, &e))
		entry := quota.Entry{Index: e.Index, Term: e.Term}
		if e.Type == raft.LogCommand {
			entry.Data = e.Data
		}
		log.Add(entry)
	}
	r := log.Check(committed)
	for _, v := range r.Violations {
		t.Errorf("%s: %s", server, v)
	}
	return r
}
