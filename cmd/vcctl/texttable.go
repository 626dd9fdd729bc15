package main

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// textTable is a table of plain columns.
type textTable struct {
	rows   [][]string // the heads first
	widths []int
	limit  int // columns of text in which its lines must fit, if they can; 0: there is no limit
}

const (
	// columnGap is between two columns.
	columnGap = "   "
	// tableWidth is how many columns of text a table has at most, without -o wide.
	tableWidth = 120
	// minWrapped is the least width of a column that is wrapped.
	minWrapped = 24
)

func newTable(heads ...string) *textTable {
	t := &textTable{widths: make([]int, len(heads))}
	t.add(heads)
	return t
}

// fit the table in so many columns of text: the last of its columns is wrapped.
func (t *textTable) fit(columns int) { t.limit = columns }

func (t *textTable) row(cells ...string) {
	shown := make([]string, len(cells))
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		shown[i] = oneLine(c)
	}
	t.add(shown)
}

func (t *textTable) add(cells []string) {
	for i, c := range cells {
		t.widths[i] = max(t.widths[i], textWidth(c))
	}
	t.rows = append(t.rows, cells)
}

// textWidth is how many columns a text takes on a screen.
func textWidth(s string) int {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return text.StringWidthWithoutEscSequences(s)
		}
	}
	return len(s)
}

func (t *textTable) String() string {
	last := len(t.widths) - 1
	before := 0
	for _, w := range t.widths[:last] {
		before += w + len(columnGap)
	}
	wrap := 0
	if t.limit > 0 && before+t.widths[last] > t.limit {
		wrap = max(minWrapped, t.limit-before)
	}
	spaces := strings.Repeat(" ", before+len(columnGap))
	var b strings.Builder
	b.Grow(len(t.rows) * (before + t.widths[last] + 1))
	for _, row := range t.rows {
		gap := 0 // spaces that are due before the next text, so that no line ends with some
		for i, c := range row {
			if i == last && wrap > 0 && textWidth(c) > wrap {
				b.WriteString(spaces[:gap])
				b.WriteString(strings.ReplaceAll(wrapped(c, wrap), "\n", "\n"+spaces[:before]))
				gap = 0
				continue
			}
			if c != "" {
				b.WriteString(spaces[:gap])
				b.WriteString(c)
				gap = 0
			}
			gap += t.widths[i] - textWidth(c) + len(columnGap)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// wrapped text has lines of so many columns at most, as long as no word is longer: a path or an address is not cut.
func wrapped(s string, columns int) string {
	var b strings.Builder
	at := 0
	for i, w := range strings.Fields(s) {
		width := textWidth(w)
		switch {
		case i == 0:
		case at+1+width > columns:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(w)
		at += width
	}
	return b.String()
}

// wrappedLines wraps each line of a text that is longer than a table may be; what is wrapped is indented.
func wrappedLines(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		if textWidth(l) > tableWidth {
			l = strings.ReplaceAll(wrapped(l, tableWidth-2), "\n", "\n  ")
		}
		b.WriteString(l + "\n")
	}
	return b.String()
}
