package machines

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOwnTime(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name          string
		before, after map[string]time.Duration
		want          time.Duration
	}{
		{"never waited", map[string]time.Duration{"a": 5 * s, "b": 0}, map[string]time.Duration{"a": 5 * s, "b": 0}, 10 * s},
		{"one thread waited", map[string]time.Duration{"a": 5 * s, "b": 0}, map[string]time.Duration{"a": 8 * s, "b": 1 * s}, 7 * s},
		{"a new thread's past does not count", map[string]time.Duration{"a": 0}, map[string]time.Duration{"a": 1 * s, "new": 9 * s}, 9 * s},
		{"read late", map[string]time.Duration{"a": 0}, map[string]time.Duration{"a": 11 * s}, 0},
	} {
		if got := ownTime(10*s, tt.before, tt.after); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestWaited(t *testing.T) {
	if all, err := waited(os.Getpid()); err != nil || len(all) == 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := waited(1 << 30); err == nil {
		t.Error("a process that does not exist has waited")
	}
}

func TestVerdicts(t *testing.T) {
	passed, failed, skipped := verdicts(`=== RUN   TestConformance
=== RUN   TestConformance/Migration
    guest.go:20: waits: for nothing
    guest.go:23: not tested here: no ability Second
=== RUN   TestConformance/Silent
--- FAIL: TestConformance (9.70s)
    --- PASS: TestConformance/NoGuest (0.02s)
        --- PASS: TestConformance/NoGuest/Capacity (0.00s)
    --- SKIP: TestConformance/Migration (0.00s)
    --- SKIP: TestConformance/Silent (0.00s)
CAPS --- PASS: no verdict
--- PASS
`)
	want := []string{"TestConformance/Migration: not tested here: no ability Second", "TestConformance/Silent: it gave no reason"}
	if passed != 2 || failed != 1 || !slices.Equal(skipped, want) {
		t.Errorf("%d passed, %d failed, %q skipped", passed, failed, skipped)
	}
}

// A check that failed in a machine which was lost later is a failure.
func TestFailedBefore(t *testing.T) {
	for output, want := range map[string]string{
		"":                         "",
		"--- PASS: TestA (0.1s)\n": "",
		"    --- FAIL: TestA/B (0.1s)\n=== RUN   TestA/C\n": "1 checks failed before the machine was lost:     --- FAIL: TestA/B",
	} {
		if err := failedBefore(output); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", output, err, want)
		}
	}
}

// Only caps that were measured, in too few windows, are left out; that none was measured is a failure.
func TestCapsTable(t *testing.T) {
	const header, row = "CAPS VCPUS       CAP    QUOTA\n", "CAPS 1          0.40    0.400\n"
	for output, want := range map[string]struct {
		lines, rows int
		judged      bool
	}{
		"":                            {},
		"--- PASS: TestCaps (0.1s)\n": {},
		header:                        {1, 0, false},
		row + "CAPS error against\n":  {2, 0, false},
		"=== RUN\n" + header + row:    {2, 1, false},
		header + row + row + "CAPS error against the quota: mean 0.0015 cores\n": {4, 2, true},
	} {
		if lines, rows, judged := capsTable(output); len(lines) != want.lines || rows != want.rows || judged != want.judged {
			t.Errorf("%q: %q, %d rows, judged %v, want %+v", output, lines, rows, judged, want)
		}
	}
}

func TestLost(t *testing.T) {
	for _, tt := range []struct {
		name, log     string
		events        []Event
		hung, watched bool
		want          bool
	}{
		{"it runs", "CPU Reset (CPU 0)\n", nil, false, true, false},
		{"it was reset in another way", "CPU Reset (CPU 0)\n", []Event{{Name: "RESET"}}, false, false, false},
		{"its watchdog bit", "CPU Reset (CPU 0)\n", []Event{{Name: "WATCHDOG"}, {Name: "RESET"}}, false, true, false},
		{"its watchdog bit, and no vcd has it", "CPU Reset (CPU 0)\n", []Event{{Name: "WATCHDOG"}, {Name: "RESET"}}, false, false, true},
		{"a triple fault", "CPU Reset (CPU 0)\nTriple fault\nCPU Reset (CPU 0)\n", []Event{{Name: "RESET"}}, false, true, true},
		{"a triple fault after its watchdog", "Triple fault\n", []Event{{Name: "WATCHDOG"}, {Name: "RESET"}, {Name: "RESET"}}, false, true, true},
		{"it answers no more", "CPU Reset (CPU 0)\n", nil, true, true, true},
	} {
		m := &Machine{dir: t.TempDir(), monitor: &monitor{events: tt.events}}
		m.hung.Store(tt.hung)
		m.watched.Store(tt.watched)
		if err := os.WriteFile(m.path("resets.log"), []byte(tt.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := m.lost(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		ended := ""
		t.Run("", func(t *testing.T) {
			defer func() {
				if t.Skipped() {
					ended = "skipped"
				}
			}()
			must(t, m, nil)
			ended = "went on"
		})
		if want := map[bool]string{true: "skipped", false: "went on"}[tt.want]; ended != want {
			t.Errorf("%s: the test %s, want %s", tt.name, ended, want)
		}
	}
}

func TestParsePackages(t *testing.T) {
	got := parsePackages("libvirt0:amd64\t9.0.0-4\nsystemd\t252.1\n\nnonsense\n")
	if want := map[string]string{"libvirt0": "9.0.0-4", "systemd": "252.1"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestQuote(t *testing.T) {
	const text = `it's "$HOME" \x2d`
	out, err := exec.Command("sh", "-c", "printf %s "+quote(text)).Output()
	if err != nil || string(out) != text {
		t.Errorf("%q, %v", out, err)
	}
}

func TestCommands(t *testing.T) {
	page := "# Page\n\n## A\n\ntext\n\n    one\n    two\n\n    three\n## B\n\n    four\n"
	for title, want := range map[string][]string{"A": {"one\ntwo", "three"}, "B": {"four"}, "C": nil} {
		if got := commands(page, title); !slices.Equal(got, want) {
			t.Errorf("commands of %s: %q, want %q", title, got, want)
		}
	}
}
