package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/cluster/state"
)

// A directory whose log was lost must not become a new cluster by itself: the old one's
// VMs would be strangers to it.
func TestUsedDirectoryWithoutLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		open := func(used bool) error {
			n, err := Open(Options{Dir: dir, ID: "n1", State: state.New(), Log: slog.New(slog.DiscardHandler), Used: used})
			if err == nil {
				err = n.Close()
			}
			return err
		}
		if err := open(false); err != nil {
			t.Fatal(err)
		}
		if err := open(true); err != nil {
			t.Errorf("a used directory with its log: %v", err)
		}
		if err := os.Truncate(filepath.Join(dir, "raft.db"), 0); err != nil {
			t.Fatal(err)
		}
		if err := open(true); err == nil || !strings.Contains(err.Error(), "used before") {
			t.Errorf("its log emptied: %v", err)
		}
	})
}
