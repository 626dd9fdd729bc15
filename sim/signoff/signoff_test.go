package signoff

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/forecast/periodic"
)

// nightly are runs of a job that begins at two on the clock of a zone, takes so many cores for four steps of five minutes, and is due an hour later.
func nightly(name string, n int, cores, bytes float64, zone *time.Location) (runs []periodic.Recorded) {
	for i := range n {
		at := time.Date(2026, 3, 1+i, 2, 30, 0, 0, zone)
		runs = append(runs, periodic.Recorded{Run: periodic.Run{Name: fmt.Sprintf("%s-%d", name, i), Begin: at, End: at.Add(20 * time.Minute)}, Deadline: time.Hour, Count: 1,
			CPU: 2 * cores, Memory: 2 * bytes, Step: 300, Usage: slices.Repeat([]float64{cores}, 4), MemoryUsage: slices.Repeat([]float64{bytes}, 4)})
	}
	return runs
}

func options() Options { return Options{Zone: time.UTC, Miss: 0.1, MinYield: 1} }

func play(t *testing.T, runs []periodic.Recorded, hosts []Host, residents []Resident, o Options) *Report {
	t.Helper()
	r, err := Play(runs, hosts, residents, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A run that needs more than those before is in time where its host has room, of which grants have a quarter at most, and late where not.
func TestLateRunsGetRoom(t *testing.T) {
	late := func(factor float64) []periodic.Recorded {
		runs := nightly("render", 14, 4, gib, time.UTC)
		for k := range runs[13].Usage {
			runs[13].Usage[k] *= factor
		}
		runs[13].End = runs[13].End.Add(time.Hour) // as it was, it waited
		return runs
	}
	for _, c := range []struct {
		factor, cores float64 // of the host
		missed        int
		granted       bool
	}{{1, 4.2, 0, false}, {2, 16, 0, true}, {1.4, 4.2, 0, true}, {2, 4.2, 1, true}} {
		j := play(t, late(c.factor), []Host{{"h1", c.cores, 16 * gib}}, nil, options()).Jobs[0]
		if j.Played != 4 || j.MissedBefore != 1 || j.MissedAfter != c.missed || (j.GrantedCoreHours > 0) != c.granted || j.Short != 0 {
			t.Errorf("%+v: %+v", c, j)
		}
	}
}

// A run that needs more memory than its host has misses.
func TestShortMemory(t *testing.T) {
	runs := nightly("render", 14, 4, gib, time.UTC)
	for k := range runs[12].MemoryUsage {
		runs[12].MemoryUsage[k] = 2 * gib
	}
	for memory, want := range map[float64]int{1.5: 1, 8: 0} {
		j := play(t, runs, []Host{{"h1", 16, memory * gib}}, nil, options()).Jobs[0]
		if j.Short != want || j.MissedAfter != want || j.GrantedGiBHours == 0 {
			t.Errorf("%v GiB: %+v", memory, j)
		}
	}
}

// Runs keep their slots when the clock is put forward, and none is late for it.
func TestOverTheChangeOfTheClock(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Zone = zone
	r := play(t, append(nightly("render", 40, 4, gib, zone), nightly("index", 40, 2, gib, zone)...), []Host{{"h1", 7, 16 * gib}}, nil, o)
	for _, j := range r.Jobs {
		if j.Slot == nil || j.Learned != 28 || j.Played != 12 || j.MissedAfter != 0 || j.GrantedCoreHours > 1e-9 {
			t.Errorf("%+v", j)
		}
	}
}

// No host has more than it is: slots in each step, residents beside, lie within it; and each slot within its window.
func TestSlotsFitTheHosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []periodic.Recorded
		jobs := rapid.IntRange(1, 6).Draw(t, "jobs")
		for j := range jobs {
			cores := rapid.Float64Range(0.5, 9).Draw(t, "cores")
			runs = append(runs, nightly(string(rune('a'+j)), 12, cores, rapid.Float64Range(0.5, 12).Draw(t, "GiB")*gib, time.UTC)...)
		}
		hosts := []Host{{"h1", 10, 16 * gib}, {"h2", 8, 24 * gib}}
		residents := []Resident{{"r", 2, 1, 3 * gib}}
		o := options()
		o.MinYield = rapid.SampledFrom([]float64{1, 0.5}).Draw(t, "min yield")
		r, err := Play(runs, hosts, residents, o)
		if err != nil {
			t.Fatal(err)
		}
		cores, bytes := map[string][]float64{}, map[string][]float64{}
		for _, h := range hosts {
			cores[h.Name], bytes[h.Name] = make([]float64, 12), make([]float64, 12)
		}
		for _, j := range r.Jobs {
			if (j.Slot == nil) != (j.Refusal != nil) || j.Played != 3 {
				t.Fatalf("%+v", j)
			}
			if j.Slot == nil {
				if j.After != j.Before || j.MissedAfter != j.MissedBefore {
					t.Fatalf("without a slot it does not stay as it was: %+v", j)
				}
				continue
			}
			if j.Slot.Start < 0 || j.Slot.End > j.Deadline || j.MissedAfter != 0 {
				t.Fatalf("%+v", j)
			}
			for k := range j.Slot.Cores {
				at := int(j.Slot.Start/r.Step) + k
				cores[j.Slot.Hosts[0]][at] += j.Slot.Cores[k]
				bytes[j.Slot.Hosts[0]][at] += j.Slot.Bytes[k]
			}
		}
		free := 0.0
		for _, h := range hosts {
			if c, m := slices.Max(cores[h.Name]), slices.Max(bytes[h.Name]); c > h.CPU*(1+1e-9) || m > h.Memory*(1+1e-9) {
				t.Fatalf("%s has %v cores and %v bytes reserved", h.Name, c, m)
			}
			free += h.CPU - slices.Max(cores[h.Name])
		}
		if free < 2-1e-9 {
			t.Fatalf("residents have %v cores of 2", free)
		}
	})
}

// What was tried and said to fit does.
func TestChangesFit(t *testing.T) {
	runs := nightly("render", 12, 4, gib, time.UTC)
	for i := range runs {
		runs[i].Deadline = 15 * time.Minute
	}
	hosts := []Host{{"h1", 8, 16 * gib}}
	j := play(t, runs, hosts, nil, options()).Jobs[0]
	if j.Refusal == nil || !slices.Equal(j.Refusal.Changes, []string{"a deadline of 20m0s, 5m0s later"}) {
		t.Fatalf("%+v", j.Refusal)
	}
	o := options()
	o.Deadlines = map[string]time.Duration{"render-#": 20 * time.Minute}
	if j := play(t, runs, hosts, nil, o).Jobs[0]; j.Slot == nil || j.Source != "operator" || j.MissedAfter != 0 {
		t.Errorf("%+v", j)
	}
}

func TestPlayRefuses(t *testing.T) {
	runs := nightly("render", 12, 4, gib, time.UTC)
	hosts := []Host{{"h1", 8, 16 * gib}}
	uneven := slices.Clone(runs)
	uneven[3].Step = 240
	for name, f := range map[string]func() (*Report, error){
		"no use":        func() (*Report, error) { return Play(nil, hosts, nil, options()) },
		"unequal steps": func() (*Report, error) { return Play(uneven, hosts, nil, options()) },
		"no such job": func() (*Report, error) {
			o := options()
			o.Deadlines = map[string]time.Duration{"x": time.Hour}
			return Play(runs, hosts, nil, o)
		},
		"residents too large": func() (*Report, error) { return Play(runs, hosts, []Resident{{"r", 1, 9, gib}}, options()) },
		"no chance":           func() (*Report, error) { return Play(runs, hosts, nil, Options{Zone: time.UTC, MinYield: 1}) },
	} {
		if r, err := f(); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
