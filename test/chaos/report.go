package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what became of a run. Many fields: each is one count or list of what a run found.
type Report struct {
	Seed       uint64
	Length     time.Duration
	Struck     map[string]int // faults by kind
	Drains     int
	Moves      map[string]int // migrations by state
	Acked      map[string]int // writes by kind of object
	Lost       []string
	Duplicates []string
	Needless   []string
	Needed     int // restarts after a host was lost
	Beats      []string
	Stuck      []string
	Broken     []string // other promises: the way out of damaged files, and refusals that have no reason
	Crashes    []string // of vcd within libvirt's library, which is not Evenkeel's
	Unsure     int      // histories that could not be checked in their time

	NoWrite, NoLeader     time.Duration
	NoWriteAt, NoLeaderAt time.Duration // since the beginning
	Looks                 int
	LooksGap              time.Duration
}

// Failed says whether a promise was broken.
func (r Report) Failed() bool {
	return len(r.Lost)+len(r.Duplicates)+len(r.Needless)+len(r.Beats)+len(r.Stuck)+len(r.Broken) > 0
}

func counts(of map[string]int) string {
	sum := 0
	var out []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		sum += of[k]
		out = append(out, fmt.Sprintf("%s %d", k, of[k]))
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(out, ", "))
}

// String is the table, and after it what was broken.
func (r Report) String() string {
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-44s %s\n", what, fmt.Sprintf(format, args...))
	}
	row("seed, time", "%d, %v", r.Seed, r.Length)
	row("faults", "%s", counts(r.Struck))
	row("drains; migrations", "%d; %s", r.Drains, counts(r.Moves))
	row("acknowledged writes", "%s", counts(r.Acked))
	row("  of them lost, or read wrong", "%d (histories that could not be checked: %d)", len(r.Lost), r.Unsure)
	row("VMs twice", "%d (%d looks at all processes, at most %v apart)", len(r.Duplicates)+len(r.Beats), r.Looks, r.LooksGap.Round(time.Millisecond))
	row("restarts without need", "%d (after a loss: %d)", len(r.Needless), r.Needed)
	row("longest time without an acknowledged write", "%.1f s, at %.0f s", r.NoWrite.Seconds(), r.NoWriteAt.Seconds())
	row("longest time without a leader", "%.1f s, at %.0f s", r.NoLeader.Seconds(), r.NoLeaderAt.Seconds())
	row("vcd crashed in libvirt's library", "%d", len(r.Crashes))
	row("stuck after peace", "%d", len(r.Stuck))
	row("other promises broken", "%d", len(r.Broken))
	for _, of := range []struct {
		what string
		all  []string
	}{{"lost", r.Lost}, {"twice", r.Duplicates}, {"beats", r.Beats}, {"needless restart", r.Needless}, {"stuck", r.Stuck}, {"broken", r.Broken}, {"crash", r.Crashes}} {
		for _, text := range of.all {
			fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(of.what), text)
		}
	}
	return b.String()
}

// Crashed finds the crashes in the output of a vcd. A panic of Go is a broken promise; a signal that arrived in C is a crash of
// the library that was called. Each is named by its first line and the calls that led to it.
func Crashed(output string) (panics, library []string) {
	lines := strings.Split(output, "\n")
	for n, line := range lines {
		if !strings.HasPrefix(line, "panic: ") && !strings.HasPrefix(line, "fatal error: ") && !strings.HasPrefix(line, "SIG") {
			continue
		}
		var calls []string
		inC := false
		for _, next := range lines[n:min(n+40, len(lines))] {
			inC = inC || next == "signal arrived during cgo execution"
			if call, _, ok := strings.Cut(next, "("); ok && len(calls) < 3 && strings.Contains(call, ".") && !strings.HasPrefix(call, "runtime.") && !strings.HasPrefix(next, "\t") && !strings.HasPrefix(next, "goroutine") {
				calls = append(calls, call)
			}
		}
		text := line + " in " + strings.Join(calls, " < ")
		if inC {
			library = append(library, text)
		} else {
			panics = append(panics, text)
		}
	}
	return panics, library
}
