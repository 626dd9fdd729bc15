package agent

import (
	"context"
	"fmt"
	"time"

	"evenkeel/hypervisor"
)

// useWindow averages the CPU use of one VM over a while.
type useWindow struct {
	generation uint64
	points     []usePoint // oldest first
}

type usePoint struct {
	at   time.Time
	used time.Duration
}

// add takes in a measurement and returns the cores used since the oldest one within the window; 0 while there is but one.
func (u *useWindow) add(s hypervisor.Stats, window time.Duration) float64 {
	if u.generation != s.Generation || (len(u.points) > 0 && s.VCPUTime < u.points[len(u.points)-1].used) {
		u.generation, u.points = s.Generation, nil
	}
	u.points = append(u.points, usePoint{s.At, s.VCPUTime})
	for len(u.points) > 2 && s.At.Sub(u.points[1].at) >= window {
		u.points = u.points[1:]
	}
	oldest := u.points[0]
	if wall := s.At.Sub(oldest.at); wall > 0 {
		return float64(s.VCPUTime-oldest.used) / float64(wall)
	}
	return 0
}

// samples measures all VMs of the host at once.
func (r *runner) samples(ctx context.Context) ([]Sample, error) {
	stats, err := r.Hypervisor.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("sample VMs: %w", err)
	}
	if r.Recorder != nil {
		r.Recorder.record(stats, r.caps)
	}
	seen := make(map[string]bool, len(stats))
	out := make([]Sample, 0, len(stats))
	for _, s := range stats {
		id := s.Identity.VM
		seen[id] = true
		u := r.use[id]
		if u == nil {
			u = &useWindow{}
			r.use[id] = u
		}
		listed := r.caps[id]
		g := r.guest(id)
		g.observe(s, listed.Memory, r.UseWindow)
		out = append(out, Sample{VM: id, Generation: s.Generation, At: s.At, State: string(listed.State), Cap: listed.CPU.Cap,
			Used: u.add(s, r.UseWindow), VCPUTime: s.VCPUTime, Balloon: s.Balloon, Resident: s.Resident, Memory: memoryOf(s), Guest: g.report(),
			Started: listed.Started, Addresses: r.addresses.of(id)})
	}
	r.observe(stats, out)
	for id := range r.use {
		if !seen[id] {
			delete(r.use, id)
		}
	}
	for id := range r.guests { // one that is left out of a sample is still there
		if _, runs := r.caps[id]; !seen[id] && !runs {
			delete(r.guests, id)
		}
	}
	return out, nil
}

// pressure returns the pressure of the host; nil where its kernel measures none.
func (r *runner) pressure(ctx context.Context) *hypervisor.Pressure {
	p, err := r.Hypervisor.Pressure(ctx)
	if r.load.left = p.Available; err != nil {
		r.load.left = hypervisor.Unknown
	}
	if err != nil || p.CPU < 0 && p.Memory < 0 && p.IO < 0 {
		return nil
	}
	return &p
}

// memoryOf is MemoryUsed in whole bytes; 0 = not known.
func memoryOf(s hypervisor.Stats) int64 {
	if used := MemoryUsed(s); used > 0 {
		return int64(used)
	}
	return 0
}

// sample measures and reports between rounds.
func (r *runner) sample(ctx context.Context) error {
	s, err := r.samples(ctx)
	if err != nil {
		return err
	}
	report := r.last
	report.Statuses, report.Samples, report.Pressure, report.Moves, report.Estimates, report.Available = nil, s, r.pressure(ctx), r.progress(), r.fresh(), r.load.report(s)
	if err := r.Leader.Report(ctx, report); err != nil {
		return err
	}
	r.acknowledge(report.Estimates)
	return nil
}

// look measures the host between rounds: for the leader when that is due, else for guests that may run out of memory until then.
func (r *runner) look(ctx context.Context) error {
	began := time.Now()
	if !began.Before(r.due) {
		err := r.sample(ctx)
		r.due = time.Now().Add(r.pace())
		return err
	}
	_, err := r.samples(ctx)
	r.glance = time.Since(began)
	if soon := began.Add(progressEvery); r.watched() && soon.Before(r.due) {
		r.due = soon
	}
	return err
}

// untilLook is how long it is until the host is measured again.
func (r *runner) untilLook() time.Duration {
	left := max(time.Until(r.due), time.Millisecond)
	if r.squeezed() {
		return min(left, r.glanceEvery())
	}
	return left
}

// glanceEvery is how often guests are looked at that have less than their memory: less often where it takes long.
func (r *runner) glanceEvery() time.Duration {
	return max(glanceEvery, time.Duration(float64(r.glance)/glanceShare))
}

// squeezed says whether a guest that reports has less than its memory.
func (r *runner) squeezed() bool {
	for _, g := range r.guests {
		if g.reports() && g.last.Balloon < g.memory-balloonSlack {
			return true
		}
	}
	return false
}

// guest returns the watch of the guest with that id, a new one if there is none.
func (r *runner) guest(id string) *guestWatch {
	g := r.guests[id]
	if g == nil {
		g = &guestWatch{step: r.Step}
		r.guests[id] = g
	}
	return g
}

// needs returns the needs of the guests, by id.
func (r *runner) needs() map[string]GuestNeed {
	out := map[string]GuestNeed{}
	for id, g := range r.guests {
		if n := g.need(); n != (GuestNeed{}) {
			out[id] = n
		}
	}
	return out
}

// squeezes says whether a balloon is larger than the leader's target. The agent then measures what the guest needs before it shrinks
// it.
func (r *runner) squeezes(want Desired) bool {
	for _, vm := range want.VMs {
		if now, runs := r.caps[vm.Spec.Identity.VM]; runs && vm.Want == WantRun && vm.Spec.Balloon < now.Balloon-balloonSlack {
			return true
		}
	}
	return false
}

func raises(needs map[string]GuestNeed) map[string]int64 {
	out := map[string]int64{}
	for id, n := range needs {
		if n.Raise > 0 {
			out[id] = n.Raise
		}
	}
	return out
}

// watched says whether a guest's memory must be measured often: the guest is short of memory, or its balloon is on its way to a target.
func (r *runner) watched() bool {
	for _, g := range r.guests {
		if g.need().Raise > 0 || g.pressure != "" && g.last.Balloon < g.memory-balloonSlack || g.target > 0 && !g.reached && g.defied.IsZero() {
			return true
		}
	}
	return false
}

// underPressure says whether a guest is short of memory that was not, or is to have more than the last round knew.
func (r *runner) underPressure() bool {
	for id, bytes := range raises(r.needs()) {
		if bytes > r.raised[id] {
			return true
		}
	}
	return false
}
