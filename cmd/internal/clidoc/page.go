// Package clidoc writes the reference page of a program from its commands and
// flags, and says which command lines in other pages the program would not
// take. Only tests use it. It never runs a command.
package clidoc

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// Page is the reference of app in Markdown: a table of all commands, then one
// section for each. Intro stands below the title.
func Page(app *cli.App, intro string) string {
	var b, sections strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n| command | what it does |\n|---|---|\n", app.Name, strings.TrimSpace(intro))
	if len(app.Flags) > 0 {
		fmt.Fprintf(&sections, "\n## Flags of every command\n\n%s", flagTable(app.Flags))
	}
	walk(app, func(path string, c *cli.Command) {
		if c.Action == nil && len(c.Subcommands) > 0 || onlyHelps(c) {
			return
		}
		full := app.Name + " " + path
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", full, strings.ReplaceAll(full, " ", "-"), cell(c.Usage))
		fmt.Fprintf(&sections, "\n## %s\n\n", full)
		usage := full
		if len(c.Flags) > 0 {
			usage += " [flags]"
		}
		if a := strings.TrimSpace(c.ArgsUsage); a != "" {
			usage += " " + a
		}
		fmt.Fprintf(&sections, "    %s\n\n%s.\n", usage, sentence(c.Usage))
		sections.WriteString(description(c.Description))
		if len(c.Flags) > 0 {
			sections.WriteString("\n" + flagTable(c.Flags))
		}
	})
	return b.String() + sections.String()
}

// onlyHelps says whether a command is there for its subcommands alone.
func onlyHelps(c *cli.Command) bool { return len(c.Subcommands) > 0 && c.Description == "" }

// walk visits the commands of app that are shown, in order, with their paths.
func walk(app *cli.App, visit func(path string, c *cli.Command)) {
	var down func(prefix string, commands []*cli.Command)
	down = func(prefix string, commands []*cli.Command) {
		for _, c := range commands {
			if c.Hidden {
				continue
			}
			visit(prefix+c.Name, c)
			down(prefix+c.Name+" ", c.Subcommands)
		}
	}
	down("", app.Commands)
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".")
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}

// description turns the paragraphs of a help text into Markdown: examples and
// indented lines become code.
func description(s string) string {
	var b strings.Builder
	for _, p := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if p == "" {
			continue
		}
		b.WriteString("\n")
		lead := regexp.MustCompile(`^Examples?:\s*`).FindString(p)
		if lead == "" && !strings.HasPrefix(p, " ") {
			b.WriteString(p + "\n")
			continue
		}
		if lead != "" {
			b.WriteString("Example:\n\n")
		}
		for _, line := range strings.Split(strings.TrimPrefix(p, lead), "\n") {
			b.WriteString("    " + strings.TrimSpace(line) + "\n")
		}
	}
	return b.String()
}

var placeholder = regexp.MustCompile("`([^`]+)`")

func flagTable(flags []cli.Flag) string {
	var b strings.Builder
	b.WriteString("| flag | meaning |\n|---|---|\n")
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if v, hides := f.(cli.VisibleFlag); !ok || hides && !v.IsVisible() {
			continue
		}
		text, value := d.GetUsage(), ""
		if m := placeholder.FindStringSubmatch(text); m != nil {
			value = m[1]
			text = strings.Replace(text, m[0], m[1], 1)
		} else if d.TakesValue() {
			value = "VALUE"
		}
		if !d.TakesValue() {
			value = ""
		}
		var names []string
		for _, n := range f.Names() {
			dash := "--"
			if len(n) == 1 {
				dash = "-"
			}
			names = append(names, "`"+strings.TrimSpace(dash+n+" "+value)+"`")
		}
		if v := d.GetValue(); d.TakesValue() && v != "" && v != "0" && v != "0s" && v != "[]" && !strings.Contains(text, "default") {
			text += " (default: " + strings.Trim(v, `"`) + ")"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), cell(text))
	}
	return b.String()
}
