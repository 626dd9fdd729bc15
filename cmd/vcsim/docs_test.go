package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// commandOf follows words to a command; nil: there is none of that name.
func commandOf(commands []*cli.Command, words []string) *cli.Command {
	for _, c := range commands {
		if len(words) == 0 || !c.HasName(words[0]) {
			continue
		}
		if sub := commandOf(c.Subcommands, words[1:]); sub != nil {
			return sub
		}
		return c
	}
	return nil
}

func flagNames(c *cli.Command) (names []string) {
	for _, f := range c.Flags {
		names = append(names, f.Names()...)
	}
	return names
}

// unknownIn says what of a command line that a page shows the program does not know; "" = it knows all of it.
func unknownIn(line string) string {
	line, _, _ = strings.Cut(line, " # ")
	words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" []\t", r) })
	c := commandOf(app().Commands, words[1:])
	if c == nil {
		return "the command"
	}
	if len(c.Subcommands) > 0 {
		return "a command of " + c.Name
	}
	known := flagNames(c)
	for _, w := range words {
		if name := strings.TrimLeft(w, "-"); name != w && !slices.Contains(known, name) {
			return w
		}
	}
	return ""
}

func TestUnknownIn(t *testing.T) {
	for line, want := range map[string]string{
		"vcsim run --policy easy --hosts 2 -o json # --odd": "",
		"vcsim whatif [--more 30] FILE":                     "",
		"vcsim paper flex --nodes 1000":                     "",
		"vcsim paper --nodes 1000":                          "a command of paper",
		"vcsim walk":                                        "the command",
		"vcsim run --policies easy":                         "--policies",
	} {
		if got := unknownIn(line); got != want {
			t.Errorf("%q: %q is unknown, want %q", line, got, want)
		}
	}
}

// Every vcsim command that a page shows has flags that the program knows.
func TestCommandsInDocs(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		for i, line := range strings.Split(string(page), "\n") {
			command, shown := strings.CutPrefix(line, "    vcsim ")
			if !shown {
				continue
			}
			n++
			if what := unknownIn("vcsim " + command); what != "" {
				t.Errorf("%s:%d: vcsim does not know %s of: %s", path, i+1, what, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("no page shows a vcsim command: this test checks nothing")
	}
}

// The reference has every flag of the commands that it lists options of.
func TestReferenceHasEveryFlag(t *testing.T) {
	for name, page := range map[string]string{"run": "simulator.md", "forecast": "forecasts.md"} {
		text, err := os.ReadFile("../../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range commandOf(app().Commands, []string{name}).Flags {
			names := f.Names()
			if !slices.ContainsFunc(names, func(n string) bool {
				return strings.Contains(string(text), "`--"+n) || len(n) == 1 && strings.Contains(string(text), "`-"+n+" ")
			}) {
				t.Errorf("docs/reference/%s has no %q of vcsim %s", page, names, name)
			}
		}
	}
}
