// Command vcsim runs Evenkeel on simulated hosts, to measure it and to
// reproduce figures.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"
)

// version is set when the program is built.
var version = "unknown"

func app() *cli.App {
	return &cli.App{
		Name:            "vcsim",
		Usage:           "Evenkeel on simulated hosts",
		Version:         version,
		HideHelpCommand: true,
		Commands:        []*cli.Command{clusterCommand(), clusterServerCommand(), clusterClientsCommand(), paperCommand(), runCommand(), whatifCommand(), forecastCommand()},
		ExitErrHandler:  func(*cli.Context, error) {}, // main says it, once
	}
}

func main() {
	if err := app().Run(spreadData(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "vcsim:", err)
		code := 1
		var exit cli.ExitCoder
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		os.Exit(code)
	}
}
