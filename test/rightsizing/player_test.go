package rightsizing_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/test/patience"
)

// played is what a guest last said of itself, and what it said in all.
type played struct {
	step   int
	n      map[string]int64 // its figures, see test/guest/README.md
	ended  string           // why its workload is no more; "" = it is
	errors []string
}

// qos is the share of the steps in which the guest got what it wanted of CPU and memory.
func (p played) qos() float64 {
	if p.step < 0 {
		return 0
	}
	return 1 - float64(max(p.n["late"], p.n["missing"]))/float64(p.step+1)
}

func (p played) memoryQoS() float64 {
	if p.step < 0 {
		return 0
	}
	return 1 - float64(p.n["missing"])/float64(p.step+1)
}

func (p played) String() string {
	return fmt.Sprintf("step %d, late %d, missing %d, killed %d, swapped in %d and out %d pages, %d MiB of %d, %d MiB left, balloon %+d MiB%s", p.step, p.n["late"], p.n["missing"],
		p.n["killed"], p.n["swapin"], p.n["swapout"], p.n["held"], p.n["want"], p.n["avail_kb"]>>10, (p.n["balloon_in"]-p.n["balloon_out"])>>8, p.ended)
}

// take a line of a guest's console in.
func (p *played) take(line string) {
	fields := strings.Fields(line)
	switch {
	case len(fields) > 2 && fields[0] == "PLAY":
		step, err := strconv.Atoi(fields[1])
		if err != nil {
			return
		}
		n := map[string]int64{}
		for _, f := range fields[2:] {
			key, value, _ := strings.Cut(f, "=")
			if v, err := strconv.ParseInt(value, 10, 64); err == nil {
				n[key] = v
			}
		}
		if len(n) >= 15 { // a line that the console cut in two has fewer
			p.step, p.n = step, n
		}
	case strings.HasPrefix(line, "EVENKEEL-GUEST workload ended"):
		p.ended = ", " + line
	case strings.HasPrefix(line, "ERR "):
		p.errors = append(p.errors, line)
	}
}

// console follows the log of a guest's console.
type console struct {
	path string
	mu   sync.Mutex
	at   int
	now  played
}

func follow(path string) *console { return &console{path: path, now: played{step: -1}} }

// look reads what is new.
func (c *console) look(t testing.TB) played {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := os.ReadFile(c.path)
	if err != nil {
		return c.now // it is not there yet
	}
	for {
		i := strings.IndexByte(string(text[c.at:]), '\n')
		if i < 0 {
			return c.now
		}
		c.now.take(strings.TrimSpace(string(text[c.at : c.at+i])))
		c.at += i + 1
	}
}

// eventually looks until it is right.
func eventually(t testing.TB, within time.Duration, what string, right func() (bool, string)) {
	t.Helper()
	last := ""
	err := patience.Until(t.Context(), within, what, nil, func() (ok bool) { ok, last = right(); return ok })
	if err != nil {
		t.Fatalf("%v; %s", err, last)
	}
}

// The lines of a console are read correctly.
func TestPlayedLines(t *testing.T) {
	p := played{step: -1}
	for _, line := range []string{"SeaBIOS", "PLAY x cpu=1", "ERR ek.play=1 is not a setting",
		"PLAY 99 cpu=10 did=20 asked=20 held=20 want=20 late=1 missing=2 killed=0 swapin=3 swapout=4 faults=5 balloon_in=512 balloon_out=256 avail_kb=80608 swapfree_kb=65532",
		"PLAY 100 cpu=10 did=2"} {
		p.take(line)
	}
	if p.step != 99 || p.n["missing"] != 2 || p.qos() != 0.98 || p.memoryQoS() != 0.98 || len(p.errors) != 1 || !strings.Contains(p.String(), "balloon +1 MiB") {
		t.Errorf("%+v %s", p, p)
	}
}
