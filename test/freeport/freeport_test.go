package freeport

import (
	"net"
	"testing"
)

// What is taken is not given, and nothing is given twice.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		at, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		if seen[at] {
			t.Errorf("%s a second time", at)
		}
		seen[at] = true
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Errorf("%s is not free: %v", at, err)
			continue
		}
		defer l.Close() //nolint:errcheck // a test's
	}
}
