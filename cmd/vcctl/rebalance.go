package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) rebalanceCommand() *cli.Command {
	return &cli.Command{
		Name: "rebalance", Usage: "move VMs so that the least yield grows, within a bound on the bytes sent", ArgsUsage: " ", Action: t.action(rebalance),
		Description: "Prints the plan: the bytes and seconds it takes, the minimum and average yield before and after it, and each move with its\n" +
			"reason. The moves never send more than --max-bytes, aborted ones included. Where no move is worth it, it says so, with the\n" +
			"figures (exit status 0). --curve prints how much yield how many bytes buy, and changes nothing.\n\n" +
			"Example: vcctl rebalance --max-bytes 64GiB --dry-run",
		Flags: changeFlags(
			&cli.StringFlag{Name: "max-bytes", Usage: "most bytes that all moves together may send, a `SIZE` or unlimited; 0: only caps change (default: the cluster's moves.maxBytes)"},
			&cli.BoolFlag{Name: "curve", Usage: "print the greatest minimum yield for each number of bytes"},
			reasonFlag("`TEXT` that says why, shown with the plan")),
	}
}

func reasonFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "reason", Aliases: []string{"m"}, Usage: usage}
}

// maxBytes that a command line names; nil: none.
func maxBytes(c *cli.Context) (*v1.Bound, error) {
	if !c.IsSet("max-bytes") {
		return nil, nil
	}
	b, err := v1.ParseBound(c.String("max-bytes"))
	if err != nil {
		return nil, usage("--max-bytes: %v", err)
	}
	return &b, nil
}

func rebalance(c *call) error {
	bound, err := maxBytes(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("curve") {
		if c.Bool("wait") || bound != nil {
			return usage("--curve changes nothing and is for all bytes: leave --wait and --max-bytes out")
		}
		points, err := c.api.Curve(c.ctx)
		if err != nil {
			return doing(err, "asking for the curve of yield by bytes")
		}
		return c.print(items(points), func(wide bool) string { return curveText(points, wide) })
	}
	r, err := c.api.Rebalance(c.ctx, v1.RebalanceRequest{MaxBytes: bound, Reason: c.String("reason")}, c.opts...)
	if err != nil {
		return doing(err, "re-balancing")
	}
	return concludePlan(c, r)
}

// concludePlan shows what became of a plan, after waiting for it if that was asked for.
func concludePlan(c *call, r v1.PlanResult) error {
	return c.conclude(&r, r.Operation, func(wide bool) string { return planResultText(r, wide) }, func(op v1.Operation) {
		r.Operation = &op
		if p, err := c.api.Plan(c.ctx, r.Plan.ID); err == nil {
			r.Plan = p
		}
	})
}

// planResultText is the plan, and what comes of it.
func planResultText(r v1.PlanResult, wide bool) string {
	text := planText(r.Plan, nil, wide)
	switch {
	case r.DryRun:
		return text + "Dry run: nothing was changed.\n"
	case len(r.Plan.Moves) == 0:
		return text
	case r.Plan.State == "proposed":
		return text + "Nothing moves yet; carry it out with: vcctl plan apply " + r.Plan.ID + "\n"
	case r.Operation != nil && r.Operation.Ended():
		return text
	}
	return text + "The plan goes on; watch it with: vcctl plan get " + r.Plan.ID + " -w\n"
}

// change is "0.727 -> 1.000 (+0.273)".
func change(before, after float64) string {
	text := yield(before) + " -> " + yield(after)
	if d := after - before; d >= 0.0005 || d <= -0.0005 {
		text += fmt.Sprintf(" (%+.3f)", d)
	}
	return text
}

// took is a number of seconds for people: 4s, 2m10s.
func took(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return v1.FormatDuration(d.Round(time.Second))
}

// planBytes is "17.5GiB of at most 64GiB".
func planBytes(p v1.Plan) string {
	text := p.Bytes.Short() + ", no bound"
	if p.BytesBudget != nil {
		text = p.Bytes.Short() + " of at most " + p.BytesBudget.Short()
	}
	if p.BytesMoved > 0 {
		text += ", " + p.BytesMoved.Short() + " sent"
	}
	return text
}

// planText is a plan with its moves; of those under way, with what was sent.
func planText(p v1.Plan, running []v1.Migration, wide bool) string {
	what := map[string]string{"rebalance": "re-balance", "drain": "empty host " + p.Host, "room": "make room for " + p.VirtualCluster, "memory": "free memory of host " + p.Host}[p.Kind]
	if p.ID == "" && len(p.Moves) == 0 { // no plan came of it
		what, p.State = "", ""
	}
	pairs := []string{"Plan", p.ID, "For", what, "State", p.State, "Asked for by", p.By, "Because", p.Text}
	if len(p.Moves) > 0 {
		pairs = append(pairs, "Bytes", planBytes(p), "Time", took(p.Seconds))
	}
	pairs = append(pairs, "Minimum yield", change(p.MinYieldBefore, p.MinYieldAfter), "Average yield", change(p.AverageYieldBefore, p.AverageYieldAfter))
	if p.UpperBound > 0 {
		pairs = append(pairs, "Upper bound", yield(p.UpperBound)+", whatever moves")
	}
	if wide {
		pairs = append(pairs, "Created", stamp(p.CreatedAt), "Ended", stamp(p.EndedAt), "Effort", strconv.FormatInt(p.Effort, 10), "State of", "log index "+strconv.FormatUint(p.Basis, 10))
	}
	text := fields(append(pairs, "Reason", p.Reason)...)
	if len(p.Moves) == 0 {
		return text
	}
	under := map[string]v1.Migration{}
	for _, m := range running {
		under[m.ID] = m
	}
	heads := []string{"MOVE", "VM", "FROM", "TO", "BYTES", "TIME", "STATE"}
	if len(running) > 0 {
		heads = append(heads, "SENT", "RATE", "ETA")
	}
	if wide {
		heads = append(heads, "AFTER", "BEGINS", "MIGRATION")
	}
	tab := newTable(append(heads, "WHY")...)
	for i, m := range p.Moves {
		row := []string{strconv.Itoa(i), m.VM, m.From, m.To, m.Bytes.Short(), took(m.Seconds), m.State}
		if len(running) > 0 {
			sent, rate, eta := "", "", ""
			if g, ok := under[m.Migration]; ok && m.Migration != "" {
				sent = g.BytesMoved.Short()
				rate, eta = pace(g.Progress)
			}
			row = append(row, sent, rate, eta)
		}
		if wide {
			row = append(row, numbers(m.After), took(m.Begins), m.Migration)
		}
		tab.row(append(row, moveWhy(m))...)
	}
	return text + "\n" + tab.String()
}

// pace of a migration: how fast it is, and when it will be there.
func pace(p *v1.MoveProgress) (rate, eta string) {
	if p == nil {
		return "", ""
	}
	return perSecond(p.Rate), arrival(p.ETA)
}

func perSecond(rate float64) string {
	if rate <= 0 {
		return ""
	}
	return v1.Size(rate).Short() + "/s"
}

func arrival(eta float64) string {
	if eta < 0 {
		return "?"
	}
	return took(eta)
}

// moveWhy is why a VM moves, and what became of it where that is not plain.
func moveWhy(m v1.Move) string {
	why := m.Reason
	if m.Staging {
		why += " (waits there)"
	}
	if m.Text != "" {
		why = m.Text + " [" + why + "]"
	}
	return why
}

func numbers(in []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(in), "[]"), " ", ",")
}

// curveRows is how many points of a curve are shown, unless all are asked for.
const curveRows = 24

// barWidth is the length of a bar for a yield of 1, in characters.
const barWidth = 40

// curveText is a table of bytes and yields with a bar for each.
func curveText(points []v1.CurvePoint, wide bool) string {
	if len(points) == 0 {
		return "Nothing runs, so nothing can move.\n"
	}
	shown := points
	if n := len(points); !wide && n > curveRows { // evenly, with the first and the last
		shown = nil
		for i := range curveRows {
			shown = append(shown, points[i*(n-1)/(curveRows-1)])
		}
	}
	text := tableOf("BYTES,MIN YIELD,", "", func(p v1.CurvePoint) []string {
		return []string{p.Bytes.Short(), yield(p.MinYield), strings.Repeat("#", min(barWidth, max(0, int(p.MinYield*barWidth+0.5))))}
	}).text(shown, wide)
	if len(shown) < len(points) {
		text += fmt.Sprintf("%d of %d points; -o wide shows all.\n", len(shown), len(points))
	}
	return text
}
