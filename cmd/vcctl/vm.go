package main

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) vmCommand() *cli.Command {
	return &cli.Command{
		Name: "vm", Usage: "VMs: list, get, start, stop, restart, reset, migrate, forecast, console",
		Description: "VMs belong to virtual clusters: how many there are, and what they need, `vcctl vc` changes.\n" +
			"Those of another tenant are named by --tenant, or in full: film/render-worker-0.",
		Subcommands: append([]*cli.Command{
			{
				Name: "list", Usage: "list VMs with what they need, are given and use", ArgsUsage: " ",
				Action: t.ask("listing VMs", func(c *call) (any, view, error) {
					return inTenants(c, vmTable, vmTableOfAll).answer(c.api.VMs(c.ctx, c.String("vc"), c.String("host")))
				}),
				Description: "Example: vcctl vm list --vc render",
				Flags: []cli.Flag{watchFlag, allTenantsFlag,
					&cli.StringFlag{Name: "vc", Usage: "only those of the virtual cluster `NAME`"},
					&cli.StringFlag{Name: "host", Usage: "only those on the host `NAME`"}},
			},
			{
				Name: "get", Usage: "show one VM, by name or id, or what it used", ArgsUsage: "NAME", Flags: append([]cli.Flag{watchFlag}, historyFlags...), Action: t.vmGet,
				Description: "With --history: what it used of a resource, step by step, as a table and a plot. A step in which nothing was measured is missing.\n\n" +
					"Example: vcctl vm get render-worker-0\n   vcctl vm get render-worker-0 --history --resource memory --resolution 5m --since 12h",
			},
			{
				Name: "forecast", Usage: "show what a VM will use, and how sure that is", ArgsUsage: "NAME", Flags: forecastFlags, Action: t.ask("getting the forecast of VM %s", vmForecast),
				Description: "Its mean and the intervals in which it will be with a probability of 50, 80, 95 and 99%, minute by minute; how good such forecasts of it have been; " +
					"and whether they are trusted. While they are not, the declared need counts.\n\n" +
					"Example: vcctl vm forecast render-worker-0 --resource memory --steps 30",
			},
			{
				Name: "console", Usage: "attach to a VM's serial console", ArgsUsage: "NAME", Action: t.action(vmConsole),
				Description: "What is typed goes to the VM; ctrl-] leaves. A new reader takes the console over from the old one.\n\n" +
					"Example: vcctl vm console render-worker-0",
			},
		}, t.vmVerbs()...),
	}
}

const vmHeads, vmMoreHeads = "NAME,STATE,HOST,NEED,GIVEN,YIELD,CAP,USED,MEMORY,BALLOON", "RESIDENT,VCPUS,DOMAIN,ID,REASON"

var (
	vmTable      = tableOf(vmHeads, vmMoreHeads, vmCells)
	vmTableOfAll = tableOf("TENANT,"+vmHeads, vmMoreHeads, withTenant(func(vm v1.VM) string { return vm.Tenant }, vmCells))
)

func vmCells(vm v1.VM) []string {
	host := vm.Host
	if vm.MovingTo != "" {
		host += " -> " + vm.MovingTo
	}
	idle, unseen := vm.Allocation == 0, vm.SampledAt.IsZero()
	return []string{vm.Name, vm.State, host, cores(vm.Need), seen(cores(vm.Allocation), idle), seen(yield(vm.Yield), idle),
		seen(cores(vm.Cap), vm.Cap == 0), seen(cores(vm.Used), unseen), vm.Memory.Short(), seen(vm.Balloon.Short(), vm.Balloon == 0),
		seen(vm.Resident.Short(), unseen), strconv.Itoa(vm.VCPUs), vm.Domain, vm.ID, vm.Reason}
}

func vmText(vm v1.VM) string {
	unseen := vm.SampledAt.IsZero()
	return fields(
		"Name", vm.Name, "State", vm.State, "Reason", vm.Reason, "Virtual cluster", vm.VirtualCluster,
		"Group", fmt.Sprintf("%s, task %d", vm.Group, vm.Task), "Host", vm.Host, "Moving to", movingText(vm), "Domain", vm.Domain, "Id", vm.ID,
		"CPU", fmt.Sprintf("given %s of %s cores needed, yield %s", cores(vm.Allocation), cores(vm.Need), yield(vm.Yield)),
		"Cap in force", seen(cores(vm.Cap)+" cores", vm.Cap == 0), "CPU used", seen(cores(vm.Used)+" cores", unseen),
		"Virtual CPUs", strconv.Itoa(vm.VCPUs), "Memory", vm.Memory.Short(),
		"Balloon", seen(vm.Balloon.Short(), vm.Balloon == 0), "Resident", seen(vm.Resident.Short(), unseen),
		"Starts", strconv.FormatUint(vm.Generation, 10), "Measured", stamp(vm.SampledAt))
}

// movingText is empty where a VM does not move.
func movingText(vm v1.VM) string {
	if vm.MovingTo == "" {
		return ""
	}
	return fmt.Sprintf("%s (vcctl migration get %s)", vm.MovingTo, vm.Migration)
}
