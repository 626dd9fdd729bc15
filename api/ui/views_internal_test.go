package ui

import (
	"testing"

	"evenkeel/api/v1"
)

// TestSize: sizes are as files write them where that is short, and rounded elsewhere.
func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[v1.Size]string{0: "0", 512: "512", 8 << 30: "8GiB", 256 << 20: "256MiB", 1<<20 + 1: "1.0 MiB", 18038862644: "16.8 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
}
