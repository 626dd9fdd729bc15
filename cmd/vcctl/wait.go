package main

import (
	"time"

	"evenkeel/api/v1"
)

// about says what an operation is about, and the command that shows how far it is.
func about(op v1.Operation) (subject, watch string) {
	switch {
	case op.VM != "":
		name := fullName(op.Tenant, op.VM)
		return "VM " + name, "vcctl vm get " + name + " -w"
	case op.VirtualCluster != "":
		name := fullName(op.Tenant, op.VirtualCluster)
		return name, "vcctl vc get " + name + " -w"
	case op.Host != "":
		return "host " + op.Host, "vcctl host get " + op.Host + " -w"
	}
	return "plan " + op.Plan, "vcctl plan get " + op.Plan + " -w"
}

// outcome is nil if an operation ended well, else an error with the status for how it ended.
func outcome(op v1.Operation) error {
	subject, _ := about(op)
	switch op.State {
	case v1.OperationFailed:
		return failed(statusFailed, "%s of %s failed: %s", op.Kind, subject, op.Text)
	case v1.OperationSuperseded:
		return failed(statusConflict, "%s of %s was overtaken: %s", op.Kind, subject, op.Text)
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
	subject, _ := about(op)
	text := op.Kind + " " + subject + ": " + op.State
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
