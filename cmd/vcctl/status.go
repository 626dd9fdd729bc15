package main

import (
	"fmt"
	"strconv"
	"strings"

	"evenkeel/api/v1"
)

// statusText is the cluster at a glance: how it is in one line, which failures it survives, then the rest.
func statusText(s v1.ClusterStatus) string {
	if s.Quota != nil {
		return tenantStatusText(s)
	}
	text := fields("Status", healthText(s), "Fault tolerance", toleranceText(s),
		"Cluster", s.ID, "Leader", s.Leader, "Server", s.Version, "Log index", strconv.FormatUint(s.Index, 10),
		"Created", agoText(s.CreatedAt), "Minimum yield", yield(s.MinYield),
		"CPU", fmt.Sprintf("%s cores given of %s allowed, %s used", cores(s.Allocated.CPU), cores(s.Allowance.CPU), cores(s.Used.CPU)),
		"Memory", fmt.Sprintf("%s given of %s allowed", s.Allocated.Memory.Short(), s.Allowance.Memory.Short()),
		"Hosts", counts(s.Hosts), "Virtual clusters", counts(s.VirtualClusters),
		"VMs", vmCounts(s.VMs), "Defaults", defaultsText(s.Settings),
		"Re-balancing", s.Settings.Moves.Mode, "Members", membersText(s), "Epoch", epochText(s), "Last backup", agoText(s.BackupAt))
	if len(s.Conditions) > 0 {
		text += "\n" + conditionTable.text(s.Conditions, false)
	}
	return text
}

// tenantStatusText is what a token of a tenant gets.
func tenantStatusText(s v1.ClusterStatus) string {
	freeze := ""
	if s.RecoveryFreeze != "" {
		freeze = "nothing is started or stopped after a " + s.RecoveryFreeze + ", until all hosts have reported"
	}
	return fields("Status", healthText(s), "Tenant", s.Quota.Tenant, "Server", s.Version, "Recovery", freeze, "Minimum yield", yield(s.MinYield),
		"CPU", fmt.Sprintf("%s cores given, %s used", cores(s.Allocated.CPU), cores(s.Used.CPU)), "Memory", s.Allocated.Memory.Short()+" given",
		"Virtual clusters", counts(s.VirtualClusters), "VMs", vmCounts(s.VMs), "Defaults", defaultsText(s.Settings)) + "\n" + quotaTable.text(quotaRows(*s.Quota), false)
}

func vmCounts(n v1.VMCount) string {
	return counts(map[string]int{"starting": n.Starting, "running": n.Running, "unknown": n.Unknown, "stopping": n.Stopping, "stopped": n.Stopped, "failed": n.Failed, "lost": n.Lost})
}

func defaultsText(s v1.ClusterSettings) string {
	return fmt.Sprintf("minYield %g, onFull %s, image %s", s.MinYield, s.OnFull, seen(s.Image, s.Image == ""))
}

// healthText is OK, or what is worst and the command that mends it or says more.
func healthText(s v1.ClusterStatus) string {
	worst, command, others := worstOf(s)
	if worst == "" {
		return "OK"
	}
	switch {
	case others == 1:
		worst += " (and 1 more condition)"
	case others > 1:
		worst += fmt.Sprintf(" (and %d more conditions)", others)
	}
	if command != "" {
		worst += "; next: " + command
	}
	return worst
}

// worstOf the conditions, which come the worst first; others is how many more there are. A server that is not ready is worse than
// all of them, virtual clusters that do not have what they were promised are worse than none.
func worstOf(s v1.ClusterStatus) (worst, command string, others int) {
	n := len(s.Conditions)
	if !s.Ready {
		return "critical: this server is not ready: " + s.NotReady, "vcctl cluster status --stale", n
	}
	if n > 0 {
		c := s.Conditions[0]
		of := c.Object + " " + c.Name + ": "
		if c.Object == "cluster" {
			of = ""
		}
		return c.Severity + ": " + of + c.Text, c.Command, n - 1
	}
	if failed, degraded := s.VirtualClusters["failed"], s.VirtualClusters["degraded"]; failed+degraded > 0 {
		var states []string
		if failed > 0 {
			states = append(states, "failed")
		}
		if degraded > 0 {
			states = append(states, "degraded")
		}
		return "warning: virtual clusters: " + counts(map[string]int{"failed": failed, "degraded": degraded}), "vcctl vc list -o wide --state " + strings.Join(states, ","), 0
	}
	return "", "", 0
}

// toleranceText is how many servers may fail before nothing can be decided any more.
func toleranceText(s v1.ClusterStatus) string {
	switch {
	case len(s.Members) == 0:
		return "0 servers may fail: this one is alone"
	case s.Tolerance == 0 && s.Voters == 1:
		return "0 servers may fail: only one votes"
	}
	return fmt.Sprintf("%d of %d voting servers may fail", s.Tolerance, s.Voters)
}

// membersText is "3 servers, 3 of them voters, 12 agents; log format 2".
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
	return fmt.Sprintf("%d servers, %d of them voters, %d agents; log format %d", servers, s.Voters, agents, s.Format)
}

// countOf is "1 VM", "3 VMs".
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
