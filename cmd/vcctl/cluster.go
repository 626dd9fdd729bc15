package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

var staleFlag = &cli.BoolFlag{Name: "stale", Usage: "what the server asked knows, also without a leader"}

func (t *tool) clusterCommand() *cli.Command {
	return &cli.Command{
		Name: "cluster", Usage: "the cluster itself: init, join, members, leases, snapshots, settings, history, status",
		Description: "What concerns the cluster as a whole.",
		Subcommands: append([]*cli.Command{{
			Name: "status", Usage: "the cluster at a glance", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, staleFlag}, Action: t.ask("getting the cluster's status", clusterStatus),
			Description: "With its conditions, the worst first. Where there is no leader, --stale shows what the server at hand knows:\n" +
				"how far its log goes, and whom it takes for members.\n\nExample: vcctl cluster status --stale --address h2:7480",
		}, t.settingsCommand()}, t.memberCommands()...),
	}
}

func clusterStatus(c *call) (any, view, error) {
	var opts []client.Option
	if c.Bool("stale") {
		opts = append(opts, client.Stale())
	}
	s, err := c.api.Status(c.ctx, opts...)
	return s, func(bool) string { return statusText(s) }, err
}

func statusText(s v1.ClusterStatus) string {
	ready := "yes"
	if !s.Ready {
		ready = "no: " + s.NotReady
	}
	text := fields(
		"Cluster", s.ID, "Ready", ready, "Leader", s.Leader, "Server", s.Version, "Log index", strconv.FormatUint(s.Index, 10),
		"Created", stamp(s.CreatedAt), "Minimum yield", yield(s.MinYield),
		"CPU", fmt.Sprintf("%s cores given of %s allowed, %s used", cores(s.Allocated.CPU), cores(s.Allowance.CPU), cores(s.Used.CPU)),
		"Memory", fmt.Sprintf("%s given of %s allowed", s.Allocated.Memory.Short(), s.Allowance.Memory.Short()),
		"Hosts", counts(s.Hosts), "Virtual clusters", counts(s.VirtualClusters),
		"VMs", counts(map[string]int{"starting": s.VMs.Starting, "running": s.VMs.Running, "stopping": s.VMs.Stopping, "stopped": s.VMs.Stopped, "failed": s.VMs.Failed, "lost": s.VMs.Lost}),
		"Defaults", fmt.Sprintf("minYield %g, onFull %s, image %s", s.Settings.MinYield, s.Settings.OnFull, seen(s.Settings.Image, s.Settings.Image == "")),
		"Re-balancing", s.Settings.Moves.Mode, "Members", membersText(s), "Epoch", epochText(s), "Backup", stamp(s.BackupAt))
	if len(s.Conditions) > 0 {
		text += "\n" + conditionTable(s.Conditions, false)
	}
	return text
}

var conditionTable = tableOf("SEVERITY,OBJECT,NAME,CONDITION", "", func(c v1.Condition) []string {
	return []string{c.Severity, c.Object, c.Name, c.Text}
})

// epochText is empty where nothing was ever restored.
func epochText(s v1.ClusterStatus) string {
	if s.Epoch == 0 {
		return ""
	}
	return fmt.Sprint(s.Epoch)
}

// membersText is "3 servers, of which 3 vote and 1 may fail, 12 agents; log format 2".
func membersText(s v1.ClusterStatus) string {
	if len(s.Members) == 0 {
		return ""
	}
	servers, agents := 0, 0
	for _, m := range s.Members {
		if m.Server {
			servers++
		}
		if m.Agent {
			agents++
		}
	}
	return fmt.Sprintf("%d servers, of which %d vote and %d may fail, %d agents; log format %d", servers, s.Voters, s.Tolerance, agents, s.Format)
}

// counts is "3 running, 1 failed".
func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
