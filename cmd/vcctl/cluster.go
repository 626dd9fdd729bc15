package main

import (
	"fmt"
	"maps"
	"slices"
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
			Description: "The first line is OK, or what is worst and the command that mends it; the conditions follow below, the worst first. Where there is no leader, --stale shows what the server at hand knows:\n" +
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
