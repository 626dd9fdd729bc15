package node

import (
	"errors"
	"testing"
	"time"
)

// A server that was removed and added again gets a vote once it has answered since, and has the log of before.
func TestCaughtUp(t *testing.T) {
	at := time.Unix(1000, 0)
	a := added{at: at, index: 50}
	before, after := at.Add(-time.Second), at.Add(time.Second)
	for what, c := range map[string]struct {
		answer serverAnswer
		want   bool
	}{
		"never asked":                  {serverAnswer{}, false},
		"answered before it was added": {serverAnswer{asked: true, begun: before, stats: Stats{Index: 60}}, false},
		"does not answer any more":     {serverAnswer{asked: true, begun: after, err: errors.New("refused"), stats: Stats{Index: 60}}, false},
		"lacks the last entry":         {serverAnswer{asked: true, begun: after, stats: Stats{Index: 49}}, false},
		"has all entries":              {serverAnswer{asked: true, begun: after, stats: Stats{Index: 50}}, true},
	} {
		if got := a.caughtUp(c.answer); got != c.want {
			t.Errorf("%s: %t, want %t", what, got, c.want)
		}
	}
	p := &pilot{}
	p.add("s2", 7) // while this server does not lead: nothing to note
	if !p.caughtUp("s2") {
		t.Error("a server that was not added in this term waits")
	}
}
