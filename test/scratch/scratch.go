// Package scratch gives tests directories for what they write, in memory where there is such a file system: logs, snapshots and
// journals are flushed at every write, and on a disk the tests of a whole cluster mostly wait for that. A test of what a disk does takes
// t.TempDir.
package scratch

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// shared is the file system in memory that Linux mounts by default.
const shared = "/dev/shm"

// enough free space for all tests that run at a time, bytes. A container may have far less.
const enough = 1 << 30

// Dir is an empty directory, removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	if !inMemory(shared, enough) {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shared, "evenkeel-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's directory: %v", err)
		}
	})
	return dir
}

// inMemory says whether a path is on a file system in memory with so many bytes free.
func inMemory(path string, free uint64) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.TMPFS_MAGIC && fs.Bavail*uint64(fs.Bsize) >= free
}
