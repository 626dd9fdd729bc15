package pace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/plotter"

	"evenkeel/sim/replay"
)

// Write writes DIR/pace.md and DIR/pace/*.svg. command is what repeats it.
func (r *Results) Write(dir, command string) error {
	stats := filepath.Join(dir, "pace")
	if err := os.MkdirAll(stats, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	drawn, err := r.stats()
	if err != nil {
		return err
	}
	for _, f := range drawn {
		if err := os.WriteFile(filepath.Join(stats, f.name+".svg"), f.svg, 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pace.md"), []byte(r.text(command)), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

type figure struct {
	name string
	svg  []byte
}

func (r *Results) stats() (out []figure, err error) {
	add := func(name string, svg []byte, e error) {
		out = append(out, figure{name, svg})
		if err == nil {
			err = e
		}
	}
	of := func(f func(replay.AppOutcome) float64) (v [][]float64) {
		for _, p := range Oracles {
			var all []float64
			for _, one := range r.Oracle[p] {
				for _, a := range one.PerApp {
					all = append(all, f(a))
				}
			}
			v = append(v, all)
		}
		return v
	}
	svg, e := boxes("Memory slack, oracle", "allocated, not used, % of the request", Oracles, of(func(a replay.AppOutcome) float64 { return 100 * a.SlackMemory }), false)
	add("fig2-slack", svg, e)
	svg, e = boxes("Turnaround, oracle", "seconds", Oracles, of(func(a replay.AppOutcome) float64 { return a.Turnaround }), true)
	add("fig2-turnaround", svg, e)
	var all []line
	for _, p := range Oracles[1:] {
		l := line{name: p}
		for i, load := range r.Size.Loads {
			l.xy = append(l.xy, plotter.XY{X: load, Y: ratio(turnaround(r.Sweep["reservation"][i]), turnaround(r.Sweep[p][i]))})
		}
		all = append(all, l)
	}
	svg, e = lines("Reservation's turnaround over the policy's", "load: asked for / there", "times", true, all)
	add("load", svg, e)
	maps := []struct {
		name, title, format string
		low                 bool
		of                  func(*replay.Result) float64
	}{
		{"turnaround", "turnaround, times shorter than reservation's", "%.1f", false, func(one *replay.Result) float64 { return ratio(turnaround(r.Base), turnaround(one)) }},
		{"slack", "memory slack, %", "%.0f", true, func(one *replay.Result) float64 { return 100 * one.SlackMemory }},
		{"failed", "failed applications, %", "%.0f", true, func(one *replay.Result) float64 { return 100 * one.Failed }},
	}
	for _, model := range Mapped {
		for _, m := range maps {
			g := grid{k1: r.Size.K1, k2: r.Size.K2}
			for _, row := range r.Maps[model] {
				var z []float64
				for _, one := range row {
					z = append(z, m.of(one))
				}
				g.z = append(g.z, z)
			}
			svg, e := heat(model+": "+m.title, g, m.format, m.low)
			add("fig3-"+model+"-"+m.name, svg, e)
		}
	}
	return out, err
}

func (r *Results) text(command string) string {
	var b strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	size := r.Size
	say("# Dynamic Resource Shaping for Compute Clusters: the simulations again\n")
	say("Pace, Milios, Carra and Michiardi, sections III and IV. This page and its figures were written by\n\n    %s\n", command)
	say("Equal flags give equal figures. The rightsizer is `allocator/rightsizing` and the forecasts are `forecast`, as in production; hosts, applications and what they")
	say("use are simulated (package `replay`).\n")
	say("## The workload\n")
	say("The paper sampled distributions of Google's trace of 2011 that it does not print. Ours is synthetic, fitted to its sentences: `workload.Pace`")
	say("has the table. What the paper leaves out and everything hangs on is how much was asked for: here %.2g times what there is, so that reservation has to queue.", size.Oracle.Load)
	say("So figures are to be compared by sign and size. Memory use begins low and is highest late in most applications; CPU comes in bursts, waves and phases.\n")
	say("| experiment | hosts | applications | days in which they arrive |\n|---|---|---|---|")
	say("| oracle | %d | %d, %d draws | %.3g |", size.Oracle.Hosts, size.Oracle.Apps, size.Seeds, size.Oracle.Days)
	say("| heat maps | %d | %d, 1 draw | %.3g |", size.Maps.Hosts, size.Maps.Apps, size.Maps.Days)
	say("| what the gains hang on | %d | %d, %d draws | %.3g |", size.Maps.Hosts, size.Maps.Apps, size.Draws, size.Maps.Days)
	if len(r.Long) > 0 {
		say("| at length | %d | %d, 1 draw | %.3g |", size.Long.Hosts, size.Long.Apps, size.Long.Days)
	}
	say("| Evenkeel's settings | %d | %d, 1 draw of another seed | %.3g |\n", size.Own.Hosts, size.Own.Apps, size.Own.Days)
	say("*How fast memory use changes.* With the oracle all of a shape passes in each application's life, be that minutes: a hard case, and fast, as most of these applications live for")
	say("minutes. For forecasts its values lie %.0f s apart at least, as the samples of the trace do that the paper drew from; what comes of faster changes stands under \"What the gains hang on\".\n", size.Maps.Sampled)
	say("A failed or preempted application loses its work and waits again in its old place; an elastic component takes along what it contributed. One that failed three")
	say("times is given its request for good, so that all end at some time (the paper does not say what it does).\n")
	r.oracle(say)
	r.heat(say)
	r.length(say)
	r.causes(say)
	r.own(say)
	return b.String()
}

func (r *Results) oracle(say func(string, ...any)) {
	say("## Oracle: what foresight could be worth (figure 2)\n")
	say("| policy | mean turnaround | median | memory slack | CPU slack | failed | hurt | preempted whole | work thrown away |\n|---|---|---|---|---|---|---|---|---|")
	for _, p := range Oracles {
		rs := r.Oracle[p]
		say("| %s | %s | %s | %s | %s | %s | %s | %s | %s |", p, hours(mean(rs, turnaround)), hours(mean(rs, func(x *replay.Result) float64 { return x.Turnaround.Median })),
			percent(mean(rs, func(x *replay.Result) float64 { return x.SlackMemory })), percent(mean(rs, func(x *replay.Result) float64 { return x.SlackCPU })),
			percent(mean(rs, func(x *replay.Result) float64 { return x.Failed })), percent(mean(rs, func(x *replay.Result) float64 { return x.Hurt })),
			percent(mean(rs, func(x *replay.Result) float64 { return x.Requeued })), percent(mean(rs, func(x *replay.Result) float64 { return x.Thrash })))
	}
	base, opt, pess := r.Oracle["reservation"], r.Oracle["optimistic"], r.Oracle["pessimistic"]
	say("\n*Failed*: lost all its work because memory ran out, at least once. *Hurt*: that, or an elastic component did. Slack is of what was asked for.\n")
	say("| what | published | ours |\n|---|---|---|")
	say("| failed applications, pessimistic | 0 | %s |", percent(mean(pess, func(x *replay.Result) float64 { return x.Failed })))
	say("| failed applications, optimistic | 37.67%% | %s |", percent(mean(opt, func(x *replay.Result) float64 { return x.Failed })))
	say("| turnaround, reservation over pessimistic | almost two orders of magnitude (by figure 2) | %.1f in the mean, %.1f in the median |", ratio(mean(base, turnaround), mean(pess, turnaround)),
		ratio(mean(base, func(x *replay.Result) float64 { return x.Turnaround.Median }), mean(pess, func(x *replay.Result) float64 { return x.Turnaround.Median })))
	say("| turnaround, optimistic over pessimistic | more | %.2f |", ratio(mean(opt, turnaround), mean(pess, turnaround)))
	say("| slack, pessimistic | negligibly small | %s memory, %s CPU |\n", percent(mean(pess, func(x *replay.Result) float64 { return x.SlackMemory })), percent(mean(pess, func(x *replay.Result) float64 { return x.SlackCPU })))
	say("![Slack](pace/fig2-slack.svg)\n![Turnaround](pace/fig2-turnaround.svg)\n")
	say("Where ours differ. *How much faster* hangs on the load, the one thing that was varied here: the mean turnaround of reservation grows with every application that")
	say("arrives while more is asked for than there is, that of rightsizing is the run time as long as what is really used fits.\n")
	say("| load | reservation | optimistic | pessimistic | times shorter | failed, optimistic |\n|---|---|---|---|---|---|")
	for i, load := range r.Size.Loads {
		b, o, p := r.Sweep["reservation"][i], r.Sweep["optimistic"][i], r.Sweep["pessimistic"][i]
		say("| %.2g | %s | %s | %s | %.1f | %s |", load, hours(turnaround(b)), hours(turnaround(o)), hours(turnaround(p)), ratio(turnaround(b), turnaround(p)), percent(o.Failed))
	}
	say("\n![Load](pace/load.svg)\n")
	say("*Fewer fail under the optimist* than published. Why was not tested; a difference may be that here the kernel ends one component at a time, the largest first, until the rest fits, and CPU that is short only makes")
	say("slower. Failures grow with the load. *Slack is not zero* with an oracle either, probably because a component that starts has its request until the next minute, and many live for minutes.")
	say("*Preempted whole*: Algorithm 1 lets no application fail, and instead takes some back itself, which loses their work just so; the paper counts that")
	say("as no failure, and so do we, but both stand in the table.\n")
}

// numbers are a heat map's values, for those who cannot see it.
func (r *Results) numbers(say func(string, ...any), model string) {
	head, under := "| "+model+": times shorter, memory slack, failed |", "|---|"
	for _, k2 := range r.Size.K2 {
		head += fmt.Sprintf(" K2 = %v |", k2)
		under += "---|"
	}
	say("%s\n%s", head, under)
	for i, k1 := range r.Size.K1 {
		row := fmt.Sprintf("| K1 = %.0f%% |", 100*k1)
		for _, x := range r.Maps[model][i] {
			row += fmt.Sprintf(" %.1f, %s, %s |", ratio(turnaround(r.Base), turnaround(x)), percent(x.SlackMemory), percent(x.Failed))
		}
		say("%s", row)
	}
	say("")
}

func (r *Results) heat(say func(string, ...any)) {
	say("## Forecasts: K1 and K2 (figure 3)\n")
	say("Pessimistic, with ARIMA and Gaussian processes trained on the ten past minutes as in section V, one step ahead. V is the standard deviation: a variance has no unit that could be added to a")
	say("request. A component that uses more memory than it is allocated ends, whatever its host has left; with soft limits (the paper's testbed) see below.\n")
	for _, model := range Mapped {
		say("![%[1]s turnaround](pace/fig3-%[1]s-turnaround.svg) ![%[1]s slack](pace/fig3-%[1]s-slack.svg) ![%[1]s failed](pace/fig3-%[1]s-failed.svg)\n", model)
		r.numbers(say, model)
	}
	say("| what | published | ours |\n|---|---|---|")
	row := func(what, published string, x *replay.Result) {
		if x != nil {
			say("| %s | %s | %.1f times shorter, memory slack %s, failed %s |", what, published, ratio(turnaround(r.Base), turnaround(x)), percent(x.SlackMemory), percent(x.Failed))
		}
	}
	row("ARIMA, K1 = 0, K2 = 0", "no better than reservation: so many fail", r.cell("arima10", 0, 0))
	row("ARIMA, K1 = 5%, K2 = 0", "7.5 times shorter, slack 30%, failed about 26%", r.cell("arima10", 0.05, 0))
	row("ARIMA, K1 = 5%, K2 = 3", "about as with K2 = 0", r.cell("arima10", 0.05, 3))
	row("GP, K1 = 5%, K2 = 0", "slightly worse than ARIMA", r.cell("gp10", 0.05, 0))
	row("GP, K1 = 5%, K2 = 3", "10.6 times shorter, slack 22%, few fail", r.cell("gp10", 0.05, 3))
	row("K1 = 100%", "as reservation", r.cell("gp10", 1, 0))
	for _, model := range Mapped {
		at, k1, k2 := 0.0, 0.0, 0.0
		for i, row := range r.Maps[model] {
			for j, x := range row {
				if by := ratio(turnaround(r.Base), turnaround(x)); by > at {
					at, k1, k2 = by, r.Size.K1[i], r.Size.K2[j]
				}
			}
		}
		say("\nShortest turnaround with %s: K1 = %.0f%%, K2 = %v, %.1f times shorter than reservation's.", model, 100*k1, k2, at)
	}
	say("\nThese runs are smaller than the paper's (see the table of experiments), of one draw. Most of these applications end before there are ten observations, and keep their requests until then: hence more")
	say("slack than published, and less gained.\n")
	say("The same with soft limits where the host has memory (Docker's soft limits, and a balloon that is inflated at once):\n")
	say("| policy | times shorter | memory slack | failed | preempted whole |\n|---|---|---|---|---|")
	for _, f := range Mapped {
		for _, k2 := range []float64{0, 3} {
			x := r.Soft[fmt.Sprintf("pessimistic:%s:0.05:%v", f, k2)]
			say("| %s, K1 = 5%%, K2 = %v | %.1f | %s | %s | %s |", f, k2, ratio(turnaround(r.Base), turnaround(x)), percent(x.SlackMemory), percent(x.Failed), percent(x.Requeued))
		}
	}
	say("")
}

func hours(seconds float64) string {
	if seconds < 7200 {
		return fmt.Sprintf("%.1f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
