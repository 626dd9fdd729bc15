package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) vmCommand() *cli.Command {
	return &cli.Command{
		Name: "vm", Usage: "VMs: list, get, forecast, console",
		Description: "VMs belong to virtual clusters; what changes them is under `vcctl vc`.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list VMs with what they need, are given and use", ArgsUsage: " ",
				Action: t.ask("listing VMs", func(c *call) (any, view, error) {
					all, err := c.api.VMs(c.ctx, c.String("vc"), c.String("host"))
					return inTenants(c, vmTable, vmTableOfAll).answer(inState(c, vmStates, all, err, func(vm v1.VM) string { return vm.State }))
				}),
				Description: "Example: vcctl vm list --vc render\n   vcctl vm list --selector tier=web --sort used:desc\n   vcctl vm list -o custom-columns=NAME,HOST,IPS:addresses",
				Flags: []cli.Flag{watchFlag, allTenantsFlag, sortFlag, selectorFlag, stateFlag(vmStates),
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
		},
	}
}

const (
	vmHeads     = "NAME,STATE,HOST,ADDRESS,NEED,GIVEN,YIELD,USED,MEMORY,UP"
	vmMoreHeads = "AGE,PROMISED,CAP,BALLOON,RESIDENT,VCPUS,VC,GROUP,IMAGE,DISK,NETWORK,LABELS,DOMAIN,ID,REASON"
)

var (
	vmTable      = tableOf(vmHeads, vmMoreHeads, vmCells).labelled(vmLabels)
	vmTableOfAll = tableOf("TENANT,"+vmHeads, vmMoreHeads, withTenant(func(vm v1.VM) string { return vm.Tenant }, vmCells)).labelled(vmLabels)
)

func vmLabels(vm v1.VM) []map[string]string { return []map[string]string{vm.Labels} }

func vmCells(vm v1.VM) []string {
	host := vm.Host
	if vm.MovingTo != "" {
		host += " -> " + vm.MovingTo
	}
	idle, unseen := vm.Allocation == 0, vm.SampledAt.IsZero()
	return []string{vm.Name, vm.State, host, firstOf(vm.Addresses), cores(vm.Need), seen(cores(vm.Allocation), idle), seen(yield(vm.Yield), idle),
		seen(cores(vm.Used), unseen), vm.Memory.Short(), ago(vm.StartedAt),
		ago(vm.CreatedAt), yield(vm.MinYield), seen(cores(vm.Cap), vm.Cap == 0), seen(vm.Balloon.Short(), vm.Balloon == 0),
		seen(vm.Resident.Short(), unseen), strconv.Itoa(vm.VCPUs), vm.VirtualCluster, vm.Group, vm.Image, diskText(vm.Disk), vm.Network, labelsText(vm.Labels), vm.Domain, vm.ID, vm.Reason}
}

// firstOf addresses, and how many more there are.
func firstOf(addresses []string) string {
	switch n := len(addresses); n {
	case 0:
		return ""
	case 1:
		return addresses[0]
	default:
		return fmt.Sprintf("%s +%d", addresses[0], n-1)
	}
}

// diskText is "20GiB in fast, ephemeral"; "" where there is none of its own.
func diskText(d *v1.Disk) string {
	if d == nil {
		return ""
	}
	text := "as its image"
	if d.Size > 0 {
		text = d.Size.Short()
	}
	if d.Pool != "" {
		text += " in " + d.Pool
	}
	if d.Ephemeral {
		text += ", ephemeral"
	}
	return text
}

func vmText(vm v1.VM) string {
	unseen := vm.SampledAt.IsZero()
	return fields(
		"Name", vm.Name, "Tenant", vm.Tenant, "State", vm.State, "Reason", vm.Reason, "Virtual cluster", vm.VirtualCluster,
		"Group", fmt.Sprintf("%s, its VM number %d", vm.Group, vm.Task), "Host", vm.Host, "Addresses", strings.Join(vm.Addresses, ", "), "Moving to", movingText(vm), "Domain", vm.Domain, "Id", vm.ID,
		"CPU", fmt.Sprintf("given %s of %s cores needed, yield %s", cores(vm.Allocation), cores(vm.Need), yield(vm.Yield))+", promised at least "+yield(vm.MinYield),
		"Cap in force", seen(cores(vm.Cap)+" cores", vm.Cap == 0), "CPU used", seen(cores(vm.Used)+" cores", unseen),
		"Virtual CPUs", strconv.Itoa(vm.VCPUs), "Memory", vm.Memory.Short(),
		"Balloon", seen(vm.Balloon.Short(), vm.Balloon == 0), "Resident", seen(vm.Resident.Short(), unseen),
		"Image", vm.Image, "Disk", diskText(vm.Disk), "Network", vm.Network, "Labels", labelsText(vm.Labels),
		"Created", agoText(vm.CreatedAt), "Started", agoText(vm.StartedAt), "Starts", strconv.FormatUint(vm.Generation, 10), "Measured", stamp(vm.SampledAt))
}

// movingText is empty where a VM does not move.
func movingText(vm v1.VM) string {
	if vm.MovingTo == "" {
		return ""
	}
	return fmt.Sprintf("%s (vcctl migration get %s)", vm.MovingTo, vm.Migration)
}
