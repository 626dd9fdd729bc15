// Command vcctl is the command line of Evenkeel: it asks a server over the REST API, and solves
// placement problems by itself (vcctl solve). It keeps no state but its configuration and its
// log-ins, and needs no libvirt.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the build.
var version = "unknown"

func main() {
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run carries one command line out and returns the exit status.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() { // a second ^C ends the program at once
		<-ctx.Done()
		stop()
	}()
	return (&tool{in: in, out: out, err: errs}).run(ctx, args)
}

// run carries one command line out until ctx ends, and returns the exit status.
func (t *tool) run(ctx context.Context, args []string) int {
	app := t.app()
	ordered, err := reorder(app, args)
	if err == nil {
		err = app.RunContext(ctx, ordered)
	}
	return t.finish(err)
}
