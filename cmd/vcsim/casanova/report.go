package casanova

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"evenkeel/allocator"
	"evenkeel/cmd/vcsim/chart"
)

// Published numbers: average and greatest percent degradation from the best,
// table 1 and figure 7.
var (
	published1 = map[string][2]float64{
		"MCB8": {1.06, 40.45}, "MCB5": {1.60, 38.67}, "MCB6": {1.83, 37.61}, "MCB7": {3.91, 40.71},
		"MCB3": {11.76, 55.73}, "MCB2": {14.21, 48.30}, "MCB1": {14.90, 55.84}, "MCB4": {17.32, 46.95},
	}
	published7 = map[string][2]float64{
		"MCB8": {0.09, 3.16}, "MCB5": {0.25, 3.50}, "MCB6": {0.46, 16.68}, "MCB7": {1.04, 48.39},
		"MCB3": {4.07, 64.71}, "MCB2": {8.68, 46.68}, "MCB1": {10.97, 73.33}, "MCB4": {14.80, 61.20},
	}
	publishedOrder = []string{"MCB8", "MCB5", "MCB6", "MCB7", "MCB3", "MCB2", "MCB1", "MCB4"}
)

// figure is one of the paper's figures.
type figure struct {
	number int
	set    Set
	names  []string
	what   string
	y      chart.Axis
	m      measure
	tasks  bool // over the number of tasks instead of the slack
}

func stats() (list []figure) {
	var packing []string
	for order := allocator.ListOrder(8); order >= 1; order-- {
		packing = append(packing, mcbName(order))
	}
	sequential := []string{boundName, "MCB8", "GR", "SG", "GB", "SGB", "RRND", "RRNZ"}
	small := append([]string{boundName, exactName}, sequential[1:]...)
	add := func(numbers [4]int, set Set, names []string) {
		var timed []string
		for _, name := range names {
			if name != boundName {
				timed = append(timed, name)
			}
		}
		yield := chart.Axis{Label: "minimum yield", Min: 0, Max: 1}
		average := chart.Axis{Label: "average yield", Min: 0, Max: 1}
		if set != Parallel && names[0] != boundName {
			yield.Min, yield.Max, average.Min, average.Max = 0, 0, 0, 0 // near each other: enlarged
		}
		rate := chart.Axis{Label: "failure rate", Min: 0, Max: 1}
		list = append(list,
			figure{numbers[0], set, names, "minimum yield", yield, minYield, false},
			figure{numbers[1], set, names, "average yield", average, averageYield, false},
			figure{numbers[2], set, names, "failure rate", rate, failure, false},
			figure{numbers[3], set, timed, "run time", chart.Axis{Label: "run time, ms", Log: true}, milliseconds, true})
	}
	add([4]int{2, 3, 4, 5}, Small, packing)
	add([4]int{6, 8, 9, 10}, Large, packing)
	add([4]int{11, 12, 13, 14}, Small, small)
	add([4]int{15, 16, 17, 18}, Large, sequential)
	add([4]int{19, 20, 21, 22}, Parallel, []string{boundName, "MCB8", "SG"})
	return list
}

func (f *figure) file() string { return fmt.Sprintf("fig%02d.svg", f.number) }

func (f *figure) draw(r *Results) []byte {
	c := chart.Chart{Title: fmt.Sprintf("Figure %d: %s, %s instances", f.number, f.what, f.set), Y: f.y}
	x := bySlack
	c.X = chart.Axis{Label: "memory slack", Min: 0.1, Max: 0.9}
	if f.tasks {
		x = byTasks
		c.X = chart.Axis{Label: "number of tasks"}
	}
	for _, name := range f.names {
		c.Series = append(c.Series, r.curve(name, x, f.m))
	}
	return c.SVG()
}

// Report is what is written of one run.
type Report struct {
	Command string // that makes it again

	// Results of the sets that were run; nil: not run.
	Small, Large, Parallel *Results

	// Small and Large with the other way of truncation, some algorithms only; nil:
	// not run.
	SmallClamped, LargeClamped *Results
}

func (r *Report) of(s Set) *Results { return [...]*Results{r.Small, r.Large, r.Parallel}[s] }

// Write writes dir/casanova.md and the figures below dir/casanova.
func (r *Report) Write(dir string) error {
	below := filepath.Join(dir, "casanova")
	if err := os.MkdirAll(below, 0o755); err != nil {
		return fmt.Errorf("directory for the figures: %w", err)
	}
	for _, f := range stats() {
		if results := r.of(f.set); results != nil {
			if err := os.WriteFile(filepath.Join(below, f.file()), f.draw(results), 0o644); err != nil {
				return fmt.Errorf("figure %d: %w", f.number, err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "casanova.md"), []byte(r.text()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// page is Markdown in the making.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) stats(r *Report, numbers ...int) {
	p.line("")
	for _, f := range stats() {
		for _, n := range numbers {
			if f.number == n && r.of(f.set) != nil {
				p.line("![Figure %d: %s, %s instances](casanova/%s)", n, f.what, f.set, f.file())
			}
		}
	}
	p.line("")
}

func (r *Report) text() string {
	p := &page{}
	r.introduction(p)
	if r.Small != nil {
		r.small(p)
	}
	if r.Large != nil {
		r.large(p)
	}
	if r.Parallel != nil {
		r.parallel(p)
	}
	r.differences(p)
	return p.String()
}

// degradations is table 1 or figure 7 beside ours.
func (p *page) degradations(r *Results, published map[string][2]float64) {
	p.line("")
	p.line("| algorithm | published avg. | ours avg., a failure as 100%% | ours avg. of what it solved | published max | ours max |")
	p.line("|---|---|---|---|---|---|")
	for _, name := range publishedOrder {
		average, highest, withFailures := r.degradation(name, publishedOrder)
		p.line("| %s | %.2f | %.2f | %.2f | %.2f | %.2f |", name, published[name][0], withFailures, average, published[name][1], highest)
	}
	p.line("")
}

// compared is a table of quoted numbers beside ours.
func (p *page) compared(rows ...[3]string) {
	p.line("| what | published | ours |")
	p.line("|---|---|---|")
	for _, row := range rows {
		p.line("| %s | %s | %s |", row[0], row[1], row[2])
	}
	p.line("")
}

func (r *Results) time(name string) string {
	return fmt.Sprintf("%.3g ms", r.mean(name, milliseconds))
}

func (r *Results) slowest(name string) string {
	worst := 0.0
	r.count(name, func(o *outcome) bool {
		ms, _ := milliseconds(o)
		worst = max(worst, ms)
		return false
	})
	return fmt.Sprintf("%.3g ms", worst)
}
