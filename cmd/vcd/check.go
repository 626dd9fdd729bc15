package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
	"evenkeel/hypervisor/hostcheck"
	"evenkeel/hypervisor/libvirt"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "say what is missing on this machine before it joins as a host, and how to mend it",
		Description: `Checks KVM, control groups, libvirt and QEMU, balloons, the clock, the watchdog, the keys of live migration, AppArmor,
storage, swap, NUMA and huge pages. It changes nothing: of KVM it boots this machine's own kernel, with 256 MiB and no disk, and ends it. Run it
as root:

    vcd check || echo "VMs cannot run here as they should"

The status is 1 if there is a problem. Warnings name what will not work; notes need nothing. "vcctl cluster init" and "vcctl cluster join" print
problems and warnings, too.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "print `FORM`, text or json", Value: "text"},
			&cli.StringFlag{Name: "config", Usage: "take hypervisor, emulation and migrateURI from `FILE`, if it is there", Value: "/etc/evenkeel/vcd.yaml"},
			&cli.StringFlag{Name: "hypervisor", Usage: "ask the libvirt at `URI`, whatever the file says"},
		},
		Action: check,
	}
}

// checkWait is how long libvirt and the boot of a kernel may take: a daemon that begins asks its QEMU first. vcctl waits for two minutes when a host
// enters a cluster.
const checkWait = 100 * time.Second

func check(c *cli.Context) error {
	if c.Args().Present() {
		return cli.Exit(fmt.Sprintf("check takes no arguments, but there is %q", c.Args().First()), 2)
	}
	form := c.String("output")
	if form != "text" && form != "json" {
		return cli.Exit(fmt.Sprintf("--output %q: use text or json", form), 2)
	}
	conf, err := readConfig(c.String("config"))
	switch {
	case err != nil && !c.IsSet("config"): // the shipped file, which says no address yet, or none
		if !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.App.ErrWriter, "vcd check goes by the defaults: %v\n", err)
		}
		conf, err = config{Hypervisor: systemURI}, nil
	case err == nil && conf.Hypervisor == "simulated":
		err = fmt.Errorf("%s: the hypervisor is simulated: nothing is missing for that", c.String("config"))
	}
	if err != nil {
		return cli.Exit(err, 2)
	}
	if c.IsSet("hypervisor") {
		conf.Hypervisor = c.String("hypervisor")
	}
	facts, err := lookAtHost(c.Context, conf)
	if err != nil {
		return err
	}
	findings := hostcheck.Findings(facts)
	if err := printFindings(c.App.Writer, form, facts, findings); err != nil {
		return err
	}
	if hostcheck.Worst(findings) == hostcheck.Problem {
		return cli.Exit("there are problems: VMs cannot run here as they should", 1)
	}
	return nil
}

// lookAtHost reads the machine that vcd runs on.
func lookAtHost(ctx context.Context, conf config) (hostcheck.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	log, err := formatted("error", "text")
	if err != nil {
		return hostcheck.Facts{}, err
	}
	m := hostcheck.Machine{Root: "/", Emulation: conf.Emulation, MigrateURI: conf.migrateURI()}
	h, err := libvirt.Open(ctx, libvirt.Options{URI: conf.Hypervisor, Logger: log})
	if m.Down = err; err == nil {
		defer h.Close() //nolint:errcheck // it was asked only
		m.Libvirt = h
	}
	return hostcheck.Collect(ctx, m), nil
}

// missing is what an operator should see of this host when it enters a cluster: problems and warnings. It is empty where the host runs no VMs, or
// simulated ones.
func (d *memberDaemon) missing(ctx context.Context) (out []v1.HostFinding) {
	if !d.conf.Agent || d.conf.Hypervisor == "simulated" {
		return nil
	}
	facts, err := lookAtHost(ctx, d.conf)
	if err != nil {
		d.log.Error("check this host", "error", err)
		return nil
	}
	for _, f := range hostcheck.Findings(facts) {
		if f.Level == hostcheck.Problem || f.Level == hostcheck.Warning {
			out = append(out, v1.HostFinding{Check: f.Check, Level: string(f.Level), Text: f.Text, Mend: f.Mend})
		}
	}
	return out
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
