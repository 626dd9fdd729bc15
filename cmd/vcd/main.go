// Command vcd is the daemon of Evenkeel: it drives this host's hypervisor and,
// on a server, keeps the cluster's state.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

// version is set when the program is built.
var version = "unknown"

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// app is the program's commands and flags.
func app(out, errs io.Writer) *cli.App {
	wrong := func(_ *cli.Context, err error, _ bool) error { return cli.Exit(err, 2) }
	app := &cli.App{
		Writer: out, ErrWriter: errs, OnUsageError: wrong,
		Name:            "vcd",
		Usage:           "the daemon of Evenkeel",
		Version:         version,
		HideHelpCommand: true,
		Description:     "vcd dev runs a whole cluster of one server in this process, for a look, a demo or a single host.\nStopping vcd leaves the VMs running; started again on the same data directory it finds them.",
		Commands:        []*cli.Command{runCommand(), devCommand(), checkCommand(), recoverCommand()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cli.Exit(fmt.Sprintf("there is no command %q; vcd --help lists what there is", c.Args().First()), 2)
			}
			return cli.ShowAppHelp(c)
		},
		ExitErrHandler: func(*cli.Context, error) {}, // main says it, once
	}
	for _, cmd := range app.Commands {
		cmd.OnUsageError = wrong
	}
	return app
}

// run carries one command line out and returns the exit status: 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	err := app(out, errs).RunContext(ctx, args)
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	fmt.Fprintln(errs, "vcd:", err)
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 1
}

// logger writes to standard error; standard output is for what scripts wait for.
func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// formatted is logger in that format: text or json.
func formatted(level, format string) (*slog.Logger, error) {
	log, err := logger(level)
	if err != nil || format != "json" {
		return log, err
	}
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // logger did
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
