package morpheus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Column of a table.
type Column struct {
	Name    string
	Percent bool // values are shares, shown as percent
	Digits  int  // behind the point
	// Over makes a column of ratios: what row Base, or the row itself, has in column Over, over what the row has in column Under. They are of the means of
	// seeds, not means of the seeds' ratios, of which one may be infinite.
	Over, Under, Base string
}

// Row of a table: a value for each column. NaN: there is none.
type Row struct {
	Name   string
	Values []float64
}

// Table is one figure of one seed.
type Table struct {
	Figure  string
	Title   string
	Columns []Column
	Rows    []Row
}

func (t *Table) row(name string, values ...float64) {
	for len(values) < len(t.Columns) {
		values = append(values, math.NaN())
	}
	t.Rows = append(t.Rows, Row{name, values})
}

func (t *Table) column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
}

// Cell is a value over seeds: its mean, and the 95% interval of the mean. Seeds without a value are left out.
type Cell struct {
	Mean, Low, High float64
	Seeds           int
}

// Summary is a figure over all seeds.
type Summary struct {
	Figure  string
	Title   string
	Columns []Column
	Rows    []SummaryRow
}

// SummaryRow is a row of a summary.
type SummaryRow struct {
	Name  string
	Cells []Cell
}

// Summarize takes the tables of one figure, one of each seed.
func Summarize(tables []*Table) (*Summary, error) {
	first := tables[0]
	s := &Summary{Figure: first.Figure, Title: first.Title, Columns: first.Columns}
	for _, t := range tables {
		if t.Figure != first.Figure || len(t.Rows) != len(first.Rows) || len(t.Columns) != len(first.Columns) {
			return nil, fmt.Errorf("figure %s: the tables of two seeds have unequal rows", first.Figure)
		}
	}
	for r, row := range first.Rows {
		out := SummaryRow{Name: row.Name}
		for c, column := range first.Columns {
			values := func(r, c int) (v []float64) {
				for _, t := range tables {
					v = append(v, t.Rows[r].Values[c])
				}
				return v
			}
			if column.Over == "" {
				out.Cells = append(out.Cells, mean(values(r, c)))
				continue
			}
			base := r
			if column.Base != "" {
				base = slices.IndexFunc(first.Rows, func(b Row) bool { return b.Name == column.Base })
			}
			over, under := first.column(column.Over), first.column(column.Under)
			if base < 0 || over < 0 || under < 0 {
				return nil, fmt.Errorf("figure %s: column %q has nothing to compare with", first.Figure, column.Name)
			}
			out.Cells = append(out.Cells, ratio(values(base, over), values(r, under)))
		}
		s.Rows = append(s.Rows, out)
	}
	return s, nil
}

// mean of the seeds that have a value.
func mean(values []float64) Cell {
	v := slices.DeleteFunc(values, math.IsNaN)
	return resampled(len(v), func(at func(k int) int) (m float64) {
		for k := range v {
			m += v[at(k)] / float64(len(v))
		}
		return m
	})
}

// ratio of two means.
func ratio(over, under []float64) Cell {
	return resampled(len(over), func(at func(k int) int) float64 {
		a, b := 0.0, 0.0
		for k := range over {
			a, b = a+over[at(k)], b+under[at(k)]
		}
		return a / b
	})
}

// resamples of the seeds for an interval.
const resamples = 2000

// resampled is a value of n seeds, with the 95% interval of a bootstrap over them. The value takes its k-th seed from at(k).
func resampled(n int, value func(at func(k int) int) float64) Cell {
	if n == 0 {
		return Cell{math.NaN(), math.NaN(), math.NaN(), 0}
	}
	all := value(func(k int) int { return k })
	if math.IsNaN(all) || n == 1 {
		return Cell{all, all, all, n}
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	drawn, picks := make([]float64, resamples), make([]int, n)
	for i := range drawn {
		for k := range picks {
			picks[k] = rng.IntN(n)
		}
		drawn[i] = value(func(k int) int { return picks[k] })
	}
	drawn = slices.DeleteFunc(drawn, math.IsNaN) // 0 over 0
	slices.Sort(drawn)
	return Cell{all, drawn[len(drawn)*25/1000], drawn[(len(drawn)*975-1)/1000], n}
}

// quantile of values that are sorted.
func quantile(sorted []float64, share float64) float64 {
	return stat.Quantile(share, stat.Empirical, sorted, nil)
}
