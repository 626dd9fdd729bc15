package main

import (
	"strings"
	"testing"
)

// Every algorithm of the paper is known by its name, places what is easy, and
// refuses options that it would not heed.
func TestSolvePaperAlgorithms(t *testing.T) {
	for _, name := range strings.Fields("mcb1 mcb2 mcb3 mcb4 mcb5 mcb6 mcb7 mcb8 gr sg gb sgb rrnd rrnz") {
		t.Run(name, func(t *testing.T) {
			out, message, exit := runSolver(t, strings.NewReader(threeOnTwo), "--algorithm", name, "--seed", "3")
			if exit != 0 {
				t.Fatalf("status %d: %s", exit, message)
			}
			a := decodeAnswers(t, out)
			if len(a) != 1 || a[0].Algorithm != name || len(a[0].Placements) != 3 || a[0].MinYield < 1/1.8-1e-9 {
				t.Errorf("%s", out)
			}
			if _, _, exit := runSolver(t, strings.NewReader(tooLarge), "--algorithm", name); exit != exitNoPlacement {
				t.Errorf("too large: status %d", exit)
			}
			pinned := strings.Replace(threeOnTwo, `"count":3`, `"count":3,"minYield":0.1`, 1)
			if _, _, exit := runSolver(t, strings.NewReader(pinned), "--algorithm", name); exit != exitBadInput {
				t.Errorf("with minYield: status %d", exit)
			}
		})
	}
}
