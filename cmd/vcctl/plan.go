package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

var listLimitFlag = &cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 100, Usage: "at most so many of the newest, 1 to 1000"}

func listLimit(c *cli.Context) (int, error) {
	n := c.Int("limit")
	if n < 1 || n > 1000 {
		return 0, usage("--limit must be from 1 to 1000")
	}
	return n, nil
}

func (t *tool) planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "plans of moves: list, get, apply, stop",
		Description: "A plan is an ordered list of live migrations, recorded before the first of them begins.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list plans of moves, the newest last", ArgsUsage: " ", Action: t.planList,
				Description: "Example: vcctl plan list --state running",
				Flags:       []cli.Flag{watchFlag, listLimitFlag, &cli.StringFlag{Name: "state", Usage: "only those that are proposed, running, done, failed, stopped or superseded"}},
			},
			{
				Name: "get", Usage: "show one plan with its moves; with -w, how far they are", ArgsUsage: "ID", Flags: []cli.Flag{watchFlag}, Action: t.planGet,
				Description: "Example: vcctl plan get 01JD3Y2T6M5W -w",
			},
			{
				Name: "apply", Usage: "carry out a plan that was proposed", ArgsUsage: "ID", Action: t.planApply,
				Description: "The plan is checked again first: if the cluster has moved on so that it is no longer valid, nothing is changed (exit\n" +
					"status 5), and a new one has to be made.\n\nExample: vcctl plan apply 01JD3Y2T6M5W --wait",
				Flags: changeFlags(),
			},
			{
				Name: "stop", Usage: "begin no further move of a plan", ArgsUsage: "ID", Action: t.planStop, Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "check and change nothing"}},
				Description: "Moves that are under way end; `vcctl migration abort` ends one sooner. Nothing is moved back.\n\nExample: vcctl plan stop 01JD3Y2T6M5W",
			},
		},
	}
}

func (t *tool) planList(c *cli.Context) error {
	if _, err := names(c); err != nil {
		return err
	}
	limit, err := listLimit(c)
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	return t.show(c, func(ctx context.Context) (any, func(bool) string, error) {
		all, err := api.Plans(ctx, c.String("state"), limit)
		return items(all), func(wide bool) string { return planTable(all, wide) }, doing(err, "listing plans")
	})
}

func planTable(plans []v1.Plan, wide bool) string {
	heads := []string{"ID", "KIND", "STATE", "MOVES", "BYTES", "SENT", "MIN YIELD", "CREATED"}
	if wide {
		heads = append(heads, "TIME", "AT MOST", "BY", "REASON")
	}
	tab := newTable(heads...)
	for _, p := range plans {
		done := 0
		for _, m := range p.Moves {
			if m.State == "done" {
				done++
			}
		}
		kind := p.Kind
		if p.Host != "" {
			kind += " " + p.Host
		}
		row := []string{p.ID, kind, p.State, fmt.Sprintf("%d/%d", done, len(p.Moves)), p.Bytes.Short(), p.BytesMoved.Short(),
			yield(p.MinYieldBefore) + " -> " + yield(p.MinYieldAfter), stamp(p.CreatedAt)}
		if wide {
			top := "no bound"
			if p.BytesBudget != nil {
				top = p.BytesBudget.Short()
			}
			row = append(row, took(p.Seconds), top, p.By, p.Reason)
		}
		tab.row(row...)
	}
	return tab.String()
}

func (t *tool) planGet(c *cli.Context) error {
	id, err := name(c, "ID")
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	return t.show(c, func(ctx context.Context) (any, func(bool) string, error) {
		p, err := api.Plan(ctx, id)
		if err != nil {
			return nil, nil, doing(err, "getting plan %s", id)
		}
		var its []v1.Migration
		if p.State == "running" {
			if its, err = api.Migrations(ctx, id, "", "running", 0); err != nil {
				return nil, nil, doing(err, "listing the migrations of plan %s", id)
			}
		}
		return p, func(wide bool) string { return planText(p, its, wide) }, nil
	})
}

func (t *tool) planApply(c *cli.Context) error {
	id, err := name(c, "ID")
	if err != nil {
		return err
	}
	opts, err := options(c)
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	r, err := api.ApplyPlan(c.Context, id, opts...)
	if err != nil {
		return doing(err, "applying plan %s", id)
	}
	return t.concludePlan(c, api, r)
}

func (t *tool) planStop(c *cli.Context) error {
	id, err := name(c, "ID")
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	p, err := api.StopPlan(c.Context, id, dryRun(c)...)
	if err != nil {
		return doing(err, "stopping plan %s", id)
	}
	return t.print(c, p, func(bool) string {
		if c.Bool("dry-run") {
			return fmt.Sprintf("Dry run: nothing was changed; plan %s is %s.\n", p.ID, p.State)
		}
		under := 0
		for _, m := range p.Moves {
			if m.State == "moving" {
				under++
			}
		}
		return fmt.Sprintf("Plan %s is %s: no further move of it begins; %d under way.\n", p.ID, p.State, under)
	})
}

// dryRun is the option of a change that only has that one.
func dryRun(c *cli.Context) []client.Option {
	if c.Bool("dry-run") {
		return []client.Option{client.DryRun()}
	}
	return nil
}

func (t *tool) migrationCommand() *cli.Command {
	return &cli.Command{
		Name: "migration", Usage: "VMs on their way from host to host: list, get, abort",
		Description: "A migration is one move of a plan, from the moment it is recorded on.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list migrations, the newest last; with -w, how far they are", ArgsUsage: " ", Action: t.migrationList,
				Description: "Example: vcctl migration list --state running -w",
				Flags: []cli.Flag{watchFlag, listLimitFlag,
					&cli.StringFlag{Name: "plan", Usage: "only those of the plan `ID`"},
					&cli.StringFlag{Name: "vm", Usage: "only those of the VM `NAME`"},
					&cli.StringFlag{Name: "state", Usage: "only those that are running, done, failed or aborted"}},
			},
			{
				Name: "get", Usage: "show one migration; with -w, how far it is", ArgsUsage: "ID", Flags: []cli.Flag{watchFlag},
				Action:      getting(t, "migration", "ID", (*client.Client).Migration, nil, func(m v1.Migration, _ []v1.VM, _ bool) string { return migrationText(m) }),
				Description: "Example: vcctl migration get 01JD3Y2T6M5W",
			},
			{
				Name: "abort", Usage: "end a migration; the VM stays where it is", ArgsUsage: "ID", Action: t.migrationAbort,
				Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "check and change nothing"}},
				Description: "What it has sent counts against the plan's bytes all the same, and the plan goes on with what it can. `vcctl plan stop` ends\n" +
					"the plan. A guest that runs on the target already (post-copy) cannot be brought back.\n\nExample: vcctl migration abort 01JD3Y2T6M5W",
			},
		},
	}
}

func (t *tool) migrationList(c *cli.Context) error {
	if _, err := names(c); err != nil {
		return err
	}
	limit, err := listLimit(c)
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	return t.show(c, func(ctx context.Context) (any, func(bool) string, error) {
		all, err := api.Migrations(ctx, c.String("plan"), c.String("vm"), c.String("state"), limit)
		return items(all), func(wide bool) string { return migrationTable(all, wide) }, doing(err, "listing migrations")
	})
}

func migrationTable(all []v1.Migration, wide bool) string {
	heads := []string{"ID", "VM", "FROM", "TO", "STATE", "SENT", "AT MOST", "RATE", "ETA", "DOWNTIME"}
	if wide {
		heads = append(heads, "BEGUN", "ENDED", "PLAN", "WHY")
	}
	tab := newTable(heads...)
	for _, m := range all {
		top, down := "no bound", ""
		if m.BytesBudget != nil {
			top = m.BytesBudget.Short()
		}
		if m.DowntimeMs > 0 {
			down = strconv.FormatInt(m.DowntimeMs, 10) + "ms"
		}
		rate, eta := pace(m.Progress)
		row := []string{m.ID, m.VM, m.From, m.To, m.State, m.BytesMoved.Short(), top, rate, eta, down}
		if wide {
			row = append(row, stamp(m.OpenedAt), stamp(m.EndedAt), m.Plan, migrationWhy(m))
		}
		tab.row(row...)
	}
	return tab.String()
}

func migrationWhy(m v1.Migration) string {
	for _, s := range []string{m.Error, m.Abort} {
		if s != "" {
			return s + " [" + m.Reason + "]"
		}
	}
	return m.Reason
}

func migrationText(m v1.Migration) string {
	bytes := m.BytesMoved.Short() + " sent, " + m.Bytes.Short() + " predicted"
	if m.BytesBudget != nil {
		bytes += ", at most " + m.BytesBudget.Short()
	}
	var how []string
	for _, o := range []struct {
		on   bool
		text string
	}{{m.Options.Bandwidth > 0, "at most " + m.Options.Bandwidth.Short() + "/s"}, {m.Options.AutoConverge, "auto-converge"}, {m.Options.PostCopy, "post-copy"},
		{m.Options.CopyStorage, "with its disks"}, {m.Options.Deadline != "", "for at most " + m.Options.Deadline}} {
		if o.on {
			how = append(how, o.text)
		}
	}
	down, progress := "", ""
	if m.DowntimeMs > 0 {
		down = strconv.FormatInt(m.DowntimeMs, 10) + "ms"
	}
	if p := m.Progress; p != nil {
		rate, eta := pace(p)
		progress = fmt.Sprintf("%s left, %s, the guest changes %s/s, there in %s", p.Remaining.Short(), seen(rate, rate == ""), v1.Size(max(0, p.Dirty)).Short(), eta)
		if p.PostCopy {
			progress += ", runs on the target already"
		}
		if p.Text != "" {
			progress += "; " + p.Text
		}
	}
	return fields("Migration", m.ID, "VM", m.VM, "State", m.State, "From", m.From, "To", m.To, "Why", m.Reason, "Error", m.Error, "Aborted because", m.Abort,
		"Bytes", bytes, "Progress", progress, "Downtime", down, "How", strings.Join(how, ", "), "Begun", stamp(m.OpenedAt), "Ended", stamp(m.EndedAt), "Plan", m.Plan)
}

func (t *tool) migrationAbort(c *cli.Context) error {
	id, err := name(c, "ID")
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	m, err := api.AbortMigration(c.Context, id, dryRun(c)...)
	if err != nil {
		return doing(err, "aborting migration %s", id)
	}
	return t.print(c, m, func(bool) string {
		if c.Bool("dry-run") {
			return fmt.Sprintf("Dry run: nothing was changed; migration %s is %s.\n", m.ID, m.State)
		}
		return fmt.Sprintf("%s is to stay on %s; watch it with: vcctl migration get %s -w\n", m.VM, m.From, m.ID)
	})
}
