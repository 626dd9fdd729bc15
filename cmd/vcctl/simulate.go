package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) simulateCommand() *cli.Command {
	return &cli.Command{
		Name: "simulate", Usage: "say what would be with other hosts, other needs, other bytes; changes nothing", ArgsUsage: " ", Action: t.ask("simulating", simulate),
		Description: "Prints the minimum yield as it is and as it would be after the best moves, what would be refused, and the bytes it takes.\n" +
			"--snapshot asks a saved state (vcctl cluster snapshot save) in place of the present one. --each-host thinks each host away in\n" +
			"turn and says whether everything still fits, and at which yield; alone it changes nothing else about the cluster.\n\n" +
			"Example: vcctl simulate --lose h3 --add-host 32,128GiB,2 --need web/front=4",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "add-host", Usage: "a host more, as `CPU,MEMORY[,N]`: cores and size that may be used, and how many of them"},
			&cli.StringSliceFlag{Name: "lose", Usage: "think the host `NAME` away"},
			&cli.StringSliceFlag{Name: "need", Usage: "other CPU needs, as `VC[/GROUP]=CORES`; of a tenant, TENANT/VC/[GROUP]=CORES"},
			&cli.StringFlag{Name: "max-bytes", Usage: "most bytes that all moves together may send, a `SIZE` or unlimited (default: the cluster's moves.maxBytes)"},
			&cli.StringFlag{Name: "snapshot", Usage: "`FILE` with a saved state of the cluster, to be asked in place of the present one"},
			&cli.BoolFlag{Name: "each-host", Usage: "does everything still fit if any one host dies?"},
		},
	}
}

func simulate(c *call) (any, view, error) {
	q, err := simulateRequest(c.Context)
	if err != nil {
		return nil, nil, err
	}
	switch asked := len(q.AddHosts)+len(q.RemoveHosts)+len(q.Needs) > 0 || q.MaxBytes != nil || q.Snapshot != nil; {
	case asked && c.Bool("each-host"):
		return nil, nil, usage("--each-host is for the cluster as it is: leave the other flags out")
	case c.Bool("each-host"):
		return listView[v1.FailoverRow]{whole: failoverText}.answer(c.api.FailoverCapacity(c.ctx))
	case !asked:
		return nil, nil, usage("simulate: say what is to be simulated: --add-host, --lose, --need, --max-bytes, --snapshot or --each-host")
	}
	r, err := c.api.Simulate(c.ctx, q)
	return r, func(wide bool) string { return simulateText(r, wide) }, err
}

func simulateRequest(c *cli.Context) (v1.SimulateRequest, error) {
	q := v1.SimulateRequest{RemoveHosts: c.StringSlice("lose")}
	var err error
	if q.MaxBytes, err = maxBytes(c); err != nil {
		return q, err
	}
	for _, text := range hostTriples(c.StringSlice("add-host")) {
		h, err := simulatedHost(text)
		if err != nil {
			return q, err
		}
		q.AddHosts = append(q.AddHosts, h)
	}
	for _, text := range c.StringSlice("need") {
		n, err := simulatedNeed(text)
		if err != nil {
			return q, err
		}
		q.Needs = append(q.Needs, n)
	}
	if file := c.String("snapshot"); file != "" {
		if q.Snapshot, err = os.ReadFile(file); err != nil {
			return q, usage("--snapshot: %v", err)
		}
		if len(q.Snapshot) == 0 {
			return q, usage("--snapshot: %s is empty", file)
		}
	}
	return q, nil
}

// hostTriples puts together what the flag package took apart at commas: "32,128GiB,2" arrives as three values,
// or as one.
func hostTriples(in []string) []string {
	var out []string
	for _, arg := range strings.Split(strings.Join(in, ","), ",") {
		last := len(out) - 1
		switch {
		case arg == "" && len(in) == 0:
		case last >= 0 && !complete(out[last], arg):
			out[last] += "," + arg
		default:
			out = append(out, arg)
		}
	}
	return out
}

// complete says whether a description of hosts ends before this word: a memory or a count cannot begin one.
func complete(sofar, arg string) bool {
	switch strings.Count(sofar, ",") {
	case 0:
		return false
	case 1: // a count is a whole number and stands alone; cores stand before a size
		_, err := strconv.Atoi(arg)
		return err != nil
	}
	return true
}

func simulatedHost(text string) (v1.SimulatedHost, error) {
	h := v1.SimulatedHost{Count: 1}
	parts := strings.Split(text, ",")
	bad := usage("--add-host %s: write CPU,MEMORY or CPU,MEMORY,N, like 32,128GiB,2", text)
	if len(parts) < 2 || len(parts) > 3 {
		return h, bad
	}
	var err error
	if h.CPU, err = strconv.ParseFloat(parts[0], 64); err != nil || !(h.CPU > 0 && h.CPU <= v1.MaxCPU) {
		return h, bad
	}
	if h.Memory, err = v1.ParseSize(parts[1]); err != nil || h.Memory == 0 {
		return h, bad
	}
	if len(parts) == 3 {
		if h.Count, err = strconv.Atoi(parts[2]); err != nil || h.Count < 1 || h.Count > 1000 {
			return h, bad
		}
	}
	return h, nil
}

func simulatedNeed(text string) (v1.SimulatedNeed, error) {
	principal, cpu, ok := strings.Cut(text, "=")
	var n v1.SimulatedNeed
	n.VirtualCluster, n.Group, _ = strings.Cut(principal, "/")
	if vc, group, full := strings.Cut(n.Group, "/"); full {
		n.VirtualCluster, n.Group = n.VirtualCluster+"/"+vc, group
	}
	var err error
	n.CPU, err = strconv.ParseFloat(cpu, 64)
	if !ok || n.VirtualCluster == "" || err != nil || !(n.CPU > 0 && n.CPU <= v1.MaxCPU) {
		return n, usage("--need %s: write VC=CORES, VC/GROUP=CORES or TENANT/VC/GROUP=CORES, like web/front=4", text)
	}
	return n, nil
}

func simulateText(r v1.SimulateResult, wide bool) string {
	text := fields("Minimum yield", change(r.MinYieldBefore, r.MinYieldAfter), "Average yield", change(r.AverageYieldBefore, r.AverageYieldAfter),
		"Bytes", fmt.Sprintf("%s in %d moves, %s", r.Bytes.Short(), len(r.Plan.Moves), took(r.Plan.Seconds)), "Upper bound", yield(r.Plan.UpperBound)+", whatever moves",
		"Reason", r.Plan.Reason)
	for _, s := range r.Refused {
		text += "Refused: " + oneLine(s) + "\n"
	}
	if len(r.Unplaced) > 0 {
		text += "\n" + unplacedTable.text(r.Unplaced, wide)
	}
	if len(r.Plan.Moves) > 0 {
		tab := newTable("MOVE", "VM", "FROM", "TO", "BYTES", "TIME", "WHY")
		for i, m := range r.Plan.Moves {
			tab.row(strconv.Itoa(i), m.VM, m.From, m.To, m.Bytes.Short(), took(m.Seconds), moveWhy(m))
		}
		text += "\n" + tab.String()
	}
	return text + "Nothing was changed.\n"
}

var unplacedTable = tableOf("NO HOST FOR,VIRTUAL CLUSTER,WHY", "", func(u v1.Unplaced) []string { return []string{u.VM, u.VirtualCluster, u.Why} })

func failoverText(rows []v1.FailoverRow, wide bool) string {
	tab := newTable("WITHOUT", "FITS", "MIN YIELD", "NO HOST FOR", "")
	bad := 0
	lowest := 1.0
	for _, r := range rows {
		fits, y := "yes", yield(r.MinYield)
		if !r.Fits {
			fits, y = "no", ""
			bad++
		} else {
			lowest = min(lowest, r.MinYield)
		}
		tab.row(r.Host, fits, y, fewNames(r.Unplaced, wide), r.Text)
	}
	switch {
	case len(rows) == 0:
		return "There is no host.\n"
	case bad == 0:
		return tab.String() + fmt.Sprintf("Everything fits without any one host; the least yield is then %s.\n", yield(lowest))
	}
	return tab.String() + fmt.Sprintf("%d of %d hosts cannot be spared.\n", bad, len(rows))
}

// fewNames is the first of many names, unless all are asked for.
func fewNames(all []string, every bool) string {
	const few = 3
	if every || len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}
