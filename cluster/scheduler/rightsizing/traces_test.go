package rightsizing_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// How often recorded VMs would be short of memory, and what is distributed of it: ten of them on a host, minute by minute, each foreseen to use what it uses
// now, with the deviation of its changes in the past two hours. EVENKEEL_BITBRAINS names a directory with traces of GWA-T-12, "Rnd".
func TestShortOnTraces(t *testing.T) {
	dir := os.Getenv("EVENKEEL_BITBRAINS")
	if dir == "" {
		t.Skip("set EVENKEEL_BITBRAINS to a directory with traces")
	}
	const vms, hosts, days, memory = 10, 6, 10, 700 << 20
	traces := memoryTraces(t, dir, vms*hosts, days*288)
	looks, short, spells, surplus := 0, 0, 0, 0.0
	for h := range hosts {
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
		c.AddVC("a", state.NeedsEstimated, "core", vms, scheduling.Resources(0.1, memory), scheduling.Resources(0.05, memory/2))
		was := make([]bool, vms)
		for minute := range days * 1440 {
			for i := range vms {
				trace, at := traces[h*vms+i], minute/5
				name := fmt.Sprintf("a-g0-%d", i)
				use := int64(trace[at] * memory)
				sum, n := 0.0, 0
				for k := max(1, at-24); k <= at; k++ {
					d := (trace[k] - trace[k-1]) * memory
					sum, n = sum+d*d, n+1
				}
				deviation := math.Sqrt(sum / float64(max(1, n)))
				c.Use[name] = scheduling.Resources(0.05, use)
				c.Odd[name] = func(see *rightsizing.VMObservation) {
					for k := range see.Memory.Deviation {
						see.Memory.Deviation[k] = deviation
					}
				}
			}
			out := c.Minute()
			if minute < 1440 { // a day to begin with
				continue
			}
			looks += vms
			for i := range out.VMs {
				v := &out.VMs[i]
				if v.UnderPressure {
					short++
					if !was[i] {
						spells++
					}
				}
				was[i] = v.UnderPressure
				surplus += float64(v.Memory-v.Target) / float64(v.Memory)
			}
		}
	}
	t.Logf("of %d VM-minutes %d short of memory, in %d spells; %.1f%% of the memory is surplus given to others", looks, short, spells, 100*surplus/float64(looks))
}

// memoryTraces of the first n VMs that were in use all the time: shares of their memory, in steps of five minutes.
func memoryTraces(t *testing.T, dir string, n, steps int) (out [][]float64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(files)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		in := csv.NewReader(f)
		in.Comma, in.TrimLeadingSpace, in.FieldsPerRecord = ';', true, -1
		rows, err := in.ReadAll()
		_ = f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var trace []float64
		for _, row := range rows[1:] {
			has, _ := strconv.ParseFloat(strings.TrimSpace(row[5]), 64)
			used, err := strconv.ParseFloat(strings.TrimSpace(row[6]), 64)
			if err != nil || has <= 0 {
				break
			}
			trace = append(trace, min(1, used/has))
		}
		if len(trace) >= steps {
			out = append(out, trace)
		}
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("%d of %d files in %s have %d steps of VMs in use", len(out), len(files), dir, steps)
	return nil
}
