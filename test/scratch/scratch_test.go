package scratch

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestDir(t *testing.T) {
	var dirs []string
	t.Run("directories", func(t *testing.T) {
		for range 2 {
			dir := Dir(t)
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			dirs = append(dirs, dir)
		}
	})
	if dirs[0] == dirs[1] {
		t.Errorf("%s twice", dirs[0])
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s after the test: %v", dir, err)
		}
	}
}

func TestInMemory(t *testing.T) {
	for _, tt := range []struct {
		path string
		free uint64
	}{{"/nothing", 0}, {"/proc", 0}, {shared, math.MaxUint64}} {
		if inMemory(tt.path, tt.free) {
			t.Errorf("%s has %d bytes free in memory", tt.path, tt.free)
		}
	}
}
