package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) vcCommand() *cli.Command {
	return &cli.Command{
		Name: "vc", Usage: "virtual clusters: create, list, get, apply, diff, edit, history, rollback, scale, start, stop, delete, explain",
		Description: "A virtual cluster is one or more groups of equal VMs that are admitted, run and deleted as one.\n" +
			"Those of another tenant are named by --tenant, or in full: film/render is render of the tenant film.",
		Subcommands: append([]*cli.Command{
			{
				Name: "create", Usage: "create a virtual cluster from a file", ArgsUsage: " ",
				Description: "Reads a VC file (YAML or JSON) and asks for it. Admission takes all of it or nothing: what does not\n" +
					"fit now is queued, or with `onFull: reject` refused, with the reasons per host (exit status 3).\n\n" +
					"Example: vcctl vc create -f render.yaml --wait",
				Flags:  changeFlags(&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "VC `FILE`; - for standard input"}),
				Action: t.action(vcCreate),
			},
			{
				Name: "list", Usage: "list virtual clusters", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, allTenantsFlag, sortFlag, selectorFlag, stateFlag(vcStates)},
				Action: t.ask("listing virtual clusters", func(c *call) (any, view, error) {
					all, err := c.api.VirtualClusters(c.ctx)
					return inTenants(c, vcTable, vcTableOfAll).answer(inState(c, vcStates, all, err, func(vc v1.VirtualCluster) string { return vc.State }))
				}),
				Description: "Example: vcctl vc list -w\n   vcctl vc list --state queued,degraded\n   vcctl vc list --selector env=prod -o name",
			},
			{
				Name: "get", Usage: "show one virtual cluster with its VMs", ArgsUsage: "NAME", Flags: []cli.Flag{watchFlag}, Action: t.ask("getting virtual cluster %s", vcGet),
				Description: "-o yaml prints the VC file as its users wrote it, for `vcctl vc create`, `apply` and `diff` to read. -o json prints all that\nis known of the virtual cluster.\n\nExample: vcctl vc get render -o yaml > render.yaml",
			},
			{
				Name: "scale", Usage: "change the size or the needs of a group", ArgsUsage: "NAME", Action: t.action(vcScale),
				Description: "All or nothing, and refused like an admission (exit status 3). What is not given stays.\n\n" +
					"Example: vcctl vc scale render --group worker --count 6",
				Flags: changeFlags(
					&cli.StringFlag{Name: "group", Usage: "`GROUP` to change; not needed if there is only one"},
					&cli.IntFlag{Name: "count", Usage: "`NUMBER` of VMs"},
					&cli.Float64Flag{Name: "cpu", Usage: "`CORES` each VM needs"},
					&cli.StringFlag{Name: "memory", Usage: "`SIZE` of each VM's memory, like 2GiB"},
				),
			},
			{
				Name: "start", Usage: "start a virtual cluster that is stopped, or its failed VMs", ArgsUsage: "NAME", Flags: changeFlags(),
				Description: "It is admitted again, all or nothing.\n\nExample: vcctl vc start render --wait",
				Action:      t.verb("starting virtual cluster %s", (*client.Client).Start),
			},
			{
				Name: "stop", Usage: "stop a virtual cluster, keep its disks", ArgsUsage: "NAME", Flags: changeFlags(),
				Description: "Asks the guests to power off. What they had of the hosts is free for others.\n\nExample: vcctl vc stop render --wait",
				Action:      t.verb("stopping virtual cluster %s", (*client.Client).Stop),
			},
			{
				Name: "delete", Usage: "delete a virtual cluster with its VMs and disks", ArgsUsage: "NAME", Flags: changeFlags(),
				Description: "Example: vcctl vc delete render --dry-run",
				Action:      t.verb("deleting virtual cluster %s", (*client.Client).Delete),
			},
			{
				Name: "explain", Usage: "say why a virtual cluster has the yield it has, or has none", ArgsUsage: "NAME", Action: t.ask("explaining virtual cluster %s", vcExplain),
				Description: "Example: vcctl vc explain render",
			},
		}, t.applyCommands()...),
	}
}

// readVC reads a VC file from a path or, for "-", from standard input.
func (t *tool) readVC(path string) (spec v1.VirtualClusterSpec, base string, err error) {
	var in io.Reader = t.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return spec, "", usage("read the VC file: %v", err)
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	doc, err := io.ReadAll(io.LimitReader(in, v1.MaxBytes+1))
	if err != nil {
		return spec, "", usage("read the VC file %s: %v", path, err)
	}
	if len(doc) > v1.MaxBytes {
		return spec, "", usage("%s: a VC file has at most %d bytes", path, v1.MaxBytes)
	}
	if spec, err = v1.ParseVCFile(doc); err != nil {
		return spec, "", &failure{statusUsage, fmt.Errorf("%s: %w", path, err)}
	}
	return spec, v1.BaseOf(doc), nil
}

func vcCreate(c *call) error {
	if c.String("file") == "" {
		return usage("vc create: give the VC file with -f FILE, or -f - for standard input")
	}
	spec, _, err := c.t.readVC(c.String("file"))
	if err != nil {
		return err
	}
	r, err := c.api.Create(c.ctx, spec, c.opts...)
	if err != nil {
		return doing(err, "creating virtual cluster %s", fullName(c.tenant, spec.Name))
	}
	return concludeVC(c, r)
}

func vcScale(c *call) error {
	req := v1.ScaleRequest{Group: c.String("group")}
	if c.IsSet("count") {
		n := c.Int("count")
		req.Count = &n
	}
	if c.IsSet("cpu") {
		v := c.Float64("cpu")
		if !(v > 0 && v <= v1.MaxCPU) { // NaN too
			return usage("--cpu must be more than 0 and at most %d cores", v1.MaxCPU)
		}
		req.CPU = &v
	}
	if c.IsSet("memory") {
		size, err := v1.ParseSize(c.String("memory"))
		if err != nil {
			return usage("--memory: %v", err)
		}
		req.Memory = &size
	}
	if req.Count == nil && req.CPU == nil && req.Memory == nil {
		return usage("vc scale: nothing to change: give --count, --cpu or --memory")
	}
	r, err := c.api.Scale(c.ctx, c.name, req, c.opts...)
	if err != nil {
		return doing(err, "scaling virtual cluster %s", c.arg)
	}
	return concludeVC(c, r)
}

// verb sends an order that takes nothing but a name. what says in an error what was being done; its %s is the name.
func (t *tool) verb(what string, do func(*client.Client, context.Context, string, ...client.Option) (v1.Result, error)) cli.ActionFunc {
	return t.action(func(c *call) error {
		r, err := do(c.api, c.ctx, c.name, c.opts...)
		if err != nil {
			return doing(err, what, c.arg)
		}
		return concludeVC(c, r)
	})
}

// concludeVC prints the result of a change of a virtual cluster. If the operation ended badly, the error says so to
// people.
func concludeVC(c *call, r v1.Result) error {
	return c.conclude(&r, r.Operation, func(bool) string {
		if c.Bool("wait") && r.Operation != nil && outcome(c.owned(*r.Operation)) != nil {
			return ""
		}
		shown := r
		if r.Operation != nil {
			op := c.owned(*r.Operation)
			shown.Operation = &op
		}
		return resultText(shown)
	}, func(op v1.Operation) {
		r.Operation = &op
		if vc, err := c.api.VirtualCluster(c.ctx, op.VirtualCluster); err == nil {
			r.VirtualCluster = &vc
		}
	})
}

func vcExplain(c *call) (any, view, error) {
	e, err := c.api.Explain(c.ctx, c.name)
	return e, func(wide bool) string {
		text := strings.Join(e.Lines, "\n") + "\n"
		if !wide {
			text = wrappedLines(e.Lines)
		}
		if e.Decision != nil && !e.Decision.Admitted {
			text += reasons(e.Decision.Hosts, e.Decision.Advice)
		}
		return text
	}, err
}

const (
	vcHeads     = "NAME,STATE,YIELD,MIN YIELD,VMS RUNNING,CPU GIVEN,CPU NEEDED,MEMORY,AGE"
	vcMoreHeads = "PRIORITY,ON HOST LOSS,IMAGE,DISK,NETWORK,LABELS,CREATED,ID,REASON"
)

var (
	vcTable      = tableOf(vcHeads, vcMoreHeads, vcCells).labelled(vcLabels)
	vcTableOfAll = tableOf("TENANT,"+vcHeads, vcMoreHeads, withTenant(func(vc v1.VirtualCluster) string { return vc.Tenant }, vcCells)).labelled(vcLabels)
)

func vcLabels(vc v1.VirtualCluster) (out []map[string]string) {
	for _, g := range vc.Groups {
		out = append(out, g.Labels)
	}
	return out
}

// ofGroups is what the groups of a virtual cluster have, each once.
func ofGroups(vc v1.VirtualCluster, what func(v1.Group) string) string {
	var out []string
	for _, g := range vc.Groups {
		if text := what(g); text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

func vcCells(vc v1.VirtualCluster) []string {
	var given, need float64
	var memory v1.Size
	count := 0
	for _, g := range vc.Groups {
		given += float64(g.Count) * g.Allocation
		need += float64(g.Count) * needOf(g)
		memory += v1.Size(g.Count) * g.Memory
		count += g.Count
	}
	idle := vc.VMs.Starting+vc.VMs.Running+vc.VMs.Unknown == 0
	return []string{vc.Name, vc.State, seen(yield(vc.Yield), idle), yield(vc.MinYield), runningText(vc.VMs, count),
		seen(cores(given), idle), cores(need), memory.Short(), ago(vc.CreatedAt),
		strconv.Itoa(vc.Priority), vc.OnHostLoss, ofGroups(vc, imageOf), ofGroups(vc, func(g v1.Group) string { return diskText(g.Disk) }),
		ofGroups(vc, func(g v1.Group) string { return g.Network }), ofGroups(vc, func(g v1.Group) string { return labelsText(g.Labels) }), stamp(vc.CreatedAt), vc.ID, vc.Reason}
}

// runningText is "3/5", or "3/5, 2 unknown".
func runningText(c v1.VMCount, of int) string {
	text := fmt.Sprintf("%d/%d", c.Running, of)
	if c.Unknown > 0 {
		text += fmt.Sprintf(", %d unknown", c.Unknown)
	}
	return text
}

// imageOf a group, or the kernel that it boots.
func imageOf(g v1.Group) string {
	if g.Boot != nil {
		return g.Boot.Kernel
	}
	return g.Image
}

// agoText is "2026-03-01 12:00:00Z, 3d4h ago"; "" for no time.
func agoText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t) + ", " + ago(t) + " ago"
}

// needOf each VM of a group, cores.
func needOf(g v1.Group) float64 {
	if g.Need == 0 { // of a server that does not say it
		return g.CPU
	}
	return g.Need
}

func vcGet(c *call) (any, view, error) {
	if c.format == formatYAML {
		text, err := vcFile(c)
		return text, nil, err
	}
	vc, err := c.api.VirtualCluster(c.ctx, c.name)
	if err != nil || !c.human() {
		return vc, nil, err
	}
	vms, err := c.api.VMs(c.ctx, c.name, "")
	return vc, func(wide bool) string { return vcText(vc, vms, wide) }, err
}

func vcText(vc v1.VirtualCluster, vms []v1.VM, wide bool) string {
	idle := vc.VMs.Starting+vc.VMs.Running+vc.VMs.Unknown == 0
	pairs := []string{"Name", vc.Name, "Tenant", vc.Tenant, "State", vc.State, "Reason", vc.Reason,
		"Yield", seen(yield(vc.Yield), idle) + " (promised at least " + yield(vc.MinYield) + ")",
		"Priority", strconv.Itoa(vc.Priority), "On host loss", vc.OnHostLoss,
		"Created", agoText(vc.CreatedAt), "Queued", agoText(vc.QueuedAt)}
	if wide {
		pairs = append(pairs, "Id", vc.ID, "If full", vc.OnFull,
			"Needs", vc.Needs, "Version", strconv.FormatUint(vc.ModifyIndex, 10))
	}
	groups := tableOf("GROUP,COUNT,CPU GIVEN,CPU NEEDED,YIELD,VCPUS,MEMORY,IMAGE", "ROLE,DISK,NETWORK,LABELS", func(g v1.Group) []string {
		return []string{g.Name, strconv.Itoa(g.Count), seen(cores(g.Allocation), idle), cores(needOf(g)), seen(yield(g.Yield), idle), strconv.Itoa(g.VCPUs), g.Memory.Short(), imageOf(g),
			g.Role, diskText(g.Disk), g.Network, labelsText(g.Labels)}
	})
	text := fields(pairs...) + "\n" + groups.text(vc.Groups, wide)
	if len(vms) > 0 {
		text += "\n" + vmTable.text(vms, wide)
	}
	return text
}

// resultText is what a change did, or in a dry run would do.
func resultText(r v1.Result) string {
	var b strings.Builder
	b.WriteString(fieldsText(r.Fields))
	if r.DryRun {
		for _, ch := range r.Changes {
			b.WriteString(oneLine(ch.Text) + "\n")
		}
		if r.Decision != nil && r.Decision.Summary != "" {
			b.WriteString(oneLine(r.Decision.Summary) + "\n")
			if !r.Decision.Admitted {
				b.WriteString(reasons(r.Decision.Hosts, r.Decision.Advice))
			}
		}
		b.WriteString("Dry run: nothing was changed.\n")
		return b.String()
	}
	if r.Operation == nil {
		return b.String() + "Nothing to do.\n"
	}
	subject, watch := about(*r.Operation)
	op, queued := *r.Operation, r.VirtualCluster != nil && r.VirtualCluster.State == "queued"
	switch {
	case queued:
		fmt.Fprintf(&b, "%s is queued: %s\n", subject, oneLine(r.VirtualCluster.Reason))
		if r.Decision != nil {
			b.WriteString(reasons(r.Decision.Hosts, r.Decision.Advice))
		}
	case op.Ended():
		fmt.Fprintf(&b, "%s of %s: %s", op.Kind, subject, op.State)
		if op.Text != "" {
			b.WriteString(", " + oneLine(op.Text))
		}
		b.WriteString("\n")
	default:
		if r.Decision != nil && r.Decision.Summary != "" && slices.Contains([]string{"create", "scale", "start", "apply", "edit", "rollback"}, op.Kind) {
			fmt.Fprintf(&b, "%s: %s\n", subject, oneLine(r.Decision.Summary))
		}
		fmt.Fprintf(&b, "%s of %s goes on (%s); watch it with: %s\n", op.Kind, subject, oneLine(op.Text), watch)
	}
	if r.VirtualCluster != nil && op.State == v1.OperationDone && r.VirtualCluster.VMs.Running > 0 {
		fmt.Fprintf(&b, "yield %s, promised at least %s\n", yield(r.VirtualCluster.Yield), yield(r.VirtualCluster.MinYield))
	}
	return b.String()
}
