package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

// maxListed plans or migrations are listed.
const maxListed = 1000

var listLimitFlag = &cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 100, Usage: "at most so many of the newest, 1 to 1000"}

var allFlag = &cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "those that have ended, too"}

// limit that --limit sets.
func limit(c *call, highest int) (int, error) {
	n := c.Int("limit")
	if n < 1 || n > highest {
		return 0, usage("--limit must be from 1 to %d", highest)
	}
	return n, nil
}

func (t *tool) planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "plans of moves: list, get, apply, stop",
		Description: "A plan is an ordered list of live migrations, recorded before the first of them begins.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list plans of moves that are open, the newest first; with --all also those that ended", ArgsUsage: " ", Action: t.ask("listing plans", planList),
				Description: "Open are those that are proposed or running.\n\nExample: vcctl plan list --all\n   vcctl plan list --state failed,stopped",
				Flags:       []cli.Flag{watchFlag, listLimitFlag, sortFlag, allFlag, stateFlag(planStates)},
			},
			{
				Name: "get", Usage: "show one plan with its moves; with -w, how far they are", ArgsUsage: "ID", Flags: []cli.Flag{watchFlag}, Action: t.ask("getting plan %s", planGet),
				Description: "Example: vcctl plan get 01JD3Y2T6M5W -w",
			},
			{
				Name: "apply", Usage: "carry out a plan that was proposed", ArgsUsage: "ID", Action: t.action(planApply),
				Description: "The plan is checked again first: if the cluster has moved on so that it is no longer valid, nothing is changed (exit\n" +
					"status 5), and a new one has to be made.\n\nExample: vcctl plan apply 01JD3Y2T6M5W --wait",
				Flags: changeFlags(),
			},
			{
				Name: "stop", Usage: "begin no further move of a plan", ArgsUsage: "ID", Action: t.ask("stopping plan %s", planStop), Flags: []cli.Flag{checkFlag},
				Description: "Moves that are under way end; `vcctl migration abort` ends one sooner. Nothing is moved back.\n\nExample: vcctl plan stop 01JD3Y2T6M5W",
			},
		},
	}
}

func planList(c *call) (any, view, error) {
	n, err := limit(c, maxListed)
	if err != nil {
		return nil, nil, err
	}
	states, err := c.openOr(planStates, "proposed", "running")
	if err != nil {
		return nil, nil, err
	}
	all, err := ofStates(states, n, func(state string) ([]v1.Plan, error) { return c.api.Plans(c.ctx, state, n) }, func(p v1.Plan) time.Time { return p.CreatedAt })
	return hinted(c, "No plan is open; --all lists those that ended too.\n", planTable, all, err)
}

// openOr returns the states that --state names; without it the open ones, or all (nil) with --all.
func (c *call) openOr(known []string, open ...string) ([]string, error) {
	states, err := wantedStates(c, known)
	switch {
	case err != nil || states != nil && !c.Bool("all"):
		return states, err
	case states != nil:
		return nil, usage("--state and --all contradict each other")
	case c.Bool("all"):
		return nil, nil
	}
	return open, nil
}

// ofStates are the newest n in any of the states (nil: all), the newest first.
func ofStates[T any](states []string, n int, ask func(state string) ([]T, error), at func(T) time.Time) ([]T, error) {
	var out []T
	if states == nil {
		states = []string{""}
	}
	for _, state := range states {
		some, err := ask(state)
		if err != nil {
			return nil, err
		}
		slices.Reverse(some) // the server has the newest last
		out = append(out, some...)
	}
	slices.SortStableFunc(out, func(a, b T) int { return at(b).Compare(at(a)) })
	return out[:min(n, len(out))], nil
}

// hinted is a list, or where it is empty a hint for people: why it may be.
func hinted[T any](c *call, hint string, in listView[T], all []T, err error) (any, view, error) {
	if len(all) > 0 || c.Bool("all") || c.String("state") != "" {
		return in.answer(all, err)
	}
	in.whole = func([]T, bool) string { return hint }
	return in.answer(all, err)
}

var planTable = tableOf("ID,KIND,STATE,MOVES,BYTES,SENT,MIN YIELD,AGE", "CREATED,TIME,AT MOST,BY,REASON", func(p v1.Plan) []string {
	kind := p.Kind
	if p.Host != "" {
		kind += " " + p.Host
	}
	return []string{p.ID, kind, p.State, fmt.Sprintf("%d/%d", movesIn(p, "done"), len(p.Moves)), p.Bytes.Short(), p.BytesMoved.Short(),
		yield(p.MinYieldBefore) + " -> " + yield(p.MinYieldAfter), ago(p.CreatedAt), stamp(p.CreatedAt), took(p.Seconds), byteBound(p.BytesBudget), p.By, p.Reason}
})

// movesIn a state.
func movesIn(p v1.Plan, state string) (n int) {
	for _, m := range p.Moves {
		if m.State == state {
			n++
		}
	}
	return n
}

// byteBound: at most so many bytes are sent; nil: no bound.
func byteBound(budget *v1.Size) string {
	if budget == nil {
		return "no bound"
	}
	return budget.Short()
}

func planGet(c *call) (any, view, error) {
	p, err := c.api.Plan(c.ctx, c.name)
	var its []v1.Migration
	if err == nil && p.State == "running" {
		its, err = c.api.Migrations(c.ctx, c.name, "", "running", 0)
	}
	return p, func(wide bool) string { return planText(p, its, wide) }, err
}

func planApply(c *call) error {
	r, err := c.api.ApplyPlan(c.ctx, c.name, c.opts...)
	if err != nil {
		return doing(err, "applying plan %s", c.name)
	}
	return concludePlan(c, r)
}

func planStop(c *call) (any, view, error) {
	p, err := c.api.StopPlan(c.ctx, c.name, c.opts...)
	return p, c.changed("; plan "+p.ID+" is "+p.State, fmt.Sprintf("Plan %s is %s: no further move of it begins; %d under way.", p.ID, p.State, movesIn(p, "moving"))), err
}

func (t *tool) migrationCommand() *cli.Command {
	return &cli.Command{
		Name: "migration", Usage: "VMs on their way from host to host: list, get, abort",
		Description: "A migration is one move of a plan, from the moment it is recorded on.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list migrations that go on, the newest first; with --all also those that ended; with -w, how far they are", ArgsUsage: " ", Action: t.ask("listing migrations", migrationList),
				Description: "Example: vcctl migration list -w\n   vcctl migration list --all --vm render-worker-0\n   vcctl migration list --state failed -o wide",
				Flags: []cli.Flag{watchFlag, listLimitFlag, sortFlag, allFlag, stateFlag(migrationStates),
					&cli.StringFlag{Name: "plan", Usage: "only those of the plan `ID`"},
					&cli.StringFlag{Name: "vm", Usage: "only those of the VM `NAME`"}},
			},
			{
				Name: "get", Usage: "show one migration, by its id or its VM; with -w, how far it is", ArgsUsage: "MIGRATION", Flags: []cli.Flag{watchFlag},
				Action:      t.ask("getting migration %s", migrationGet),
				Description: "Of a VM the newest one.\n\nExample: vcctl migration get render-worker-0 -w",
			},
			{
				Name: "abort", Usage: "end a migration, by its id or its VM; the VM stays where it is", ArgsUsage: "MIGRATION", Action: t.ask("aborting migration %s", migrationAbort),
				Flags: []cli.Flag{checkFlag},
				Description: "What it has sent counts against the plan's bytes all the same, and the plan goes on with what it can. `vcctl plan stop` ends\n" +
					"the plan. A guest that runs on the target already (post-copy) cannot be brought back.\n\nExample: vcctl migration abort render-worker-0",
			},
		},
	}
}

func migrationList(c *call) (any, view, error) {
	n, err := limit(c, maxListed)
	if err != nil {
		return nil, nil, err
	}
	states, err := c.openOr(migrationStates, "running")
	if err != nil {
		return nil, nil, err
	}
	if c.String("plan") != "" && c.String("state") == "" {
		states = nil // a plan's are few, and what became of them is asked
	}
	all, err := ofStates(states, n, func(state string) ([]v1.Migration, error) {
		return c.api.Migrations(c.ctx, c.String("plan"), c.String("vm"), state, n)
	}, func(m v1.Migration) time.Time { return m.OpenedAt })
	return hinted(c, "No VM is on its way; --all lists the migrations that ended.\n", migrationTable, all, err)
}

var migrationTable = tableOf("VM,FROM,TO,STATE,AGE,SENT,RATE,ETA,WHY", "AT MOST,DOWNTIME,BEGUN,ENDED,PLAN,ID", func(m v1.Migration) []string {
	rate, eta := pace(m.Progress)
	return []string{m.VM, m.From, m.To, m.State, ago(m.OpenedAt), m.BytesMoved.Short(), rate, eta, migrationWhy(m),
		byteBound(m.BytesBudget), downtime(m), stamp(m.OpenedAt), stamp(m.EndedAt), m.Plan, m.ID}
})

// migrationOf the argument of a command: an id, or the name of a VM, whose newest migration is meant, or with running the one that
// goes on.
func migrationOf(c *call, running bool) (string, error) {
	if migrationID.MatchString(c.name) {
		return c.name, nil
	}
	state := ""
	if running {
		state = "running"
	}
	all, err := c.api.Migrations(c.ctx, "", c.name, state, 1)
	switch {
	case err != nil:
		return "", err
	case len(all) == 0 && running:
		return "", failed(statusNotFound, "VM %s is not on its way: nothing is to be aborted", c.name)
	case len(all) == 0:
		return "", failed(statusNotFound, "no migration of VM %s is recorded", c.name)
	}
	return all[len(all)-1].ID, nil
}

// migrationID is what ids look like; no name of a VM does.
var migrationID = regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{26}$`)

func downtime(m v1.Migration) string {
	if m.DowntimeMs <= 0 {
		return ""
	}
	return strconv.FormatInt(m.DowntimeMs, 10) + "ms"
}

func migrationGet(c *call) (any, view, error) {
	id, err := migrationOf(c, false)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.api.Migration(c.ctx, id)
	return m, func(bool) string { return migrationText(m) }, err
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
	progress := ""
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
		"Bytes", bytes, "Progress", progress, "Downtime", downtime(m), "How", strings.Join(how, ", "), "Begun", stamp(m.OpenedAt), "Ended", stamp(m.EndedAt), "Plan", m.Plan)
}

func migrationAbort(c *call) (any, view, error) {
	id, err := migrationOf(c, true)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.api.AbortMigration(c.ctx, id, c.opts...)
	return m, c.changed("; migration "+m.ID+" is "+m.State, fmt.Sprintf("%s is to stay on %s; watch it with: vcctl migration get %s -w", m.VM, m.From, m.ID)), err
}
