package main

import (
	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// vmVerbs are the commands that change one VM.
func (t *tool) vmVerbs() []*cli.Command {
	return []*cli.Command{
		{
			Name: "start", Usage: "start a VM that does not run", ArgsUsage: "NAME", Flags: changeFlags(), Action: t.verb("starting VM %s", (*client.Client).StartVM),
			Description: "One that was stopped alone, or ended. Its CPU may be gone: it is admitted beside what runs, or refused with the\n" +
				"reasons per host (exit status 3).\n\nExample: vcctl vm start render-worker-0 --wait",
		},
		{
			Name: "stop", Usage: "stop a VM, and keep it stopped", ArgsUsage: "NAME", Flags: changeFlags(), Action: t.verb("stopping VM %s", (*client.Client).StopVM),
			Description: "Asks its guest to power off. It stays stopped, whatever becomes of hosts, until it, or its whole virtual cluster, is\n" +
				"started. Its host keeps its disk and its memory; its CPU is free for others. Its virtual cluster is degraded meanwhile.\n\n" +
				"Example: vcctl vm stop render-worker-0 --wait",
		},
		{
			Name: "restart", Usage: "stop a VM and start it again on its host", ArgsUsage: "NAME", Flags: changeFlags(), Action: t.verb("restarting VM %s", (*client.Client).RestartVM),
			Description: "Asks its guest to power off, and pulls the plug after the grace period. It keeps its CPU and memory meanwhile.\n\n" +
				"Example: vcctl vm restart render-worker-0 --wait",
		},
		{
			Name: "reset", Usage: "reset a VM whose guest hangs", ArgsUsage: "NAME", Flags: changeFlags(), Action: t.verb("resetting VM %s", (*client.Client).ResetVM),
			Description: "Its guest boots again at once, as by a reset button: what it has not written to its disk is lost. It is reset once, or\n" +
				"never; where it is not known which, the operation fails and says so.\n\nExample: vcctl vm reset render-worker-0 --wait",
		},
		{
			Name: "migrate", Usage: "move a VM that runs to another host", ArgsUsage: "NAME", Action: t.action(vmMigrate),
			Description: "A plan of one live migration: it prints the bytes to send, and the yields before and after, of the cluster and of both\n" +
				"hosts. Without --to it takes the host with which the minimum yield is greatest, of equal ones that which the setting\n" +
				"placement wants. A move that cannot be made is refused with the reasons (exit status 3). Nothing keeps the VM there:\n" +
				"later plans may move it again.\n\n" +
				"Example: vcctl vm migrate render-worker-0 --to h2 --dry-run",
			Flags: changeFlags(&cli.StringFlag{Name: "to", Usage: "the `HOST` to move it to (default: the best one)"},
				&cli.StringFlag{Name: "max-bytes", Usage: "most bytes that the move may send, a `SIZE` or unlimited (default: unlimited)"},
				reasonFlag("`TEXT` that says why, shown with the plan")),
		},
	}
}

func vmMigrate(c *call) error {
	bound, err := maxBytes(c.Context)
	if err != nil {
		return err
	}
	r, err := c.api.MigrateVM(c.ctx, c.name, v1.MigrateRequest{To: c.String("to"), MaxBytes: bound, Reason: c.String("reason")}, c.opts...)
	if err != nil {
		return doing(err, "moving VM %s", c.arg)
	}
	return concludePlan(c, r)
}

// hostYields has a row of fields for each host of a move.
func hostYields(hosts []v1.HostYield) (pairs []string) {
	for _, h := range hosts {
		pairs = append(pairs, "Yield on "+h.Host, change(h.YieldBefore, h.YieldAfter))
	}
	return pairs
}

// oneMoveText is the plan of the move of one VM.
func oneMoveText(r v1.PlanResult) string {
	p := r.Plan
	pairs := []string{"Plan", p.ID, "State", p.State, "Because", p.Text}
	for _, m := range p.Moves {
		pairs = append(pairs, "VM", m.VM, "From", m.From, "To", m.To, "Outcome", m.Text)
	}
	pairs = append(pairs, "Bytes", planBytes(p), "Time", took(p.Seconds), "Minimum yield", change(p.MinYieldBefore, p.MinYieldAfter),
		"Average yield", change(p.AverageYieldBefore, p.AverageYieldAfter))
	return fields(append(append(pairs, hostYields(r.Hosts)...), "Reason", p.Reason)...)
}
