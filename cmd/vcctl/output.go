package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"evenkeel/api/v1"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatCSV   = "csv"
	formatNames = "name"
	// formatColumns is followed by the columns.
	formatColumns = "custom-columns="
)

func format(c *cli.Context) (string, error) {
	switch f := c.String("output"); {
	case slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML, formatCSV, formatNames}, f), strings.HasPrefix(f, formatColumns):
		return f, nil
	default:
		return "", usage("-o %s: must be table, wide, json, yaml, and of lists csv, name or custom-columns=COLUMN,...", f)
	}
}

// listFormat says whether a format is one of lists alone.
func listFormat(f string) bool {
	return f == formatCSV || f == formatNames || strings.HasPrefix(f, formatColumns)
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
	if f != formatJSON {
		list, is := value.(lister)
		switch {
		case !is:
			return "", usage("-o %s is for lists", f)
		case f == formatCSV:
			return asCSV(list)
		case f == formatNames:
			return asNames(list), nil
		}
		return asColumns(list, strings.TrimPrefix(f, formatColumns))
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
	if value, text, err = arranged(c, value, text); err != nil {
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
// has changed. On a terminal it is redrawn in place.
func (t *tool) show(c *cli.Context, read func(context.Context) (any, view, error)) error {
	f, err := format(c)
	if err != nil {
		return err
	}
	last, redraw, watch, begun := "", isTerminal(t.out), c.Bool("watch"), time.Now()
	look := func(back bool) error {
		value, text, err := read(c.Context)
		if err != nil {
			return err
		}
		if value, text, err = arranged(c, value, text); err != nil {
			return err
		}
		s, err := render(f, value, text)
		if err != nil {
			return err
		}
		shown := s
		if watch { // that time passes is no change
			passing := now
			now = func() time.Time { return begun }
			s, err = render(f, value, text)
			if now = passing; err != nil {
				return err
			}
		}
		if back && redraw {
			last = "" // what was said below it goes
		}
		if s == last {
			return nil
		}
		switch {
		case !watch:
		case redraw:
			t.printf("\x1b[H\x1b[2J")
		case last != "" && (f == formatTable || f == formatWide):
			t.printf("\n")
		case last != "" && f == formatYAML:
			t.printf("---\n")
		}
		last = s
		return t.write(shown)
	}
	if !watch {
		return look(false)
	}
	return t.poll(c.Context, refreshEvery, look)
}

// poll looks again and again, until ^C. A server that goes away meanwhile is waited for; back says that it was away.
func (t *tool) poll(ctx context.Context, every time.Duration, look func(back bool) error) error {
	answered, away := false, false
	for {
		err := look(away)
		switch {
		case err == nil:
			answered, away = true, false
		case errors.Is(err, context.Canceled):
			return nil
		case !answered || statusOf(err) != statusUnreachable:
			return err
		case !away:
			t.say("vcctl: %s; trying again\n", err)
			away = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// isTerminal says whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

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

func items[T any](in []T) v1.List[T] {
	if in == nil {
		in = []T{}
	}
	return v1.List[T]{Items: in}
}
