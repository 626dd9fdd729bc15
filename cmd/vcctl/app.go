package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
)

// tool is one run of vcctl: its streams, and the warnings that it has shown.
type tool struct {
	in       io.Reader
	out, err io.Writer
	warned   map[string]bool // what was warned of
	// dial makes the connections to servers; nil: from this machine, as usual.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// config is the path of the configuration file; "": where it is by default.
	config string
	// unconfigured: nothing names a server, so that the default address is asked.
	unconfigured bool
}

func (t *tool) app() *cli.App {
	app := &cli.App{
		Name:  "vcctl",
		Usage: "ask for virtual clusters, and see what they get",
		UsageText: "vcctl [flags] NOUN VERB [NAME] [flags]\n" +
			"Flags may stand anywhere; -- ends them.",
		Description: "Address, token, CA and tenant come each from the first of these that has it: flags; the context of --context; EVENKEEL_ADDRESS,\n" +
			"EVENKEEL_TOKEN (or EVENKEEL_TOKEN_FILE), EVENKEEL_CACERT and EVENKEEL_TENANT; the context of EVENKEEL_CONTEXT, or else of\n" +
			"vcctl config use-context, or else the top of ~/.config/evenkeel/config.yaml. With --context the environment does not count.\n" +
			"A log-in of `vcctl login` at the same servers comes before the token of a context or of that file.\n\n" +
			"Exit status: 0 done; 1 failed; 2 wrong usage or bad file; 3 refused by admission or a quota, or a drain that is blocked; 4 not found;\n" +
			"5 conflict; 6 timed out, still going on; 7 not reachable or no leader.",
		HideVersion:     true,
		HideHelpCommand: true,
		Writer:          t.out,
		ErrWriter:       t.err,
		ExitErrHandler:  func(*cli.Context, error) {}, // run decides
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "address", Usage: "`URL` of the server, or of several, separated by commas (default: " + client.DefaultAddress + ")"},
			&cli.StringFlag{Name: "token", Usage: "`TOKEN` of the server; others on this machine can see it while vcctl runs, so rather use --token-file"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` that holds the token"},
			&cli.StringFlag{Name: "cacert", Usage: "`FILE` with the CA certificate of the server"},
			&cli.StringFlag{Name: "context", Usage: "`CONTEXT` of vcctl's configuration to take address, token, CA and tenant from; see vcctl config"},
			&cli.StringFlag{Name: "tenant", Usage: "`TENANT` whose virtual clusters and VMs the command is about; '*' in lists: all (default: that of the token, or default)"},
			&cli.BoolFlag{Name: "version", Usage: "print the version of vcctl"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "table, wide, json (as the REST API has it), yaml; of lists also csv, name, or custom-columns=COLUMN,HEAD:json.field"},
		},
		Commands: []*cli.Command{
			t.vcCommand(), t.vmCommand(), t.hostCommand(), t.rebalanceCommand(), t.planCommand(), t.simulateCommand(), t.migrationCommand(), t.operationCommand(),
			t.imageCommand(), t.tenantCommand(), t.quotaCommand(), t.loginCommand(), t.logoutCommand(), t.authCommand(), t.tokenCommand(), t.roleCommand(), t.eventsCommand(), t.auditCommand(), t.topCommand(), t.rightsizingCommand(),
			t.clusterCommand(), t.configCommand(), t.periodicCommand(), solveCommand(), completionCommand(t), t.completeCommand(), t.versionCommand(),
		},
	}
	each(app.Commands, func(c *cli.Command) {
		c.HideHelpCommand = true
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usage("%v", err) }
		if len(c.Subcommands) > 0 && c.Action == nil {
			c.Action = func(ctx *cli.Context) error { return cli.ShowSubcommandHelp(ctx) }
		}
	})
	app.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usage("%v", err) }
	app.Action = func(ctx *cli.Context) error {
		if ctx.Bool("version") {
			t.printf("vcctl %s\n", version)
			return nil
		}
		return cli.ShowAppHelp(ctx)
	}
	return app
}

// each visits all commands of a tree.
func each(cmds []*cli.Command, f func(*cli.Command)) {
	for _, c := range cmds {
		f(c)
		each(c.Subcommands, f)
	}
}

// names takes exactly the arguments that a command has names for, so that what
// was not understood changes nothing.
func names(c *cli.Context, wanted ...string) ([]string, error) {
	got := c.Args().Slice()
	for _, a := range got {
		if strings.HasPrefix(a, "-") && a != "-" {
			return nil, usage("%q is no name: names do not begin with a hyphen", a)
		}
	}
	switch {
	case len(got) < len(wanted):
		return nil, usage("%s: %s is missing", commandOf(c), wanted[len(got)])
	case len(got) > len(wanted):
		return nil, usage("%s: one argument too many: %q", commandOf(c), got[len(wanted)])
	}
	if slices.Contains(got, "") {
		return nil, usage("%s: a name is empty", commandOf(c))
	}
	return got, nil
}

// name is names for the one name that most commands have.
func name(c *cli.Context, wanted string) (string, error) {
	got, err := names(c, wanted)
	if err != nil {
		return "", err
	}
	return got[0], nil
}

func (t *tool) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format, args...) }
func (t *tool) say(format string, args ...any)    { _, _ = fmt.Fprintf(t.err, format, args...) }

// commandOf is the command without the program: "vc create".
func commandOf(c *cli.Context) string { return strings.TrimPrefix(c.Command.HelpName, "vcctl ") }
