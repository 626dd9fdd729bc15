package dfrs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/cmd/vcsim/chart"
)

// Report is what the page is made of.
type Report struct {
	Command         string
	Results, Sweeps *Results
	Notes           []string
}

// Write makes DIR/dfrs.md and DIR/dfrs/*.svg.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "dfrs"), 0o755); err != nil {
		return err
	}
	for name, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(dir, "dfrs", name+".svg"), c.SVG(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "dfrs.md"), []byte(r.page()), 0o644)
}

// number is three digits or so, for a table.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.0995:
		return fmt.Sprintf("%.3f", v)
	case v < 9.95:
		return fmt.Sprintf("%.2f", v)
	case v < 99.5:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

type page struct{ strings.Builder }

func (p *page) say(format string, args ...any) { fmt.Fprintf(p, format, args...) }

func (p *page) row(cells ...string) { p.say("| %s |\n", strings.Join(cells, " | ")) }

func (p *page) head(cells ...string) {
	p.row(cells...)
	p.say("|%s\n", strings.Repeat("---|", len(cells)))
}

// logs are the sets that are no synthetic ones.
func (r *Results) logs() (names []string) {
	for _, i := range r.Instances {
		if i.Set != Unscaled && i.Set != Scaled && !slices.Contains(names, i.Set) {
			names = append(names, i.Set)
		}
	}
	return names
}

// hpc2n is the log that the paper has, too.
const hpc2n = "hpc2n-excerpt"

func (r *Report) page() string {
	p := &page{}
	p.say(intro, r.Command)
	r.degradations(p)
	r.costs(p)
	r.byLoad(p)
	r.byLog(p)
	r.settings(p)
	p.say("%s", differences)
	for _, n := range r.Notes {
		p.say("- %s.\n", n)
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

func publishedText(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", v)
}

func (r *Report) degradations(p *page) {
	res := r.Results
	_, _, un := res.Mean(0, ofSet(Unscaled), degradation)
	_, _, sc := res.Mean(0, ofSet(Scaled), degradation)
	_, _, hp := res.Mean(0, ofSet(hpc2n), degradation)
	bound := 0.0
	for _, b := range res.Bounds {
		bound = max(bound, b)
	}
	p.say("## Greatest bounded stretch over its bound (table 2)\n\nMeans over %d unscaled workloads, %d scaled ones and %d weeks of HPC2N's log; "+
		"in the paper 100, 900 and 182. The greatest is over all scaled ones. Bounds are between 1 and %.1f.\n\n", un, sc, hp, bound)
	p.head("algorithm", "unscaled, published", "ours", "scaled, published", "ours", "greatest", "HPC2N, published", "ours, excerpt")
	for e, entry := range res.Entries {
		cells := []string{entry.Name, "", "", "", "", "", "", ""}
		for _, pub := range published {
			if pub.name == entry.Name {
				cells[1], cells[3], cells[6] = publishedText(pub.unscaled), publishedText(pub.scaled), publishedText(pub.hpc2n)
			}
		}
		mean, _, _ := res.Mean(e, ofSet(Unscaled), degradation)
		cells[2] = number(mean)
		mean, highest, _ := res.Mean(e, ofSet(Scaled), degradation)
		cells[4], cells[5] = number(mean), number(highest)
		if mean, _, n := res.Mean(e, ofSet(hpc2n), degradation); n > 0 {
			cells[7] = number(mean)
		}
		p.row(cells...)
	}
	p.say("\n![degradation by load](dfrs/degradation.svg)\n\n")
	p.say("On the same instances, one by one:\n\n")
	p.head("", "instances", "smaller greatest stretch", "fewer bytes", "both")
	for _, pair := range [][2]string{{ours, theirBest}, {frugal, theirBest}, {ours, theirLong}, {frugal, theirLong}} {
		e, their := res.entry(pair[0]), res.entry(pair[1])
		for _, set := range append([]string{Unscaled, Scaled}, res.logs()...) {
			var all, stretch, bytes, both int
			for i := range res.Instances {
				if res.Instances[i].Set != set {
					continue
				}
				a, b := &res.Outcomes[i][e], &res.Outcomes[i][their]
				s, y := a.MaxStretch <= b.MaxStretch, bothRates(a)*a.Makespan <= bothRates(b)*b.Makespan
				all++
				stretch, bytes, both = stretch+count(s), bytes+count(y), both+count(s && y)
			}
			p.row(fmt.Sprintf("%s against %s, %s", pair[0], pair[1], set), fmt.Sprint(all), fmt.Sprint(stretch), fmt.Sprint(bytes), fmt.Sprint(both))
		}
	}
	p.say("\nEqual counts as smaller and as fewer.\n\n")
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// entry is the place of a policy; -1: it is not there.
func (r *Results) entry(name string) int {
	return slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Name == name })
}

func (r *Report) costs(p *page) {
	busy := func(i *Instance) bool { return i.Set == Scaled && i.Load >= sweptLoad }
	p.say("%s", costIntro)
	p.head("algorithm", "paused and resumed, GB/s", "moved, GB/s", "together, greatest", "pauses an hour", "moves an hour", "pauses a job", "moves a job", "ms a decision")
	p.row(theirBest+", published", "0.54", "0.26", "1.34 + 0.62", "33.8", "56.5", "5.1", "6.8", "250 (MCB8 alone)")
	for e, entry := range r.Results.Entries {
		mean := func(figure func(*Outcome) float64) string {
			v, _, _ := r.Results.Mean(e, busy, figure)
			return number(v)
		}
		_, highest, _ := r.Results.Mean(e, busy, bothRates)
		p.row(entry.Name, mean(pausedRate), mean(movedRate), number(highest), mean(pausesHour), mean(movesHour), mean(pausesJob), mean(movesJob), mean(decision))
	}
	p.say("\n![bytes by load](dfrs/bytes.svg)\n\n")
}

// loads of the scaled instances.
func (r *Results) loads() (loads []float64) {
	for _, i := range r.Instances {
		if i.Set == Scaled && !slices.Contains(loads, i.Load) {
			loads = append(loads, i.Load)
		}
	}
	slices.Sort(loads)
	return loads
}

func (r *Report) byLoad(p *page) {
	p.say("## By load\n\nDegradation from the bound / mean stretch / CPU that was wanted and not used, %% of all work.\n\n")
	names := []string{"EASY", "GreedyP*", theirBest, theirLong, ours, frugal}
	p.head(append([]string{"load"}, names...)...)
	for _, load := range r.Results.loads() {
		cells := []string{fmt.Sprintf("%.1f", load)}
		for _, n := range names {
			at := func(i *Instance) bool { return i.Set == Scaled && i.Load == load }
			d, _, _ := r.Results.Mean(r.Results.entry(n), at, degradation)
			s, _, _ := r.Results.Mean(r.Results.entry(n), at, average)
			u, _, _ := r.Results.Mean(r.Results.entry(n), at, idle)
			cells = append(cells, fmt.Sprintf("%s / %s / %s", number(d), number(s), number(u)))
		}
		p.row(cells...)
	}
	p.say("\n")
}

func (r *Report) byLog(p *page) {
	logs := r.Results.logs()
	if len(logs) == 0 {
		return
	}
	p.say("## Logs of real machines\n\nDegradation from the bound / GB/s of pauses and moves, means over weeks.\n\n")
	p.head(append([]string{"algorithm"}, logs...)...)
	for e, entry := range r.Results.Entries {
		cells := []string{entry.Name}
		for _, l := range logs {
			d, _, _ := r.Results.Mean(e, ofSet(l), degradation)
			b, _, _ := r.Results.Mean(e, ofSet(l), bothRates)
			cells = append(cells, number(d)+" / "+number(b))
		}
		p.row(cells...)
	}
	cells := []string{"weeks, nodes, mean load"}
	for _, l := range logs {
		n, load, size := 0, 0.0, 0
		for _, i := range r.Results.Instances {
			if i.Set == l {
				n, load, size = n+1, load+i.Load, i.Cluster.Nodes
			}
		}
		cells = append(cells, fmt.Sprintf("%d, %d, %.2f", n, size, load/float64(n)))
	}
	p.row(cells...)
	p.say("\n")
}

func (r *Report) settings(p *page) {
	s := r.Sweeps
	if len(s.Instances) == 0 {
		return
	}
	p.say(sweepIntro, len(s.Instances), sweptLoad)
	p.head("setting", "degradation", "greatest", "GB/s", "of which moves", "mean stretch", "not used, %")
	every := func(*Instance) bool { return true }
	for e, entry := range s.Entries {
		d, highest, _ := s.Mean(e, every, degradation)
		b, _, _ := s.Mean(e, every, bothRates)
		m, _, _ := s.Mean(e, every, movedRate)
		a, _, _ := s.Mean(e, every, average)
		u, _, _ := s.Mean(e, every, idle)
		p.row(entry.Name, number(d), number(highest), number(b), number(m), number(a), number(u))
	}
	p.say("\n![degradation by period](dfrs/period.svg)\n![CPU not used by period](dfrs/idle.svg)\n\n")
}

// beside is a name that fits beside a chart.
func beside(name string) string {
	switch name {
	case theirBest:
		return "their best"
	case theirLong:
		return "the same, 1 h"
	case frugal:
		return "frugal"
	}
	return strings.TrimSuffix(name, "/MINVT=600")
}

// charts by name of file.
func (r *Report) charts() map[string]*chart.Chart {
	byLoad := func(title, label string, log bool, names []string, figure func(*Outcome) float64) *chart.Chart {
		c := &chart.Chart{Title: title, X: chart.Axis{Label: "offered load"}, Y: chart.Axis{Label: label, Log: log}}
		for style, n := range names {
			s := chart.Series{Name: beside(n), Style: style}
			e := r.Results.entry(n)
			for _, load := range r.Results.loads() {
				v, _, _ := r.Results.Mean(e, func(i *Instance) bool { return i.Set == Scaled && i.Load == load }, figure)
				s.Points = append(s.Points, chart.Point{X: load, Y: v})
			}
			c.Series = append(c.Series, s)
		}
		return c
	}
	byPeriod := func(title, label string, figure func(*Outcome) float64) *chart.Chart {
		c := &chart.Chart{Title: title, X: chart.Axis{Label: "period, s", Log: true}, Y: chart.Axis{Label: label}}
		every := func(*Instance) bool { return true }
		for style, named := range []func(float64) string{theirPeriod, ourPeriod} {
			s := chart.Series{Name: []string{"their best", ours}[style], Style: []int{4, 5}[style]}
			for _, v := range periods {
				e := r.Sweeps.entry(named(v))
				if e < 0 { // the default
					e = r.Sweeps.entry(ours)
				}
				y, _, _ := r.Sweeps.Mean(e, every, figure)
				s.Points = append(s.Points, chart.Point{X: v, Y: y})
			}
			c.Series = append(c.Series, s)
		}
		return c
	}
	stretch := []string{"EASY", "Greedy*", "GreedyP*", "GreedyPM*/per", theirBest, theirLong, ours, frugal}
	bytes := []string{"MCB8*/per/MINVT=600", "MCB8*/MINVT=600", "GreedyP*", "GreedyPM*/per", theirBest, theirLong, ours, frugal}
	all := map[string]*chart.Chart{
		"degradation": byLoad("Greatest bounded stretch over its bound", "degradation from the bound", true, stretch, degradation),
		"bytes":       byLoad("Bytes written and read for pauses and moves", "GB/s", false, bytes, bothRates),
	}
	if len(r.Sweeps.Instances) > 0 {
		all["period"] = byPeriod("Greatest bounded stretch over its bound", "degradation from the bound", degradation)
		all["idle"] = byPeriod("CPU that was wanted and not used", "% of all work", idle)
	}
	return all
}

// CSV is the figures of every replay.
func (r *Results) CSV() string {
	var b strings.Builder
	b.WriteString("set,load,nodes,jobs,policy,bound,max_stretch,degradation,mean_stretch,paused_bytes,moved_bytes,pauses,moves,makespan_s,idle,mean_yield,min_yield,decisions,cpu_s\n")
	for i, in := range r.Instances {
		for e, entry := range r.Entries {
			o := &r.Outcomes[i][e]
			fmt.Fprintf(&b, "%s,%.4g,%d,%d,%q,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%d,%d,%.6g,%.6g,%.6g,%.6g,%d,%.3f\n", in.Set, in.Load, in.Cluster.Nodes, len(in.Jobs),
				entry.Name, r.Bounds[i], o.MaxStretch, o.Degradation, o.AvgStretch, o.PausedBytes, o.MovedBytes, o.Pauses, o.Moves, o.Makespan, o.Idle,
				o.MeanYield, o.MinYield, o.Decisions, o.Seconds)
		}
	}
	return b.String()
}
