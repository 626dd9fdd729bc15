package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// changeFlags come with every command that changes a virtual cluster.
func changeFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and change nothing"},
		&cli.BoolFlag{Name: "wait", Usage: "return when it is done, not when it is decided"},
		&cli.DurationFlag{Name: "timeout", Usage: "with --wait: give up waiting after `TIME` (exit status 6; the change goes on)"},
	)
}

// options of a change, and a check of its flags.
func options(c *cli.Context) ([]client.Option, error) {
	if _, err := format(c); err != nil {
		return nil, err
	}
	if c.IsSet("timeout") && !c.Bool("wait") {
		return nil, usage("--timeout needs --wait")
	}
	if c.IsSet("timeout") && c.Duration("timeout") <= 0 {
		return nil, usage("--timeout must be more than 0")
	}
	if !c.Bool("dry-run") {
		return nil, nil
	}
	if c.Bool("wait") {
		return nil, usage("--dry-run changes nothing, so there is nothing to --wait for")
	}
	return []client.Option{client.DryRun()}, nil
}

// conclude shows the result of a change, after waiting for it if that was asked for.
func (t *tool) conclude(c *cli.Context, api *client.Client, r v1.Result) error {
	if r.DryRun || r.Operation == nil || !c.Bool("wait") {
		return t.print(c, r, func(bool) string { return resultText(r) })
	}
	op, err := t.await(c, api, *r.Operation)
	if err != nil {
		return err
	}
	r.Operation = &op
	if vc, err := api.VirtualCluster(c.Context, op.VirtualCluster); err == nil {
		r.VirtualCluster = &vc
	}
	bad := outcome(op)
	f, err := format(c)
	if err != nil {
		return err
	}
	if human := f == formatTable || f == formatWide; bad != nil && human {
		return bad // it says how it ended
	}
	if err := t.print(c, r, func(bool) string { return resultText(r) }); err != nil {
		return err
	}
	return bad
}

// await the end of an operation, for as long as --timeout allows, and show how far it is.
func (t *tool) await(c *cli.Context, api *client.Client, op v1.Operation) (v1.Operation, error) {
	ctx, cancel := c.Context, context.CancelFunc(func() {})
	if d := c.Duration("timeout"); d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	line := t.progressLine()
	op, err := api.Wait(ctx, op, func(op v1.Operation) { line.set(op) })
	line.end()
	again := "watch it with: " + watchWith(op)
	switch {
	case errors.Is(err, context.Canceled):
		return op, failed(statusStillGoing, "detached; %s of %s goes on: %s", op.Kind, subject(op), again)
	case errors.Is(err, context.DeadlineExceeded):
		return op, failed(statusStillGoing, "%s of %s is still going on after %s (%s): %s", op.Kind, subject(op), c.Duration("timeout"), op.Text, again)
	}
	return op, doing(err, "waiting for %s of %s, which goes on (%s)", op.Kind, subject(op), again)
}

// subject of an operation: what it is about.
func subject(op v1.Operation) string {
	switch {
	case op.VirtualCluster != "":
		return op.VirtualCluster
	case op.Host != "":
		return "host " + op.Host
	}
	return "plan " + op.Plan
}

// watchWith is the command that shows how far an operation is.
func watchWith(op v1.Operation) string {
	switch {
	case op.VirtualCluster != "":
		return "vcctl vc get " + op.VirtualCluster + " -w"
	case op.Host != "":
		return "vcctl host get " + op.Host + " -w"
	}
	return "vcctl plan get " + op.Plan + " -w"
}

// outcome is nil if an operation ended well, else an error with the status for how it ended.
func outcome(op v1.Operation) error {
	switch op.State {
	case v1.OperationFailed:
		return failed(statusFailed, "%s of %s failed: %s", op.Kind, subject(op), op.Text)
	case v1.OperationSuperseded:
		return failed(statusConflict, "%s of %s was overtaken: %s", op.Kind, subject(op), op.Text)
	}
	return nil
}

// progress shows how far an operation is: on a terminal in one line that
// changes, elsewhere a line for each step.
type progress struct {
	t        *tool
	terminal bool
	last     string
	begun    time.Time
}

func (t *tool) progressLine() *progress {
	return &progress{t: t, terminal: isTerminal(t.err), begun: time.Now()}
}

func (p *progress) set(op v1.Operation) {
	text := op.Kind + " " + subject(op) + ": " + op.State
	if op.Text != "" {
		text += ", " + oneLine(op.Text)
	}
	if text == p.last {
		return
	}
	p.last = text
	if op.Ended() {
		return // how it ended the result says
	}
	if p.terminal {
		p.t.say("\r\x1b[K%s (%s)", text, time.Since(p.begun).Round(time.Second))
	} else {
		p.t.say("%s\n", text)
	}
}

func (p *progress) end() {
	if p.terminal && p.last != "" {
		p.t.say("\r\x1b[K")
	}
}
