package workload

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"evenkeel/sim/trace"
)

// tenDays are VMs of which ten days were recorded. Day d uses d+1 percent of CPU and 10 times so much of memory; the last VM lacks most of a day.
func tenDays(vms int) (out []trace.Series) {
	for v := range vms {
		for _, of := range []trace.Resource{trace.CPU, trace.Memory} {
			s := trace.Series{Set: string(trace.Google2011), VM: fmt.Sprint("vm", v), Resource: of, Step: 5 * time.Minute, Start: time.Date(2011, 5, 1, 0, 0, 0, 0, time.UTC), Limit: math.NaN()}
			for i := range 10 * 288 {
				x := float64(i/288 + 1)
				if of == trace.Memory {
					x *= 10
				}
				if v == vms-1 && i/288 == 4 && i%288 > 100 {
					x = math.NaN()
				}
				s.Values = append(s.Values, x)
			}
			out = append(out, s)
		}
	}
	return out
}

func TestRecurrent(t *testing.T) {
	cut := Cut{Hosts: []Room{{32, 128e9}, {32, 128e9}}, Load: 1.5, Seed: 3}
	w, end, notes, err := Recurrent(tenDays(4), Recurring{0.4}, cut)
	if err != nil {
		t.Fatal(err)
	}
	again, _, _, _ := Recurrent(tenDays(4), Recurring{0.4}, cut)
	if !reflect.DeepEqual(w, again) {
		t.Error("the same again is not the same")
	}
	runs := make([]int, len(w.Periodic))
	cpu, memory, others := 0.0, 0.0, 0
	for i, a := range w.Apps {
		if a.Job == 0 {
			others++
			if a.Due != 0 {
				t.Errorf("application %d is of no job and due at %v", i, a.Due)
			}
			continue
		}
		j := w.Periodic[a.Job-1]
		k := runs[a.Job-1]
		runs[a.Job-1]++
		g := w.Of(i)[0]
		cpu, memory = cpu+g.CPU*a.Work/(2*day*64), memory+g.Memory*a.Work/(2*day*256e9)
		if math.Mod(j.Begin, 3600) != 0 || a.Arrival != float64(k)*day+j.Begin || a.Due != a.Arrival+j.Window || a.Due > end {
			t.Errorf("application %d: from %v to %v, of %+v, the end is at %v", i, a.Arrival, a.Due, j, end)
		}
		if j.Window < playedIn*(1+minSlack) || j.Window > playedIn*(1+maxSlack)+PastStep || math.Mod(j.Window, PastStep) != 0 {
			t.Errorf("application %d has a window of %v s", i, j.Window)
		}
		// The days after the eight that are learned from, each its own.
		if got := w.Patterns[g.CPUUse.Pattern][7]; got != float32(0.09)+float32(k)*0.01 || g.CPUUse.Step != 60 || g.CPUUse.Offset != 0 {
			t.Errorf("run %d uses %v, %+v", k, got, g.CPUUse)
		}
	}
	for j, n := range runs {
		if n != 2 || len(w.Periodic[j].Past) != 8 || w.Periodic[j].Of == 3 {
			t.Errorf("job %d of VM %d: %d runs, %d before: a VM with nine whole days is left out", j, w.Periodic[j].Of, n, len(w.Periodic[j].Past))
		}
	}
	if load := max(cpu, memory); load < 0.6 || load > 0.75 || others == 0 {
		t.Errorf("jobs are a load of %.2f, beside %d others (%v)", load, others, notes)
	}
	p := w.Periodic[0].Past[4]
	if len(p.CPU) != 58 || math.Abs(p.CPU[3]-0.05) > 1e-6 || math.Abs(p.CPU[57]-0.05*0.6) > 1e-6 || math.Abs(p.Memory[57]-0.5) > 1e-6 {
		t.Errorf("%d steps, %v and %v of CPU, %v of memory: five days in a step's mean and peak", len(p.CPU), p.CPU[3], p.CPU[57], p.Memory[57])
	}
}

func TestRecurrentRefuses(t *testing.T) {
	hosts := []Room{{32, 128e9}}
	short := tenDays(2)
	for i := range short {
		short[i].Values = short[i].Values[:8*288]
	}
	for name, c := range map[string]struct {
		series []trace.Series
		part   float64
		cut    Cut
	}{
		"eight days":     {short, 0.5, Cut{Hosts: hosts, Load: 1}},
		"no load":        {tenDays(2), 0.5, Cut{Hosts: hosts}},
		"all periodic":   {tenDays(2), 1, Cut{Hosts: hosts, Load: 1}},
		"half a day":     {tenDays(2), 0.5, Cut{Hosts: hosts, Load: 1, Span: day / 2}},
		"tiny hosts":     {tenDays(2), 0.5, Cut{Hosts: []Room{{0.5, 1e9}}, Load: 1}},
		"from the third": {tenDays(2), 0.5, Cut{Hosts: hosts, Load: 1, From: 2 * day}},
	} {
		if w, _, _, err := Recurrent(c.series, Recurring{c.part}, c.cut); err == nil {
			t.Errorf("%s: %d applications", name, len(w.Apps))
		}
	}
}

// A series that begins at noon has its first midnight half a day later.
func TestUntilMidnight(t *testing.T) {
	for _, c := range []struct {
		start time.Time
		want  int
	}{{time.Time{}, 0}, {time.Date(2013, 7, 1, 0, 0, 0, 0, time.UTC), 0}, {time.Date(2013, 7, 1, 12, 0, 0, 0, time.UTC), 144}, {time.Date(2013, 7, 1, 23, 58, 0, 0, time.UTC), 1}} {
		if got := untilMidnight(c.start, 300); got != c.want {
			t.Errorf("%v: %d steps, not %d", c.start, got, c.want)
		}
	}
}
