package simulation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("seeds", seedsOf(os.Getenv("EVENKEEL_SEEDS")), "how many random runs; EVENKEEL_SEEDS says the same")
	first   = flag.Uint64("first", 1, "seed of the first one")
	crowd   = flag.Bool("moves", false, "with many moves in every run, not in one of four")
	squeeze = flag.Bool("rightsized", false, "with rightsized VMs in every run, not in one of four")
	packed  = flag.Int("crowded", 12, "how many runs of TestCrowded, from seed -first on")
	regular = flag.Bool("periodic", false, "with periodic work in every run, not in one of three")
	verbose = flag.Bool("verbose", false, "print what happens, and what members log")
)

// seedsOf reads how many random runs the environment asks for. Unless it does, what is mixed by the remainder of the seed, by 3, 4 and 5,
// meets once in each way.
func seedsOf(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return 3 * 4 * 5
}

// TestMain lets garbage grow to four times what is in use, some 100 MB: a sixth less CPU than with as much as is in use.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// long is how long trouble is made in a random run.
const long = 150 * time.Second

func random(seed uint64) options {
	o := defaults(seed)
	o.verbose = *verbose
	if seed%3 == 0 { // what VMs need together is more than some hosts have
		o.needs = 3
	}
	if *squeeze || seed%4 == 1 {
		squeezed(&o)
	}
	randomScript(&o, long)
	someTenants(&o)
	if *regular || seed%3 == 1 { // beside whatever else is in the mix: its seeds have other residues
		somePeriodicWork(&o)
		if seed%2 == 1 {
			upgradeEach(&o)
		}
	}
	switch {
	case *crowd || seed%4 == 0:
		manyMoves(&o)
	case seed%4 == 2:
		manyPlans(&o)
	}
	return o
}

// Random runs: whatever happens, the safety rules hold, and the cluster is healthy again in the end.
func TestRandom(t *testing.T) { playSeeds(t, *seeds, random) }

// Random runs in which guests burst together on hosts that are full: VMs are evicted in most of them, and none where memory in use fitted.
func TestCrowded(t *testing.T) {
	total := playSeeds(t, *packed, func(seed uint64) options {
		o := defaults(seed)
		o.verbose = *verbose
		crowded(&o)
		return o
	})
	if n := total["runs"]; total["runs with evictions judged"]*2 <= n && n >= 8 {
		t.Errorf("VMs were evicted in %d of %d runs: these show little", total["runs with evictions judged"], n)
	}
}

// playSeeds plays so many runs, and returns what was counted in all of them.
func playSeeds(t *testing.T, n int, make func(seed uint64) options) map[string]int {
	t.Helper()
	if testing.Short() {
		n = min(n, 4)
	}
	var mu sync.Mutex
	total := map[string]int{}
	began := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for i := range n {
			seed := *first + uint64(i)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				o := make(seed)
				r := play(t, o)
				mu.Lock()
				total["runs"]++
				if len(r.violations) > 0 {
					total["runs with violations"]++
				}
				if r.counts["evictions judged"] > 0 {
					total["runs with evictions judged"]++
				}
				for k, n := range r.counts {
					total[k] += n
				}
				mu.Unlock()
				if len(r.violations) > 0 {
					report(t, o, r)
				}
			})
		}
	})
	t.Logf("in %s:\n%s", time.Since(began).Round(time.Second), stats(total))
	return total
}

// Scenarios: the expected result of each step.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := defaults(1)
			o.lose, o.repeat, o.slow, o.verbose = 0, 0, 0, *verbose
			if err := parseScript(string(text), &o); err != nil {
				t.Fatal(err)
			}
			if r := play(t, o); len(r.violations) > 0 {
				t.Errorf("%s\ntrace:\n%s", strings.Join(r.violations, "\n"), strings.Join(r.trace, "\n"))
			}
		})
	}
}
