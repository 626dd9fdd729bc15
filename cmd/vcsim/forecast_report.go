package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"evenkeel/sim/score"
	"evenkeel/sim/trace"
)

// forecastReport is the result of vcsim forecast, as JSON has it. A figure that there is none of is null.
type forecastReport struct {
	Steps  int              `json:"steps"`
	Warmup int              `json:"warmup"`
	Every  int              `json:"every"`
	Seed   uint64           `json:"seed"`
	VMs    int              `json:"vms"`    // drawn of each set; 0: all
	Length int              `json:"length"` // of the stretch drawn of each series; 0: all
	Groups []forecastGroup  `json:"groups"`
	Series []forecastSeries `json:"series"`
}

// forecastGroup is a set's series of one use.
type forecastGroup struct {
	Set     string          `json:"set"`
	Use     string          `json:"use"` // cpu, memory, both
	Still   bool            `json:"still"`
	Series  int             `json:"series"`   // scored
	Short   int             `json:"short"`    // not scored: too few origins
	Origins int             `json:"origins"`  // that count
	Dropped int             `json:"dropped"`  // that do not, because a model could not predict
	Flat    int             `json:"constant"` // series without any change: no MASE, no pinball loss
	Models  []forecastModel `json:"models"`
}

// forecastModel is how one model did on a group.
type forecastModel struct {
	Model    string          `json:"model"`
	Unable   int             `json:"unable"`
	Broken   int             `json:"broken"`
	Total    forecastStats   `json:"total"`
	Horizons []forecastStats `json:"horizons"`
}

// forecastStats are means over series.
type forecastStats struct {
	MASE       *float64            `json:"mase"`
	Pinball    *float64            `json:"pinball"`
	Coverage   map[string]*float64 `json:"coverage"`
	Strict     map[string]*float64 `json:"coverageStrict"` // values on a bound are outside
	InBand     *float64            `json:"inBand"`
	InBandTies *float64            `json:"inBandWithTies"`
}

// forecastSeries is how the models did on one series.
type forecastSeries struct {
	Set      string        `json:"set"`
	VM       string        `json:"vm"`
	Use      string        `json:"use"`
	Values   int           `json:"values"`
	Measured int           `json:"measured"`
	Origins  int           `json:"origins"`
	Scale    float64       `json:"scale"`
	Repeats  float64       `json:"repeats"`
	Still    bool          `json:"still"`
	Short    bool          `json:"short"`
	Models   []seriesModel `json:"models"`
}

type seriesModel struct {
	Model  string        `json:"model"`
	Unable int           `json:"unable"`
	Broken int           `json:"broken"`
	Total  forecastStats `json:"total"`
}

func newForecastReport(o forecastOptions, all []trace.Series, results []score.Result) forecastReport {
	r := forecastReport{Steps: o.score.Steps, Warmup: o.score.Warmup, Every: o.score.Every, Seed: o.seed, VMs: o.vms, Length: o.length}
	var sets []string
	for i, s := range all {
		if !slices.Contains(sets, s.Set) {
			sets = append(sets, s.Set)
		}
		one := forecastSeries{Set: s.Set, VM: s.VM, Use: string(s.Resource), Values: results[i].Values, Measured: results[i].Measured,
			Origins: results[i].Origins, Scale: results[i].Scale, Repeats: results[i].Repeats, Still: results[i].Still(), Short: results[i].Short}
		for k, m := range o.models {
			sum := score.Summarize(results[i:i+1], k, 0)
			one.Models = append(one.Models, seriesModel{Model: m.name, Unable: sum.Unable, Broken: sum.Broken, Total: statsOf(sum)})
		}
		r.Series = append(r.Series, one)
	}
	for _, set := range sets {
		uses := map[trace.Resource]bool{}
		for _, s := range all {
			if s.Set == set {
				uses[s.Resource] = true
			}
		}
		for _, use := range []string{string(trace.CPU), string(trace.Memory), "both"} {
			if use == "both" && len(uses) < 2 || use != "both" && !uses[trace.Resource(use)] {
				continue
			}
			for _, still := range []bool{false, true} {
				g := forecastGroup{Set: set, Use: use, Still: still}
				var in []score.Result
				for i, s := range all {
					switch {
					case s.Set != set || use != "both" && string(s.Resource) != use || results[i].Still() != still:
					case results[i].Short:
						g.Short++
					default:
						in = append(in, results[i])
					}
				}
				if len(in) == 0 && g.Short == 0 {
					continue
				}
				g.Series = len(in)
				for k, m := range o.models {
					sum := score.Summarize(in, k, 0)
					g.Origins, g.Dropped, g.Flat = sum.Origins, sum.Asked-sum.Origins, sum.Constant
					f := forecastModel{Model: m.name, Unable: sum.Unable, Broken: sum.Broken, Total: statsOf(sum)}
					for h := 1; h <= o.score.Steps; h++ {
						f.Horizons = append(f.Horizons, statsOf(score.Summarize(in, k, h)))
					}
					g.Models = append(g.Models, f)
				}
				r.Groups = append(r.Groups, g)
			}
		}
	}
	return r
}

func statsOf(s score.Summary) forecastStats {
	f := forecastStats{MASE: finite(s.MASE), Pinball: finite(s.Pinball), InBand: finite(s.InBand), InBandTies: finite(s.InBandTie),
		Coverage: map[string]*float64{}, Strict: map[string]*float64{}}
	for i := range score.Coverages {
		f.Coverage[coverageName(i)], f.Strict[coverageName(i)] = finite(s.Coverage[i]), finite(s.Strict[i])
	}
	return f
}

// coverageName is the interval's share in percent, "95".
func coverageName(i int) string { return strconv.Itoa(int(math.Round(100 * score.Coverages[i]))) }

func (r forecastReport) write(w io.Writer, o forecastOptions) error {
	var err error
	switch o.output {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		err = e.Encode(r)
	case "csv":
		err = r.csv(w)
	case "markdown":
		_, err = fmt.Fprintf(w, "%s\n\n%s", r.table(o.horizons).RenderMarkdown(), r.legend("- "))
	default:
		t := r.table(o.horizons)
		t.SetStyle(table.StyleLight)
		t.Style().Format.Header = text.FormatDefault
		_, err = fmt.Fprintf(w, "%s\n%s", t.Render(), r.legend(""))
	}
	if err != nil {
		return fmt.Errorf("write the scores: %w", err)
	}
	return nil
}

// table has a block of models per group.
func (r forecastReport) table(horizons bool) table.Writer {
	t := table.NewWriter()
	head := table.Row{"SET", "USE", "SERIES", "MODEL"}
	if horizons {
		head = append(head, "AHEAD")
	}
	head = append(head, "MASE", "PINBALL")
	for i := range score.Coverages {
		head = append(head, coverageName(i)+"%")
	}
	head = append(head, "VMS 90-98", "WITH TIES", "UNABLE")
	t.AppendHeader(head)
	var columns []table.ColumnConfig
	for i := range head {
		if name := head[i].(string); name != "SET" && name != "USE" && name != "MODEL" {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight})
		}
	}
	t.SetColumnConfigs(columns)
	for _, g := range r.Groups {
		if g.Series == 0 {
			continue // all are short: the legend says so
		}
		if t.Length() > 0 {
			t.AppendSeparator()
		}
		use := g.Use
		if g.Still {
			use += ", still"
		}
		best := bestPinball(g.Models)
		for k, m := range g.Models {
			for h := 0; h <= len(m.Horizons) && (h == 0 || horizons); h++ {
				f, ahead := m.Total, "all"
				if h > 0 {
					f, ahead = m.Horizons[h-1], strconv.Itoa(h)
				}
				row := table.Row{g.Set, use, g.Series, m.Model}
				if horizons {
					row = append(row, ahead)
				}
				mark := " "
				if h == 0 && k == best {
					mark = "*"
				}
				row = append(row, shown(f.MASE, 1, 3), shown(f.Pinball, 1, 4)+mark)
				for i := range score.Coverages {
					row = append(row, shown(f.Coverage[coverageName(i)], 100, 1))
				}
				row = append(row, shown(f.InBand, 100, 0), shown(f.InBandTies, 100, 0), m.Unable+m.Broken)
				t.AppendRow(row)
			}
		}
	}
	return t
}

// bestPinball is the model with the least loss as it is printed; -1 if there is none.
func bestPinball(models []forecastModel) int {
	best := -1
	for k, m := range models {
		if p := m.Total.Pinball; p != nil && (best < 0 || *p < *models[best].Total.Pinball) {
			best = k
		}
	}
	return best
}

func shown(v *float64, times float64, digits int) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v*times, 'f', digits, 64)
}

// legend says what the table does not: how much was scored, and what was not.
func (r forecastReport) legend(bullet string) string {
	var b strings.Builder
	for _, g := range r.Groups {
		if g.Use == "both" {
			continue
		}
		use := g.Use
		if g.Still {
			use += ", still (95% of the values repeat)"
		}
		fmt.Fprintf(&b, "%s%s %s: %s scored at %d places, %d steps ahead", bullet, g.Set, use, series(g.Series), g.Origins, r.Steps)
		if g.Dropped > 0 {
			fmt.Fprintf(&b, "; %d places dropped because a model could not predict", g.Dropped)
		}
		if g.Flat > 0 {
			fmt.Fprintf(&b, "; %d without any change have no MASE and no pinball loss", g.Flat)
		}
		if g.Short > 0 {
			fmt.Fprintf(&b, "; %d left out, too short or too often not measured", g.Short)
		}
		for _, m := range g.Models {
			if m.Broken > 0 {
				fmt.Fprintf(&b, "; %s stated %d times what is no prediction", m.Model, m.Broken)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// series counts: the word is its own plural.
func series(n int) string { return fmt.Sprintf("%d series", n) }

// csv has a line per group, model and number of steps ahead, 0 for all together.
func (r forecastReport) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"set", "use", "still", "series", "constant", "short", "origins", "dropped", "model", "unable", "broken", "ahead", "mase", "pinball"}
	for i := range score.Coverages {
		head = append(head, "coverage"+coverageName(i))
	}
	for i := range score.Coverages {
		head = append(head, "strict"+coverageName(i))
	}
	rows := [][]string{append(head, "inBand", "inBandWithTies")}
	for _, g := range r.Groups {
		for _, m := range g.Models {
			for h := 0; h <= len(m.Horizons); h++ {
				f := m.Total
				if h > 0 {
					f = m.Horizons[h-1]
				}
				row := []string{g.Set, g.Use, strconv.FormatBool(g.Still), strconv.Itoa(g.Series), strconv.Itoa(g.Flat), strconv.Itoa(g.Short), strconv.Itoa(g.Origins),
					strconv.Itoa(g.Dropped), m.Model, strconv.Itoa(m.Unable), strconv.Itoa(m.Broken), strconv.Itoa(h), exact(f.MASE), exact(f.Pinball)}
				for i := range score.Coverages {
					row = append(row, exact(f.Coverage[coverageName(i)]))
				}
				for i := range score.Coverages {
					row = append(row, exact(f.Strict[coverageName(i)]))
				}
				rows = append(rows, append(row, exact(f.InBand), exact(f.InBandTies)))
			}
		}
	}
	return c.WriteAll(rows)
}

// exact is v with six digits, empty if there is none.
func exact(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', 6, 64)
}
