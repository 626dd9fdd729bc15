package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

// listView describes a list as a table. With -o wide it has more columns.
type listView[T any] struct {
	heads  []string // of all columns
	narrow int      // so many of them are shown without -o wide
	cells  func(T) []string
	// whole writes the list where a plain table does not serve; nil: the table does.
	whole func(all []T, wide bool) string
	// labels of an item, a set for each group that it has; nil: items have none.
	labels func(T) []map[string]string
}

// tableOf describes a table: its heads, separated by commas, those that -o wide adds, and the cells below all of them.
func tableOf[T any](heads, wider string, cells func(T) []string) listView[T] {
	out := listView[T]{heads: strings.Split(heads, ","), cells: cells}
	out.narrow = len(out.heads)
	if wider != "" {
		out.heads = append(out.heads, strings.Split(wider, ",")...)
	}
	return out
}

// text is the list as people read it.
func (l listView[T]) text(all []T, wide bool) string {
	if l.whole != nil {
		return l.whole(all, wide)
	}
	n := l.narrow
	if wide {
		n = len(l.heads)
	}
	tab := newTable(l.heads[:n]...)
	if !wide {
		tab.fit(tableWidth)
	}
	for _, x := range all {
		tab.row(l.cells(x)[:n]...)
	}
	return tab.String()
}

// answer is a list that the server answered with, for a command's ask.
func (l listView[T]) answer(all []T, err error) (any, view, error) {
	shown := listing[T]{items(all), l}
	return shown, shown.text, err
}

// listing is a list with the way to show it. As JSON it is the list.
type listing[T any] struct {
	v1.List[T]
	in listView[T]
}

// lister is a listing of any type.
type lister interface {
	text(wide bool) string
	// rows are the heads of all columns, and the cells below them.
	rows() (heads []string, cells [][]string)
	// item by its number, as JSON has it.
	item(i int) any
	// selected are the items that match.
	selected(selector) (lister, error)
	// sorted by a column.
	sorted(order) (lister, error)
}

func (l listing[T]) text(wide bool) string { return l.in.text(l.Items, wide) }

func (l listing[T]) rows() ([]string, [][]string) {
	cells := make([][]string, len(l.Items))
	for i, x := range l.Items {
		if l.in.cells != nil {
			cells[i] = l.in.cells(x)
		}
	}
	return l.in.heads, cells
}

func (l listing[T]) item(i int) any { return l.Items[i] }

func (l listing[T]) selected(s selector) (lister, error) {
	if l.in.labels == nil {
		return nil, usage("--selector: what is listed here has no labels")
	}
	l.Items = slices.DeleteFunc(slices.Clone(l.Items), func(x T) bool { return !slices.ContainsFunc(l.in.labels(x), s.match) })
	return l, nil
}

func (l listing[T]) sorted(by order) (lister, error) {
	column, err := columnOf(l.in.heads, by.column)
	if err != nil {
		return nil, fmt.Errorf("--sort %s: %w", by.column, err)
	}
	_, cells := l.rows()
	keys := make([]string, len(cells))
	for i, row := range cells {
		keys[i] = row[column]
	}
	to := make([]T, len(l.Items))
	for i, from := range by.of(keys) {
		to[i] = l.Items[from]
	}
	l.Items = to
	return l, nil
}

// columnOf the heads that a user names: without regard to case, with a hyphen for a space.
func columnOf(heads []string, name string) (int, error) {
	plain := func(s string) string { return strings.ToUpper(strings.NewReplacer("-", " ", "_", " ").Replace(s)) }
	i := slices.IndexFunc(heads, func(h string) bool { return plain(h) == plain(name) })
	if i < 0 {
		known := slices.DeleteFunc(slices.Clone(heads), func(h string) bool { return h == "" })
		for k, h := range known {
			known[k] = strings.ToLower(strings.ReplaceAll(h, " ", "-"))
		}
		return 0, usage("there is no column %q: there are %s", name, strings.Join(known, ", "))
	}
	return i, nil
}

// Flags of commands that list.
var (
	sortFlag     = &cli.StringFlag{Name: "sort", Usage: "sort by a `COLUMN`, also one of -o wide; COLUMN:desc turns it round"}
	selectorFlag = &cli.StringFlag{Name: "selector", Aliases: []string{"l"}, Usage: "only those with these `LABELS`: env=prod,tier!=web,gpu,!old (all of them hold)"}
)

// arranged is a list as --selector and --sort want it; what is no list stays.
func arranged(c *cli.Context, value any, text view) (any, view, error) {
	list, is := value.(lister)
	if !is {
		return value, text, nil
	}
	if written := c.String("selector"); written != "" {
		s, err := parseSelector(written)
		if err == nil {
			list, err = list.selected(s)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if written := c.String("sort"); written != "" {
		by, err := parseOrder(written)
		if err == nil {
			list, err = list.sorted(by)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return list, list.text, nil
}

// asCSV is a list with all its columns, RFC 4180.
func asCSV(l lister) (string, error) {
	heads, cells := l.rows()
	return csvOf(heads, cells)
}

func csvOf(heads []string, cells [][]string) (string, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	row := func(in []string) error {
		out := slices.Clone(in)
		for i, c := range out {
			if c == "-" {
				c = ""
			}
			out[i] = oneLine(c)
		}
		return w.Write(out)
	}
	err := row(heads)
	for i := 0; err == nil && i < len(cells); i++ {
		err = row(cells[i][:len(heads)])
	}
	if w.Flush(); err == nil {
		err = w.Error()
	}
	if err != nil {
		return "", fmt.Errorf("write CSV: %w", err)
	}
	return b.String(), nil
}

// asNames is one name a line: what other commands take, so TENANT/NAME where the list is of all tenants; of what has no name its id.
func asNames(l lister) string {
	heads, cells := l.rows()
	column, err := columnOf(heads, "NAME")
	if err != nil {
		if column, err = columnOf(heads, "ID"); err != nil {
			column = 0
		}
	}
	var b strings.Builder
	for _, row := range cells {
		name := row[column]
		if heads[0] == "TENANT" && heads[column] == "NAME" {
			name = fullName(row[0], name)
		}
		b.WriteString(oneLine(name) + "\n")
	}
	return b.String()
}

// asColumns is a list with the columns of -o custom-columns: each a column's name, or HEAD:PATH for a field of the JSON.
func asColumns(l lister, spec string) (string, error) {
	heads, cells := l.rows()
	var shown []string
	var columns []func(i int) string
	for _, written := range strings.Split(spec, ",") {
		head, path, isPath := strings.Cut(strings.TrimSpace(written), ":")
		if !isPath {
			column, err := columnOf(heads, head)
			if err != nil {
				return "", fmt.Errorf("-o custom-columns: %w", err)
			}
			shown = append(shown, heads[column])
			columns = append(columns, func(i int) string { return cells[i][column] })
			continue
		}
		if path = strings.TrimPrefix(path, "."); head == "" || path == "" {
			return "", usage("-o custom-columns: %q: write a column, or HEAD:field.of.the.JSON", written)
		}
		shown = append(shown, head)
		columns = append(columns, func(i int) string { return fieldOf(l.item(i), strings.Split(path, ".")) })
	}
	tab := newTable(shown...)
	for i := range cells {
		row := make([]string, len(columns))
		for k, column := range columns {
			row[k] = column(i)
		}
		tab.row(row...)
	}
	return tab.String(), nil
}

// fieldOf a value by the names of its JSON; "" where there is none.
func fieldOf(value any, path []string) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	var at any
	if err := json.Unmarshal(raw, &at); err != nil {
		return ""
	}
	for i, name := range path {
		switch in := at.(type) {
		case map[string]any:
			at = in[name]
		case []any:
			if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(in) {
				at = in[n]
				continue
			}
			var all []string // of each element
			for _, x := range in {
				all = append(all, fieldOf(x, path[i:]))
			}
			return strings.Join(all, ",")
		default:
			return ""
		}
	}
	return plainText(at)
}

func plainText(x any) string {
	switch x := x.(type) {
	case nil:
		return ""
	case string:
		return x
	case []any:
		var all []string
		for _, e := range x {
			all = append(all, plainText(e))
		}
		return strings.Join(all, ",")
	}
	raw, err := json.Marshal(x)
	if err != nil {
		return ""
	}
	return string(raw)
}
