// Command vcd is the daemon of Evenkeel: it drives this host's hypervisor and,
// on a server, keeps the cluster's state.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

// version is set when the program is built.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	app := &cli.App{
		Name:            "vcd",
		Usage:           "the daemon of Evenkeel",
		Version:         version,
		HideHelpCommand: true,
		Description:     "vcd dev runs a whole cluster of one server in this process, for a look, a demo or a single host.\nStopping vcd leaves the VMs running; started again on the same data directory it finds them.",
		Commands:        []*cli.Command{devCommand()},
		ExitErrHandler:  func(*cli.Context, error) {}, // main says it, once
	}
	err := app.RunContext(ctx, os.Args)
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	fmt.Fprintln(os.Stderr, "vcd:", err)
	code := 1
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	os.Exit(code)
}

// logger writes to standard error; standard output is for what scripts wait for.
func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
