package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/internal/statefile"
)

func recoverCommand() *cli.Command {
	return &cli.Command{
		Name:  "recover",
		Usage: "make this server the only voter of a cluster that has lost its majority for good",
		Description: `For the day that more than half of the servers are gone and will not come back. Stop vcd here first; choose the
server that had applied the most (vcctl cluster members -o wide showed it last). Without --yes nothing is done.

Writes that only the lost servers had are lost. After the start nothing starts or stops until every host has sent its
inventory, or an operator has confirmed with vcctl host confirm-dead that it never will. The other servers must not come back on their old data directories: let them join again.

This server does not know a host that joined by such a write, and that host may run VMs that this server believes to be
elsewhere. The command prints the hosts that it knows: name every other one with --wait-for, or turn it off before you
start vcd here.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "read `FILE`, vcd.yaml(5)", Value: "/etc/evenkeel/vcd.yaml"},
			&cli.StringSliceFlag{Name: "wait-for", Usage: "wait for `HOST` as well, which joined by a write that this server does not have"},
			&cli.BoolFlag{Name: "yes", Usage: "do it; without it the command says what it would do"},
		},
		Action: recoverQuorum,
	}
}

func recoverQuorum(c *cli.Context) error {
	if c.Args().Present() {
		return cli.Exit(fmt.Sprintf("recover takes no arguments, but there is %q", c.Args().First()), 2)
	}
	conf, err := readConfig(c.String("config"))
	if err != nil {
		return cli.Exit(err, 2)
	}
	log, err := formatted("error", "text")
	if err != nil {
		return err
	}
	principal, err := identityOf(conf)
	if err != nil {
		return cli.Exit(fmt.Errorf("recover: %w", err), 2)
	}
	o := node.Options{Dir: filepath.Join(conf.DataDir, "raft"), ID: principal.Name, Advertise: conf.Advertise, Log: log}
	before, err := node.Examine(o)
	if err != nil {
		if d := new(statefile.Damaged); errors.As(err, &d) {
			return fmt.Errorf("recover: take another server, or restore from a snapshot: %w", err)
		}
		return fmt.Errorf("recover: vcd must be stopped here: %w", err)
	}
	fmt.Fprintf(c.App.Writer, "server %s of cluster %s has the log up to entry %d of term %d\n", principal.Name, principal.Cluster, before.Index, before.Term)
	if !slices.ContainsFunc(before.Servers, func(s node.Server) bool { return s.ID == principal.Name }) {
		return fmt.Errorf("recover: by its own log %s is no server of the cluster: it was removed", principal.Name)
	}
	for _, name := range c.StringSlice("wait-for") {
		if !pki.ValidName(name) {
			return cli.Exit(fmt.Sprintf("recover: --wait-for %q is no name of a host: a DNS label in lower case", name), 2)
		}
	}
	fmt.Fprintf(c.App.Writer, "hosts that it knows, and that will be waited for: %s\n", strings.Join(before.Hosts, ", "))
	fmt.Fprintln(c.App.Writer, "is there a host that is not among them? It may run VMs that this server believes to be elsewhere: name it with --wait-for, or turn it off first")
	if !c.Bool("yes") {
		fmt.Fprintf(c.App.Writer, "it would be the only voter, at %s; these would be left out, with what they alone have:\n", conf.Advertise)
		for _, s := range before.Servers {
			if s.ID != principal.Name {
				fmt.Fprintf(c.App.Writer, "  %s (%s)\n", s.ID, s.Address)
			}
		}
		fmt.Fprintln(c.App.Writer, "nothing was changed: look at the other servers' logs first, take the one that is furthest (term, then entry), and say --yes there")
		return nil
	}
	r, err := node.Recover(o, c.StringSlice("wait-for")...)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	fmt.Fprintf(c.App.Writer, "cluster %s recovered: %s is its only voter now; epoch %d\n", r.Cluster, principal.Name, r.Epoch)
	for _, s := range r.Servers {
		if s.ID != principal.Name {
			fmt.Fprintf(c.App.Writer, "%s (%s) must not come back on its old data directory\n", s.ID, s.Address)
		}
	}
	fmt.Fprintln(c.App.Writer, "start vcd; then `vcctl cluster status` shows which hosts are still to be heard of")
	return nil
}

// identityOf the member whose files the configuration names. It must be a server.
func identityOf(conf config) (pki.Identity, error) {
	principal, err := member.IdentityIn(conf.DataDir, conf.pkiFiles())
	if errors.Is(err, fs.ErrNotExist) {
		return principal, fmt.Errorf("there is no member of a cluster in %s: %w", conf.DataDir, err)
	}
	if err == nil && !principal.Server {
		err = fmt.Errorf("%s is an agent; recover a server", principal.Name)
	}
	return principal, err
}
