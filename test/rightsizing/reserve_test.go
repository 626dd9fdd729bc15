package rightsizing_test

import (
	"bufio"
	"cmp"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A host keeps free what the largest of its VMs can take back by itself, or a quarter of what all can. How often would several have taken more within
// one step of five minutes, before the agent acts, on hosts with VMs drawn from the recorded ones? Forecasts are left out: each VM has what it uses
// and a fourth of that, or the fourth of its memory that it may count on.
func TestReserveOnTraces(t *testing.T) {
	dir := os.Getenv("EVENKEEL_BITBRAINS")
	if dir == "" {
		t.Skip("set EVENKEEL_BITBRAINS to a directory with traces")
	}
	const hosts, floor, slack = 300, 0.25, 1.25
	shares := recordedMemory(t, dir)
	if len(shares) < 40 {
		t.Skipf("%d VMs were recorded for long enough; 40 are needed", len(shares))
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{4, 10, 30} {
		steps, takes := 0, 0
		var over [5]int // more than the largest, the two, the three largest, the largest or an eighth, or a fourth of all
		for range hosts {
			on := r.Perm(len(shares))[:n]
			free := make([]float64, n)
			for step := range len(shares[0]) - 1 {
				all, took := 0.0, 0.0
				for i, vm := range on {
					has := math.Max(floor, math.Min(1, slack*shares[vm][step]))
					free[i] = 1 - has
					all += free[i]
					took += math.Max(0, shares[vm][step+1]-has)
				}
				if math.IsNaN(all + took) { // one of them was off
					continue
				}
				steps++
				if took == 0 {
					continue
				}
				takes++
				slices.SortFunc(free, func(a, b float64) int { return cmp.Compare(b, a) })
				for k, reserve := range [...]float64{free[0], free[0] + free[1], free[0] + free[1] + free[2], math.Max(free[0], all/8), math.Max(free[0], all/4)} {
					if took > reserve+1e-9 {
						over[k]++
					}
				}
			}
		}
		share := func(k int) float64 { return 1e6 * float64(over[k]) / float64(steps) }
		t.Logf("hosts with %d VMs of equal size, %d steps: in %.2f%% a VM takes memory back; of a million steps more than the largest has given in %.0f, the two largest in %.1f, the three largest in %.1f; "+
			"more than the largest or an eighth of all that was given in %.1f, than the largest or a fourth in %.1f", n, steps, 100*float64(takes)/float64(steps), share(0), share(1), share(2), share(3), share(4))
		if share(4) > 200 || over[1] > over[0] || over[2] > over[1] || over[4] > over[3] || over[3] > over[0] {
			t.Errorf("%d VMs: in %v steps of %d: a reserve for the largest or a quarter of all is not what hosts of this kind need", n, over, steps)
		}
	}
}

// recordedMemory is, for each trace that covers nine tenths of the time that any covers, which share of its memory the VM used in each step of five minutes; NaN
// where it was off.
func recordedMemory(t *testing.T, dir string) [][]float64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var all []map[int64]float64
	first, last := int64(math.MaxInt64), int64(0)
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		one := map[int64]float64{}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			row := strings.Split(lines.Text(), ";")
			if len(row) < 7 {
				continue
			}
			at, err := strconv.ParseInt(strings.TrimSpace(row[0]), 10, 64)
			has, err2 := strconv.ParseFloat(strings.TrimSpace(row[5]), 64)
			used, err3 := strconv.ParseFloat(strings.TrimSpace(row[6]), 64)
			if err != nil || err2 != nil || err3 != nil || has <= 0 { // the header, or it is off
				continue
			}
			one[at/300] = math.Min(1, used/has)
			first, last = min(first, at/300), max(last, at/300)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	var out [][]float64
	for _, one := range all {
		if int64(len(one)) < (last-first+1)*9/10 {
			continue
		}
		row := make([]float64, last-first+1)
		for i := range row {
			row[i] = math.NaN()
			if v, is := one[first+int64(i)]; is {
				row[i] = v
			}
		}
		out = append(out, row)
	}
	return out
}
