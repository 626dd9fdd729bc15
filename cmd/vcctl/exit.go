package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// Exit statuses of vcctl.
const (
	statusDone        = 0
	statusFailed      = 1
	statusUsage       = 2
	statusRefused     = 3
	statusNotFound    = 4
	statusConflict    = 5
	statusStillGoing  = 6
	statusUnreachable = 7
)

// failure is an error that knows its exit status.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(status int, format string, args ...any) error {
	return &failure{status, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return failed(statusUsage, format, args...) }

// doing says what was being done when an error came.
func doing(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// statusOf an error.
func statusOf(err error) int {
	var (
		f *failure
		p *client.Error
		x cli.ExitCoder
	)
	switch {
	case err == nil:
		return statusDone
	case errors.As(err, &f):
		return f.status
	case errors.As(err, &p):
		return cmp.Or(problemStatus[p.Problem.Type], statusFailed)
	case errors.As(err, &x):
		return x.ExitCode()
	case errors.Is(err, client.ErrUnreachable):
		return statusUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return statusStillGoing
	}
	return statusFailed
}

// problemStatus are the exit statuses of the server's problems; of others it is statusFailed.
var problemStatus = map[string]int{
	v1.ProblemRefused: statusRefused, v1.ProblemQuota: statusRefused, v1.ProblemBlocked: statusRefused, v1.ProblemRestart: statusRefused, v1.ProblemNotFound: statusNotFound,
	v1.ProblemConflict: statusConflict, v1.ProblemExists: statusConflict, v1.ProblemPrecondition: statusConflict,
	v1.ProblemMalformed: statusUsage, v1.ProblemInvalid: statusUsage, v1.ProblemUnsupported: statusUsage, v1.ProblemTooLarge: statusUsage, v1.ProblemMediaType: statusUsage,
	v1.ProblemTimeout: statusStillGoing, v1.ProblemNoLeader: statusUnreachable,
}

// finish reports an error, if there is one, and returns the exit status.
func (t *tool) finish(err error) int {
	status := statusOf(err)
	if err == nil {
		return status
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		t.say("vcctl: %s\n", text)
	}
	var p *client.Error
	if errors.As(err, &p) {
		t.explain(p)
	}
	if t.unconfigured && errors.Is(err, client.ErrUnreachable) {
		t.say("vcctl knows no cluster here, so it asked this machine: copy ~/.config/evenkeel from a host where vcctl works, or give --address, --cacert and --token-file (vcctl config set-context keeps them).\n")
	}
	if status == statusUsage && p == nil {
		var doc *v1.Invalid
		if !errors.As(err, &doc) {
			t.say("`vcctl help` and `vcctl NOUN VERB --help` say more.\n")
		}
	}
	return status
}

// explain shows what a problem holds besides its sentence.
func (t *tool) explain(e *client.Error) {
	p := e.Problem
	if len(p.Errors) > 1 {
		for _, f := range p.Errors {
			t.say("  %s\n", f)
		}
	}
	t.say("%s%s", reasons(p.Hosts, p.Advice), blockersText(p.Blockers))
	switch p.Type {
	case v1.ProblemUnauthorized:
		t.say("Set EVENKEEL_TOKEN, or tokenFile in ~/.config/evenkeel/config.yaml; `vcd dev` keeps its token in admin.token of its data directory.\n")
	case v1.ProblemQuota:
		t.say("`vcctl quota get` shows the limits and what is used.\n")
	case v1.ProblemInternal:
		t.say("The server's log has it under %s.\n", p.Instance)
	}
}

// reasons is the table of what each host lacked, and the advice.
func reasons(hosts []v1.HostReason, advice []string) string {
	var b strings.Builder
	if len(hosts) > 0 {
		b.WriteString(tableOf("HOST,CPU MISSING,MEMORY MISSING,WHY", "", func(h v1.HostReason) []string {
			return []string{h.Host, cores(h.CPUMissing), h.MemoryMissing.Short(), h.Text}
		}).text(hosts, false))
	}
	for _, a := range advice {
		b.WriteString("What would help: " + a + "\n")
	}
	return b.String()
}
