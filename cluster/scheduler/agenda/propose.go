package agenda

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/forecast/periodic"
)

// Ask is what an owner wants otherwise than it was found. Zero values are left to what was found.
type Ask struct {
	Zone     *time.Location // on whose clock daily and weekly jobs go; nil: UTC
	Rule     string         // RRULE, without its name
	Start    time.Time      // DTSTART of that rule, on the wall clock of the zone
	Deadline time.Duration  // after the start of a period
	Miss     float64        // chance that a run needs more than is reserved
	Length   time.Duration  // of a run
	Cores    float64        // of all VMs together, as long as a run lasts
}

// Proposal is a contract that an owner may sign off.
type Proposal struct {
	SignOff state.SignOff
	Period  time.Duration
	Text    string // why it does not rest on what runs used; "": it does
	Support string // what chance its runs support, where a smaller one was asked for; and whether it borrows a run
}

// ErrNoPattern says that no period was found, and that the owner gave none.
var ErrNoPattern = errors.New("no period was found")

// giveRule is the way out where runs show no period.
const giveRule = "give a rule to reserve without"

// Propose makes the contract that follows from the past runs of a job and from what its owner asks. It says nothing of hosts. A job of too few
// runs for the chance that is asked for borrows from others: the runs of other jobs, of the same tenant only; nil: from none.
func Propose(runs []state.Run, ask Ask, others iter.Seq[[]state.Run]) (Proposal, error) {
	runs = alike(runs)
	if len(runs) == 0 {
		return Proposal{}, fmt.Errorf("%w: no run of it is recorded", ErrNoPattern)
	}
	last := runs[len(runs)-1]
	p := Proposal{SignOff: state.SignOff{State: state.SignedOff, Groups: last.Groups, MinYield: last.MinYield}}
	zone := ask.Zone
	if zone == nil {
		zone = time.UTC
	}
	offsets, err := p.recur(runs, ask, zone)
	if err != nil {
		return p, err
	}
	p.need(runs, ask, others)
	return p, p.window(offsets, last.Deadline, ask)
}

// alike returns the runs of the same images as the last one that say how long a run takes: those that VMs ended or a request did.
func alike(runs []state.Run) []state.Run {
	if len(runs) == 0 {
		return nil
	}
	kind := runs[len(runs)-1].Kind
	return slices.DeleteFunc(slices.Clone(runs), func(r state.Run) bool { return r.Kind != kind || r.Outcome == state.RunLost })
}

// recur sets the recurrence, and returns by how much runs arrived after the start of their period.
func (p *Proposal) recur(runs []state.Run, ask Ask, zone *time.Location) (offsets []time.Duration, err error) {
	if ask.Rule != "" {
		start := ask.Start
		if start.IsZero() {
			first := runs[0].Submitted.In(zone)
			start = time.Date(first.Year(), first.Month(), first.Day(), 0, 0, 0, 0, time.UTC)
		}
		r, err := periodic.ParseRecurrence(periodic.Recurrence{Zone: zone.String(), Start: start, Rule: ask.Rule}.String())
		if err != nil {
			return nil, err
		}
		p.SignOff.Recurrence = r.String()
		return nil, nil
	}
	var plain []periodic.Run
	for _, r := range runs {
		plain = append(plain, periodic.Run{Name: "job", Job: "job", Begin: r.Submitted, End: r.Ended})
	}
	jobs := periodic.Jobs(plain, zone)
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%w: it takes %d runs at a steady time, and %d can be used; %s", ErrNoPattern, periodic.MinRuns, len(runs), giveRule)
	}
	job := jobs[0]
	p.Period = job.Period
	p.SignOff.Recurrence = job.Recurrence.String()
	first, last := runs[job.Runs[0]].Submitted, runs[job.Runs[len(job.Runs)-1]].Submitted
	times, err := job.Recurrence.Between(first.Add(-job.Period), last.Add(job.Period), job.Clock(zone))
	if err != nil || len(times) == 0 {
		return nil, fmt.Errorf("%w: its rule has no time near its runs: %w; %s", ErrNoPattern, err, giveRule)
	}
	for _, i := range job.Runs {
		at := runs[i].Submitted
		near := slices.MinFunc(times, func(a, b time.Time) int { return int(a.Sub(at).Abs() - b.Sub(at).Abs()) })
		offsets = append(offsets, at.Sub(near))
	}
	slices.Sort(offsets)
	return offsets, nil
}

// need sets the skyline: learned from runs whose use is known, or flat.
func (p *Proposal) need(runs []state.Run, ask Ask, others iter.Seq[[]state.Run]) {
	length := ask.Length
	if length == 0 {
		for _, r := range runs {
			length = max(length, r.Ended.Sub(r.Started))
		}
	}
	c := &p.SignOff
	step := stepFor(c.Recurrence)
	flatten(c, length, step)
	declared := 0.0
	for _, g := range c.Groups {
		declared += float64(g.Count) * g.CPU
	}
	flat := declared
	if ask.Cores > 0 {
		flat = min(ask.Cores, declared)
		p.Text = "the owner gave its CPU"
	} else {
		m, per, err := learn(runs, ask.Miss, step, others)
		if err == nil {
			c.Miss, c.Runs, p.Support = m.Miss, m.Runs, m.Support(maxLearnRuns)
			if m.Borrowed {
				p.Support += "; it borrows a run as heavy as those of the tenant's other jobs were, to come near to what was asked"
			}
			for k := range c.Cores {
				c.Cores[k] = min(declared, peak(m.Skyline, k*int(c.Step)/60, ((k+1)*int(c.Step)+59)/60, per))
			}
			return
		}
		p.Text = "its declared CPU: " + err.Error()
	}
	for k := range c.Cores {
		c.Cores[k] = flat
	}
}

// flatten sets the steps of a contract to a length, all without needs. Long runs get longer steps than step: at most MaxRunSteps.
func flatten(c *state.SignOff, length, step time.Duration) {
	steps := max(1, int((length+step-1)/step))
	c.Step = int64(step / time.Second)
	for steps > state.MaxRunSteps {
		steps, c.Step = (steps+1)/2, 2*c.Step
	}
	c.Cores = make([]float64, steps)
}

// inSteps gives a contract other steps. Its length and needs stay, as far as its steps can say them.
func inSteps(c *state.SignOff, step time.Duration) {
	per, old := int(c.Step), c.Cores
	flatten(c, c.Length(), step)
	for k := range c.Cores {
		c.Cores[k] = peak(old, k*int(c.Step), (k+1)*int(c.Step), per)
	}
}

// peak is the highest value of a skyline from minute from to before minute to. Each value is that of per minutes. All three may be in
// seconds instead.
func peak(skyline []float64, from, to, per int) (out float64) {
	for i := from / per; i <= (to-1)/per && i < len(skyline); i++ {
		out = max(out, skyline[i])
	}
	return out
}

// learn fits a skyline to the last runs whose use is known, for a contract with such steps. Each value is the highest use of per
// minutes.
func learn(runs []state.Run, miss float64, step time.Duration, others iter.Seq[[]state.Run]) (m periodic.Model, per int, err error) {
	if miss == 0 {
		miss = defaultMiss
	}
	var used [][]float64
	var censored [][]bool
	longest := 0
	for _, r := range runs {
		if u := r.Usage; isKnown(u) {
			cores, throttled := minutes(u)
			used, censored, longest = append(used, cores), append(censored, throttled), max(longest, len(cores))
		}
	}
	if len(used) < periodic.MinRuns {
		return m, 1, fmt.Errorf("of %d runs it is known what they used, of %d it must be", len(used), periodic.MinRuns)
	}
	skip := max(0, len(used)-maxLearnRuns)
	used, censored = used[skip:], censored[skip:]
	per = max(1, int(step/time.Minute), (longest+maxLearnSteps-1)/maxLearnSteps)
	for i := range used {
		used[i], censored[i] = coarse(used[i], censored[i], per)
	}
	// Each step stands alone: the hosts keep a run's memory as long as it lasts, so it must not last longer for want of CPU.
	o := periodic.Options{Miss: miss, Censored: censored}
	if !periodic.Supports(len(used), miss) && others != nil {
		o.Peers = peers(others)
	}
	m, err = periodic.Learn(used, o)
	return m, per, err
}

// Supported says of a contract that its runs support no smaller chance to miss; "" where they do, or none was learned.
func Supported(c state.SignOff) string {
	if c.Miss == 0 || c.Miss > periodic.MinChance(c.Runs)+1e-9 {
		return ""
	}
	return fmt.Sprintf("no smaller chance follows from %d runs", c.Runs)
}

// Percent writes a chance in percent, rounded up.
func Percent(chance float64) string { return periodic.Percent(chance) }

// isKnown says whether one can learn from what a run used.
func isKnown(u *state.RunUsage) bool {
	return u != nil && len(u.Cores) > 0 && float64(len(u.Unknown)) <= maxUnknown*float64(len(u.Cores))
}

// peers are other jobs from which one of few runs may borrow.
func peers(others iter.Seq[[]state.Run]) (out []periodic.Peer) {
	for runs := range others {
		var work, length []float64 // core-seconds and seconds of each run
		for _, r := range alike(runs) {
			if u := r.Usage; isKnown(u) {
				var sum int64
				for _, c := range u.Cores {
					sum += c
				}
				work, length = append(work, float64(sum*u.Step)/1000), append(length, float64(int64(len(u.Cores))*u.Step))
			}
		}
		if p, ok := periodic.PeerOfSizes(work, length); ok {
			out = append(out, p)
		}
	}
	return out
}

// coarse has one value for so many minutes, the highest of them; it was throttled if one of them was.
func coarse(cores []float64, throttled []bool, per int) (out []float64, outThrottled []bool) {
	for from := 0; from < len(cores); from += per {
		to := min(from+per, len(cores))
		out = append(out, slices.Max(cores[from:to]))
		outThrottled = append(outThrottled, slices.Contains(throttled[from:to], true))
	}
	return out, outThrottled
}

// minutes are the cores of a skyline, one value a minute.
func minutes(u *state.RunUsage) (cores []float64, throttled []bool) {
	for k, c := range u.Cores {
		for range max(1, u.Step/60) {
			cores = append(cores, float64(c)/1000)
			throttled = append(throttled, slices.Contains(u.Throttled, k))
		}
	}
	return cores, throttled
}

// window sets when runs may arrive, and when they are due.
func (p *Proposal) window(offsets []time.Duration, declared int64, ask Ask) error {
	c := &p.SignOff
	step := stepFor(c.Recurrence)
	round := min(roundUp, step)
	var from, to time.Duration
	if n := len(offsets); n > 0 {
		from = max(0, offsets[int(spread*float64(n))])
		to = max(from, offsets[n-1-int(spread*float64(n))])
	}
	c.Arrival = int64(from.Truncate(round) / time.Second)
	c.Lateness = int64(math.Ceil(max(to-from, step).Seconds()/round.Seconds()) * round.Seconds())
	end := c.Arrival + int64(c.Length()/time.Second)
	switch {
	case ask.Deadline > 0:
		c.Due, c.Declared = int64(ask.Deadline/time.Second), true
	case declared > 0:
		c.Due, c.Declared = declared, true
	default:
		c.Due = end + c.Lateness
	}
	if c.Due < end {
		return fmt.Errorf("a run that arrives %s after the start of its period takes up to %s: it cannot end within %s; give a later deadline",
			time.Duration(c.Arrival)*time.Second, c.Length(), time.Duration(c.Due)*time.Second)
	}
	return nil
}

// Override is a contract with what its owner wants otherwise. All else stays as it is. The chance to miss is learned: for another one the
// owner accepts another proposal.
func Override(c state.SignOff, ask Ask) (state.SignOff, error) {
	if ask.Miss != 0 {
		return c, errors.New("the chance to miss is learned with the skyline: accept the job again with another one")
	}
	old, otherNeed := stepOf(&c), ask.Length > 0 || ask.Cores > 0
	if ask.Rule != "" || ask.Zone != nil {
		r, err := periodic.ParseRecurrence(c.Recurrence)
		if err != nil {
			return c, err
		}
		if ask.Rule != "" {
			r.Rule = ask.Rule
		}
		if ask.Zone != nil {
			r.Zone = ask.Zone.String()
		}
		if !ask.Start.IsZero() {
			r.Start = ask.Start
		}
		if r, err = periodic.ParseRecurrence(r.String()); err != nil {
			return c, err
		}
		c.Recurrence = r.String()
		if step := stepFor(c.Recurrence); step != old && !otherNeed {
			inSteps(&c, step)
		}
	}
	if otherNeed {
		length, cores := c.Length(), slices.Max(c.Cores)
		if ask.Length > 0 {
			length = ask.Length
		}
		if ask.Cores > 0 {
			cores = ask.Cores
		}
		p := Proposal{SignOff: c}
		p.need([]state.Run{{}}, Ask{Length: length, Cores: cores}, nil)
		c = p.SignOff
		c.Miss, c.Runs = 0, 0
	}
	now := stepOf(&c)
	switch late := int64(now / time.Second); {
	case now < old: // with the old lateness its slots would overlap
		c.Lateness = late
	case now > old:
		c.Lateness = max(c.Lateness, late)
	}
	if (now != old || otherNeed) && !c.Declared {
		c.Due = c.Arrival + int64(c.Length()/time.Second) + c.Lateness
	}
	if ask.Deadline > 0 {
		c.Due, c.Declared = int64(ask.Deadline/time.Second), true
	}
	if end := c.Arrival + int64(c.Length()/time.Second); c.Due < end {
		return c, fmt.Errorf("a run of %s cannot end within %s; give a later deadline", c.Length(), time.Duration(c.Due)*time.Second)
	}
	return c, nil
}

// Keeps is what each slot of a contract keeps from all others: at most at one time for all its VMs, in all in core-seconds, and for how
// long.
func Keeps(c *state.SignOff) (highest state.Resources, coreSeconds float64, slot time.Duration) {
	slot = time.Duration(c.Lateness)*time.Second + c.Length()
	var sum []float64
	for _, g := range c.Groups {
		highest.Memory += int64(g.Count) * g.Memory
		need := placement.SlotNeed(c, g)
		sum = append(sum, make([]float64, len(need)-len(sum))...)
		for k, cores := range need {
			sum[k] += float64(g.Count) * cores
		}
	}
	for k, cores := range sum {
		highest.CPU = max(highest.CPU, cores)
		coreSeconds += cores * max(0, min(float64(c.Step), slot.Seconds()-float64(k)*float64(c.Step)))
	}
	return highest, coreSeconds, slot
}

// LeftOut returns the dates without a run: those of the contract and those of skip, without those of keep. Dates are dropped once all
// their runs would have been due.
func LeftOut(c state.SignOff, skip, keep []string, now time.Time) ([]string, error) {
	_, zone, err := recurrenceOf(c.Recurrence)
	if err != nil {
		return nil, err
	}
	first := now.Add(-time.Duration(c.Due) * time.Second).In(zone).Format(time.DateOnly)
	over := func(day string) bool { return day < first }
	if at := slices.IndexFunc(skip, over); at >= 0 {
		return nil, fmt.Errorf("%s is over: give a date from %s on", skip[at], first)
	}
	days := slices.Concat(c.Skips, skip)
	slices.Sort(days)
	return slices.DeleteFunc(slices.Compact(days), func(day string) bool { return over(day) || slices.Contains(keep, day) }), nil
}
