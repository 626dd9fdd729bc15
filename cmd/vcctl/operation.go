package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

var operationStates = []string{v1.OperationPending, v1.OperationDone, v1.OperationFailed, v1.OperationSuperseded}

func (t *tool) operationCommand() *cli.Command {
	return &cli.Command{
		Name: "operation", Usage: "changes that users asked for: list, get",
		Description: "An operation is a change that --wait waits for: of a virtual cluster, a VM, a host or a plan of moves.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list operations that go on, the newest first; with --all also those that ended", ArgsUsage: " ", Action: t.ask("listing operations", operationList),
				Description: "Those that ended are kept for a while.\n\nExample: vcctl operation list -w\n   vcctl operation list --all --vc render\n   vcctl operation list --state failed,superseded -o wide",
				Flags: []cli.Flag{watchFlag, listLimitFlag, sortFlag, allFlag, allTenantsFlag, stateFlag(operationStates),
					&cli.StringFlag{Name: "kind", Usage: "only those of the `KIND`, such as create, apply, restart, drain or move"},
					&cli.StringFlag{Name: "vc", Usage: "only those of the virtual cluster `NAME` and its VMs"},
					&cli.StringFlag{Name: "vm", Usage: "only those of the VM `NAME`"},
					&cli.StringFlag{Name: "host", Usage: "only those of the host `NAME`"}},
			},
			{
				Name: "get", Usage: "show one operation; with -w, how far it is", ArgsUsage: "ID", Flags: []cli.Flag{watchFlag}, Action: t.ask("getting operation %s", operationGet),
				Description: "Example: vcctl operation get 01JD3Y2T6M5W -w",
			},
		},
	}
}

func operationList(c *call) (any, view, error) {
	n, err := limit(c, maxListed)
	if err != nil {
		return nil, nil, err
	}
	states, err := c.openOr(operationStates, v1.OperationPending)
	if err != nil {
		return nil, nil, err
	}
	q := client.OperationQuery{Kind: c.String("kind"), VirtualCluster: c.String("vc"), VM: c.String("vm"), Host: c.String("host"), Limit: n}
	all, err := ofStates(states, n, func(state string) ([]v1.Operation, error) {
		q.State = state
		return c.api.Operations(c.ctx, q)
	}, func(op v1.Operation) time.Time { return op.At })
	return hinted(c, "No operation goes on; --all lists those that ended.\n", inTenants(c, operationTable, operationTableOfAll), all, err)
}

const operationHeads, operationMoreHeads = "KIND,OF,STATE,DONE,AGE,TEXT", "REQUESTED,PLAN,ID"

var (
	operationTable      = tableOf(operationHeads, operationMoreHeads, operationCells)
	operationTableOfAll = tableOf("TENANT,"+operationHeads, operationMoreHeads, withTenant(func(op v1.Operation) string { return op.Tenant }, operationCells))
)

func operationCells(op v1.Operation) []string {
	return []string{op.Kind, operationObject(op), op.State, operationDone(op), ago(op.At), op.Text, stamp(op.At), op.Plan, op.ID}
}

// operationObject is what an operation is about.
func operationObject(op v1.Operation) string {
	switch {
	case op.VM != "":
		return "VM " + op.VM
	case op.Host != "":
		return "host " + op.Host
	case op.VirtualCluster != "":
		return op.VirtualCluster
	case op.Plan != "":
		return "plan " + op.Plan
	}
	return "-"
}

func operationDone(op v1.Operation) string {
	if op.Total == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", op.Done, op.Total)
}

func operationGet(c *call) (any, view, error) {
	op, err := c.api.Operation(c.ctx, c.name)
	return op, func(bool) string {
		return fields("Operation", op.ID, "Kind", op.Kind, "Of", operationObject(op), "Plan", op.Plan, "State", op.State, "Done", operationDone(op), "Text", op.Text, "Requested", stamp(op.At))
	}, err
}
