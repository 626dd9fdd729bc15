package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/hypervisor/hostcheck"
	"evenkeel/hypervisor/libvirt"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "say what is missing on this machine before it joins as a host, and how to mend it",
		Description: `Checks KVM, control groups, libvirt and QEMU, balloons, the clock, the watchdog, the keys of live migration, AppArmor,
storage, swap, NUMA and huge pages. It changes nothing. Run it as root:

    vcd check || echo "VMs cannot run here as they should"

The status is 1 if there is a problem. Warnings name what will not work; notes need nothing.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "print `FORM`, text or json", Value: "text"},
			&cli.StringFlag{Name: "hypervisor", Usage: "ask the libvirt at `URI`", Value: "qemu:///system"},
		},
		Action: check,
	}
}

// checkWait is how long libvirt may take: a daemon that begins asks its QEMU first.
const checkWait = time.Minute

func check(c *cli.Context) error {
	if c.Args().Present() {
		return cli.Exit(fmt.Sprintf("check takes no arguments, but there is %q", c.Args().First()), 2)
	}
	form := c.String("output")
	if form != "text" && form != "json" {
		return cli.Exit(fmt.Sprintf("--output %q: use text or json", form), 2)
	}
	ctx, cancel := context.WithTimeout(c.Context, checkWait)
	defer cancel()
	log, err := formatted("error", "text")
	if err != nil {
		return err
	}
	var machine hostcheck.Libvirt
	h, down := libvirt.Open(ctx, libvirt.Options{URI: c.String("hypervisor"), Logger: log})
	if down == nil {
		defer h.Close()
		machine = h
	}
	facts := hostcheck.Collect(ctx, "/", machine, down)
	findings := hostcheck.Findings(facts)
	if err := printFindings(c.App.Writer, form, facts, findings); err != nil {
		return err
	}
	if hostcheck.Worst(findings) == hostcheck.Problem {
		return cli.Exit("there are problems: VMs cannot run here as they should", 1)
	}
	return nil
}

func printFindings(out io.Writer, form string, facts hostcheck.Facts, findings []hostcheck.Finding) error {
	if form == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Worst    hostcheck.Level     `json:"worst"`
			Findings []hostcheck.Finding `json:"findings"`
			Facts    hostcheck.Facts     `json:"facts"`
		}{hostcheck.Worst(findings), findings, facts})
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(out, "%-8s %-12s %s\n", f.Level, f.Check, f.Text); err != nil {
			return err
		}
		if f.Mend != "" {
			if _, err := fmt.Fprintf(out, "%-8s %-12s -> %s\n", "", "", f.Mend); err != nil {
				return err
			}
		}
	}
	return nil
}
