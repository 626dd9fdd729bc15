package morpheus

import (
	"strings"
	"testing"
)

func TestParseRuns(t *testing.T) {
	one := "q 8192:0|16384:5|" + strings.Repeat("0:5|", 10) + "8192:60|"
	runs, err := ParseRuns([]byte("# a comment\n" + strings.Repeat(one+"\n", minRecorded)))
	if err != nil || len(runs) != minRecorded {
		t.Fatalf("%d runs: %v", len(runs), err)
	}
	if r := runs[0]; len(r) != 2 || r[0] != 0.25 || r[1] != 1.0/12 {
		t.Errorf("containers by minute: %v", r)
	}
	for want, text := range map[string]string{"runs, and": one, "megabytes:second": "q 1:0|x:5", "step 1": "q -1:0"} {
		if _, err := ParseRuns([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// On queries of Q12's runs the agenda misses no more than EASY on the same cluster, by far, and needs a smaller one than a p95 skyline placed align-right.
func TestQueriesOfQ12(t *testing.T) {
	agenda, easy, small, large := 0.0, 0.0, 0.0, 0.0
	for seed := range uint64(2) {
		s, err := NewRunsStudy(Options{Seed: 101 + seed, Jobs: 20, Days: minDays}, q12(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.learned {
			if c := &s.learned[i]; len(c.past) != 9 || len(c.future) != 4 || c.due > queryPeriod+1 {
				t.Fatalf("%s: %d past runs, %d to come, due at %d", c.job.Name, len(c.past), len(c.future), c.due)
			}
		}
		p, err := s.plan(borrowedName, lowCost)
		if err != nil {
			t.Fatal(err)
		}
		o := p.reprovisioned(s.learned, p.peak, forLateRuns())
		e, err := s.easy(int(p.peak), false)
		if err != nil {
			t.Fatal(err)
		}
		right, err := s.plan("p95", alignRight)
		if err != nil {
			t.Fatal(err)
		}
		agenda, easy, small, large = agenda+o.missShare(), easy+e.missShare(), small+p.peak, large+right.peak
	}
	if agenda >= easy/4 || small >= large {
		t.Errorf("missed %v, EASY %v; clusters of %v, and %v align-right", agenda/2, easy/2, small, large)
	}
	if _, err := NewRunsStudy(Options{Seed: 1, Jobs: 0, Days: minDays}, q12(t)); err == nil {
		t.Error("no jobs were played")
	}
	if _, err := NewRunsStudy(Options{Seed: 1, Jobs: 1, Days: minDays}, make([][]float64, 13)); err == nil {
		t.Error("runs without use were played")
	}
}
