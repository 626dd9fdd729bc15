package clidoc

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Line is a command line that a page shows.
type Line struct {
	Page  string
	Row   int
	Args  []string // after the name of the program
	Block bool     // it stands in a code block, not in a sentence
}

// Pages are the Markdown files of the repository that show commands: those in
// its root, below docs/ and below examples/. The change log is left out: it is about earlier versions.
func Pages(root string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the pages: %w", err)
	}
	pages = slices.DeleteFunc(pages, func(p string) bool { return filepath.Base(p) == "CHANGELOG.md" })
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list the pages: %w", err)
		}
	}
	return pages, nil
}

var span = regexp.MustCompile("`([^`]+)`")

// Lines are the command lines of program in a page: in code blocks, and in code
// spans that begin with the program's name.
func Lines(page, text, program string) (found []Line) {
	fenced, prose, continued := false, true, ""
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced, prose = !fenced, true
			continue
		}
		if strings.Contains(line, "*today") {
			continue // a row of the glossary whose term the program does not have yet
		}
		code := fenced || strings.HasPrefix(line, "    ")
		if code {
			whole := continued + strings.TrimSpace(line)
			if cut, more := strings.CutSuffix(whole, `\`); more {
				continued = cut + " "
				continue
			}
			continued = ""
			for _, args := range commands(whole, program) {
				found = append(found, Line{page, n + 1, args, true})
			}
		}
		if prose = !code; prose {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				if s := strings.ReplaceAll(m[1], `\|`, "|"); strings.HasPrefix(s, program+" ") {
					for _, args := range commands(s, program) {
						found = append(found, Line{page, n + 1, args, false})
					}
				}
			}
		}
	}
	return found
}

// before is what may stand before a command in a line of a shell.
var before = []string{"sudo", "if", "then", "do", "until", "while", "!", "$", "#", "nice", "exec", "time"}

// prompt is a host's: "h1#" or "h1$".
var prompt = regexp.MustCompile(`^\w+[#$]$`)

// commands are the arguments after each call of program in a line of a shell.
func commands(line, program string) (out [][]string) {
	for _, part := range split(strings.ReplaceAll(line, "[flags]", "")) {
		for len(part) > 0 && (slices.Contains(before, part[0]) || prompt.MatchString(part[0]) || regexp.MustCompile(`^\w+=`).MatchString(part[0])) {
			part = part[1:]
		}
		if len(part) > 0 && (part[0] == program || part[0] == "bin/"+program) {
			out = append(out, part[1:])
		}
	}
	return out
}

// split cuts a line of a shell into commands, and these into arguments. Comments go;
// what is quoted is one argument, and brackets of optional ones go.
func split(line string) (parts [][]string) {
	var args []string
	var arg strings.Builder
	in := false
	endArg := func() {
		if in {
			args = append(args, arg.String())
		}
		arg.Reset()
		in = false
	}
	endPart := func() {
		endArg()
		if len(args) > 0 {
			parts = append(parts, args)
		}
		args = nil
	}
	quote := rune(0)
	for i, c := range line {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				arg.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == '#' && !in && i > 0 && strings.TrimSpace(line[:i]) != "":
			endPart()
			return parts
		case c == ' ' || c == '\t' || c == '[' || c == ']':
			endArg()
		case c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || c == '<' || c == '>':
			endPart()
			if c == '<' || c == '>' { // the file is no arg of the command
				args = append(args, "")
			}
		default:
			arg.WriteRune(c)
			in = true
		}
	}
	endPart()
	return parts
}

// Check says what app would not take of a command line, nil if it would: a
// command or a flag that it does not have.
func Check(app *cli.App, args []string) error {
	commands, flags, path := app.Commands, slices.Clone(app.Flags), app.Name
	var given []string
	for i := 0; i < len(args); i++ {
		w := args[i]
		if w == "--" {
			break
		}
		if strings.HasPrefix(w, "-") && len(w) > 1 {
			given = append(given, w)
			if takes(app, w) && !strings.Contains(w, "=") && len(w) > 1 {
				i++
			}
			continue
		}
		if len(commands) == 0 || !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(w) {
			commands = nil
			continue
		}
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(w) })
		if at < 0 {
			return fmt.Errorf("%s has no command %q", path, w)
		}
		path += " " + w
		flags = append(flags, commands[at].Flags...)
		commands = commands[at].Subcommands
	}
	for _, w := range given {
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		has := func(n string) bool {
			return n == "help" || n == "h" || n == "version" || slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), n) })
		}
		if !has(name) && (strings.HasPrefix(w, "--") || !has(name[:1])) {
			return fmt.Errorf("%s has no flag %s", path, w)
		}
	}
	return nil
}

// takes says whether a flag takes a value, in whatever command has it.
func takes(app *cli.App, w string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
	value := false
	look := func(flags []cli.Flag) {
		for _, f := range flags {
			if d, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
				value = value || d.TakesValue()
			}
		}
	}
	look(app.Flags)
	walk(app, func(_ string, c *cli.Command) { look(c.Flags) })
	return value
}

// CheckPages says which command lines of app in the pages it would not take,
// and how many it looked at.
func CheckPages(app *cli.App, root string) (faults []string, lines int, err error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, 0, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, lines, fmt.Errorf("read a page: %w", err)
		}
		for _, l := range Lines(page, string(text), app.Name) {
			lines++
			if err := Check(app, l.Args); err != nil {
				faults = append(faults, fmt.Sprintf("%s:%d: %s %s: %v", page, l.Row, app.Name, strings.Join(l.Args, " "), err))
			}
		}
	}
	return faults, lines, nil
}
