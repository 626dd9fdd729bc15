package machines

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// inside runs tests of package inside in a machine, and returns what they printed, and which share of the time the machine
// could run. The emulator now and then resets a machine that runs guests, without a word on its console: then the tests begin
// again, once, in a machine restored, and the report says so. What is tested runs in user space and cannot reset the machine
// but by its watchdog, and these tests arm none.
func inside(t *testing.T, run string) (output string, share float64) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		m, s := machine(t)
		out, share, err := attemptInside(t, m, s, run)
		resets, bites := len(m.Events("RESET")), len(m.Events("WATCHDOG"))
		if resets > 0 && bites == 0 && attempt == 1 {
			report("%s: the emulator reset the machine, without its watchdog: once again", t.Name())
			keep(t, m, s.logs(t)+"-reset")
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		count(out)
		if err != nil || resets+bites > 0 {
			check(t, "Ends", func(t *testing.T) {
				t.Errorf("%s in the machine: %.400v; resets of the machine: %d, of its watchdog: %d", run, err, resets, bites)
			})
		}
		return out, share
	}
}

func attemptInside(t *testing.T, m *Machine, s *site, run string) (output string, share float64, err error) {
	t.Helper()
	if err := m.Copy(t.Context(), s.tests, "/srv/inside.test", "755"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	before, err := waited(m.pid())
	if err != nil {
		t.Fatal(err)
	}
	output, err = m.Show(t.Context(), os.Stdout, fmt.Sprintf("cd /srv && EVENKEEL_MACHINES=inside ./inside.test -test.v -test.short=%t -test.timeout 60m -test.run '^%s$'", testing.Short(), run))
	after, werr := waited(m.pid())
	if werr != nil {
		t.Fatal(werr)
	}
	passed := time.Since(began)
	return output, float64(ownTime(passed, before, after)) / float64(passed), err
}

func TestConformance(t *testing.T) { inside(t, "TestConformance") }

// What caps may be off by, in cores: on average over all caps, and any one.
const meanError, maxError = 0.02, 0.05

// calm is the share of the time in which the machine must have been able to run, for larger errors to be those of caps.
const calm = 0.95

func TestCaps(t *testing.T) {
	out, share := inside(t, "TestCaps")
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
	check(t, "Errors", func(t *testing.T) {
		if !within {
			t.Errorf("errors of caps: mean %.4f, maximal %.4f cores; want at most %.2f and %.2f", mean, highest, meanError, maxError)
		}
	})
	report("caps: the machine could run for %.0f%% of the time", 100*share)
}
