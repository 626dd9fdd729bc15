package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

var (
	vcFileFlag  = &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "VC `FILE`; - for standard input"}
	restartFlag = &cli.BoolFlag{Name: "restart", Usage: "let running VMs restart that must for the change; the others run on"}
	forceFlag   = &cli.BoolFlag{Name: "force", Usage: "overwrite what others changed since the last file"}
)

// applyCommands change a virtual cluster by its file.
func (t *tool) applyCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "apply", Usage: "create a virtual cluster from a file, or change it to what the file says", ArgsUsage: " ", Action: t.action(vcApply),
			Description: "All or nothing, and refused like an admission (exit status 3). VMs that the change does not concern run on. A change that\n" +
				"running VMs must restart for is refused, naming them, unless --restart is given.\n\n" +
				"What others changed since the last file (`vc scale`, `vc edit`) stays where this file leaves it as the last one had it. A field\n" +
				"that both changed is a conflict, which names it (exit status 5); --force takes the file's. A file of `vc get -o yaml` names its\n" +
				"version in its first line, and is compared with that one if it is newer.\n\n" +
				"Example: vcctl vc apply -f render.yaml --dry-run",
			Flags: changeFlags(vcFileFlag, restartFlag, forceFlag),
		},
		{
			Name: "diff", Usage: "say what apply would change", ArgsUsage: " ", Action: t.action(vcDiff), Flags: []cli.Flag{vcFileFlag, forceFlag},
			Description: "Exit status 0: nothing; 1: something. It changes nothing.\n\nExample: vcctl vc diff -f render.yaml",
		},
		{
			Name: "edit", Usage: "change the file of a virtual cluster in an editor", ArgsUsage: "NAME", Action: t.action(vcEdit),
			Description: "Opens what `vc get -o yaml` prints in $VISUAL or $EDITOR (or else vi), and applies what is saved. A text with an error is kept in a\n" +
				"file, which the error names.\n\nExample: vcctl vc edit render",
			Flags: changeFlags(restartFlag),
		},
		{
			Name: "history", Usage: "list the versions of a virtual cluster", ArgsUsage: "NAME", Action: t.ask("getting the history of virtual cluster %s", vcHistory),
			Description: "Each create, apply, edit, scale and rollback makes a version. The cluster keeps the last 10. -o json has the file of each.\n\n" +
				"Example: vcctl vc history render",
		},
		{
			Name: "rollback", Usage: "go back to an earlier version of a virtual cluster", ArgsUsage: "NAME", Action: t.action(vcRollback),
			Description: "As applying the file of that version would.\n\nExample: vcctl vc rollback render --to 1 --dry-run",
			Flags:       changeFlags(&cli.IntFlag{Name: "to", Usage: "`NUMBER` of the version (default: the one before the newest)"}, restartFlag),
		},
	}
}

// vcFile is the file of the virtual cluster that a command names.
func vcFile(c *call) (yamlText, error) {
	file, err := c.api.VirtualClusterFile(c.ctx, c.name)
	if err != nil {
		return "", err
	}
	return textOf(file)
}

func textOf(file v1.VirtualClusterFile) (yamlText, error) {
	text, err := file.Text()
	return yamlText(text), err
}

// file of the -f flag, and the version that it was made of.
func (c *call) file() (spec v1.VirtualClusterSpec, base string, err error) {
	if c.String("file") == "" {
		return spec, "", usage("%s: give the VC file with -f FILE, or -f - for standard input", c.Command.FullName())
	}
	return c.t.readVC(c.String("file"))
}

// allowed are the options of a request by --restart, --force and the version that its file was made of.
func (c *call) allowed(base string) []client.Option {
	opts := c.opts
	if base != "" {
		opts = append(opts, client.Base(base))
	}
	if c.Bool("restart") {
		opts = append(opts, client.Restart())
	}
	if c.Bool("force") {
		opts = append(opts, client.Force())
	}
	return opts
}

func vcApply(c *call) error {
	spec, base, err := c.file()
	if err != nil {
		return err
	}
	r, err := c.api.Apply(c.ctx, spec, c.allowed(base)...)
	if err != nil {
		return doing(err, "applying virtual cluster %s", fullName(c.tenant, spec.Name))
	}
	return concludeVC(c, r)
}

func vcDiff(c *call) error {
	spec, base, err := c.file()
	if err != nil {
		return err
	}
	name := fullName(c.tenant, spec.Name)
	_, err = c.api.VirtualClusterFile(c.ctx, spec.Name)
	isNew := client.IsProblem(err, v1.ProblemNotFound)
	if err != nil && !isNew {
		return doing(err, "getting virtual cluster %s", name)
	}
	r, err := c.api.Apply(c.ctx, spec, append(c.allowed(base), client.DryRun(), client.Restart())...)
	if err != nil {
		return doing(err, "comparing with virtual cluster %s", name)
	}
	if err := c.print(items(r.Fields), func(bool) string {
		if isNew {
			return "There is no virtual cluster " + name + ": apply creates it.\n"
		}
		return fieldsText(r.Fields)
	}); err != nil {
		return err
	}
	if isNew || differs(r.Fields) {
		return failed(statusFailed, "")
	}
	return nil
}

// differs says whether something would change.
func differs(fields []v1.FieldChange) bool {
	for _, f := range fields {
		if f.Effect != v1.EffectKept {
			return true
		}
	}
	return false
}

// fieldsText is a line for each field that changes, and for each VM that must restart for it.
func fieldsText(fields []v1.FieldChange) string {
	if len(fields) == 0 {
		return ""
	}
	effects := map[string]string{v1.EffectNow: "now", v1.EffectRestart: "restarts VMs", v1.EffectStart: "when its VMs start next", v1.EffectKept: "kept: it changed since the last file"}
	return tableOf("FIELD,FROM,TO,TAKES EFFECT", "", func(f v1.FieldChange) []string {
		effect := effects[f.Effect]
		return []string{f.Field, short(f.From), short(f.To), effect + equalReasons(f.VMs)}
	}).text(fields, false)
}

// equalReasons is "; a-0 runs with 1 vCPUs": each reason once, with the VMs that have it.
func equalReasons(vms []v1.VMEffect) (text string) {
	var order []string
	of := map[string][]string{}
	for _, vm := range vms {
		if of[vm.Why] == nil {
			order = append(order, vm.Why)
		}
		of[vm.Why] = append(of[vm.Why], vm.VM)
	}
	const shown = 3
	for i, why := range order {
		names := of[why]
		switch {
		case i == shown:
			return text + fmt.Sprintf("; and %d more reasons", len(order)-i)
		case len(names) == 1:
			text += "; " + names[0] + " " + why
		case len(names) > shown:
			text += fmt.Sprintf("; %d VMs, %s and %d more: each %s", len(names), strings.Join(names[:shown], ", "), len(names)-shown, why)
		default:
			text += fmt.Sprintf("; %d VMs, %s: each %s", len(names), strings.Join(names, ", "), why)
		}
	}
	return text
}

// short keeps a value on the screen.
func short(s string) string {
	const maxShown = 40 // characters
	if runes := []rune(s); len(runes) > maxShown {
		return string(runes[:maxShown]) + "..."
	}
	return s
}

func vcEdit(c *call) error {
	file, err := c.api.VirtualClusterFile(c.ctx, c.name)
	if err == nil && len(file.Hidden) > 0 {
		return failed(statusFailed, "editing virtual cluster %s: the role of your token may not read all of it; use vc apply", c.arg)
	}
	if err != nil {
		return doing(err, "getting virtual cluster %s", c.arg)
	}
	before, err := textOf(file)
	if err != nil {
		return err
	}
	path, after, err := c.t.edited(c, string(before))
	if err != nil {
		return doing(err, "editing virtual cluster %s", c.arg)
	}
	if after == string(before) {
		_ = os.Remove(path) // nothing is lost with it
		return c.print(v1.Result{}, func(bool) string { return "Nothing was changed.\n" })
	}
	kept := func(err error) error { return fmt.Errorf("%w; your text is kept in %s", err, path) }
	spec, err := v1.ParseVCFile([]byte(after))
	if err != nil {
		return kept(&failure{statusUsage, err})
	}
	if spec.Name != file.Spec.Name {
		return kept(usage("a virtual cluster keeps its name, %s", file.Spec.Name))
	}
	r, err := c.api.Apply(c.ctx, spec, append(c.allowed(""), client.Edit(), client.IfTag(file.ETag))...)
	if err != nil {
		return kept(doing(err, "changing virtual cluster %s", c.arg))
	}
	if c.dry() {
		c.t.say("vcctl: your text is kept in %s\n", path)
	} else {
		_ = os.Remove(path) // it is in force
	}
	return concludeVC(c, r)
}

// edited lets the user change a text, and returns it with the file that it is in.
func (t *tool) edited(c *call, text string) (path, after string, err error) {
	f, err := os.CreateTemp("", "vcctl-*.yaml")
	if err != nil {
		return "", "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", "", err
	}
	editor := "vi"
	for _, name := range []string{"EDITOR", "VISUAL"} {
		if v := os.Getenv(name); v != "" {
			editor = v
		}
	}
	run := exec.CommandContext(c.ctx, "sh", "-c", editor+` "$0"`, f.Name()) // EDITOR may have arguments
	run.Stdin, run.Stdout, run.Stderr = t.in, t.out, t.err
	if err := run.Run(); err != nil {
		return "", "", fmt.Errorf("editor %s: %w; the file is %s", editor, err, f.Name())
	}
	doc, err := os.ReadFile(f.Name())
	return f.Name(), string(doc), err
}

var versionTable = tableOf("VERSION,TIME,BY,REQUEST,CHANGES", "", func(v v1.VCVersion) []string {
	var changes []string
	for i, f := range v.Changes {
		if i == 3 {
			changes = append(changes, fmt.Sprintf("and %d more", len(v.Changes)-i))
			break
		}
		changes = append(changes, fmt.Sprintf("%s: %s -> %s", f.Field, orNone(short(f.From)), orNone(short(f.To))))
	}
	return []string{strconv.Itoa(v.Number), stamp(v.At), v.By, v.Verb, strings.Join(changes, "; ")}
})

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func vcHistory(c *call) (any, view, error) { return versionTable.answer(c.api.Versions(c.ctx, c.name)) }

func vcRollback(c *call) error {
	if c.IsSet("to") && c.Int("to") < 1 {
		return usage("--to must be a version's number, from 1")
	}
	r, err := c.api.Rollback(c.ctx, c.name, v1.RollbackRequest{Version: c.Int("to"), Restart: c.Bool("restart")}, c.opts...)
	if err != nil {
		return doing(err, "rolling back virtual cluster %s", c.arg)
	}
	return concludeVC(c, r)
}
