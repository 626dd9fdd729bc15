package main

import (
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestDashboardPage: docs/reference/dashboard.md says of each command on which page of the dashboard it is, or that it is on none.
func TestDashboardPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/dashboard.md")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(before string, commands []*cli.Command)
	walk = func(before string, commands []*cli.Command) {
		for _, c := range commands {
			name := strings.TrimSpace(before + " " + c.Name)
			if c.Hidden || c.Name == "help" {
				continue
			}
			if len(c.Subcommands) == 0 && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("vcctl %s is not in docs/reference/dashboard.md", name)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("", (&tool{}).app().Commands)
}
