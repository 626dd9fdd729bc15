package morpheus

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"evenkeel/sim/workload"
)

// RecordedFigureNames are those that a study of recorded days has.
var RecordedFigureNames = []string{"9b", "9c", "9d", "10a", "10b", "causes"}

// perCore is how many containers a core of a record is: reservations of VMs are not in whole cores.
const perCore = 10

// NewRecordedStudy takes the periodic jobs of a recurring workload (workload.Recurrent), the first o.Jobs of them: days of recorded VMs, of which the
// first are learned from, and the others played. Use is CPU, and users' provisioning is what the VMs ask for. Deadlines are the workload's, and inputs are there in time.
func NewRecordedStudy(o Options, w *workload.Workload) (*Study, error) {
	s := &Study{Options: o, fits: map[string][][]float64{}}
	for i := range w.Periodic {
		p := &w.Periodic[i]
		if len(s.jobs) == o.Jobs || len(p.Past) == 0 {
			break
		}
		if p.Period != Day*60 {
			return nil, fmt.Errorf("recorded job %d: its period of %v s is no day", i, p.Period)
		}
		s.jobs = append(s.jobs, Job{Name: fmt.Sprintf("job-%03d", i), Period: Day, Phase: int(p.Begin / 60)})
		s.learned = append(s.learned, contract{due: int(p.Window / 60)})
	}
	if len(s.jobs) == 0 {
		return nil, errors.New("the record has no periodic jobs")
	}
	for i := range s.jobs {
		s.learned[i].job = &s.jobs[i]
	}
	for a := range w.Apps {
		app := &w.Apps[a]
		if i := int(app.Job) - 1; i >= 0 && i < len(s.jobs) {
			g := &w.Of(a)[0]
			s.jobs[i].User = max(1, int(math.Round(perCore*g.CPU)))
			s.learned[i].future = append(s.learned[i].future, Run{Index: int(app.Arrival / (Day * 60)), Usage: s.jobs[i].minutesOf(w, g, app.Work)})
		}
	}
	for i := range s.learned {
		c := &s.learned[i]
		for _, past := range w.Periodic[i].Past {
			var usage []float64
			for _, share := range past.CPU {
				usage = append(usage, slices.Repeat([]float64{share * float64(c.job.User)}, workload.PastStep/60)...)
			}
			c.past = append(c.past, usage[:min(len(usage), c.window())])
		}
	}
	s.peers = peers(s.learned)
	s.byOwners = byUsers(s.learned, 1)
	return s, nil
}

// minutesOf is what a run of the job uses by minute, if it has so much work.
func (j *Job) minutesOf(w *workload.Workload, g *workload.Group, work float64) (usage []float64) {
	pattern := w.Patterns[g.CPUUse.Pattern]
	for minute := range int(work / 60) {
		usage = append(usage, float64(j.User)*float64(pattern.At(g.CPUUse.Begin(0)+float64(minute)*60/float64(g.CPUUse.Step))))
	}
	return usage
}
