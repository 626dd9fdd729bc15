package fence

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
)

// The leader wants exactly this.
var _ leader.Fence = (*Hosts)(nil)

func TestHosts(t *testing.T) {
	_, d := fileHost(t)
	h := NewHosts(runner(t, time.Minute), map[string][]Level{"h1": {{d, d}}, "h2": {}, "h3": {{{Agent: "fence_fail"}}}})
	if !h.Has("h1") || h.Has("h2") || h.Has("h9") {
		t.Error("Has")
	}
	said, err := h.Test(t.Context(), "h1")
	if want := regexp.MustCompile(`^level 1, fence_file: power on, after \S+: Status: ON\nlevel 1, fence_file: power on, after \S+: Status: ON$`); err != nil || !want.MatchString(strings.ReplaceAll(said, "Status: on", "Status: ON")) {
		t.Errorf("Test = %q, %v", said, err)
	}
	proof, err := h.Off(t.Context(), "h1")
	if want := regexp.MustCompile(`^fence_file and fence_file: power off, at 20\S+Z: Status: off Status: off$`); err != nil || !want.MatchString(proof) {
		t.Errorf("Off = %q, %v", proof, err)
	}
	if err := h.On(t.Context(), "h1"); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"h2", "h9", "h3"} {
		proof, err := h.Off(t.Context(), host)
		said, err2 := h.Test(t.Context(), host)
		if err == nil || err2 == nil || h.On(t.Context(), host) == nil || proof != "" || said != "" || !strings.Contains(err.Error(), host) {
			t.Errorf("host %s: Off = %q, %v; Test = %q, %v", host, proof, err, said, err2)
		}
	}
}
