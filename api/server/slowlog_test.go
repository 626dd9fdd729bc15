package server

import (
	"strings"
	"testing"

	"evenkeel/api/v1"
)

func TestSlowLogText(t *testing.T) {
	const slow = "its log is slow: each append to it took over 1s for 6s"
	for what, c := range map[string]struct {
		member v1.Member
		slow   bool
		waits  bool
	}{
		"a quick leader":  {member: v1.Member{Leader: true}},
		"a slow follower": {member: v1.Member{SlowLog: slow}, slow: true},
		"a slow leader":   {member: v1.Member{SlowLog: slow, Leader: true}, slow: true, waits: true},
	} {
		got := slowLogText(c.member)
		if strings.HasPrefix(got, slow) != c.slow || (got != "") != c.slow || strings.Contains(got, "every change waits") != c.waits {
			t.Errorf("%s: %q", what, got)
		}
	}
}
