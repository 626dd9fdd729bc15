package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// reorder brings a command line into the one order that urfave/cli reads
// right: program, global flags, command, its flags, "--", arguments. It reads flags
// before, between and after names. A flag that the command does not have, a
// missing value and an unknown command are wrong usage; nothing is guessed.
func reorder(app *cli.App, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	r := reordering{known: flagTable(app), commands: app.Commands}
	fields := args[1:]
	for i := 0; i < len(fields); i++ {
		w := fields[i]
		if w == "--" {
			r.rest = append(r.rest, fields[i+1:]...)
			break
		}
		if len(w) < 2 || w[0] != '-' {
			if err := r.argument(w); err != nil {
				return nil, err
			}
			continue
		}
		f, err := r.flag(w)
		if err != nil {
			return nil, err
		}
		if f.spec.value && !f.hasValue {
			if i++; i == len(fields) {
				return nil, usage("flag %s needs a value", f.written)
			}
			f.value, f.hasValue = fields[i], true
		}
		r.flags = append(r.flags, f)
	}
	return r.result(args[0])
}

// flagSpec is what is known of a flag by its name: whether it takes a value,
// the same in every command that has it, and which commands those are ("" for all).
type flagSpec struct {
	value  bool
	owners []string
}

type writtenFlag struct {
	written, name, value string
	hasValue             bool
	spec                 *flagSpec
}

type reordering struct {
	known    map[string]*flagSpec
	commands []*cli.Command // the next command's
	path     []string
	leaf     *cli.Command
	help     bool
	flags    []writtenFlag
	rest     []string
}

// flagTable lists the flags of an app and its commands by name, aliases too.
func flagTable(app *cli.App) map[string]*flagSpec {
	table := map[string]*flagSpec{"help": {owners: []string{""}}, "h": {owners: []string{""}}}
	add := func(flags []cli.Flag, owner string) {
		for _, f := range flags {
			d, ok := f.(cli.DocGenerationFlag)
			for _, n := range f.Names() {
				if table[n] == nil {
					table[n] = &flagSpec{value: ok && d.TakesValue()}
				}
				table[n].owners = append(table[n].owners, owner)
			}
		}
	}
	add(app.Flags, "")
	var walk func(cmds []*cli.Command, path string)
	walk = func(cmds []*cli.Command, path string) {
		for _, c := range cmds {
			at := path + c.Name
			add(c.Flags, at)
			walk(c.Subcommands, at+" ")
		}
	}
	walk(app.Commands, "")
	return table
}

// flag reads "--name", "--name=value", "-n", "-n=value" and "-nvalue".
func (r *reordering) flag(w string) (writtenFlag, error) {
	f := writtenFlag{written: w}
	f.name, f.value, f.hasValue = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(w, "-"), "-"), "=")
	if f.hasValue {
		f.written, _, _ = strings.Cut(w, "=")
	}
	f.spec = r.known[f.name]
	if f.spec == nil && w[1] != '-' {
		if short := r.known[w[1:2]]; short != nil && short.value {
			f = writtenFlag{written: w[:2], name: w[1:2], value: w[2:], hasValue: true, spec: short}
		}
	}
	if f.spec == nil {
		all := make([]string, 0, len(r.known))
		for n := range r.known {
			if len(n) > 1 {
				all = append(all, n)
			}
		}
		return f, usage("unknown flag %s%s", f.written, suggest("--", f.name, all))
	}
	return f, nil
}

// argument takes a name: of the next command, as long as there is one to name, else an argument.
func (r *reordering) argument(w string) error {
	if len(r.commands) == 0 || len(r.rest) > 0 {
		r.rest = append(r.rest, w)
		return nil
	}
	if w == "help" || w == "h" {
		r.help = true
		return nil
	}
	var all []string
	for _, c := range r.commands {
		if c.HasName(w) {
			r.path, r.leaf, r.commands = append(r.path, c.Name), c, c.Subcommands
			return nil
		}
		if !c.Hidden {
			all = append(all, c.Name)
		}
	}
	slices.Sort(all)
	full := strings.Join(append(slices.Clone(r.path), w), " ")
	hint := suggest("", w, all)
	if hint == "" {
		hint = "; there are " + strings.Join(all, ", ")
	}
	return usage("unknown command %q%s", full, hint)
}

func (r *reordering) result(program string) ([]string, error) {
	var global, local []string
	command := strings.Join(r.path, " ")
	for _, f := range r.flags {
		text := "-" + f.name
		if len(f.name) > 1 {
			text = "--" + f.name
		}
		if f.hasValue {
			text += "=" + f.value
		}
		switch {
		case f.name == "help" || f.name == "h":
			r.help = true
		case slices.Contains(f.spec.owners, command) && command != "":
			local = append(local, text)
		case slices.Contains(f.spec.owners, ""):
			global = append(global, text)
		case command == "":
			return nil, usage("flag %s needs a command: it belongs to %s", f.written, strings.Join(f.spec.owners, ", "))
		default:
			return nil, usage("%s has no flag %s; it belongs to %s", command, f.written, strings.Join(f.spec.owners, ", "))
		}
	}
	out := append([]string{program}, global...)
	out = append(out, r.path...)
	if r.help {
		return append(out, "--help"), nil
	}
	out = append(out, local...)
	if len(r.rest) > 0 {
		out = append(append(out, "--"), r.rest...)
	}
	return out, nil
}

// suggest the known word that is nearest, if one is near.
func suggest(prefix, arg string, known []string) string {
	slices.Sort(known)
	best, lowest := "", 1+max(1, len(arg)/3)
	for _, k := range known {
		if d := distance(arg, k); d < lowest {
			best, lowest = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}

// distance is the number of letters to change, add, drop or swap with their neighbours.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
