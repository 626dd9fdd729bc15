package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// The shells ask `vcctl __complete WORDS...`: the words before the cursor, the
// last one perhaps begun. It answers with one candidate per line.
const (
	bashScript = `# bash completion of vcctl; load it with: source <(vcctl completion bash)
_vcctl() {
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _vcctl vcctl
`
	zshScript = `#compdef vcctl
# zsh completion of vcctl; load it with: source <(vcctl completion zsh)
_vcctl() {
    local -a candidates
    candidates=("${(@f)$(${words[1]} __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${candidates[1]}" ]]; then compadd -- "${candidates[@]}"; else _files; fi
}
if [[ "${funcstack[1]}" == _vcctl ]]; then _vcctl "$@"; else compdef _vcctl vcctl; fi
`
	fishScript = `# fish completion of vcctl; load it with: vcctl completion fish | source
complete -c vcctl -f -a '(set -l words (commandline -opc) (commandline -ct); vcctl __complete -- $words[2..] 2>/dev/null)'
complete -c vcctl -n '__fish_contains_opt -s f file' -F
`
)

func completionCommand(t *tool) *cli.Command {
	script := func(text string) cli.ActionFunc {
		return func(c *cli.Context) error {
			if _, err := names(c); err != nil {
				return err
			}
			t.printf("%s", text)
			return nil
		}
	}
	return &cli.Command{
		Name: "completion", Usage: "print the completion script of a shell",
		Description: "Names of virtual clusters, VMs, hosts, members, images, tenants, tokens, plans, migrations and settings are completed too, by asking the server.\n\n" +
			"Example: source <(vcctl completion bash)",
		Subcommands: []*cli.Command{
			{Name: "bash", Usage: "for bash", ArgsUsage: " ", Action: script(bashScript), Description: "Example: source <(vcctl completion bash)"},
			{Name: "zsh", Usage: "for zsh", ArgsUsage: " ", Action: script(zshScript), Description: "Example: source <(vcctl completion zsh)"},
			{Name: "fish", Usage: "for fish", ArgsUsage: " ", Action: script(fishScript), Description: "Example: vcctl completion fish | source"},
		},
	}
}

func (t *tool) completeCommand() *cli.Command {
	return &cli.Command{
		Name: "__complete", Hidden: true, Usage: "candidates for the last of the words", ArgsUsage: "WORDS",
		Description: "What the completion scripts call.\n\nExample: vcctl __complete -- vc li",
		Action: func(c *cli.Context) error {
			for _, s := range t.candidates(c) {
				t.printf("%s\n", s)
			}
			return nil
		},
	}
}

// candidates for the last word of a command line.
func (t *tool) candidates(c *cli.Context) []string {
	fields := c.Args().Slice()
	if len(fields) == 0 {
		fields = []string{""}
	}
	begun := fields[len(fields)-1]
	l := parseLine(c.App, fields[:len(fields)-1])
	for _, name := range []string{"address", "token-file", "cacert", "context", "tenant"} { // names come from where the command will go
		if value, given := l.values[name]; given {
			_ = c.Set(name, value) // a flag of the program, so that it is known
		}
	}
	var out []string
	switch {
	case l.flag != "":
		out = t.values(c, l.path, l.flag)
	case strings.HasPrefix(begun, "-"):
		out = l.flags(c.App)
	case len(l.commands) > 0:
		for _, cmd := range l.commands {
			if !cmd.Hidden {
				out = append(out, cmd.Name)
			}
		}
	case l.namesThing():
		out = t.things(c, l.noun())
	}
	var matching []string
	for _, s := range out {
		if strings.HasPrefix(s, begun) {
			matching = append(matching, s)
		}
	}
	return matching
}

// commandLine is what stands on a command line before its last word.
type commandLine struct {
	path     []string          // names of the command
	leaf     *cli.Command      // the last of them; nil: none yet
	commands []*cli.Command    // that may follow
	flag     string            // whose value comes next; "": none
	args     int               // words that are neither
	values   map[string]string // of flags
}

func parseLine(app *cli.App, before []string) commandLine {
	table := flagTable(app)
	l := commandLine{commands: app.Commands, values: map[string]string{}}
	for _, w := range before {
		switch {
		case l.flag != "":
			l.values[l.flag], l.flag = w, ""
		case strings.HasPrefix(w, "-"):
			name, value, whole := strings.Cut(strings.TrimLeft(w, "-"), "=")
			switch spec := table[name]; {
			case spec == nil || !spec.value:
			case whole:
				l.values[name] = value
			default:
				l.flag = name
			}
		default:
			l.enter(w)
		}
	}
	return l
}

// enter takes a word for a command, if one of that name may follow, otherwise for an argument.
func (l *commandLine) enter(w string) {
	i := slices.IndexFunc(l.commands, func(cmd *cli.Command) bool { return cmd.HasName(w) })
	if i < 0 {
		l.args++
		return
	}
	l.leaf = l.commands[i]
	l.path, l.commands = append(l.path, w), l.leaf.Subcommands
}

// flags that may follow.
func (l *commandLine) flags(app *cli.App) (out []string) {
	all := app.Flags
	if l.leaf != nil {
		all = slices.Concat(l.leaf.Flags, all)
	}
	for _, f := range all {
		if n := f.Names()[0]; len(n) > 1 && n != "help" { // urfave's own may be there or not
			out = append(out, "--"+n)
		}
	}
	return append(out, "--help")
}

// namesThing says whether the name of a thing may follow.
func (l *commandLine) namesThing() bool {
	return l.leaf != nil && strings.TrimSpace(l.leaf.ArgsUsage) != "" && (l.args == 0 || strings.HasSuffix(l.leaf.ArgsUsage, "..."))
}

// noun is what kind of thing the command names; "": one that is new.
func (l *commandLine) noun() string {
	switch {
	case (l.path[0] == "token" || l.path[0] == "tenant") && l.leaf.Name == "create":
		return ""
	case l.path[0] == "quota" && l.args == 0:
		return "tenant"
	case l.path[0] == "config":
		return "context"
	case l.path[0] == "quota":
		return "quota key"
	case l.path[0] == "role" && l.leaf.Name == "revoke":
		return "role binding"
	case strings.Contains(l.leaf.ArgsUsage, "MEMBER"):
		return "member"
	case strings.Contains(l.leaf.ArgsUsage, "KEY=VALUE"):
		return "setting"
	}
	return l.path[0]
}

// values that a flag of a command may have.
func (t *tool) values(c *cli.Context, path []string, flag string) []string {
	events := slices.Equal(path, []string{"events"})
	switch flag {
	case "o", "output":
		return []string{formatTable, formatWide, formatJSON, formatYAML, formatCSV, formatNames, formatColumns}
	case "kind":
		if events {
			return t.things(c, "event")
		}
		return []string{"disk", "kernel", "initrd"}
	case "role":
		return tokenRoles
	case "vc", "host", "vm", "plan", "tenant", "context":
		return t.things(c, flag)
	case "lose", "skip", "to":
		return t.things(c, "host")
	case "need":
		return t.things(c, "vc")
	case "on-blocked":
		return []string{v1.OnBlockedStop, v1.OnBlockedSkip, v1.OnBlockedShutdown}
	case "state":
		return []string{"proposed", "running", "done", "failed", "stopped", "superseded", "aborted"}
	case "severity":
		return v1.Severities
	case "resource":
		return []string{v1.ResourceCPU, v1.ResourceMemory}
	case "resolution":
		return []string{"raw", "1m", "5m", "1h"}
	case "outcome":
		return []string{"ok", "refused", "failed"}
	case "algorithm":
		return strings.Split(solverNames(), ", ")
	}
	return nil
}

// completionTime is how long a shell may be kept waiting for names.
const completionTime = 2 * time.Second

// things are the objects of a kind by name, if the server answers in time.
func (t *tool) things(c *cli.Context, noun string) []string {
	if noun == "context" {
		f, _ := readConfig(t.configFile()) // of one that cannot be read there are none
		return f.contextNames()
	}
	ctx, cancel := context.WithTimeout(c.Context, completionTime)
	defer cancel()
	a, err := t.access(c)
	if err != nil {
		return nil
	}
	api, err := t.connect(a)
	if err != nil {
		return nil
	}
	switch stale := client.Stale(); noun { // an error means no candidates: a shell has no place for it
	case "vc":
		return nameEach(func(x v1.VirtualCluster) string { return fullName(x.Tenant, x.Name) })(ofChosenTenant(a.tenant, func(of client.Option) ([]v1.VirtualCluster, error) {
			return api.VirtualClusters(ctx, stale, of)
		}))
	case "vm":
		return nameEach(func(x v1.VM) string { return fullName(x.Tenant, x.Name) })(ofChosenTenant(a.tenant, func(of client.Option) ([]v1.VM, error) {
			return api.VMs(ctx, "", "", stale, of)
		}))
	case "host":
		return nameEach(func(x v1.Host) string { return x.Name })(api.Hosts(ctx, stale))
	case "member":
		return nameEach(func(x v1.Member) string { return x.Name })(api.Members(ctx, stale))
	case "plan":
		return nameEach(func(x v1.Plan) string { return x.ID })(api.Plans(ctx, "", 0, stale))
	case "migration": // those that go on, by their VMs
		return nameEach(func(x v1.Migration) string { return x.VM })(api.Migrations(ctx, "", "", "running", 0, stale))
	case "operation":
		return nameEach(func(x v1.Operation) string { return x.ID })(api.Operations(ctx, client.OperationQuery{Limit: 100}, stale))
	case "tenant":
		return nameEach(func(x v1.Tenant) string { return x.Name })(api.Tenants(ctx, stale))
	case "quota key":
		return nameEach(func(key string) string { return key + "=" })(slices.Sorted(maps.Keys(v1.QuotaUnits)), nil)
	case "role":
		return tokenRoles
	case "role binding":
		return nameEach(func(x v1.RoleBinding) string { return x.ID })(api.RoleBindings(ctx, stale))
	case "token":
		return nameEach(func(x v1.Token) string { return x.ID })(api.Tokens(ctx, stale))
	case "image":
		return nameEach(func(x v1.Image) string { return x.Name })(api.Images(ctx, stale))
	case "setting":
		return nameEach(func(key string) string { return key + "=" })(v1.SettingKeys(), nil)
	case "event": // each kind, and all those of a kind of object
		var out []string
		for _, k := range v1.EventKinds {
			prefix, _, _ := strings.Cut(k.Kind, "-")
			out = append(out, k.Kind, prefix+"-*")
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return nil
}

// ofChosenTenant asks for what the chosen tenant has; if none is chosen, for what all have that the token may see.
func ofChosenTenant[T any](tenant string, ask func(of client.Option) ([]T, error)) ([]T, error) {
	if tenant != "" && tenant != client.AllTenants {
		return ask(client.OfTenant(tenant))
	}
	all, err := ofTenant(client.AllTenants, ask)
	if err != nil { // a token of a tenant sees its own only
		return ask(client.OfTenant(""))
	}
	return all, nil
}

// nameEach says how things of a kind are named.
func nameEach[T any](name func(T) string) func([]T, error) []string {
	return func(all []T, _ error) (out []string) {
		for _, x := range all {
			out = append(out, name(x))
		}
		return out
	}
}
