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
	ctx, cancel := c.Context, context.CancelFunc(func() {})
	if d := c.Duration("timeout"); d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	line := t.progressLine()
	op, err := api.Wait(ctx, *r.Operation, func(op v1.Operation) { line.set(op) })
	line.end()
	r.Operation = &op
	again := "watch it with: vcctl vc get " + op.VirtualCluster + " -w"
	switch {
	case errors.Is(err, context.Canceled):
		return failed(statusStillGoing, "detached; %s of %s goes on: %s", op.Kind, op.VirtualCluster, again)
	case errors.Is(err, context.DeadlineExceeded):
		return failed(statusStillGoing, "%s of %s is still going on after %s (%s): %s", op.Kind, op.VirtualCluster, c.Duration("timeout"), op.Text, again)
	case err != nil:
		return doing(err, "waiting for %s of %s, which goes on (%s)", op.Kind, op.VirtualCluster, again)
	}
	if vc, err := api.VirtualCluster(c.Context, op.VirtualCluster); err == nil {
		r.VirtualCluster = &vc
	}
	if err := t.print(c, r, func(bool) string { return resultText(r) }); err != nil {
		return err
	}
	switch op.State {
	case v1.OperationFailed:
		return failed(statusFailed, "%s of %s failed: %s", op.Kind, op.VirtualCluster, op.Text)
	case v1.OperationSuperseded:
		return failed(statusConflict, "%s of %s was overtaken: %s", op.Kind, op.VirtualCluster, op.Text)
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
	text := op.Kind + " " + op.VirtualCluster + ": " + op.State
	if op.Text != "" {
		text += ", " + oneLine(op.Text)
	}
	if text == p.last {
		return
	}
	p.last = text
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
