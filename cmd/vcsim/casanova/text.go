package casanova

import "fmt"

func (r *Report) introduction(p *page) {
	p.line("# Resource Allocation using Virtual Clusters: the simulations again")
	p.line("")
	p.line("Casanova, Schanzenbach, Stillwell and Vivien, INRIA RR-6692 (2008), sections 4 and 5. This page and its figures were")
	p.line("written by")
	p.line("")
	p.line("    %s", r.Command)
	p.line("")
	p.line("Equal seeds give equal instances, placements and yields. Run times are those of one shared machine, taken while other work")
	p.line("ran on it: compare the curves of one figure with each other, not with 2008. Unlike the paper's, they include the")
	p.line("division of the CPU and the upper bound that belong to every answer here.")
	p.line("")
	p.line("## Choices where the paper leaves one")
	p.line("")
	p.line("- *Truncation.* A requirement outside of 0..1 is drawn again; moving it to the nearer end is the other reading, see the end of this page.")
	p.line("  Redrawing shifts the mean where the coefficient of variation is 0.75: the memory asked for is then up to 14%% more than the slack says.")
	p.line("- *The yield reported* is what the placement really allows, not the target at which the binary search ended.")
	p.line("- *The binary search* ends when its two ends are 0.000001 apart. Before its first step the upper end is tried, after its last, if all failed, zero.")
	p.line("- *Ties* in a list go by CPU, then memory, then the order of the tasks.")
	p.line("- *A placement attempt* of GB and SGB is a task put on a host that has the memory for it; a host that has not is passed over.")
	p.line("- *Percent degradation* of an algorithm is relative to the best of the eight, over the instances that the algorithm solved. The published averages of MCB1, MCB2 and MCB4 are near")
	p.line("  ours only where an instance that the algorithm fails and another of the eight solves counts as 100%%, so both averages are shown; the published maxima leave such instances out.")
	p.line("- *RRND and RRNZ* round one vertex of the relaxed program, which has many optimal ones. The paper took what GLPK returned; ours is built")
	p.line("  directly (north-west corner rule: CPU host after host, then what is left of each task host after host into the memory).")
	p.line("- *Parallel jobs:* the number of tasks is that of all jobs together; the last job is cut to fit. Job sizes are of the")
	p.line("  Lublin-Feitelson model for jobs of no known type with up to 64 tasks.")
	p.line("- *The LP bound* is min(1, H / sum of the CPU needs), where the memory suffices in sum; elsewhere it counts as failed.")
	p.line("")
}

func (r *Report) small(p *page) {
	s := r.Small
	p.line("## Small instances: %d, 4 hosts, 6 to 12 tasks", len(s.outcomes))
	p.line("")
	p.line("Table 1: percent degradation from the best of the eight.")
	p.degradations(s, published1)
	p.stats(r, 2, 3, 4, 5)
	p.line("The exact curve is that of `exact`, our own solver, in place of GLPK: every answer is proved optimal or infeasible.")
	p.line("")
	infeasible := s.count(exactName, func(o *outcome) bool { return o.infeasible })
	unproved := s.count(exactName, func(o *outcome) bool { return !o.infeasible && !o.solved })
	beyond := func(name string) string { return fmt.Sprint(s.count(name, failed) - infeasible) }
	over := func(percent float64) string {
		a, n := s.column("MCB8"), 0
		for _, row := range s.outcomes {
			best := 0.0
			for _, name := range publishedOrder {
				if o := &row[s.column(name)]; o.solved {
					best = max(best, o.yield)
				}
			}
			if row[a].solved && best > 0 && 100*(best-row[a].yield)/best > percent {
				n++
			}
		}
		return fmt.Sprint(n)
	}
	greedy := ""
	for i, name := range []string{"GR", "SG", "GB", "SGB"} {
		if i > 0 {
			greedy += ", "
		}
		greedy += fmt.Sprintf("%s %.1f%%", name, s.relative(exactName, name, nil))
	}
	p.compared(
		[3]string{"infeasible instances", "60 of 1,440 (GLPK found none)", fmt.Sprintf("%d of %d, proved; %d undecided", infeasible, len(s.outcomes), unproved)},
		[3]string{"LP bound above the exact optimum", "about 4%", fmt.Sprintf("%.1f%%", s.relative(boundName, exactName, nil))},
		[3]string{"exact optimum above MCB8", "about 2%", fmt.Sprintf("%.1f%%", s.relative(exactName, "MCB8", nil))},
		[3]string{"exact optimum above the greedy algorithms", "11% to 13%", greedy},
		[3]string{"feasible instances not solved by MCB8 / SG / GB / SGB", "1 / 15 / 0 / 0", beyond("MCB8") + " / " + beyond("SG") + " / " + beyond("GB") + " / " + beyond("SGB")},
		[3]string{"the same for GR / RRNZ / RRND", "more, by the figure", beyond("GR") + " / " + beyond("RRNZ") + " / " + beyond("RRND")},
		[3]string{"MCB8 more than 3% / 10% below the best of the eight", "155 / 19 of 1,379", over(3) + " / " + over(10) + fmt.Sprintf(" of %d", s.count("MCB8", func(o *outcome) bool { return o.solved }))},
		[3]string{"exact solver, mean / worst time", "28.7 s / 11,549 s", s.time(exactName) + " / " + s.slowest(exactName)},
		[3]string{"mean time of MCB8 / SG", "under 0.15 ms", s.time("MCB8") + " / " + s.time("SG")},
		[3]string{"mean time of RRND", "a little over 2 ms", s.time("RRND")},
	)
	p.stats(r, 11, 12, 13, 14)
}

func (r *Report) large(p *page) {
	l := r.Large
	p.line("## Large instances: %d, 64 hosts, 100 to 500 tasks", len(l.outcomes))
	p.line("")
	p.line("Figure 7, a table: percent degradation from the best of the eight.")
	p.degradations(l, published7)
	p.stats(r, 6, 8, 9, 10)
	from := func(slack float64) func(spec) bool { return func(s spec) bool { return s.slack > slack-0.01 } }
	below := func(name string, keep func(spec) bool) string {
		return fmt.Sprintf("%.1f%%", -l.relative(name, boundName, keep))
	}
	solvedBelow := func(name string, slack float64) string {
		a, solved, all := l.column(name), 0, 0
		for i, row := range l.outcomes {
			if l.specs[i/l.Instances].slack < slack-0.01 {
				all++
				if row[a].solved {
					solved++
				}
			}
		}
		return fmt.Sprintf("%d of %d", solved, all)
	}
	timeAt := func(name string, tasks int) string {
		for _, pt := range l.curve(name, byTasks, milliseconds).Points {
			if int(pt.X) == tasks {
				return fmt.Sprintf("%.3g ms", pt.Y)
			}
		}
		return "not run"
	}
	failures := func(name string) string { return fmt.Sprint(l.count(name, failed)) }
	p.compared(
		[3]string{"MCB8 below the LP bound at slack 0.1", "37%", below("MCB8", slackOf(0.1))},
		[3]string{"MCB8 below the LP bound at slack 0.2", "8%", below("MCB8", slackOf(0.2))},
		[3]string{"the same two, a failure counted as yield 0", "", fmt.Sprintf("%.1f%% / %.1f%%", -l.zeroRelative("MCB8", boundName, slackOf(0.1)), -l.zeroRelative("MCB8", boundName, slackOf(0.2)))},
		[3]string{"MCB8 below the LP bound from slack 0.3 on", "extremely close", below("MCB8", from(0.3))},
		[3]string{"GR / SG below the LP bound from slack 0.3 on", "20% on average", below("GR", from(0.3)) + " / " + below("SG", from(0.3))},
		[3]string{"GB / SGB the same", "as GR, nearly", below("GB", from(0.3)) + " / " + below("SGB", from(0.3))},
		[3]string{"RRNZ below the LP bound at slack 0.3 / 0.9", "drops as slack grows", below("RRNZ", slackOf(0.3)) + " / " + below("RRNZ", slackOf(0.9))},
		[3]string{"solved by RRND at slack under 0.4", "none", solvedBelow("RRND", 0.4)},
		[3]string{"failures of MCB8 / SG / SGB", "lowest", failures("MCB8") + " / " + failures("SG") + " / " + failures("SGB")},
		[3]string{"failures of GR / GB / RRNZ", "the former about 40% lower", failures("GR") + " / " + failures("GB") + " / " + failures("RRNZ")},
		[3]string{"failures of RRND", "over 14 times the lowest", failures("RRND")},
		[3]string{"time of MCB8 for 500 tasks, bisecting as the paper does", "nearly 500 ms", timeAt("MCB8", 500)},
		[3]string{"time of SG for 500 tasks", "15 to 20 ms", timeAt("SG", 500)},
		[3]string{"time of RRND for 500 tasks", "650 s", timeAt("RRND", 500)},
	)
	p.stats(r, 15, 16, 17, 18)
}

func (r *Report) parallel(p *page) {
	l := r.Parallel
	p.line("## Parallel jobs: %d large instances", len(l.outcomes))
	p.line("")
	mcb8, sg := l.column("MCB8"), l.column("SG")
	different := 0
	for _, row := range l.outcomes {
		if row[mcb8].solved != row[sg].solved {
			different++
		}
	}
	ratio := 0.0
	a, b := l.curve("MCB8", byTasks, milliseconds), l.curve("SG", byTasks, milliseconds)
	if n := len(a.Points); n > 0 {
		ratio = a.Points[n-1].Y / b.Points[n-1].Y
	}
	p.compared(
		[3]string{"minimum yield of MCB8 above SG's", "significantly", fmt.Sprintf("%.1f%%", l.relative("MCB8", "SG", nil))},
		[3]string{"MCB8 below the LP bound from slack 0.4 on", "close", fmt.Sprintf("%.1f%%", -l.relative("MCB8", boundName, func(s spec) bool { return s.slack > 0.39 }))},
		[3]string{"average job yield, MCB8 / SG", "SG's is higher", fmt.Sprintf("%.3f / %.3f", l.mean("MCB8", averageYield), l.mean("SG", averageYield))},
		[3]string{"failures of MCB8 / SG", "identical rates", fmt.Sprintf("%d / %d, %d instances decided differently", l.count("MCB8", failed), l.count("SG", failed), different)},
		[3]string{"MCB8's time over SG's for 500 tasks", "about 32", fmt.Sprintf("%.1f", ratio)},
	)
	p.stats(r, 19, 20, 21, 22)
}

func (r *Report) differences(p *page) {
	p.line("## Where ours differ")
	p.line("")
	infeasible := func(o *outcome) bool { return o.infeasible }
	if s := r.Small; s != nil {
		tight, a := 0, s.column(exactName)
		for i, row := range s.outcomes {
			if sp := s.specs[i/s.Instances]; row[a].infeasible && slackOf(0.1)(sp) && sp.memCV > 0.5 {
				tight++
			}
		}
		p.line("**Infeasible instances.** The paper counts 60 of 1,440; %d of %d are proved infeasible here, %d of them at slack 0.1 with a coefficient",
			s.count(exactName, infeasible), len(s.outcomes), tight)
		p.line("of variation of 0.75 of the memory, where drawing again asks for more than all there is. Moving to the ends asks for less; neither")
		p.line("gives 60, and its text does not say how many of the paper's 1,440 are infeasible by its own definition.")
		p.line("")
	}
	if c := r.SmallClamped; c != nil && r.Small != nil {
		p.line("Small instances, values outside of 0..1 drawn again (as everywhere above) or moved to the nearer end:")
		p.line("")
		p.line("| | published | drawn again | moved |")
		p.line("|---|---|---|---|")
		p.line("| infeasible | 60 | %d | %d |", r.Small.count(exactName, infeasible), c.count(exactName, infeasible))
		for _, name := range publishedOrder {
			a, _, _ := r.Small.degradation(name, publishedOrder)
			b, _, _ := c.degradation(name, publishedOrder)
			p.line("| %s, average %% from the best | %.2f | %.2f | %.2f |", name, published1[name][0], a, b)
		}
		p.line("")
	}
	if c := r.LargeClamped; c != nil && r.Large != nil {
		l := r.Large
		two := func(f func(*Results) string) (string, string) { return f(l), f(c) }
		p.line("Large instances, the same:")
		p.line("")
		p.line("| | published | drawn again | moved |")
		p.line("|---|---|---|---|")
		for _, name := range []string{"MCB8", "SG", "GR", "RRNZ", "RRND"} {
			a, b := two(func(r *Results) string {
				return fmt.Sprintf("%.1f%%", 100*r.mean(name, failure))
			})
			p.line("| failures of %s | | %s | %s |", name, a, b)
		}
		a, b := two(func(r *Results) string {
			return fmt.Sprintf("%.1f", r.mean("RRND", failure)/r.mean("MCB8", failure))
		})
		p.line("| failures of RRND over those of MCB8 | over 14 | %s | %s |", a, b)
		for _, slack := range []float64{0.1, 0.2} {
			published := map[float64]string{0.1: "37%", 0.2: "8%"}[slack]
			a, b = two(func(r *Results) string {
				return fmt.Sprintf("%.1f%%", -r.relative("MCB8", boundName, slackOf(slack)))
			})
			p.line("| MCB8 below the LP bound at slack %g | %s | %s | %s |", slack, published, a, b)
			a, b = two(func(r *Results) string {
				return fmt.Sprintf("%.1f%%", -r.zeroRelative("MCB8", boundName, slackOf(slack)))
			})
			p.line("| the same, a failure counted as yield 0 | | %s | %s |", a, b)
		}
		p.line("")
	}
	p.line("%s", differencesText)
}
