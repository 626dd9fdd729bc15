package rightsizing_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pattern is what a guest wants, step after step: CPU in percent of what it declared, memory in MiB beside what its kernel takes.
type pattern struct {
	cpu, mib []int
}

// setting is the pattern as the guest reads it, in steps of that long.
func (p pattern) setting(step time.Duration, units int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ek.units=%d ek.play=%d", units, step.Milliseconds())
	for i := range p.cpu {
		sep := ","
		if i == 0 {
			sep = ":"
		}
		fmt.Fprintf(&b, "%s%d/%d", sep, p.cpu[i], p.mib[i])
	}
	return b.String()
}

// bitbrains makes a pattern of so many steps in the style of the VMs of GWA-T-12 (Shen, van Beek, Iosup 2015): of the CPU that they
// ask for most use a tenth or so, with bursts; memory stays about a level that is a small part of what they have, drifts slowly, and
// now and then jumps to another level for a while. Memory lies between least and most.
func bitbrains(seed uint64, steps, lowest, limit int) pattern {
	r := rand.New(rand.NewPCG(seed, 0x5ba9))
	p := pattern{}
	base := 4 + 8*r.Float64() // percent
	level := float64(lowest) + float64(limit-lowest)*(0.1+0.25*r.Float64())
	drift, burst, jump := 0.0, 0, 0
	above := 0.0
	for i := range steps {
		if burst > 0 {
			burst--
		} else if r.Float64() < 0.04 {
			burst = 1 + r.IntN(4)
		}
		cpu := base * math.Exp(0.3*r.NormFloat64())
		if burst > 0 {
			cpu += 25 + 20*r.Float64()
		}
		switch {
		case jump > 0:
			if jump--; jump == 0 {
				above = 0
			}
		case r.Float64() < 0.004:
			jump, above = 8+r.IntN(12), float64(limit-lowest)*(0.15+0.2*r.Float64())
		}
		drift = 0.97*drift + 0.006*float64(limit-lowest)*r.NormFloat64()
		day := 0.03 * float64(limit-lowest) * math.Sin(2*math.Pi*float64(i)/float64(steps))
		p.cpu = append(p.cpu, int(math.Round(min(90, max(1, cpu)))))
		p.mib = append(p.mib, int(math.Round(min(float64(limit), max(float64(lowest), level+drift+day+above)))))
	}
	return p
}

// patterns for n guests: recorded ones where there are some, else made up. A pattern is short enough for a kernel's command line.
func patterns(t *testing.T, n, steps, lowest, limit int) []pattern {
	t.Helper()
	dir := os.Getenv("EVENKEEL_BITBRAINS")
	if dir == "" {
		var out []pattern
		for i := range n {
			out = append(out, bitbrains(uint64(1+i), steps, lowest, limit))
		}
		return out
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("EVENKEEL_BITBRAINS: no CSV files in %s (%v)", dir, err)
	}
	sort.Strings(files)
	var out []pattern
	for _, file := range files {
		if p, ok := recorded(t, file, steps, lowest, limit); ok {
			out = append(out, p)
		}
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("EVENKEEL_BITBRAINS: %d of %d files in %s are of VMs that are in use", len(out), n, dir)
	return nil
}

// recorded is the first part of a trace: columns 5 (CPU, percent), 6 (memory it has, KB) and 7 (memory in use, KB).
func recorded(t *testing.T, file string, steps, lowest, limit int) (p pattern, ok bool) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	r := csv.NewReader(f)
	r.Comma, r.TrimLeadingSpace, r.FieldsPerRecord = ';', true, -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, row := range rows[min(1, len(rows)):] {
		if len(p.cpu) == steps {
			break
		}
		var v [3]float64
		for i := range v {
			if 4+i >= len(row) {
				return p, false
			}
			if v[i], err = strconv.ParseFloat(strings.TrimSpace(row[4+i]), 64); err != nil {
				return p, false
			}
		}
		if v[1] <= 0 {
			return p, false
		}
		p.cpu = append(p.cpu, int(math.Round(min(90, max(1, v[0])))))
		p.mib = append(p.mib, lowest+int(math.Round(float64(limit-lowest)*min(1, v[2]/v[1]))))
	}
	return p, len(p.cpu) == steps
}

// A pattern has the promised properties: small beside what is declared, with bursts, the same for the same seed.
func TestPatterns(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		p, again := bitbrains(seed, 120, 10, 150), bitbrains(seed, 120, 10, 150)
		if p.setting(time.Second, 9) != again.setting(time.Second, 9) || len(p.setting(time.Second, 900)) > 1500 {
			t.Fatalf("seed %d: %s", seed, p.setting(time.Second, 9))
		}
		sum, peak := 0, 0
		for i := range p.mib {
			if p.mib[i] < 10 || p.mib[i] > 150 || p.cpu[i] < 1 || p.cpu[i] > 90 {
				t.Fatalf("seed %d, step %d: %d%%, %d MiB", seed, i, p.cpu[i], p.mib[i])
			}
			sum, peak = sum+p.mib[i], max(peak, p.mib[i])
		}
		if mean := sum / len(p.mib); mean > 90 || mean < 15 {
			t.Errorf("seed %d: %d MiB on average", seed, mean)
		}
	}
}
