package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// call is one run of a command.
type call struct {
	*cli.Context
	t      *tool
	ctx    context.Context
	api    *client.Client  // nil in a command that asks no server
	format string          // of -o
	name   string          // the argument, without its tenant; "" where the command takes none
	arg    string          // the argument as it was written
	tenant string          // that the command acts in; "": the server's choice
	opts   []client.Option // of a change: that it is a dry run, if it is one
}

// view is a value as text, for -o table and wide.
type view = func(wide bool) string

// offline is the action of a command that asks no server. What commands share is checked before do runs: the
// arguments are those that ArgsUsage names (a command whose argument is optional, or that takes any number, takes them itself), -o is known, and
// --dry-run, --wait and --timeout go together.
func (t *tool) offline(do func(*call) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		k := &call{Context: c, t: t, ctx: c.Context}
		if usage := c.Command.ArgsUsage; !strings.HasPrefix(usage, "[") && !strings.HasSuffix(usage, "...") {
			got, err := names(c, strings.Fields(c.Command.ArgsUsage)...)
			if err != nil {
				return err
			}
			k.name = strings.Join(got, " ")
			k.arg = k.name
		}
		var err error
		if k.format, err = format(c); err != nil {
			return err
		}
		if listFormat(k.format) && !lists(c.Command) {
			return usage("-o %s is for commands that list", k.format) // before anything is changed
		}
		switch timeout := c.IsSet("timeout"); {
		case timeout && !c.Bool("wait"):
			return usage("--timeout needs --wait")
		case timeout && c.Duration("timeout") <= 0:
			return usage("--timeout must be more than 0")
		case k.dry() && c.Bool("wait"):
			return usage("--dry-run changes nothing, so there is nothing to --wait for")
		}
		k.opts = dryRun(c)
		return do(k)
	}
}

// action is offline for a command that asks the server.
func (t *tool) action(do func(*call) error) cli.ActionFunc {
	return t.offline(func(c *call) error {
		a, err := t.access(c.Context)
		if err == nil {
			err = c.enterTenant(&a)
		}
		if err != nil {
			return err
		}
		c.tenant = a.tenant
		if c.api, err = t.connect(a); err != nil {
			return err
		}
		return do(c)
	})
}

// ask is the action of a command that asks the server one thing and prints the answer; with -w it prints the answer
// again whenever it has changed. what says in errors what was being done; %s in it is the command's argument.
func (t *tool) ask(what string, do func(*call) (any, view, error)) cli.ActionFunc {
	return t.action(func(c *call) error {
		return t.show(c.Context, func(context.Context) (any, view, error) {
			answer, text, err := do(c)
			if own := (*failure)(nil); errors.As(err, &own) {
				return nil, nil, err // about the command line
			}
			return answer, text, doing(err, "%s", strings.ReplaceAll(what, "%s", c.arg))
		})
	})
}

func (c *call) dry() bool { return c.Bool("dry-run") }

// human says whether a person reads the output.
func (c *call) human() bool { return c.format == formatTable || c.format == formatWide }

func (c *call) print(value any, text view) error { return c.t.print(c.Context, value, text) }

// changed is what a change did, or that it was a dry run.
func (c *call) changed(dry, done string) view {
	return func(bool) string {
		if c.dry() {
			return "Dry run: nothing was changed" + dry + ".\n"
		}
		return done + "\n"
	}
}

// acknowledged is an answer in words.
func acknowledged(a v1.Acknowledgement, err error) (any, view, error) {
	return a, func(bool) string { return sentence(a.Text) + "\n" }, err
}

// sentence begins with a capital letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// printEntry prints one entry of a list without an end: its line, or with -o json an object per line.
func (c *call) printEntry(entry any, line string) error {
	switch c.format {
	case formatJSON:
		b, err := json.Marshal(entry)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		line = string(b) + "\n"
	case formatYAML:
		s, err := render(c.format, entry, nil)
		if err != nil {
			return err
		}
		line = "---\n" + s
	}
	return c.t.write(line)
}

// changeFlags come with every command whose change is an operation.
func changeFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and change nothing"},
		&cli.BoolFlag{Name: "wait", Usage: "return when it is done, not when it is decided"},
		&cli.DurationFlag{Name: "timeout", Usage: "with --wait: give up waiting after `TIME` (exit status 6; the change goes on)"},
	)
}

// checkFlag is the --dry-run of a change that is no operation.
var checkFlag = &cli.BoolFlag{Name: "dry-run", Usage: "check and change nothing"}

func dryRun(c *cli.Context) []client.Option {
	if c.Bool("dry-run") {
		return []client.Option{client.DryRun()}
	}
	return nil
}

// conclude prints the result of a change: at once, or with --wait after its operation has ended. then updates the
// result, with the operation as it ended. Its error is how the operation ended, if not well.
func (c *call) conclude(result any, op *v1.Operation, text view, then func(v1.Operation)) error {
	if op == nil || !c.Bool("wait") {
		return c.print(result, text)
	}
	ended, err := c.await(*op)
	if err != nil {
		return err
	}
	then(ended)
	if err := c.print(result, text); err != nil {
		return err
	}
	return outcome(c.owned(ended))
}

// await the end of an operation, for as long as --timeout allows, and show how far it is.
func (c *call) await(op v1.Operation) (v1.Operation, error) {
	ctx, cancel := c.ctx, context.CancelFunc(func() {})
	if d := c.Duration("timeout"); d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	line := c.t.progressLine()
	op, err := c.api.Wait(ctx, op, func(op v1.Operation) { line.set(c.owned(op)) })
	line.end()
	subject, watch := about(c.owned(op))
	switch {
	case errors.Is(err, context.Canceled):
		return op, failed(statusStillGoing, "detached; %s of %s goes on: watch it with: %s", op.Kind, subject, watch)
	case errors.Is(err, context.DeadlineExceeded):
		return op, failed(statusStillGoing, "%s of %s is still going on after %s (%s): watch it with: %s", op.Kind, subject, c.Duration("timeout"), op.Text, watch)
	}
	return op, doing(err, "waiting for %s of %s, which goes on (watch it with: %s)", op.Kind, subject, watch)
}
