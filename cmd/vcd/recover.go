package main

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
)

func recoverCommand() *cli.Command {
	return &cli.Command{
		Name:  "recover",
		Usage: "make this server the only voter of a cluster that has lost its majority for good",
		Description: `For the day that more than half of the servers are gone and will not come back. Stop vcd here first; choose the
server that had applied the most (vcctl cluster members -o wide showed it last). Without --yes nothing is done.

What the lost servers acknowledged and this one never heard of is lost. After the start nothing is started or
stopped until every host has said what it runs, or an operator has said with vcctl host confirm-dead that it
never will. The other servers must not come back on their old data directories: let them join anew.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "read `FILE`, vcd.yaml(5)", Value: "/etc/evenkeel/vcd.yaml"},
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
	if !member.HasIdentity(conf.DataDir) {
		return cli.Exit(fmt.Sprintf("%s holds no server of a cluster", conf.DataDir), 2)
	}
	if !c.Bool("yes") {
		fmt.Printf("would make %s (%s) the only voter of its cluster, on the log in %s\nsay --yes to do it\n", conf.Name, conf.Advertise, filepath.Join(conf.DataDir, "raft"))
		return nil
	}
	r, err := node.Recover(node.Options{Dir: filepath.Join(conf.DataDir, "raft"), ID: conf.Name, Advertise: conf.Advertise, Log: log})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	fmt.Printf("cluster %s recovered: %s is its only voter now, with the log up to entry %d of term %d; epoch %d\n", r.Cluster, conf.Name, r.Index, r.Term, r.Epoch)
	for _, s := range r.Servers {
		if s.ID != conf.Name {
			fmt.Printf("%s (%s) must not come back on its old data directory\n", s.ID, s.Address)
		}
	}
	fmt.Println("start vcd; then `vcctl cluster status` shows which hosts are still to be heard of")
	return nil
}
