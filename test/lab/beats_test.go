package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Two hosts' logs of one guest: a line that a move cut in two is no beat, and a beat that comes again is one of a second guest.
func TestBeats(t *testing.T) {
	dir := t.TempDir()
	logs := map[string]string{"h1": filepath.Join(dir, "1"), "h2": filepath.Join(dir, "2")}
	b := FollowBeats(logs)
	defer b.Close()
	say := func(host, text string, seq int64) {
		t.Helper()
		f, err := os.OpenFile(logs[host], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := eventually(10*time.Second, func() error {
			if last, _ := b.Last(); last.Seq != seq || seq > 0 && last.Host != host {
				return os.ErrNotExist
			}
			return nil
		}); err != nil {
			last, _ := b.Last()
			t.Fatalf("after %q on %s the last beat is %+v", text, host, last)
		}
		time.Sleep(3 * followEvery) // sleep: what changes nothing is seen, too
	}
	say("h1", "EVENKEEL-GUEST ready\r\nBEAT 0 uptime_ms=100 work=1\r\n", 0)
	say("h1", "BEAT 1 uptime_ms=200 work=1\r\nBEAT 2 upt", 1)
	say("h2", "ime_ms=300 work=1\r\nBEAT 3 uptime_ms=400 work=1\r\n", 3)
	say("h1", "BEAT 4 uptime_ms=500 work=1\r\nBEAT 5 uptime_ms=600 work=1\r\n", 5)
	if wrongs := b.Wrongs(); len(wrongs) > 0 {
		t.Errorf("a guest that moved there and back: %q", wrongs)
	}
	say("h2", "BEAT 4 uptime_ms=510 work=1\r\nCORRUPT pages=1\r\n", 4)
	if wrongs := strings.Join(b.Wrongs(), "; "); !strings.Contains(wrongs, "there are two") || !strings.Contains(wrongs, "CORRUPT") {
		t.Errorf("a second guest, with bad memory: %q", wrongs)
	}
	if gap := b.Gap(time.Time{}, time.Now()); gap <= 0 || gap > 10*time.Second {
		t.Errorf("the longest gap is %v", gap)
	}
}
