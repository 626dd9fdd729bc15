package machines

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// tags of everything that is built here.
const tags = "libvirt_dlopen,hashicorpmetrics"

// site is what all tests share: the image, the saved machine, and what is copied into machines.
type site struct {
	root  string
	img   Image
	saved Saved
	tests string // the test binary of package inside
}

var theSite = sync.OnceValues(func() (*site, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	s := &site{root: root, tests: filepath.Join(root, "build", "machines", "inside.test")}
	ctx := context.Background()
	if s.img, err = FindImage(ctx, root, cmp.Or(os.Getenv("EVENKEEL_MACHINE"), Reference)); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-tags", tags, "-o", s.tests, "evenkeel/test/machines/inside")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the tests that run inside: %w: %s", err, out)
	}
	began := time.Now()
	var made bool
	if s.saved, made, err = Prepare(ctx, s.img, filepath.Join(root, "build", "machines"), warm); err != nil {
		return nil, err
	}
	if made {
		report("booted and saved in %s", time.Since(began).Round(time.Second))
	}
	return s, nil
})

// warm waits until the machine that was booted has nothing left to do, and has libvirt learn what QEMU can do, which takes long
// under emulation and is kept in a file.
func warm(ctx context.Context, m *Machine) error {
	state, err := m.Run(ctx, "systemctl is-system-running --wait || true; systemctl --failed --plain --no-legend")
	if err == nil && state != "running" {
		err = fmt.Errorf("the machine is not well after its boot: %s", state)
	}
	if err != nil {
		return err
	}
	_, err = m.Run(ctx, "virsh -q domcapabilities --virttype kvm >/dev/null && virsh -q capabilities >/dev/null && sync")
	return err
}

// machine is a restored machine, which goes when the test does. A test that fails leaves its logs in build/machines/logs.
func machine(t *testing.T, on lan) (*Machine, *site) {
	t.Helper()
	s, err := theSite()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ekm-") // not t.TempDir: the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	began := time.Now()
	m, err := s.saved.Restore(t.Context(), dir, on)
	if err != nil {
		t.Fatal(err)
	}
	report("%s: restored in %.1f s", t.Name(), time.Since(began).Seconds())
	tally.Lock()
	tally.machines++
	tally.Unlock()
	t.Cleanup(func() {
		select {
		case <-m.ended:
		default:
			if t.Failed() || m.lost() {
				keep(t, m, filepath.Join(s.logs(t), filepath.Base(dir)))
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
			return
		}
		report("%s: %.0f s, %.0f s of CPU time", t.Name(), time.Since(began).Seconds(), m.cpuTime().Seconds())
		tally.Lock()
		tally.cpu += m.cpuTime()
		tally.Unlock()
	})
	return m, s
}

// logs is where the logs of a test's machine go.
func (s *site) logs(t *testing.T) string {
	return filepath.Join(s.root, "build", "machines", "logs", t.Name())
}

// keep collects the logs of a machine in a directory.
func keep(t *testing.T, m *Machine, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var journal string
	var err error
	if !m.hung.Load() {
		journal, err = m.Run(ctx, "journalctl -b --no-pager | tail -n 2000; tail -n 50 /var/log/libvirt/qemu/*.log 2>/dev/null || true")
	}
	err = errors.Join(err, os.MkdirAll(dir, 0o755))
	var events strings.Builder
	for _, e := range m.Events("") {
		fmt.Fprintf(&events, "%s %s %s\n", e.At.Format(time.RFC3339Nano), e.Name, e.Data)
	}
	resets, rerr := os.ReadFile(m.path("resets.log"))
	err = errors.Join(err, rerr)
	registers, _ := os.ReadFile(m.path("registers")) // only of one that answered no more
	for name, text := range map[string]string{"journal": journal, "console": m.Console(), "qemu": m.output(), "events": events.String(), "resets": string(resets), "registers": string(registers)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	t.Logf("logs of the machine are in %s (%v)", dir, err)
}

// fresh runs a test in a machine of its own. The emulator now and then resets a machine that runs guests, or has it stand still for good: then the test
// ends there, is neither passed nor failed, and runs again in another machine, up to attempts times. A check that fails is never repeated.
func fresh(t *testing.T, test func(t *testing.T, m *Machine, s *site)) {
	t.Helper()
	together(t, 1, "", func(t *testing.T, all []*Machine, s *site) { test(t, all[0], s) })
}

// together is fresh for a test in n machines of one network. The loss of one ends it for all.
func together(t *testing.T, n int, on lan, test func(t *testing.T, all []*Machine, s *site)) {
	t.Helper()
	if os.Getenv("EVENKEEL_MACHINES") != "1" {
		t.Skip("boots a whole machine under emulation, which takes minutes: make test-machines")
	}
	for attempt := 1; ; attempt++ {
		lost, skipped := "", false
		t.Run("Machine", func(t *testing.T) {
			var all []*Machine
			// Before the clean-up, which removes the log that says so.
			defer func() {
				if skipped = t.Skipped(); len(all) > 0 {
					lost = all[0].loss()
				}
			}()
			var s *site
			for range n {
				var m *Machine
				m, s = machine(t, on)
				all = append(all, m)
			}
			for _, m := range all {
				m.together = all
			}
			test(t, all, s)
			must(t, all[0], nil)
		})
		if lost == "" {
			if skipped {
				t.Fatal("a test in a machine was skipped, and no reset of the emulator was the reason")
			}
			return
		}
		again := attempt < attempts && !t.Failed()
		report("%s: the emulator lost the machine (%s) in attempt %d of %d; again: %v", t.Name(), lost, attempt, attempts, again)
		tally.Lock()
		tally.lost++
		tally.Unlock()
		if !again {
			t.Fatalf("the emulator lost the machine (%s) in attempt %d", lost, attempt)
		}
	}
}

// attempts at a test in a machine that the emulator resets. It resets about one machine of twelve.
const attempts = 3

// must ends a test at an error. If the emulator reset the machine, the test is skipped, for fresh to run it again.
func must(t *testing.T, m *Machine, err error) {
	t.Helper()
	if !t.Failed() && (m.lost() || err != nil && m.stopped(t.Context())) {
		t.Skip(errEmulator)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// do runs a command line in the machine, and fails the test if it fails.
func do(t *testing.T, m *Machine, format string, args ...any) string {
	t.Helper()
	out, err := m.Run(t.Context(), fmt.Sprintf(format, args...))
	must(t, m, err)
	return out
}

// await polls a command until its output is as wanted. It fails when the output stays the same for too long.
func await(t *testing.T, m *Machine, what, command string, wanted func(out string) bool) string {
	t.Helper()
	out := ""
	err := m.Until(t.Context(), commandStall, what, func() string { return out }, func() bool {
		var err error
		if out, err = m.Run(t.Context(), command); err != nil {
			out = err.Error()
		}
		return err == nil && wanted(out)
	})
	must(t, m, err)
	return out
}

// tally counts checks, so that none is left out in silence.
var tally struct {
	sync.Mutex
	passed, failed int
	machines, lost int // started; reset by the emulator, or without an answer
	cpu            time.Duration
	left           []string // what was not checked, and why
	lines          []string
}

// report adds a line to what is printed at the end.
func report(format string, args ...any) {
	tally.Lock()
	defer tally.Unlock()
	line := fmt.Sprintf(format, args...)
	tally.lines = append(tally.lines, line)
	fmt.Println("machines:", line)
}

// check is a subtest that is counted, unless the emulator resets its machine, if it has one.
func check(t *testing.T, m *Machine, name string, f func(t *testing.T)) bool {
	t.Helper()
	lost := false
	ok := t.Run(name, func(t *testing.T) {
		defer func() { lost = t.Skipped() }()
		f(t)
	})
	if lost {
		must(t, m, nil)
	}
	tally.Lock()
	defer tally.Unlock()
	if ok {
		tally.passed++
	} else {
		tally.failed++
	}
	return ok
}

// inFull is a check that the short run leaves out, and says so.
func inFull(t *testing.T, m *Machine, name string, f func(t *testing.T)) {
	t.Helper()
	if testing.Short() {
		left(t, name, short)
		return
	}
	check(t, m, name, f)
}

const short = "the run is short (SHORT=1)"

// left says that something was not checked, and why.
func left(t *testing.T, what, why string) {
	t.Helper()
	t.Logf("not checked: %s: %s", what, why)
	tally.Lock()
	defer tally.Unlock()
	tally.left = append(tally.left, t.Name()+"/"+what+": "+why)
}

// count enters the verdicts of a test binary's verbose output.
func count(output string) {
	passed, failed, skipped := verdicts(output)
	tally.Lock()
	defer tally.Unlock()
	tally.passed += passed
	tally.failed += failed
	tally.left = append(tally.left, skipped...)
}

// verdicts reads verbose output of go test; skipped has names and reasons. Tests with subtests count as one more.
func verdicts(output string) (passed, failed int, skipped []string) {
	running, said := "", map[string]string{} // the test that prints, and the last line that each logged
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if name, ok := cutAny(line, "=== RUN ", "=== NAME ", "=== CONT "); ok {
			running = strings.TrimSpace(name)
			continue
		}
		verdict, rest, ok := strings.Cut(strings.TrimPrefix(line, "--- "), ": ")
		if !ok {
			continue
		}
		if !strings.HasPrefix(line, "--- ") {
			if strings.Contains(verdict, ".go:") {
				said[running] = rest
			}
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		switch verdict {
		case "PASS":
			passed++
		case "FAIL":
			failed++
		case "SKIP":
			skipped = append(skipped, name+": "+cmp.Or(said[name], "it gave no reason"))
		}
	}
	return passed, failed, skipped
}

func cutAny(s string, prefixes ...string) (rest string, ok bool) {
	for _, p := range prefixes {
		if rest, ok = strings.CutPrefix(s, p); ok {
			break
		}
	}
	return rest, ok
}

func TestMain(m *testing.M) {
	began := time.Now()
	code := m.Run()
	if os.Getenv("EVENKEEL_MACHINES") == "1" {
		fmt.Println()
		for _, line := range tally.lines {
			fmt.Println("machines:", line)
		}
		for _, line := range tally.left {
			fmt.Println("machines: not checked:", line)
		}
		if only := flag.Lookup("test.run").Value.String(); only != "" {
			fmt.Printf("machines: only what %s names was run; make test-machines runs all\n", only)
		}
		fmt.Printf("machines: the emulator lost %d of %d machines, whose tests were repeated at most %d times; all took %.0f s of CPU time\n", tally.lost, tally.machines, attempts-1, tally.cpu.Seconds())
		fmt.Printf("machines: %d checks passed, %d failed, %d left out, in %s\n", tally.passed, tally.failed, len(tally.left), time.Since(began).Round(time.Second))
	}
	os.Exit(code)
}
