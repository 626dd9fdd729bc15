package pace

import (
	"fmt"
	"strings"

	"evenkeel/sim/replay"
)

// judged are the metrics by which Evenkeel is to be better, in all at once.
var judged = []struct {
	name string
	more bool // is better
	of   func(*replay.Result) float64
	text func(float64) string
}{
	{"mean turnaround", false, turnaround, hours},
	{"median turnaround", false, func(r *replay.Result) float64 { return r.Turnaround.Median }, hours},
	{"mean stretch", false, func(r *replay.Result) float64 { return r.Stretch.Mean }, func(x float64) string { return fmt.Sprintf("%.2f", x) }},
	{"memory slack", false, func(r *replay.Result) float64 { return r.SlackMemory }, percent},
	{"CPU slack", false, func(r *replay.Result) float64 { return r.SlackCPU }, percent},
	{"failed", false, func(r *replay.Result) float64 { return r.Failed }, percent},
	{"preempted whole", false, func(r *replay.Result) float64 { return r.Requeued }, percent},
	{"QoS", true, func(r *replay.Result) float64 { return r.QoS }, func(x float64) string { return fmt.Sprintf("%.3f%%", 100*x) }},
	{"mean yield", true, func(r *replay.Result) float64 { return r.MeanYield }, func(x float64) string { return fmt.Sprintf("%.4f", x) }},
	{"work thrown away", false, func(r *replay.Result) float64 { return r.Thrash }, percent},
}

func (r *Results) own(say func(string, ...any)) {
	say("## Evenkeel's own settings\n")
	say("`evenkeel` is Algorithm 1 with CPU that may be short (a yield of at least 0.5 keeps an application, and CPU that is idle goes to any VM that can use it), memory that grew not taken back for ten minutes, limits that")
	say("are soft while the host has memory, and pressure answered by taking elastic components, the youngest of the last in order, before the kernel ends anything. `%s` foresees that the next minute is like the latest,", Ours)
	say("with 5%% of the request for a buffer, from one minute after a component began. It was chosen on draws of seeds 1 and 2; the table is of seed %d. `evenkeel:last` has the errors that the latest value made, their 97.5%% quantile for a", r.Size.Validation)
	say("buffer, and ten minutes of grace.\n")
	head, under := "| policy |", "|---|"
	for _, m := range judged {
		head += " " + m.name + " |"
		under += "---|"
	}
	say("%s\n%s", head, under)
	for _, one := range r.Own {
		row := "| `" + one.Policy + "` |"
		for _, m := range judged {
			row += " " + m.text(m.of(one)) + " |"
		}
		say("%s", row)
	}
	own := r.Own[len(r.Own)-1]
	say("\nIn which metrics `%s` is better than each of the paper's, as good, or worse:\n", own.Policy)
	for _, one := range r.Own {
		if strings.HasPrefix(one.Policy, "evenkeel") {
			continue
		}
		var better, equal, worse []string
		for _, m := range judged {
			a, b := m.of(own), m.of(one)
			switch {
			case a == b:
				equal = append(equal, m.name)
			case a > b == m.more:
				better = append(better, m.name)
			default:
				worse = append(worse, m.name)
			}
		}
		verdict := ""
		if len(worse) == 0 && len(better) > 0 {
			verdict = " **In none worse.**"
		}
		say("- `%s`: better in %s; as good in %s; worse in %s.%s", one.Policy, list(better), list(equal), list(worse), verdict)
	}
}

func list(s []string) string {
	if len(s) == 0 {
		return "nothing"
	}
	return strings.Join(s, ", ")
}
