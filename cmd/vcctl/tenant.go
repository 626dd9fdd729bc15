package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) tenantCommand() *cli.Command {
	describe := []cli.Flag{
		&cli.StringFlag{Name: "display-name", Usage: "`TEXT` for people, such as 'Film school'"},
		&cli.StringSliceFlag{Name: "label", Usage: "a label, as `KEY=VALUE`; may be given many times"},
		&cli.IntFlag{Name: "max-priority", Usage: "highest `PRIORITY` that its own tokens may give a virtual cluster"},
		checkFlag,
	}
	return &cli.Command{
		Name: "tenant", Usage: "tenants: create, list, get, set, suspend, resume, delete",
		Description: "A tenant is a person or a team that owns virtual clusters. Its tokens see and change nothing of other tenants and of hosts.\n" +
			"The tenant default is always there, and has what belongs to no other.",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "create a tenant", ArgsUsage: "NAME", Flags: describe, Action: t.ask("creating tenant %s", tenantCreate),
				Description: "It owns nothing at first, and its limits are the defaults: see vcctl quota. Its people need a token: vcctl token create.\n" +
					"Names are DNS labels.\n\nExample: vcctl tenant create film --display-name 'Film school' --label site=north",
			},
			{
				Name: "list", Usage: "list the tenants", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag, selectorFlag},
				Action: t.ask("listing tenants", func(c *call) (any, view, error) {
					return tenantTable.labelled(tenantLabels).answer(c.api.Tenants(c.ctx))
				}),
				Description: "A token of a tenant sees its own.\n\nExample: vcctl tenant list",
			},
			{
				Name: "get", Usage: "show one tenant", ArgsUsage: "NAME", Flags: []cli.Flag{watchFlag}, Action: t.ask("getting tenant %s", tenantGet),
				Description: "Example: vcctl tenant get film",
			},
			{
				Name: "set", Usage: "change a tenant", ArgsUsage: "NAME", Flags: describe, Action: t.ask("changing tenant %s", tenantSet),
				Description: "What is not given stays. With --label, those given are all its labels from then on; --label '' removes all.\n\n" +
					"Example: vcctl tenant set film --max-priority 100",
			},
			{
				Name: "suspend", Usage: "refuse a tenant's tokens, and let nothing of it begin or grow", ArgsUsage: "NAME", Flags: []cli.Flag{checkFlag},
				Action:      t.tenantState("suspending tenant %s", "suspended", "Tenant %s is suspended: its tokens are refused, and what runs goes on."),
				Description: "Its VMs run on. What its tokens opened ends within 5 s.\n\nExample: vcctl tenant suspend film",
			},
			{
				Name: "resume", Usage: "end the suspension of a tenant", ArgsUsage: "NAME", Flags: []cli.Flag{checkFlag},
				Action:      t.tenantState("resuming tenant %s", "active", "Tenant %s is active again."),
				Description: "Its tokens work as before.\n\nExample: vcctl tenant resume film",
			},
			{
				Name: "delete", Usage: "delete a tenant that owns nothing", ArgsUsage: "NAME", Flags: []cli.Flag{checkFlag}, Action: t.ask("deleting tenant %s", tenantDelete),
				Description: "Delete its virtual clusters and revoke its tokens before: otherwise it is refused (exit status 5).\n\nExample: vcctl tenant delete film",
			},
		},
	}
}

func tenantLabels(t v1.Tenant) []map[string]string { return []map[string]string{t.Labels} }

var tenantTable = tableOf("NAME,STATE,DISPLAY NAME,MAX PRIORITY,CREATED", "LABELS", func(t v1.Tenant) []string {
	return []string{t.Name, t.State, t.DisplayName, strconv.Itoa(t.MaxPriority), stamp(t.CreatedAt), labelsText(t.Labels)}
})

func labelsText(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, ", ")
}

// openText is which names are open: nil is any.
func openText(names []string) string {
	switch {
	case names == nil:
		return "any"
	case len(names) == 0:
		return "none"
	}
	return strings.Join(names, ", ")
}

func tenantText(t v1.Tenant) string {
	return fields("Name", t.Name, "Display name", t.DisplayName, "State", t.State, "Labels", labelsText(t.Labels),
		"Max priority", strconv.Itoa(t.MaxPriority), "Networks", openText(t.Networks), "Pools", openText(t.Pools), "Created", stamp(t.CreatedAt))
}

// labels that --label gives; nil if it is not there, none if its value is empty.
func labels(c *call) (map[string]string, error) {
	if slices.Equal(c.StringSlice("label"), []string{""}) {
		return map[string]string{}, nil
	}
	var out map[string]string
	for _, pair := range c.StringSlice("label") {
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := out[key]; !ok || key == "" || twice {
			return nil, usage("--label %s: write KEY=VALUE, each key once", pair)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

func tenantCreate(c *call) (any, view, error) {
	q := v1.TenantRequest{Name: c.name, DisplayName: c.String("display-name")}
	var err error
	if q.Labels, err = labels(c); err != nil {
		return nil, nil, err
	}
	if c.IsSet("max-priority") {
		n := c.Int("max-priority")
		q.MaxPriority = &n
	}
	made, err := c.api.CreateTenant(c.ctx, q, c.opts...)
	return made, c.changed("; tenant "+made.Name+" could be created", "Tenant "+made.Name+" is created. Give its people a token with `vcctl token create NAME --tenant "+made.Name+" --role owner`."), err
}

func tenantGet(c *call) (any, view, error) {
	got, err := c.api.Tenant(c.ctx, c.name)
	return got, func(bool) string { return tenantText(got) }, err
}

func tenantSet(c *call) (any, view, error) {
	var q v1.TenantPatch
	if c.IsSet("display-name") {
		text := c.String("display-name")
		q.DisplayName = &text
	}
	var err error
	if q.Labels, err = labels(c); err != nil {
		return nil, nil, err
	}
	if c.IsSet("max-priority") {
		n := c.Int("max-priority")
		q.MaxPriority = &n
	}
	if q.DisplayName == nil && q.Labels == nil && q.MaxPriority == nil {
		return nil, nil, usage("tenant set: nothing to change: give --display-name, --label or --max-priority")
	}
	got, err := c.api.ChangeTenant(c.ctx, c.name, q, c.opts...)
	return got, func(bool) string {
		if c.dry() {
			return "Dry run: nothing was changed. It would be:\n" + tenantText(got)
		}
		return tenantText(got)
	}, err
}

// tenantState is the action of a command that puts a tenant in a state; done says so.
func (t *tool) tenantState(what, to, done string) cli.ActionFunc {
	return t.ask(what, func(c *call) (any, view, error) {
		got, err := c.api.ChangeTenant(c.ctx, c.name, v1.TenantPatch{State: &to}, c.opts...)
		return got, c.changed("; tenant "+got.Name+" would be "+to, strings.ReplaceAll(done, "%s", got.Name)), err
	})
}

func tenantDelete(c *call) (any, view, error) {
	err := c.api.DeleteTenant(c.ctx, c.name, c.opts...)
	return map[string]string{"name": c.name}, c.changed("; tenant "+c.name+" could be deleted", "Tenant "+c.name+" is deleted."), err
}
