package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) drainCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "drain", Usage: "empty a host by live migration, for maintenance", ArgsUsage: "[HOST]", Action: t.action(hostDrain),
			Description: "First it lists the VMs that cannot move, and what to do about each; if there are any it is refused and nothing moves (exit\n" +
				"status 3), unless --on-blocked says otherwise. Then the host takes no new VMs, and its VMs leave it, each move being shown. No\n" +
				"VM is stopped but with --on-blocked shutdown. ^C detaches: the drain goes on, and `vcctl host get HOST -w` shows it again.\n" +
				"`vcctl host undrain` stops it.\n\n" +
				"Exit status 0: its hypervisor says that none of the cluster's VMs is left on the host. 1: it ended otherwise: at the deadline,\n" +
				"out of bytes, or with VMs that stay. 3: blocked. 5: an operator undrained it. 6: detached by ^C; it goes on.\n\n" +
				"--next empties the next group of hosts that can be empty at the same time; with --dry-run it lists all groups. --skip names hosts\n" +
				"that had their turn.\n\nExample: vcctl host drain h1 --deadline 1h --max-bytes 64GiB -m 'new memory'",
			Flags: []cli.Flag{
				&cli.DurationFlag{Name: "deadline", Usage: "begin no further move after `TIME`; moves under way end (default: none)"},
				&cli.StringFlag{Name: "max-bytes", Usage: "most bytes that its moves may send, a `SIZE` or unlimited (default: unlimited)"},
				&cli.StringFlag{Name: "on-blocked", Value: v1.OnBlockedStop, Usage: "what to do about VMs that cannot move: stop (refuse the drain), skip (they stay) or shutdown (their guests are asked to power off)"},
				&cli.BoolFlag{Name: "dry-run", Usage: "print what is in the way and the plan, and move nothing"},
				&cli.BoolFlag{Name: "detach", Usage: "return once the drain has begun (exit status 0)"},
				&cli.BoolFlag{Name: "next", Usage: "drain the next group of hosts that can be empty at the same time"},
				&cli.StringSliceFlag{Name: "skip", Usage: "with --next: the host `NAME` had its turn"},
				reasonFlag("`TEXT` that says why, shown with the host"),
			},
		},
		{
			Name: "undrain", Usage: "let a host take VMs again, and stop emptying it", ArgsUsage: "HOST", Action: t.ask("undraining host %s", hostUndrain),
			Description: "Moves that are under way end; nothing is moved back.\n\nExample: vcctl host undrain h1",
			Flags:       []cli.Flag{checkFlag},
		},
		{
			Name: "confirm-empty", Usage: "ask the hypervisor of a host whether it runs none of the cluster's VMs", ArgsUsage: "HOST", Action: t.action(hostConfirmEmpty),
			Description: "For scripts: exit status 0 if it is empty; 1 if it is not, or cannot say, with the VMs listed.\n\n" +
				"Example: vcctl host confirm-empty h1 && ssh h1 reboot",
		},
	}
}

func hostDrain(c *call) error {
	q, err := drainRequest(c)
	if err != nil {
		return err
	}
	if c.dry() && c.Bool("detach") {
		return usage("--dry-run changes nothing, so there is nothing to --detach from")
	}
	if c.Bool("next") {
		if _, err := names(c.Context); err != nil {
			return err
		}
		return drainNext(c, q)
	}
	if c.IsSet("skip") {
		return usage("--skip needs --next")
	}
	host, err := name(c.Context, "HOST")
	if err != nil {
		return err
	}
	r, err := c.api.Drain(c.ctx, host, q, c.opts...)
	if err != nil {
		return doing(err, "draining host %s", host)
	}
	if r.DryRun {
		if err := c.print(r, func(wide bool) string { return drainResultText(r, wide) }); err != nil {
			return err
		}
		if len(r.Blockers) > 0 && q.OnBlocked == v1.OnBlockedStop {
			return failed(statusRefused, "the drain of host %s would be refused: %s cannot move", host, countOf(len(r.Blockers), "VM"))
		}
		return nil
	}
	if c.Bool("detach") {
		return c.print(r, func(wide bool) string { return drainResultText(r, wide) + drainHint(host) })
	}
	c.t.say("%s", blockersText(r.Blockers))
	return followDrains(c, []string{host})
}

func drainRequest(c *call) (v1.DrainRequest, error) {
	q := v1.DrainRequest{OnBlocked: c.String("on-blocked"), Reason: c.String("reason")}
	if !slices.Contains([]string{v1.OnBlockedStop, v1.OnBlockedSkip, v1.OnBlockedShutdown}, q.OnBlocked) {
		return q, usage("--on-blocked %s: must be stop, skip or shutdown", q.OnBlocked)
	}
	if len(q.Reason) > 500 {
		return q, usage("--reason: at most 500 bytes are kept")
	}
	if c.IsSet("deadline") {
		d := c.Duration("deadline")
		if d <= 0 {
			return q, usage("--deadline must be more than 0")
		}
		q.Deadline = v1.FormatDuration(d)
	}
	var err error
	q.MaxBytes, err = maxBytes(c.Context)
	return q, err
}

// drainNext drains the first drain batch that has other hosts than those of --skip (drained before), and only these others.
func drainNext(c *call, q v1.DrainRequest) error {
	groups, err := c.api.DrainGroups(c.ctx)
	if err != nil {
		return doing(err, "asking which hosts can be emptied together")
	}
	groups = withoutSkipped(groups, c.StringSlice("skip"))
	left := groups.Items
	if c.dry() || len(left) == 0 {
		if err := c.print(groups, func(bool) string { return groupsText(groups) }); err != nil {
			return err
		}
		if len(left) == 0 && len(groups.Blocked) > 0 {
			return failed(statusRefused, "%d hosts cannot be emptied as things are", len(groups.Blocked))
		}
		return nil
	}
	hosts := left[0].Hosts
	c.t.say("Draining %s; %d groups of hosts come after.\n", strings.Join(hosts, ", "), len(left)-1)
	q.OtherHosts = hosts
	hints := ""
	for i, host := range hosts {
		r, err := c.api.Drain(c.ctx, host, q)
		if err != nil {
			if i > 0 {
				c.t.say("The drain of %s goes on.\n", strings.Join(hosts[:i], ", "))
			}
			return doing(err, "draining host %s", host)
		}
		hints += drainHint(host)
		c.t.say("%s", blockersText(r.Blockers))
	}
	if c.Bool("detach") {
		return c.print(left[0], func(bool) string { return hints })
	}
	return followDrains(c, hosts)
}

// withoutSkipped are the drain batches without the hosts to be skipped.
func withoutSkipped(groups v1.DrainBatches, skip []string) v1.DrainBatches {
	left := v1.DrainBatches{Items: []v1.DrainBatch{}, Blocked: []v1.BlockedHost{}}
	for _, g := range groups.Items {
		g.Hosts = slices.DeleteFunc(slices.Clone(g.Hosts), func(h string) bool { return slices.Contains(skip, h) })
		if len(g.Hosts) > 0 {
			left.Items = append(left.Items, g)
		}
	}
	for _, h := range groups.Blocked {
		if !slices.Contains(skip, h.Host) {
			left.Blocked = append(left.Blocked, h)
		}
	}
	return left
}

func groupsText(groups v1.DrainBatches) string {
	text := "No host is left to be drained.\n"
	if len(groups.Items) > 0 {
		tab := newTable("TURN", "HOSTS THAT CAN BE EMPTY AT THE SAME TIME", "BYTES", "MIN YIELD THEN")
		for i, g := range groups.Items {
			tab.row(fmt.Sprint(i+1), strings.Join(g.Hosts, ", "), g.Bytes.Short(), yield(g.MinYield))
		}
		text = tab.String()
	}
	if len(groups.Blocked) > 0 {
		why := tableOf("CANNOT BE EMPTIED,WHY", "", func(h v1.BlockedHost) []string { return []string{h.Host, h.Why} })
		text += "\n" + why.text(groups.Blocked, false)
	}
	return text
}

// followDrains shows hosts on their way to be empty until all have ended, and says what became of them.
func followDrains(c *call, hosts []string) error {
	board := &drainBoard{t: c.t, terminal: isTerminal(c.t.err), last: map[string]string{}}
	last := make([]v1.Drain, len(hosts))
	_, err := client.Watch(c.ctx, refreshEvery, func(ctx context.Context) (over bool, err error) {
		over = true
		for i, host := range hosts {
			if last[i], err = c.api.HostDrain(ctx, host); err != nil {
				return false, err
			}
			over = over && last[i].Ended()
		}
		board.show(last)
		return over, nil
	}, func(over bool) bool { return over })
	board.end()
	if errors.Is(err, context.Canceled) {
		hints := ""
		for _, host := range hosts {
			hints += "\n" + strings.TrimSuffix(drainHint(host), "\n")
		}
		return failed(statusStillGoing, "detached%s", hints)
	}
	if err != nil {
		return doing(err, "watching the drain of %s, which goes on", strings.Join(hosts, ", "))
	}
	ends, text := make([]v1.HostEmpty, len(hosts)), ""
	for i, host := range hosts {
		if ends[i], err = askEmpty(c, host); err != nil {
			return doing(err, "asking whether host %s is empty", host)
		}
		text += endText(last[i], ends[i])
	}
	if err := c.print(drained(last), func(bool) string { return text }); err != nil {
		return err
	}
	return drainOutcome(last, ends)
}

// knownWithin is longer than a new leader takes to hear of every host again.
const knownWithin = 30 * time.Second

// askEmpty asks whether a host is empty until that is known, which it is not right after an election, or for knownWithin.
func askEmpty(c *call, host string) (v1.HostEmpty, error) {
	ctx, cancel := context.WithTimeout(c.ctx, knownWithin)
	defer cancel()
	last, err := client.Watch(ctx, refreshEvery, func(ctx context.Context) (v1.HostEmpty, error) { return c.api.HostEmpty(ctx, host) },
		func(e v1.HostEmpty) bool { return e.Empty || len(e.VMs)+len(e.Unmanaged) > 0 })
	if last.Host != "" && c.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return last, nil
	}
	return last, err
}

// drained is one drain as the API has it, or several as a list.
func drained(all []v1.Drain) any {
	if len(all) == 1 {
		return all[0]
	}
	return items(all)
}

func endText(d v1.Drain, e v1.HostEmpty) string {
	if e.Empty {
		return fmt.Sprintf("Host %s is empty: its hypervisor runs none of the cluster's VMs; %s were sent.\n", d.Host, d.BytesMoved.Short())
	}
	text := fmt.Sprintf("Host %s is not empty: the drain is %s", d.Host, d.State)
	if len(e.VMs)+len(e.Unmanaged) == 0 {
		text = fmt.Sprintf("It is not known yet whether host %s is empty: the drain is %s", d.Host, d.State)
	}
	if d.Text != "" {
		text += ": " + oneLine(d.Text)
	}
	return text + "\n" + drainTable(d)
}

// drainOutcome is nil if all hosts are empty, else an error with the status that says why not.
func drainOutcome(all []v1.Drain, ends []v1.HostEmpty) error {
	status := statusDone
	var left []string
	for i, e := range ends {
		if e.Empty {
			continue
		}
		left = append(left, e.Host)
		if all[i].State == "none" && status == statusDone {
			status = statusConflict // another request undrained it
		} else {
			status = statusFailed
		}
	}
	if status == statusDone {
		return nil
	}
	return failed(status, "not empty: %s", strings.Join(left, ", "))
}

func drainHint(host string) string {
	return fmt.Sprintf("The drain of %s goes on; watch it with: vcctl host get %s -w; stop it with: vcctl host undrain %s\n", host, host, host)
}

// drainResultText is what is in the way, and the plan.
func drainResultText(r v1.DrainResult, wide bool) string {
	text := blockersText(r.Blockers)
	if r.Plan != nil {
		if text != "" {
			text += "\n"
		}
		text += planText(*r.Plan, nil, wide)
	} else if len(r.Blockers) == 0 {
		text += fmt.Sprintf("Host %s has nothing to move.\n", r.Host)
	}
	if r.DryRun {
		text += "Dry run: nothing was changed.\n"
	}
	return text
}

// blockersText lists the VMs that cannot leave a host, and what to do about each; those with the same reason in one row.
func blockersText(all []v1.Blocker) string {
	if len(all) == 0 {
		return ""
	}
	tab := newTable("CANNOT MOVE", "VIRTUAL CLUSTER", "WHY, AND WHAT HELPS")
	tab.fit(tableWidth)
	rows := map[string]v1.Blocker{}
	vms := map[string][]string{}
	var whys []string
	for _, b := range all {
		row, known := rows[b.Why]
		if !known {
			whys = append(whys, b.Why)
		}
		vms[b.Why] = append(vms[b.Why], b.VM)
		if !slices.Contains(strings.Split(row.VirtualCluster, ", "), b.VirtualCluster) {
			row.VirtualCluster = strings.TrimPrefix(row.VirtualCluster+", "+b.VirtualCluster, ", ")
		}
		for _, a := range b.Advice {
			if !slices.Contains(row.Advice, a) {
				row.Advice = append(slices.Clip(row.Advice), a)
			}
		}
		rows[b.Why] = row
	}
	for _, why := range whys {
		tab.row(someVMs(vms[why]), rows[why].VirtualCluster, why)
		for i, a := range rows[why].Advice {
			helps := "or: "
			if i == 0 {
				helps = "what helps: "
			}
			tab.add([]string{"", "", helps + oneLine(a)})
		}
	}
	return tab.String()
}

// someVMs names one VM, or says how many and the first of them.
func someVMs(names []string) string {
	const few = 3
	if len(names) == 1 {
		return names[0]
	}
	text := fmt.Sprintf("%d VMs: %s", len(names), strings.Join(names[:min(few, len(names))], ", "))
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// drainSummary is "3 of 8 VMs gone, 12GiB of at most 64GiB sent, until 14:30:00Z".
func drainSummary(d v1.Drain) string {
	gone := 0
	for _, vm := range d.VMs {
		if vm.State == "done" {
			gone++
		}
	}
	sent := d.BytesMoved.Short()
	if d.BytesBudget != nil {
		sent += " of at most " + d.BytesBudget.Short()
	}
	text := fmt.Sprintf("%s, %d of %d VMs gone, %s sent", d.State, gone, len(d.VMs), sent)
	if !d.Deadline.IsZero() {
		text += ", no move begins after " + stamp(d.Deadline)
	}
	if d.Text != "" {
		text += ": " + oneLine(d.Text)
	}
	return text
}

func drainTable(d v1.Drain) string {
	if len(d.VMs) == 0 {
		return ""
	}
	return tableOf("VM,STATE,TO,BYTES,SENT,RATE,ETA,", "", func(vm v1.DrainVM) []string {
		eta := ""
		if vm.State == "moving" {
			eta = arrival(vm.ETA)
		}
		return []string{vm.VM, vm.State, vm.To, vm.Bytes.Short(), seen(vm.BytesMoved.Short(), vm.BytesMoved == 0 && vm.State == "done"), perSecond(vm.Rate), eta, vm.Text}
	}).text(d.VMs, false)
}

// drainText is a drain in full, as `host get` shows it.
func drainText(d v1.Drain) string {
	return fields("Drain", drainSummary(d), "Drained because", d.Reason, "Plan", d.Plan) + drainTable(d)
}

// drainBoard shows drains that are under way: on a terminal in place, elsewhere a line for each step.
type drainBoard struct {
	t        *tool
	terminal bool
	lines    int               // drawn last
	last     map[string]string // by host and VM
}

func (b *drainBoard) show(all []v1.Drain) {
	if b.terminal {
		var text strings.Builder
		if line := drainProgress(all, time.Now()); line != "" {
			text.WriteString(line + "\n") // first: what does not fit the screen is cut at its end
		}
		for _, d := range all {
			text.WriteString("Host " + d.Host + ": " + drainSummary(d) + "\n" + drainTable(d))
		}
		b.erase()
		cut := fit(b.t.err, text.String())
		b.lines = strings.Count(cut, "\n")
		b.t.say("%s", cut)
		return
	}
	for _, d := range all {
		vms := map[string][]string{}
		var lines []string
		for _, vm := range d.VMs {
			line := stepText(d.Host, vm)
			if b.last[d.Host+"/"+vm.VM] == line {
				continue
			}
			done := line
			if vm.State == "done" {
				if vm.BytesMoved == 0 && !d.Ended() {
					continue // the target has reported the arrival; the source has yet to report the bytes sent
				}
				if vm.BytesMoved > 0 {
					line += ", " + vm.BytesMoved.Short() + " sent"
				}
			}
			b.last[d.Host+"/"+vm.VM] = done
			if vm.Text == "" {
				b.t.say("%s: %s: %s\n", d.Host, vm.VM, line)
				continue
			}
			if vms[line] == nil {
				lines = append(lines, line)
			}
			vms[line] = append(vms[line], vm.VM)
		}
		for _, line := range lines { // equal reasons of several VMs once
			b.t.say("%s: %s: %s\n", d.Host, someVMs(vms[line]), line)
		}
		if line := d.State + ": " + oneLine(d.Text); b.last[d.Host] != line {
			b.last[d.Host] = line
			b.t.say("%s: %s\n", d.Host, strings.TrimSuffix(line, ": "))
		}
	}
}

// stepText is how far a VM of a drained host is on its way.
func stepText(host string, vm v1.DrainVM) string {
	text := vm.State
	switch {
	case vm.State == "stays":
		text = "stays on " + host
	case vm.To != "" && vm.State == "waiting":
		text = "queued for " + vm.To
	case vm.To != "" && vm.State == "preparing":
		text = vm.To + " makes room for it"
	case vm.To != "" && vm.State == "done":
		text = "moved to " + vm.To
	case vm.To != "":
		text += " to " + vm.To
	}
	if vm.Text != "" {
		text += ", " + oneLine(vm.Text)
	}
	return text
}

// erase what was drawn last.
func (b *drainBoard) erase() {
	if b.lines > 0 {
		b.t.say("\x1b[%dA\r\x1b[J", b.lines)
	}
}

func (b *drainBoard) end() {
	if b.terminal {
		b.erase()
	}
}

func hostUndrain(c *call) (any, view, error) {
	before, err := c.api.Host(c.ctx, c.name)
	if err != nil {
		return nil, nil, err
	}
	h, err := c.api.Undrain(c.ctx, c.name, c.opts...)
	if err == nil && before.Drain == nil {
		return h, func(bool) string { return "Host " + h.Name + " has no drain: nothing was changed.\n" }, nil
	}
	done := "Host " + h.Name + " takes new VMs again; nothing is moved back."
	if h.Cordoned {
		done = "Host " + h.Name + " is drained no more; nothing is moved back. It stays cordoned, as it was before the drain: vcctl host uncordon " + h.Name
	}
	return h, c.changed("; host "+h.Name+" is "+h.State, done), err
}

func hostConfirmEmpty(c *call) error {
	e, err := c.api.HostEmpty(c.ctx, c.name)
	if err != nil {
		return doing(err, "asking whether host %s is empty", c.name)
	}
	if err := c.print(e, func(bool) string { return emptyText(e) }); err != nil || e.Empty {
		return err
	}
	if len(e.VMs)+len(e.Unmanaged) == 0 { // right after an election
		return failed(statusFailed, "it is not known yet whether host %s is empty: ask again in some seconds", c.name)
	}
	return failed(statusFailed, "host %s is not empty", c.name)
}

func emptyText(e v1.HostEmpty) string {
	if e.Empty {
		return fmt.Sprintf("Host %s runs none of the cluster's VMs, as its hypervisor listed at %s.\n", e.Host, stamp(e.At))
	}
	var b strings.Builder
	for _, vm := range e.VMs {
		b.WriteString(oneLine(vm) + "\n")
	}
	for _, vm := range e.Unmanaged {
		b.WriteString(oneLine(vm) + " (unknown to the cluster)\n")
	}
	if b.Len() == 0 {
		b.WriteString("Its hypervisor has not said yet what it runs.\n")
	}
	return b.String()
}
