package pace

import "evenkeel/sim/replay"

// each is the mean over applications of how many times longer one took under a than under b.
func each(a, b *replay.Result) float64 {
	sum, n := 0.0, 0.0
	for i := range a.PerApp {
		if x, y := a.PerApp[i].Turnaround, b.PerApp[i].Turnaround; x > 0 && y > 0 {
			sum += x / y
			n++
		}
	}
	return ratio(sum, n)
}

// causes shows what the gains depend on: one setting changed at a time, then some together.
func (r *Results) causes(say func(string, ...any)) {
	if len(r.Causes) == 0 {
		return
	}
	say("## What the gains hang on\n")
	say("Pessimistic with the latest value for a forecast and K1 = 5%%, K2 = 0, which needs no fitting, against reservation on the same draws. Times shorter: of mean turnarounds (as the paper has it), of medians, and the mean of")
	say("each application's own.\n")
	say("| different from the first row | waits, of reservation's turnaround | means | medians | each | memory slack | failed | preempted whole | work thrown away |\n|---|---|---|---|---|---|---|---|---|")
	for i, c := range r.Size.Causes {
		of := func(f func(t Tried) float64) float64 {
			sum := 0.0
			for _, t := range r.Causes[i] {
				sum += f(t) / float64(len(r.Causes[i]))
			}
			return sum
		}
		say("| %s | %s | %.1f | %.1f | %.1f | %s | %s | %s | %s |", c.Name,
			percent(of(func(t Tried) float64 { return t.Base.Wait.Mean / t.Base.Turnaround.Mean })),
			of(func(t Tried) float64 { return ratio(turnaround(t.Base), turnaround(t.Play)) }),
			of(func(t Tried) float64 { return ratio(t.Base.Turnaround.Median, t.Play.Turnaround.Median) }),
			of(func(t Tried) float64 { return each(t.Base, t.Play) }),
			percent(of(func(t Tried) float64 { return t.Play.SlackMemory })), percent(of(func(t Tried) float64 { return t.Play.Failed })),
			percent(of(func(t Tried) float64 { return t.Play.Requeued })), percent(of(func(t Tried) float64 { return t.Play.Thrash })))
	}
	say("")
	say("- *Reservation queues* in all of them: its turnaround is mostly waiting. That is not what was missing.")
	say("- *How fast memory changes* decides. Where it goes from a tenth to all of a request within minutes, no buffer of 5%% holds until the next measurement; with hard limits those that pass it lose their work, and")
	say("  what is done again holds up all others. Where it changes no faster than a trace with samples every five minutes can show, that is rare, and the gain is there.")
	say("- *Hard limits* take the gain where memory changes fast: with soft limits the same forecasts are worth something there, too.")
	say("- *The size of the cluster and the time* are the next: the longer more is asked for than there is, the longer reservation's queue, and the more hosts the less one application matters.")
	say("- *Ten minutes of grace*, or of observations that a model needs, are most of the slack: half of these applications live no longer. The paper's slack of 22 to 30%% needs applications that live longer, or no grace.")
	say("- *Measuring more often* helps a little; ten failures instead of three before an application is given its request make it worse. *How turnaround is averaged* changes the size, not the sign.\n")
}
