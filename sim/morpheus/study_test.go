package morpheus

import (
	"fmt"
	"math"
	"testing"
)

// small is a study of few jobs.
func small(t *testing.T) *Study {
	t.Helper()
	s, err := NewStudy(Options{Seed: 104, Jobs: 16, Days: 21})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cells are the values of a table by row and column.
func cells(t *testing.T, s *Study, figure string) func(row, column string) float64 {
	t.Helper()
	table, err := s.Figure(figure)
	if err != nil {
		t.Fatal(err)
	}
	return func(row, column string) float64 {
		t.Helper()
		for _, r := range table.Rows {
			if at := table.column(column); r.Name == row && at >= 0 {
				return r.Values[at]
			}
		}
		t.Fatalf("figure %s has no %q of %q", figure, column, row)
		return 0
	}
}

// What the paper's figures show, on few jobs.
func TestWhatThePaperShows(t *testing.T) {
	s := small(t)
	provisioned := cells(t, s, "9b")
	last := math.Inf(1)
	for _, alpha := range alphas {
		v := provisioned("alpha "+percentOf(alpha), "all")
		if v > last+1e-9 {
			t.Errorf("9b: alpha %v reserves %v of what is used, more than %v before it", alpha, v, last)
		}
		last = v
	}
	missed := cells(t, s, "9c")
	if a, b := missed("alpha 1%", missedName), missed(equalRow, missedName); a >= b {
		t.Errorf("9c: %v missed, and %v by users with as much", a, b)
	}
	if a, b := missed("alpha 1%", missedName), missed("alpha 50%", missedName); a >= b {
		t.Errorf("9c: %v missed at alpha 1%%, and %v at 50%%", a, b)
	}
	clusters := cells(t, s, "9d")
	if a, b := clusters("alpha 1%", "cluster"), clusters("alpha 1%, align-right", "cluster"); a >= b {
		t.Errorf("9d: a cluster of %v by LowCost, of %v align-right", a, b)
	}
	again := cells(t, s, "10b")
	for _, alpha := range alphas {
		name := "alpha " + percentOf(alpha)
		without, paper, late := again(name, missedName), again(name+", re-provisioned", missedName), again(name+", late runs only", missedName)
		if paper > without || late > without || late > paper {
			t.Errorf("10b, %s: %v missed, re-provisioned %v, late runs only %v", name, without, paper, late)
		}
		if a, b := again(name+", late runs only", "of it granted"), again(name+", re-provisioned", "of it granted"); !(a > 0 && a < b) {
			t.Errorf("10b, %s: granted %v to late runs, %v to all", name, a, b)
		}
	}
	if again("alpha 25%", missedName) == again("alpha 25%, late runs only", missedName) {
		t.Error("10b: re-provisioning changes nothing")
	}
	delayed := cells(t, s, "12")
	if a, b := delayed("agenda, late runs only, 15 min late", "delayed runs in time"), delayed("agenda alone, 15 min late", "delayed runs in time"); a <= b {
		t.Errorf("12: %v of the delayed runs in time, %v without re-provisioning", a, b)
	}
	if a, b := delayed("agenda alone, 15 min late", "other runs missed"), delayed("equal shares, 15 min late", "other runs missed"); a >= b {
		t.Errorf("12: %v of the other runs missed in an agenda, %v with equal shares", a, b)
	}
}

func TestEqualSeedsEqualTables(t *testing.T) {
	a, b := small(t), small(t)
	for _, name := range []string{"9a", "9c"} {
		x, err := a.Figure(name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Figure(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%+v", *x), fmt.Sprintf("%+v", *y); got != want {
			t.Errorf("figure %s:\n%s\n%s", name, got, want)
		}
		if _, err := Summarize([]*Table{x, y}); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Figure("11"); err == nil {
		t.Error("figure 11 was made")
	}
}

func TestSummarize(t *testing.T) {
	columns := []Column{{Name: "missed"}, {Name: "over it", Over: "missed", Under: "missed", Base: "users"}}
	var tables []*Table
	for _, v := range []struct{ users, ours float64 }{{10, 1}, {20, 0}, {30, math.NaN()}} {
		x := &Table{Figure: "f", Columns: columns}
		x.row("users", v.users)
		x.row("ours", v.ours)
		tables = append(tables, x)
	}
	s, err := Summarize(tables[:2])
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Rows[0].Cells[0]; c.Mean != 15 || c.Low != 10 || c.High != 20 || c.Seeds != 2 {
		t.Errorf("mean of 10 and 20: %+v", c)
	}
	if c := s.Rows[1].Cells[1]; c.Mean != 30 || c.Low != 10 {
		t.Errorf("15 over 0.5: %+v", c)
	}
	if s, err = Summarize(tables); err != nil {
		t.Fatal(err)
	}
	if c := s.Rows[1].Cells[0]; c.Mean != 0.5 || c.Seeds != 2 {
		t.Errorf("a seed without a value: %+v", c)
	}
	if c := ratio([]float64{0, 4}, []float64{0, 2}); c != (Cell{2, 2, 2, 2}) {
		t.Errorf("resamples of 0 over 0 have no ratio: %+v", c)
	}
	tables[1].Rows = tables[1].Rows[:1]
	if _, err := Summarize(tables); err == nil {
		t.Error("unequal tables were summarized")
	}
}
