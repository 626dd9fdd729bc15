package machines

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor/conformance"
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
		out, failed := m.Show(t.Context(), os.Stdout, fmt.Sprintf("cd /srv && EVENKEEL_MACHINES=inside ./inside.test -test.v -test.short=%t -test.timeout 60m -test.run '%s'", testing.Short(), run))
		if m.emulatorReset() {
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

// TestConformance gives each part of the suite a machine of its own: what the emulator resets is then soon done again.
func TestConformance(t *testing.T) {
	for _, group := range conformance.Groups() {
		t.Run(group, func(t *testing.T) { inside(t, "^TestConformance$/^"+group+"$") })
	}
}

// What caps may be off by, in cores: on average over all caps, and any one.
const meanError, maxError = 0.02, 0.05

// calm is the share of the time in which the machine must have been able to run, for larger errors to be those of caps.
const calm = 0.95

func TestCaps(t *testing.T) {
	out, share := inside(t, "^TestCaps$")
	var mean, highest float64
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "CAPS "); ok {
			report("%s", strings.TrimSpace(rest))
			_, _ = fmt.Sscanf(rest, "mean error %f cores, maximal %f", &mean, &highest) // one line has them
		}
	}
	if highest == 0 {
		t.Fatal("no table of caps")
	}
	if testing.Short() {
		left(t, "6 of 12 caps", short)
	}
	within := mean <= meanError && highest <= maxError
	if !within && share < calm {
		left(t, "Errors", fmt.Sprintf("they are larger than they may be (mean %.4f, maximal %.4f cores), but other work on this computer kept the machine waiting for %.0f%% of the time", mean, highest, 100*(1-share)))
		return
	}
	check(t, nil, "Errors", func(t *testing.T) {
		if !within {
			t.Errorf("errors of caps: mean %.4f, maximal %.4f cores; want at most %.2f and %.2f", mean, highest, meanError, maxError)
		}
	})
	report("caps: the machine could run for %.0f%% of the time", 100*share)
}

func TestQuotas(t *testing.T) { inside(t, "^TestQuotas$") }

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

// TestDelay reports how soon a lower cap is effective. It judges nothing: a machine that waits for a CPU is late in all it does.
func TestDelay(t *testing.T) {
	if testing.Short() {
		left(t, "Figures", short)
		return
	}
	out, share := inside(t, "^TestDelay$")
	if !strings.Contains(out, "DELAY ") {
		t.Error("no figures of the delay")
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "DELAY ") {
			report("%s; the machine could run for %.0f%% of the time", strings.TrimSpace(line), 100*share)
		}
	}
}
