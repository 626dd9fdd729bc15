package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// After a join vcctl on that host says how it gets into the cluster, unless it can already.
func TestJoinedText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if text := joinedText(v1.SetupAnswer{}, file); !strings.Contains(text, "copy ~/.config/evenkeel") {
		t.Errorf("%q", text)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := joinedText(v1.SetupAnswer{}, file); strings.Contains(text, "copy") {
		t.Errorf("%q", text)
	}
}
