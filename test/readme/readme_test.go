// Package readme tests that the tours in README.md and in the first tutorial are
// true: it runs their commands and looks for the output that they show.
package readme

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/test/freeport"
	"evenkeel/test/patience"
)

// step is a command of the tour and the lines it is said to print.
type step struct {
	command string
	output  []string
}

// tour reads the commands and their output from a section of a page.
func tour(t *testing.T, path, heading string) []step {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	section, _, ended := strings.Cut(rest, "\n## ")
	if !found || !ended {
		t.Fatalf("%s has no section %s", path, heading)
	}
	var steps []step
	for line := range strings.Lines(section) {
		line, code := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !code {
			continue
		}
		if cmd, is := strings.CutPrefix(line, "$ "); is {
			steps = append(steps, step{command: cmd})
		} else if len(steps) > 0 {
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps
}

func TestTour(t *testing.T) {
	for _, page := range []struct{ path, heading, dir string }{
		{"README.md", "Five minutes", "/tmp/evenkeel-tour"},
		{"docs/tutorials/one-host.md", "With simulated hosts", "/tmp/evenkeel-hour"},
	} {
		t.Run(page.path, func(t *testing.T) { take(t, page.path, page.heading, page.dir) })
	}
}

// take the tour of a page, which keeps its data in dir.
func take(t *testing.T, page, heading, shown string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	steps := tour(t, filepath.Join(root, page), heading)
	if len(steps) < 10 {
		t.Fatalf("the tour has only %d commands", len(steps))
	}
	addr, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	// Another directory and port, so that the test disturbs no tour on this machine; all else word by word.
	dir := t.TempDir()
	adapt := strings.NewReplacer(shown, dir, "bin/vcd dev", "bin/vcd dev --listen "+addr, "127.0.0.1:7480", addr)

	bash := exec.Command("bash", "--norc")
	bash.Dir = root
	bash.Env = append(os.Environ(), "EVENKEEL_ADDRESS=https://"+addr)
	in, err := bash.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := bash.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	bash.Stderr = bash.Stdout
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bash.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	defer func() {
		_, _ = io.WriteString(in, "kill $(jobs -p) 2>/dev/null; wait; exit 0\n")
		// A step that is stuck keeps the shell from that line.
		stuck := time.AfterFunc(30*time.Second, func() {
			t.Error("the shell and what it started did not end within 30 s, and were killed")
			_ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL)
		})
		for range lines {
		}
		stuck.Stop()
		_ = bash.Wait()
	}()
	for i, s := range steps {
		end := fmt.Sprintf("end-of-step-%d", i)
		if _, err := fmt.Fprintf(in, "%s\necho %s\n", adapt.Replace(s.command), end); err != nil {
			t.Fatal(err)
		}
		expect(t, lines, s, adapt, end)
	}
}

// age is the last column of lists: how old things are differs from tour to tour.
var age = regexp.MustCompile(`  +([0-9]+[dhms])+$`)

// unaged is a line without what may differ at its end.
func unaged(line string) string { return age.ReplaceAllString(strings.TrimRight(line, " "), "  AGE") }

// expect the output of a step, in order; other lines (progress) may stand between.
// What runs in the background may print after the step's end.
func expect(t *testing.T, lines <-chan string, s step, adapt *strings.Replacer, end string) {
	t.Helper()
	var seen []string
	want := s.output
	background := strings.HasSuffix(s.command, "&")
	ended := false
	deadline := time.After(patience.Within(15 * time.Minute)) // make build may compile everything, with what CPU the labs leave
	for !ended || (background && len(want) > 0) {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatalf("$ %s\nthe shell ended; it printed\n%s", s.command, strings.Join(seen, "\n"))
			}
			if line == end {
				ended = true
				continue
			}
			seen = append(seen, line)
			if len(want) > 0 && unaged(line) == unaged(adapt.Replace(want[0])) {
				want = want[1:]
			}
		case <-deadline:
			t.Fatalf("$ %s\nnot done within the limit; it printed\n%s", s.command, strings.Join(seen, "\n"))
		}
	}
	if len(want) > 0 {
		t.Errorf("$ %s\ndid not print\n%s\nbut\n%s", s.command, want[0], strings.Join(seen, "\n"))
	}
}
