package v1_test

import (
	"fmt"
	"testing"

	"evenkeel/api/v1"
)

// TestShown: a job that comes again every few minutes does not fill the screen, and what comes next is shown whatever is over.
func TestShown(t *testing.T) {
	for _, c := range []struct {
		over, ahead int
		want        string
	}{
		{0, 0, "0 and 0 more, "},
		{4, 20, "0 and 24 more, "},
		{60, 0, "36 and 24 more, 36 earlier and 0 later occurrences are left out: -o json has all"},
		{60, 2, "38 and 24 more, 38 earlier and 0 later occurrences are left out: -o json has all"},
		{60, 150, "54 and 24 more, 54 earlier and 132 later occurrences are left out: -o json has all"},
		{3, 150, "0 and 24 more, 0 earlier and 129 later occurrences are left out: -o json has all"},
	} {
		var j v1.PeriodicJob
		for i := range c.over + c.ahead {
			o := v1.Occurrence{Text: fmt.Sprint(i), State: []string{"met", "missed", "skipped"}[i%3]}
			if i >= c.over {
				o.State = []string{"confirmed", "skipped", "degraded"}[(i-c.over)%3]
			}
			j.Occurrences = append(j.Occurrences, o)
		}
		shown, rest := j.Shown()
		from := "0"
		if len(shown) > 0 {
			from = shown[0].Text
		}
		if got := fmt.Sprintf("%s and %d more, %s", from, len(shown), rest); got != c.want {
			t.Errorf("%d over, %d ahead: %s, want %s", c.over, c.ahead, got, c.want)
		}
	}
}
