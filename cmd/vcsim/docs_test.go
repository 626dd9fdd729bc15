package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"evenkeel/cmd/internal/clidoc"
)

// commandOf follows words to a command; nil: there is none of that name.
func commandOf(commands []*cli.Command, fields []string) *cli.Command {
	for _, c := range commands {
		if len(fields) == 0 || !c.HasName(fields[0]) {
			continue
		}
		if sub := commandOf(c.Subcommands, fields[1:]); sub != nil {
			return sub
		}
		return c
	}
	return nil
}

// TestCommandsInPages: the pages show no command and no flag that vcsim does not have.
func TestCommandsInPages(t *testing.T) {
	faults, lines, err := clidoc.CheckPages(app(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	if lines < 40 {
		t.Errorf("only %d command lines were found: the search looks in the wrong place", lines)
	}
	for _, f := range faults {
		t.Error(f)
	}
}

// The reference has every flag of the commands that it lists options of.
func TestReferenceHasEveryFlag(t *testing.T) {
	for name, page := range map[string]string{"run": "simulator.md", "forecast": "forecasts.md", "paper morpheus": "simulator.md", "whatif": "simulator.md"} {
		text, err := os.ReadFile("../../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range commandOf(app().Commands, strings.Fields(name)).Flags {
			names := f.Names()
			if !slices.ContainsFunc(names, func(n string) bool {
				return strings.Contains(string(text), "`--"+n) || len(n) == 1 && strings.Contains(string(text), "`-"+n+" ")
			}) {
				t.Errorf("docs/reference/%s has no %q of vcsim %s", page, names, name)
			}
		}
	}
}
