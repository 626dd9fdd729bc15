// Command watchdog stands in for a host's hardware watchdog in the lab, where
// machines have none: from outside the host it listens on a unix socket
// (package cluster/watchdog describes what is said over it), and runs a command
// that cuts the host's power when it was armed and not petted in time.
//
//	watchdog -socket PATH COMMAND [ARG...]
//
// Every event is a line of JSON on standard output, with its time: ready, armed,
// petted, disarmed, disconnected, refused, reset, expired, and done or failed for the command.
// A command that fails is run again, every second, ten times at most. SIGHUP says that the host was without
// power, which is the end of any count. It ends on SIGTERM or SIGINT, and then guards nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	socket := flag.String("socket", "", "path of the unix socket to listen on; one that is left over there is replaced")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: watchdog -socket PATH COMMAND [ARG...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *socket == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	unpowered := make(chan os.Signal, 1)
	signal.Notify(unpowered, syscall.SIGHUP)
	if err := serve(ctx, *socket, flag.Args(), os.Stdout, unpowered); err != nil {
		fmt.Fprintln(os.Stderr, "watchdog:", err)
		os.Exit(1)
	}
}
