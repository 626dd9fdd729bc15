package replay

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/sim/workload"
)

func morpheus() *Morpheus {
	return &Morpheus{Label: "morpheus", Miss: 0.2, Options: reservation.DefaultOptions(), Extra: reservation.DefaultReprovisioning()}
}

// nightly are jobs of an hour that use a part of 8 cores and 32 GB, submitted at two and due at four, and VMs of 4 cores and 16 GB that come before them and
// stay for five hours. Runs use factor times what those before did.
func nightly(jobs, vms, days int, part, factor float64) *workload.Workload {
	w := &workload.Workload{Patterns: []workload.Pattern{{float32(min(1, part*factor))}, {0.1}}}
	use := func(pattern int32) workload.Use { return workload.Use{Pattern: pattern, Step: 300} }
	past := workload.PastRun{CPU: slices.Repeat([]float64{part}, 12), Memory: slices.Repeat([]float64{part}, 12)}
	for j := range jobs {
		w.Periodic = append(w.Periodic, workload.Periodic{Period: 86400, Begin: 7200, Window: 7200, Of: int32(j), Past: slices.Repeat([]workload.PastRun{past}, 9)})
	}
	add := func(a workload.App, cpu, memory float64, pattern int32) {
		a.First, a.Groups = int32(len(w.Groups)), 1
		w.Groups = append(w.Groups, workload.Group{Count: 1, CPU: cpu, Memory: memory, CPUUse: use(pattern), MemoryUse: use(pattern)})
		w.Apps = append(w.Apps, a)
	}
	for d := range days {
		at := float64(d) * 86400
		for range vms {
			add(workload.App{Arrival: at, Work: 5 * 3600}, 4, 16e9, 1)
		}
		for j := range jobs {
			add(workload.App{Arrival: at + 7200, Work: 3600, Due: at + 4*3600, Job: int32(j + 1)}, 8, 32e9, 0)
		}
	}
	w.Sort()
	return w
}

// VMs that came before the runs and outlast their windows leave them no host under reservation; the agenda has kept the hosts that they need.
func TestMorpheusKeepsDeadlines(t *testing.T) {
	w := nightly(3, 30, 2, 0.5, 1)
	hosts := slices.Repeat([]Host{{16, 64e9}}, 2)
	o := Options{Until: 2 * 86400}
	plain, err := Run(w, hosts, &Reservation{}, o)
	if err != nil {
		t.Fatal(err)
	}
	p := morpheus()
	r, err := Run(w, hosts, p, o)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Deadlines.Runs != 6 || plain.Deadlines.Missed != 6 {
		t.Errorf("under reservation %d of %d deadlines were missed, not all", plain.Deadlines.Missed, plain.Deadlines.Runs)
	}
	if r.Deadlines.Runs != 6 || r.Deadlines.Missed != 0 || r.Agenda == nil || r.Agenda.Jobs != 3 || r.Agenda.Declared+r.Agenda.Refused != 0 {
		t.Errorf("%+v, %+v", r.Deadlines, r.Agenda)
	}
	if math.Abs(r.Agenda.Cores-12) > 1e-6 || math.Abs(r.Agenda.Asked-24) > 1e-6 {
		t.Errorf("%v core-hours are reserved, %v asked for: half of each job's", r.Agenda.Cores, r.Agenda.Asked)
	}
	for i, a := range w.Apps {
		if a.Job > 0 && (r.PerApp[i].Start < a.Arrival || r.PerApp[i].End > a.Due) {
			t.Errorf("run %d submitted at %v was from %v to %v", i, a.Arrival, r.PerApp[i].Start, r.PerApp[i].End)
		}
		if a.Job == 0 {
			continue
		}
		if late := float64(p.slots[a.Job-1].Slot.Start) * workload.PastStep; r.PerApp[i].Start != a.Arrival+late {
			t.Errorf("run %d began at %v, not %v s after it was submitted", i, r.PerApp[i].Start, late)
		}
	}
	// On the first day it is not known how long VMs live, and some are started where runs begin before they end; on the second none is.
	one := morpheus()
	if _, err := Run(nightly(3, 30, 1, 0.5, 1), hosts, one, Options{Until: 86400}); err != nil {
		t.Fatal(err)
	}
	if one.report.Crowded == 0 || p.report.Crowded != one.report.Crowded {
		t.Errorf("reservations left the others too little for %d host-minutes in one day, %d in two", one.report.Crowded, p.report.Crowded)
	}
}

// A run that needs three times what runs did gets more each minute, as far as there is room, and more of what it needs than without.
func TestMorpheusReprovisions(t *testing.T) {
	w := nightly(1, 8, 1, 0.2, 3)
	hosts := []Host{{16, 64e9}}
	for i := range w.Groups { // VMs that want all of their CPU
		if w.Apps[i].Job == 0 {
			w.Groups[i].CPUUse = workload.Use{Pattern: int32(len(w.Patterns)), Step: 300}
		}
	}
	w.Patterns = append(w.Patterns, workload.Pattern{1})
	ends := map[bool]float64{}
	for _, with := range []bool{true, false} {
		p := morpheus()
		if !with {
			p.Extra.MaxShare = 0
		}
		r, err := Run(w, hosts, p, Options{Until: 86400})
		if err != nil {
			t.Fatal(err)
		}
		if (r.Agenda.Granted > 0) != with || r.Agenda.Denied == 0 && !with {
			t.Errorf("with re-provisioning %v: %+v", with, r.Agenda)
		}
		for i, a := range w.Apps {
			if a.Job > 0 {
				ends[with] = r.PerApp[i].End - r.PerApp[i].Start
			}
		}
	}
	if !(ends[true] > 3600 && ends[true] < ends[false]) {
		t.Errorf("it took %v s with re-provisioning and %v s without", ends[true], ends[false])
	}
}

// Jobs of which nothing can be learned have what they declared; those that do not fit the agenda wait as others do.
func TestMorpheusFallsBack(t *testing.T) {
	w := nightly(3, 1, 1, 0.5, 1)
	w.Periodic[0].Past = w.Periodic[0].Past[:3]
	w.Periodic[1].Past = nil
	w.Periodic[2].Past = slices.Repeat([]workload.PastRun{{CPU: slices.Repeat([]float64{1}, 25), Memory: slices.Repeat([]float64{1}, 25)}}, 9) // longer than its window
	r, err := Run(w, []Host{{16, 64e9}}, morpheus(), Options{Until: 86400})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Agenda; a.Jobs != 3 || a.Declared != 1 || a.Refused != 2 || r.Unfinished != 0 {
		t.Errorf("%+v, %d unfinished", a, r.Unfinished)
	}
}

// checkedMorpheus checks at each tick that hosts allocate no more than they have, and that the agenda's rows come back to what is planned.
type checkedMorpheus struct {
	*Morpheus
	t *testing.T
}

func (p *checkedMorpheus) Schedule(c *Cluster) {
	p.Morpheus.Schedule(c)
	for h := range c.Hosts {
		if c.AllocatedCPU[h] > c.Hosts[h].CPU*(1+1e-6) || c.AllocatedMemory[h] > c.Hosts[h].Memory*(1+1e-6) {
			p.t.Fatalf("at %v host %d allocates %v cores and %v bytes", c.Now, h, c.AllocatedCPU[h], c.AllocatedMemory[h])
		}
		extra := 0.0
		for s := c.FirstOn(int32(h)); s >= 0; s = c.NextOn(s) {
			if r := p.run(c.App[s]); r != nil {
				extra += r.extra[reservation.Cores]
			}
		}
		if extra > p.Extra.MaxShare*c.Hosts[h].CPU*(1+1e-9) {
			p.t.Fatalf("at %v host %d gives %v cores beyond what is reserved", c.Now, h, extra)
		}
		for k, a := range p.ahead[h] {
			for r := range a[:reservation.VMs] {
				if full := p.planned[h][k][r]; a[r] < -1e-6*full || a[r] > full*(1+1e-6) {
					p.t.Fatalf("at %v step %d of host %d has %v of %v ahead", c.Now, k, h, a[r], full)
				}
			}
		}
	}
}

func TestMorpheusAllocatesWhatThereIs(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := nightly(1+rng.IntN(6), rng.IntN(40), 3, 0.05+0.8*rng.Float64(), 0.3+4*rng.Float64())
		for i := range w.Apps {
			if w.Apps[i].Job == 0 {
				w.Apps[i].Work = 3600 * 10 * rng.ExpFloat64()
			}
		}
		hosts := slices.Repeat([]Host{{16, 64e9}}, 1+rng.IntN(3))
		var texts []string
		for range 2 {
			r, err := Run(w, hosts, &checkedMorpheus{morpheus(), t}, Options{Until: 3 * 86400})
			if err != nil {
				t.Fatal(err)
			}
			b, _ := json.Marshal(r)
			texts = append(texts, string(b))
		}
		if texts[0] != texts[1] {
			t.Fatal("the same again is not the same")
		}
	}
}
