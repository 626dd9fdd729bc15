package clidoc

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func example() *cli.App {
	return &cli.App{
		Name:  "tool",
		Flags: []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "a form"}},
		Commands: []*cli.Command{
			{Name: "host", Usage: "hosts", Subcommands: []*cli.Command{
				{Name: "drain", Usage: "empty a host", ArgsUsage: "HOST", Description: "Moves VMs.\n\nExample: tool host drain h1",
					Flags: []cli.Flag{&cli.StringFlag{Name: "max-bytes", Usage: "at most a `SIZE`"}, &cli.BoolFlag{Name: "dry-run", Usage: "a | b"}}},
			}},
			{Name: "secret", Hidden: true},
		},
	}
}

func TestPage(t *testing.T) {
	got := Page(example(), "Intro.")
	for _, want := range []string{
		"# tool\n\nIntro.\n", "| [`tool host drain`](#tool-host-drain) | empty a host |\n", "## tool host drain\n\n    tool host drain [flags] HOST\n\nEmpty a host.\n",
		"\nMoves VMs.\n\nExample:\n\n    tool host drain h1\n", "| `--max-bytes SIZE` | at most a SIZE |\n", "| `--dry-run` | a \\| b |\n",
		"| `--output VALUE`, `-o VALUE` | a form (default: table) |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "secret") {
		t.Error("a hidden command is shown")
	}
}

func TestLines(t *testing.T) {
	text := strings.Join([]string{
		"Say `tool host drain h1` or `tooling x`.",
		"    h1# tool host drain h1 --max-bytes 3GiB > file    # tool not this",
		"    $ sudo bin/tool -o json host drain 'a tool b' && tool host",
		"    hosts=$(tool host drain --dry-run $done | jq '.x[]?')",
		"    tool host \\", "        drain h2",
		"    tool: an error of it",
		"```", "tool fenced", "```", "tool prose",
	}, "\n")
	var got []string
	for _, l := range Lines("p.md", text, "tool") {
		got = append(got, strings.Join(l.Args, ","))
	}
	want := []string{"host,drain,h1", "host,drain,h1,--max-bytes,3GiB", "-o,json,host,drain,a tool b", "host", "host,drain,--dry-run,$done", "host,drain,h2", "fenced"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCheck(t *testing.T) {
	for line, want := range map[string]string{
		"host drain h1 --max-bytes 3GiB": "",
		"--max-bytes=3GiB host drain h1": "",
		"-o json host drain":             "",
		"-ojson host drain HOST":         "",
		"host NAME":                      "",
		"host empty h1":                  `tool host has no command "empty"`,
		"hosts":                          `tool has no command "hosts"`,
		"host drain h1 --bytes 3":        "tool host drain has no flag --bytes",
		"host --dry-run":                 "tool host has no flag --dry-run",
		"host drain -x":                  "tool host drain has no flag -x",
	} {
		got := ""
		if err := Check(example(), strings.Fields(line)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
