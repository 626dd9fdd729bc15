package main

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// order is what --sort asks for.
type order struct {
	column string
	down   bool
}

func parseOrder(written string) (order, error) {
	column, way, given := strings.Cut(written, ":")
	switch {
	case given && way != "asc" && way != "desc":
		return order{}, usage("--sort %s: write COLUMN, COLUMN:asc or COLUMN:desc", written)
	case column == "":
		return order{}, usage("--sort: name a column")
	}
	return order{column, way == "desc"}, nil
}

// of cells: their numbers in order. Cells that are all amounts (numbers, sizes, times that pass, k of n) are compared by
// amount, else as names whose numbers count: h2 is before h10. Empty ones come last either way; equal ones stay as they are.
func (o order) of(cells []string) []int {
	amounts, all := make([]float64, len(cells)), true
	for i, c := range cells {
		if !emptyCell(c) {
			var ok bool
			amounts[i], ok = amountOf(c)
			all = all && ok
		}
	}
	out := make([]int, len(cells))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int {
		switch ea, eb := emptyCell(cells[a]), emptyCell(cells[b]); {
		case ea && eb:
			return 0
		case ea:
			return 1
		case eb:
			return -1
		}
		by := 0
		if all {
			by = cmp.Compare(amounts[a], amounts[b])
		} else {
			by = compareNames(cells[a], cells[b])
		}
		if o.down {
			by = -by
		}
		return by
	})
	return out
}

func emptyCell(s string) bool { return s == "" || s == "-" }

var passed = regexp.MustCompile(`^(\d+(\.\d+)?(ms|µs|[dhms]))+$`)
var passedPart = regexp.MustCompile(`(\d+(?:\.\d+)?)(ms|µs|[dhms])`)

// amountOf a cell: 0.40, 1.2GiB, 3d4h, 2/5, 40%.
func amountOf(s string) (float64, bool) {
	if k, n, of := strings.Cut(s, "/"); of && n != "s" {
		s = k
	}
	if x, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64); err == nil {
		return x, true
	}
	if passed.MatchString(s) {
		units := map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second, "ms": time.Millisecond, "µs": time.Microsecond}
		sum := 0.0
		for _, part := range passedPart.FindAllStringSubmatch(s, -1) {
			x, err := strconv.ParseFloat(part[1], 64)
			if err != nil {
				return 0, false
			}
			sum += x * float64(units[part[2]])
		}
		return sum, true
	}
	s = strings.TrimSuffix(s, "/s")
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "B"} {
		number, is := strings.CutSuffix(s, unit)
		if !is {
			continue
		}
		x, err := strconv.ParseFloat(number, 64)
		if unit != "B" {
			x = math.Ldexp(x, 10*(i+1))
		}
		return x, err == nil
	}
	return 0, false
}

// compareNames as people count: each run of digits is a number.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if by := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb)); by != 0 {
				return by
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits that a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// selector is what --selector asks for: all of its terms hold.
type selector []selectorTerm

type selectorTerm struct {
	key, value    string
	equal, negate bool // equal: the value counts; else only whether the label is there
}

func parseSelector(written string) (selector, error) {
	var out selector
	for _, term := range strings.Split(written, ",") {
		term = strings.TrimSpace(term)
		var t selectorTerm
		if key, value, ok := strings.Cut(term, "!="); ok {
			t = selectorTerm{key, value, true, true}
		} else if key, value, ok := strings.Cut(strings.Replace(term, "==", "=", 1), "="); ok {
			t = selectorTerm{key, value, true, false}
		} else {
			key, negate := strings.CutPrefix(term, "!")
			t = selectorTerm{key: key, negate: negate}
		}
		t.key, t.value = strings.TrimSpace(t.key), strings.TrimSpace(t.value)
		if t.key == "" || strings.ContainsAny(t.key, "!= ") {
			return nil, usage("--selector %s: %q: write KEY=VALUE, KEY!=VALUE, KEY or !KEY, with commas between", written, term)
		}
		out = append(out, t)
	}
	return out, nil
}

// match says whether labels are such. A label that is not there has no value: KEY!=VALUE holds.
func (s selector) match(labels map[string]string) bool {
	for _, t := range s {
		value, there := labels[t.key]
		is := there && (!t.equal || value == t.value)
		if is == t.negate {
			return false
		}
	}
	return true
}

// shortTime is how long something has lasted, in its two greatest units: 45s, 12m5s, 3h40m, 12d4h.
func shortTime(d time.Duration) string {
	d = max(0, d).Truncate(time.Second)
	parts := []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, p := range parts {
		if d < p.unit && i < len(parts)-1 {
			continue
		}
		out := strconv.Itoa(int(d/p.unit)) + p.name
		if rest := d % p.unit; i < len(parts)-1 && rest >= parts[i+1].unit {
			out += strconv.Itoa(int(rest/parts[i+1].unit)) + parts[i+1].name
		}
		return out
	}
	return ""
}

// now may be set by tests of ages.
var now = time.Now

// ago is how long ago a time was; "" if it is none.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return shortTime(now().Sub(t))
}
