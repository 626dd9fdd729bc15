package pace

import "evenkeel/sim/workload"

// publishedAt is what the paper says of K1 and K2 where its gains are greatest (figure 3), by policy.
var publishedAt = map[string]string{
	"pessimistic-hard:arima10:0.05:0": "7.5 times shorter, slack 30%, failed about 26%",
	"pessimistic-hard:gp10:0.05:3":    "10.6 times shorter, slack 22%, few fail",
}

// atLength plays reservation, and the policies that are to be played at length.
func (r *Results) atLength(play Player) error {
	if len(r.Size.AtLength) == 0 {
		return nil
	}
	for _, name := range append([]string{"reservation"}, r.Size.AtLength...) {
		one, err := play(r.Size.Long, r.Size.Seed, name)
		if err != nil {
			return err
		}
		r.Long = append(r.Long, one)
	}
	return nil
}

// length shows what came of it.
func (r *Results) length(say func(string, ...any)) {
	if len(r.Long) == 0 {
		return
	}
	size, base := r.Size.Long, r.Long[0]
	say("## At length\n")
	say("%d hosts and %d applications in %.3g days, memory as for the heat maps, one draw; the paper has 250 hosts, %.0f days, and as many applications a host and day. `pessimistic-hard` has hard limits, `pessimistic`", size.Hosts, size.Apps, size.Days, workload.PaceDefault.Days)
	say("soft limits; after the forecast stand K1 and K2, and `persist` foresees that the next minute is like the latest. Times shorter than reservation's: means as the paper has it, and medians.\n")
	say("| policy | published | mean turnaround | times shorter | median | times shorter | memory slack | CPU slack | failed | preempted whole | work thrown away |\n|---|---|---|---|---|---|---|---|---|---|---|")
	for _, x := range r.Long {
		published := publishedAt[x.Policy]
		if published == "" {
			published = "–"
		}
		say("| `%s` | %s | %s | %.1f | %s | %.1f | %s | %s | %s | %s | %s |", x.Policy, published, hours(turnaround(x)), ratio(turnaround(base), turnaround(x)),
			hours(x.Turnaround.Median), ratio(base.Turnaround.Median, x.Turnaround.Median), percent(x.SlackMemory), percent(x.SlackCPU), percent(x.Failed), percent(x.Requeued), percent(x.Thrash))
	}
	say("\nWhat fails or is taken back under hard limits does its work again, and holds up others meanwhile. Ours is another workload than the paper's: how fast its memory changes, what was asked for over what")
	say("there was, and how its applications' lives are spread it does not print, and gains hang on all three (see below).\n")
}
