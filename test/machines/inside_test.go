package machines

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor/conformance"
	"evenkeel/test/patience"
)

// inside runs tests of package inside in a machine, and returns what they printed, and which share of the time the machine
// could run.
func inside(t *testing.T, run string) (output string, share float64) {
	t.Helper()
	fresh(t, func(t *testing.T, m *Machine, s *site) {
		must(t, m, m.Copy(t.Context(), s.tests, "/srv/inside.test", "755"))
		began := time.Now()
		before, err := waited(m.pid())
		if err != nil {
			t.Fatal(err)
		}
		out, failed := m.Show(t.Context(), os.Stdout, fmt.Sprintf("cd /srv && EVENKEEL_MACHINES=inside %s=%s ./inside.test -test.v -test.short=%t -test.timeout 0 -test.run '%s'",
			patience.Variable, cmp.Or(os.Getenv(patience.Variable), "1"), testing.Short(), run))
		if m.lost() || failed != nil && m.stopped(t.Context()) {
			if err := failedBefore(out); err != nil { // it stands: must repeats no test that has failed
				count(out)
				t.Error(err)
			}
			must(t, m, errEmulator)
		}
		after, err := waited(m.pid())
		if err != nil {
			t.Fatal(err)
		}
		passed := time.Since(began)
		output, share = out, float64(ownTime(passed, before, after))/float64(passed)
		count(out)
		if resets := len(m.Events("RESET")); failed != nil || resets > 0 {
			check(t, m, "Ends", func(t *testing.T) {
				t.Errorf("%s in the machine: %.400v; resets of the machine: %d", run, failed, resets)
			})
		}
	})
	return output, share
}

// failedBefore says that checks had failed when a machine was lost, of which output is what was printed until then.
func failedBefore(output string) error {
	_, failed, _ := verdicts(output)
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%d checks failed before the machine was lost: %.400s", failed, output)
}

// TestConformance gives each part of the suite a machine of its own: what the emulator resets is then soon done again.
func TestConformance(t *testing.T) {
	for _, group := range conformance.Groups() {
		t.Run(group, func(t *testing.T) { inside(t, "^TestConformance$/^"+group+"$") })
	}
}

// TestCaps judges caps in the machine, by the CPU time that its kernel charges, and by windows in which it never stood still.
func TestCaps(t *testing.T) {
	out, share := inside(t, "^TestCaps$")
	lines, rows, judged := capsTable(out)
	for _, line := range lines {
		report("caps: %s", line)
	}
	if rows == 0 {
		t.Fatal("no table of caps: none was measured")
	}
	if !judged {
		left(t, "Errors", "in too few windows the machine never stood still")
	}
	if testing.Short() {
		left(t, "6 of 12 caps", short)
	}
	report("caps: the machine could run for %.0f%% of the time", 100*share)
}

// capsTable reads what package inside printed of caps: the lines, how many are of a cap that was measured below the header, and whether their errors were judged.
func capsTable(output string) (lines []string, rows int, judged bool) {
	header := false
	for line := range strings.Lines(output) {
		rest, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "CAPS ")
		if !ok {
			continue
		}
		lines = append(lines, rest)
		switch {
		case strings.HasPrefix(rest, "VCPUS "):
			header = true
		case header && strings.HasPrefix(rest, "error "):
			judged = true
		case header:
			rows++
		}
	}
	return lines, rows, judged
}

// calm is the share of the time in which the machine must have been able to run, for a wrong share of the CPU to be that of weights.
const calm = 0.95

// TestWeights has two guests with weights of 3 to 1 on one core.
func TestWeights(t *testing.T) {
	if testing.Short() {
		left(t, "Share", short)
		return
	}
	out, calmness := inside(t, "^TestWeights$")
	var share float64
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "WEIGHTS "); ok {
			report("weights of 3 to 1: %s; the machine could run for %.0f%% of the time", strings.TrimSpace(rest), 100*calmness)
			_, _ = fmt.Sscanf(rest, "share %f", &share)
		}
	}
	within := math.Abs(share-0.75) <= 0.05
	if !within && share > 0 && calmness < calm {
		left(t, "Share", fmt.Sprintf("it is %.3f, but other work on this computer kept the machine waiting for %.0f%% of the time", share, 100*(1-calmness)))
		return
	}
	check(t, nil, "Share", func(t *testing.T) {
		if !within {
			t.Errorf("the heavier guest got %.3f of what both got, want 0.75 within 0.05", share)
		}
	})
}
