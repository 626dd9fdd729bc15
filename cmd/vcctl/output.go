package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

func format(c *cli.Context) (string, error) {
	switch f := c.String("output"); f {
	case formatTable, formatWide, formatJSON, formatYAML:
		return f, nil
	default:
		return "", usage("-o %s: must be table, wide, json or yaml", f)
	}
}

// render is a value in the format that was asked for; text is it as a table.
func render(f string, value any, text func(wide bool) string) (string, error) {
	switch f {
	case formatTable, formatWide:
		return text(f == formatWide), nil
	case formatYAML:
		raw, err := json.Marshal(value)
		if err == nil {
			raw, err = yaml.JSONToYAML(raw)
		}
		if err != nil {
			return "", fmt.Errorf("write YAML: %w", err)
		}
		return string(raw), nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	return b.String(), nil
}

// print a value to the output.
func (t *tool) print(c *cli.Context, value any, text func(wide bool) string) error {
	f, err := format(c)
	if err != nil {
		return err
	}
	s, err := render(f, value, text)
	if err != nil {
		return err
	}
	return t.write(s)
}

func (t *tool) write(s string) error {
	if _, err := io.WriteString(t.out, s); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// refreshEvery is how often -w and top look again.
const refreshEvery = time.Second

var watchFlag = &cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "go on and print every change, until ^C"}

// show reads something and prints it; with -w it prints it again whenever it
// has changed. On a terminal it is redrawn in place. With -w show waits for a server that
// goes away meanwhile.
func (t *tool) show(c *cli.Context, read func(context.Context) (any, func(wide bool) string, error)) error {
	f, err := format(c)
	if err != nil {
		return err
	}
	last, away, redraw := "", false, isTerminal(t.out)
	for {
		s := last
		value, text, err := read(c.Context)
		switch {
		case err == nil:
			if s, err = render(f, value, text); err != nil {
				return err
			}
			if away && redraw {
				last = "" // what was said below it goes
			}
			away = false
		case c.Bool("watch") && errors.Is(err, context.Canceled):
			return nil
		case c.Bool("watch") && last != "" && statusOf(err) == statusUnreachable:
			if !away {
				t.say("vcctl: %s; trying again\n", err)
			}
			away = true
		default:
			return err
		}
		if s != last {
			switch {
			case !c.Bool("watch"):
			case redraw:
				t.printf("\x1b[H\x1b[2J")
			case last != "" && (f == formatTable || f == formatWide):
				t.printf("\n")
			case last != "" && f == formatYAML:
				t.printf("---\n")
			}
			if err := t.write(s); err != nil {
				return err
			}
			last = s
		}
		if !c.Bool("watch") {
			return nil
		}
		select {
		case <-c.Context.Done():
			return nil
		case <-time.After(refreshEvery):
		}
	}
}

// isTerminal says whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// textTable is a table of plain columns.
type textTable struct{ w table.Writer }

func newTable(heads ...string) *textTable {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "   "
	style.Format.Header = 0
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	row := make(table.Row, len(heads))
	for i, h := range heads {
		row[i] = h
	}
	w.AppendHeader(row)
	return &textTable{w}
}

func (t *textTable) row(cells ...string) {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		row[i] = oneLine(c)
	}
	t.w.AppendRow(row)
}

func (t *textTable) String() string { return t.w.Render() + "\n" }

// fields is a block of "name: value" lines; empty values are left out.
func fields(pairs ...string) string {
	widest := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			widest = max(widest, len(pairs[i]))
		}
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(&b, "%-*s  %s\n", widest+1, pairs[i]+":", oneLine(pairs[i+1]))
		}
	}
	return b.String()
}

// oneLine keeps text of others from moving the cursor or adding rows.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

func cores(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func yield(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// seen is a figure that is 0 only while it was not measured.
func seen(text string, zero bool) string {
	if zero {
		return "-"
	}
	return text
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// listing is the action of a command that lists: read what there is, show it as
// a table or as the REST API has it.
func listing[T any](t *tool, what string, read func(context.Context, *client.Client, *cli.Context) ([]T, error), table func([]T, bool) string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if _, err := names(c); err != nil {
			return err
		}
		api, err := t.client(c)
		if err != nil {
			return err
		}
		return t.show(c, func(ctx context.Context) (any, func(bool) string, error) {
			all, err := read(ctx, api, c)
			return items(all), func(wide bool) string { return table(all, wide) }, doing(err, "listing "+what)
		})
	}
}

// getting is the action of a command that shows one thing. The text includes the VMs
// that belong to it, if vms is given.
func getting[T any](t *tool, what, argument string, read func(*client.Client, context.Context, string, ...client.Option) (T, error),
	vms func(context.Context, *client.Client, string) ([]v1.VM, error), text func(T, []v1.VM, bool) string) cli.ActionFunc {
	return func(c *cli.Context) error {
		name, err := name(c, argument)
		if err != nil {
			return err
		}
		f, err := format(c)
		if err != nil {
			return err
		}
		api, err := t.client(c)
		if err != nil {
			return err
		}
		return t.show(c, func(ctx context.Context) (any, func(bool) string, error) {
			it, err := read(api, ctx, name)
			if err != nil {
				return nil, nil, doing(err, "getting %s %s", what, name)
			}
			var its []v1.VM
			if vms != nil && (f == formatTable || f == formatWide) {
				if its, err = vms(ctx, api, name); err != nil {
					return nil, nil, err
				}
			}
			return it, func(wide bool) string { return text(it, its, wide) }, nil
		})
	}
}

func items[T any](in []T) v1.List[T] {
	if in == nil {
		in = []T{}
	}
	return v1.List[T]{Items: in}
}
