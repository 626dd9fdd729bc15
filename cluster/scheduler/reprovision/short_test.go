package reprovision_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// The play of test/periodic in simulated time, ten times as slow and with a host of 4 cores instead of 1.4: what it is to show with real
// guests must come out here, with the boot of a guest (4 core-seconds there) as part of a run's work.
func TestLateRunsOfShortPeriods(t *testing.T) {
	const scale = 4 / 1.4
	offsets := []time.Duration{0, 5 * time.Minute, 15 * time.Minute, 20 * time.Minute}
	missedBy := map[float64][]string{}
	for _, share := range []float64{0.25, 0} {
		p := &play{Cluster: scheduling.NewCluster(t, "h1"), r: rand.New(rand.NewPCG(1, 3)), share: share, extras: map[string]state.Extras{}, todo: map[string]float64{},
			stalls: map[string]time.Time{}, ends: map[string]time.Time{}, tick: 100 * time.Second, cores: 4, vms: 1}
		set := state.DefaultSettings()
		set.Periodic.Reprovision = share
		m, _ := p.Snapshot().Meta()
		p.Must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
		begin := p.Now().Truncate(30 * time.Minute).Add(time.Hour)
		run := func(name string, j int) {
			vc := scheduling.VC(name, 0.4, scheduling.Group(1, 1, gib/16))
			vc.Periodic.Name = fmt.Sprintf("job%d", j)
			if a := p.Create(vc); a.Queued || a.Plan == nil {
				t.Errorf("%s: %s", name, a.Decision.Summary)
			}
		}
		for j, at := range offsets {
			run(fmt.Sprintf("job%d-0", j), j)
			p.Run()
			p.remove(fmt.Sprintf("job%d-0", j))
			p.Must(state.KindPeriodic, state.PeriodicPut{Job: fmt.Sprintf("job%d", j), Verb: "accept", SignOff: state.SignOff{State: state.SignedOff,
				Recurrence: "DTSTART;TZID=UTC:" + begin.Add(at).Format("20060102T150405") + "\nRRULE:FREQ=MINUTELY;INTERVAL=30", Lateness: 300, Due: 1600, Declared: true,
				Groups: []state.RunGroup{{Name: "g0", Count: 1, CPU: 1, Memory: gib / 16}}, MinYield: 0.4, Step: 300, Cores: []float64{1, 1}}})
		}
		for i := range 6 {
			p.Create(scheduling.VC(fmt.Sprintf("other%d", i), 0.15, scheduling.Group(1, 1, gib/16)))
		}
		p.decide()
		arrive := map[string]time.Time{}
		jobOf := map[string]int{}
		const n = 12
		for k := range n {
			for j, at := range offsets {
				name, when := fmt.Sprintf("job%d-%d", j, k+1), begin.Add(time.Duration(k)*30*time.Minute+at)
				jobOf[name], arrive[name] = j, when
				if k%2 == 1 && k/2%4 == j {
					arrive[name], p.stalls[name] = when.Add(250*time.Second), when.Add(650*time.Second)
				}
			}
		}
		for p.Now().Before(begin.Add((n + 1) * 30 * time.Minute)) {
			for name, at := range arrive {
				if !at.After(p.Now()) {
					delete(arrive, name)
					run(name, jobOf[name])
					p.todo[name] = 200 * scale
				}
			}
			p.minute()
		}
		met, missed := p.outcome()
		missed = slices.DeleteFunc(missed, func(m string) bool { return strings.Contains(m, "no run arrived") }) // those after the last period
		missedBy[share] = missed
		t.Logf("share %v: %d met, missed %v; grants up to %.2f cores", share, met, missed, p.peak)
		if met < n*4-n/2 {
			t.Errorf("share %v: %d runs met their deadlines", share, met)
		}
	}
	if len(missedBy[0.25]) > 0 || len(missedBy[0]) == 0 {
		t.Errorf("with grants %v missed, without %v", missedBy[0.25], missedBy[0])
	}
}
