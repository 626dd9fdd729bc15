package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) hostCommand() *cli.Command {
	return &cli.Command{
		Name: "host", Usage: "hosts: list, get, cordon, uncordon, drain, undrain, fence, confirm-dead, confirm-empty",
		Description: "A host is a machine with a hypervisor whose agent has reported to the cluster. It leaves by `vcctl cluster remove`.",
		Subcommands: append([]*cli.Command{
			{
				Name: "list", Usage: "list hosts with what they have and give", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag, stateFlag(hostStates)},
				Action: t.ask("listing hosts", func(c *call) (any, view, error) {
					all, err := c.api.Hosts(c.ctx)
					return hostTable.answer(inState(c, hostStates, all, err, func(h v1.Host) string { return h.State }))
				}),
				Description: "CPU GIVEN and MEMORY GIVEN: of what may be used of the host. UP: how long the machine has run.\n\nExample: vcctl host list -o wide\n   vcctl host list --sort cpu-used:desc",
			},
			{
				Name: "get", Usage: "show one host with its VMs", ArgsUsage: "HOST", Flags: []cli.Flag{watchFlag}, Action: t.ask("getting host %s", hostGet),
				Description: "Example: vcctl host get h1",
			},
			{
				Name: "cordon", Usage: "place no new VMs on a host", ArgsUsage: "HOST", Action: t.ask("cordoning host %s", hostCordon),
				Description: "VMs on it run on. `vcctl host uncordon` opens it again.\n\nExample: vcctl host cordon h1 -m 'disk replacement'",
				Flags:       []cli.Flag{reasonFlag("`TEXT` that says why, shown with the host"), checkFlag},
			},
			{
				Name: "uncordon", Usage: "place new VMs on a host again", ArgsUsage: "HOST", Action: t.ask("uncordoning host %s", hostUncordon), Flags: []cli.Flag{checkFlag},
				Description: "Example: vcctl host uncordon h1",
			},
			{
				Name: "fence", Usage: "turn a host's power off with its fence device, or try the device", ArgsUsage: "HOST", Action: t.ask("fencing host %s", hostFence),
				Description: "Fence devices are named in the servers' vcd.yaml. All VMs of the host end; the restartable ones start elsewhere once the\n" +
					"device has confirmed that the power is off.\n\nExample: vcctl host fence --test h1",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "test", Usage: "only ask the device whether the power is on"},
					&cli.BoolFlag{Name: "yes", Usage: "do it; without it, and without --test, the command says what it would do"},
				},
			},
			{
				Name: "confirm-dead", Usage: "say that a host is dead, where nothing else can prove it", ArgsUsage: "HOST", Action: t.ask("confirming that host %s is dead", hostConfirmDead),
				Description: "Your statement counts as proof: restartable VMs of the host start elsewhere. If the host still runs, they run twice and ruin their disks:\n" +
					"make sure that its power is off. Refused while its agent is heard of.\n\nExample: vcctl host confirm-dead --yes -m 'power supply burnt' h1",
				Flags: []cli.Flag{
					reasonFlag("`TEXT` that says how you know"),
					&cli.BoolFlag{Name: "yes", Usage: "do it; without it the command says what it would do"},
				},
			},
		}, t.drainCommands()...),
	}
}

func hostGet(c *call) (any, view, error) {
	h, err := c.api.Host(c.ctx, c.name)
	if err != nil || !c.human() {
		return h, nil, err
	}
	vms, err := ofTenant(client.AllTenants, func(of client.Option) ([]v1.VM, error) { return c.api.VMs(c.ctx, "", c.name, of) })
	return h, func(wide bool) string { return hostText(h, withFullNames(vms), wide) }, err
}

func hostCordon(c *call) (any, view, error) {
	h, err := c.api.Cordon(c.ctx, c.name, c.String("reason"), c.opts...)
	return h, c.changed("; host "+h.Name+" is "+h.State, fmt.Sprintf("Host %s is cordoned: it takes no new VMs; the %d on it run on.", h.Name, h.VMs)), err
}

func hostUncordon(c *call) (any, view, error) {
	h, err := c.api.Uncordon(c.ctx, c.name, c.opts...)
	return h, c.changed("; host "+h.Name+" is "+h.State, "Host "+h.Name+" takes new VMs again."), err
}

var hostTable = tableOf("NAME,STATE,ROLES,LEASE,WATCHDOG,VMS,CPU GIVEN,CPU USED,MEMORY GIVEN,UP",
	"CPU,MEMORY,FOREIGN VMS,KVM,VERSION,SOFTWARE,HEARD,REASON", func(h v1.Host) []string {
		return []string{h.Name, h.State, strings.Join(h.Roles, ", "), leaseState(h.Lease), watchdogText(h), strconv.Itoa(h.VMs),
			cores(h.Allocated.CPU) + "/" + cores(h.Allowance.CPU), cores(h.Used.CPU), h.Allocated.Memory.Short() + "/" + h.Allowance.Memory.Short(), ago(h.BootedAt),
			cores(h.Capacity.CPU), h.Capacity.Memory.Short(), strconv.Itoa(h.ForeignVMs),
			strconv.FormatBool(h.KVM), h.Version, h.Software, heardText(h), hostReason(h)}
	})

// leaseState in the words of the field: a lease that was not renewed in time has expired.
func leaseState(lease string) string {
	if lease == "over" {
		return "expired"
	}
	return lease
}

// heardText is how long ago the host's lease was renewed.
func heardText(h v1.Host) string {
	return seen(time.Duration(h.Heard*float64(time.Second)).Round(100*time.Millisecond).String(), h.Heard < 0)
}

// watchdogText is "15s", or "-" where none is armed.
func watchdogText(h v1.Host) string {
	return seen(time.Duration(h.Watchdog*float64(time.Second)).String(), h.Watchdog <= 0)
}

// leaseText is "held, renewed 2s ago; a watchdog of 15s is armed".
func leaseText(h v1.Host) string {
	text := leaseState(h.Lease)
	if h.Heard >= 0 {
		text += fmt.Sprintf(", renewed %s ago", time.Duration(h.Heard*float64(time.Second)).Round(100*time.Millisecond))
	}
	if h.Watchdog > 0 {
		text += fmt.Sprintf("; a watchdog of %s is armed", time.Duration(h.Watchdog*float64(time.Second)))
	}
	return text
}

func hostReason(h v1.Host) string {
	if h.Error != "" {
		return h.Error
	}
	if h.Drain != nil && h.Drain.State != "none" {
		return h.Drain.State + ": " + h.Drain.Text
	}
	return h.CordonReason
}

func hostText(h v1.Host, vms []v1.VM, wide bool) string {
	both := func(r v1.Resources) string { return fmt.Sprintf("%s cores, %s", cores(r.CPU), r.Memory.Short()) }
	foreign := ""
	if h.ForeignVMs > 0 {
		foreign = countOf(h.ForeignVMs, "VM") + ", " + both(h.Foreign)
	}
	kvm := "software emulation"
	if h.KVM {
		kvm = "hardware virtualization"
	}
	text := fields("Name", h.Name, "State", h.State, "Error", h.Error, "Cordoned because", h.CordonReason, "Capacity", both(h.Capacity),
		"Allowance", both(h.Allowance), "Allocated", both(h.Allocated), "Used", both(h.Used), "Pressure", pressureText(h.Pressure), "Available", availabilityText(h.Available), "Foreign", foreign,
		"Unknown VMs", strings.Join(h.Unmanaged, ", "), "Hypervisor", h.Software+", "+kvm, "Version", h.Version, "Roles", strings.Join(h.Roles, ", "), "Started", agoText(h.BootedAt), "Lease", leaseText(h))
	if h.Drain != nil {
		text += drainText(*h.Drain)
	}
	if len(vms) > 0 {
		text += "\n" + vmTable.text(vms, wide)
	}
	return text
}

// availabilityText is the host availability; empty where the host reported none.
func availabilityText(w *v1.HostAvailability) string {
	if w == nil {
		return ""
	}
	text := fmt.Sprintf("%s cores, %s for new VMs, by its own estimate", cores(w.CPU), w.Memory.Short())
	if w.Ignored != "" {
		text += ", which counts for nothing: " + w.Ignored
	}
	return text
}

// pressureText is how much work on the machine waits; empty where it is not reported.
func pressureText(p *v1.Pressure) string {
	if p == nil {
		return ""
	}
	var out []string
	for _, of := range []struct {
		name  string
		share *float64
	}{{"CPU", p.CPU}, {"memory", p.Memory}, {"disks", p.IO}} {
		if of.share != nil {
			out = append(out, fmt.Sprintf("%s %s", of.name, percent(*of.share)))
		}
	}
	return strings.Join(out, ", ") + " of the last 10 s, in which work waited"
}

func hostFence(c *call) (any, view, error) {
	if !c.Bool("test") && !c.Bool("yes") {
		return wouldDo(c, "Fencing would turn it off; say --yes to do it, or --test to ask its device whether the power is on.")
	}
	return acknowledged(c.api.Fence(c.ctx, c.name, c.Bool("test")))
}

func hostConfirmDead(c *call) (any, view, error) {
	if !c.Bool("yes") {
		if _, err := c.api.ConfirmDead(c.ctx, c.name, c.String("reason"), client.DryRun()); err != nil {
			return nil, nil, err
		}
		return wouldDo(c, "Its restartable VMs would start elsewhere. If it still runs, they would run twice: make sure that its power is off, then say --yes.")
	}
	h, err := c.api.ConfirmDead(c.ctx, c.name, c.String("reason"))
	return h, func(bool) string {
		return fmt.Sprintf("Host %s counts as dead; its restartable VMs start elsewhere.\n", h.Name)
	}, err
}

// wouldDo says what a change of a host would do, and changes nothing.
func wouldDo(c *call, what string) (any, view, error) {
	h, err := c.api.Host(c.ctx, c.name)
	text := fmt.Sprintf("host %s is %s and has %d VMs. %s", h.Name, h.State, h.VMs, what)
	return v1.Acknowledgement{Text: text}, func(bool) string { return "Nothing was changed: " + text + "\n" }, err
}
