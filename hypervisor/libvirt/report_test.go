package libvirt

import (
	"testing"
	"time"

	"libvirt.org/go/libvirt"
)

// A guest is shrunk from 256 to 134 MiB and uses 73 MiB all the time. It reports once in between.
func TestReportBetweenSamples(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name           string
		seen           time.Duration // the next sample, with the smaller balloon
		made           int64         // the report's second
		available      uint64        // MiB, in the report
		balloon, since any           // MiB that the report is taken to be of, and when it was made at the earliest
	}{
		{"seen soon, before the balloon moved", 1500 * time.Millisecond, 0, 183, 256, 1500 * time.Millisecond},
		{"seen soon, after it", 1500 * time.Millisecond, 1, 61, 134, 1500 * time.Millisecond},
		{"seen late: of which balloon is not known", 4300 * time.Millisecond, 3, 61, 256, time.Duration(0)},
		{"seen late, made now", 4300 * time.Millisecond, 4, 61, 134, 4300 * time.Millisecond},
		{"seen late, the clocks differ", 4300 * time.Millisecond, 600, 61, 134, 4300 * time.Millisecond},
	} {
		g := noReport
		report := func(at time.Duration, balloon uint64, second int64, available uint64) {
			g.take(&libvirt.DomainStatsBalloon{Current: balloon << 10, LastUpdateSet: true, LastUpdate: uint64(1_800_000_000 + second),
				UsableSet: true, Usable: available << 10}, start.Add(at))
		}
		report(0, 256, -2, 183)
		report(c.seen, 134, c.made, c.available)
		if got := int(g.balloon / mib); got != c.balloon {
			t.Errorf("%s: it is taken for a report of %d MiB, want %v", c.name, got, c.balloon)
		}
		if got := g.at.Sub(start); got != c.since {
			t.Errorf("%s: made at %v or later, want %v", c.name, got, c.since)
		}
	}
	// Where the balloon did not change, a report is as new as it is seen, however far apart samples are.
	g := noReport
	for i := range uint64(3) {
		g.take(&libvirt.DomainStatsBalloon{Current: 256 << 10, LastUpdateSet: true, LastUpdate: 1_800_000_000 + 10*i, UsableSet: true, Usable: 183 << 10},
			start.Add(time.Duration(10*i+5)*time.Second))
	}
	if got := g.at.Sub(start); got != 25*time.Second {
		t.Errorf("of an unchanged balloon: made at %v or later, want 25s", got)
	}
}
