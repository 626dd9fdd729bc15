package watch

import (
	"strings"
	"testing"
	"time"
)

// TestTwice: which processes the watcher takes for a VM that runs twice, and which not.
func TestTwice(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	vm := func(pid int, host string, began int, comes bool) Instance {
		return Instance{Domain: "ek-a-g-0", UUID: "a", Host: host, PID: pid, Started: at(began), Comes: comes}
	}
	other := Instance{Domain: "ek-b-g-0", UUID: "b", Host: "h1", PID: 9, Started: at(0)}
	type look struct {
		ms    int
		there []Instance
	}
	for _, c := range []struct {
		name  string
		looks []look
		want  string // in a violation; "" = none
	}{
		{"runs", []look{{50, []Instance{vm(1, "h1", 0, false), other}}, {100, []Instance{vm(1, "h1", 0, false), other}}}, ""},
		{"moves", []look{{50, []Instance{vm(1, "h1", 0, false)}}, {100, []Instance{vm(1, "h1", 0, false), vm(2, "h2", 90, true)}}, {150, []Instance{vm(2, "h2", 90, true)}}}, ""},
		{"is started again", []look{{50, []Instance{vm(1, "h1", 0, false)}}, {100, nil}, {150, []Instance{vm(2, "h2", 120, false)}}}, ""},
		{"number used again", []look{{50, []Instance{vm(1, "h1", 0, false)}}, {100, []Instance{vm(1, "h2", 80, false)}}}, ""},
		{"twice", []look{{50, []Instance{vm(1, "h1", 0, false), vm(2, "h2", 40, false)}}}, "seen at once"},
		{"twice on one host", []look{{50, []Instance{vm(1, "h1", 0, false), vm(2, "h1", 40, true)}}}, "seen at once"},
		{"moves beside a paused copy", []look{{50, []Instance{vm(1, "h1", 0, false), vm(2, "h2", 40, true), vm(3, "h3", 45, true)}}}, ""},
		{"thrice", []look{{50, []Instance{vm(1, "h1", 0, false), vm(2, "h2", 40, true), vm(3, "h3", 45, false)}}}, "seen at once"},
		{"taken over twice on one host", []look{{50, []Instance{vm(1, "h1", 0, false), vm(2, "h2", 40, true), vm(3, "h2", 45, true)}}}, "seen at once"},
		{"taken over on its own host", []look{{50, []Instance{vm(1, "h1", 0, false), vm(2, "h2", 40, true), vm(3, "h1", 45, true)}}}, "seen at once"},
		{"between looks", []look{{50, []Instance{vm(1, "h1", 0, false)}}, {500, []Instance{vm(1, "h1", 0, false)}}, {1000, []Instance{vm(2, "h2", 300, false)}}}, "was there at"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b book
			for _, l := range c.looks {
				b.take(at(l.ms), l.there)
			}
			got := strings.Join(b.duplicates(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
