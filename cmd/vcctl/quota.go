package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) quotaCommand() *cli.Command {
	return &cli.Command{
		Name: "quota", Usage: "what tenants may use, and use: get, set",
		Description: "A quota limits what a tenant may ask for, by key: cpu (cores), memory, disk, cloudInitBytes (bytes), vms, vcs, images, networks,\n" +
			"tokens, queued, periodicJobs. A key that nothing sets is unlimited. '*' stands for the limits of tenants that set none of their own.",
		Subcommands: []*cli.Command{
			{
				Name: "get", Usage: "show limits and use of a tenant, or of all", ArgsUsage: "[TENANT]", Flags: []cli.Flag{watchFlag}, Action: t.action(quotaGet),
				Description: "FROM says where a limit is set: tenant, by its own quota; defaults, by that of '*'; unset, nowhere. Of all tenants it shows the keys\n" +
					"that are limited or used; with -o wide, all keys. A token of a tenant sees its own.\n\n" +
					"Example: vcctl quota get film\n   vcctl quota get '*'",
			},
			{
				Name: "set", Usage: "set limits of a tenant", ArgsUsage: "TENANT KEY=VALUE...", Flags: []cli.Flag{checkFlag}, Action: t.action(quotaSet),
				Description: "A value is a number (0: nothing), for bytes also a size like 64GiB; unlimited; or unset: the limit of '*' counts. What is not named\n" +
					"stays. A limit below what is used stops nothing: what would use more is refused from then on (exit status 3).\n\n" +
					"Example: vcctl quota set film cpu=64 memory=256GiB vms=100\n   vcctl quota set '*' vms=20",
			},
		},
	}
}

// quotaRow is a key of a tenant's quota.
type quotaRow struct {
	tenant string
	over   bool
	v1.QuotaLimit
}

func quotaRows(quotas ...v1.Quota) (rows []quotaRow) {
	for _, q := range quotas {
		for _, l := range q.Items {
			rows = append(rows, quotaRow{q.Tenant, slices.Contains(q.OverQuota, l.Key), l})
		}
	}
	return rows
}

var (
	quotaTable      = tableOf("KEY,LIMIT,USED,FROM", "", quotaCells)
	quotaTableOfAll = tableOf("TENANT,KEY,LIMIT,USED,FROM", "", withTenant(func(r quotaRow) string { return r.tenant }, quotaCells))
)

func quotaCells(r quotaRow) []string {
	limit, used := v1.LimitUnlimited, quotaAmount(r.Used, r.Unit)
	if r.Limit != nil {
		limit = quotaAmount(*r.Limit, r.Unit)
	}
	if r.over {
		used += ", over quota"
	}
	return []string{r.Key, limit, seen(used, r.tenant == client.AllTenants), r.From}
}

// quotaAmount is a value in a unit of quotas.
func quotaAmount(v float64, unit string) string {
	switch unit {
	case "bytes":
		return v1.Size(v).Short()
	case "cores":
		return cores(v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func quotaGet(c *call) error {
	if c.NArg() == 0 {
		return c.t.show(c.Context, func(ctx context.Context) (any, view, error) {
			all, err := c.api.Quotas(ctx)
			return items(all), func(wide bool) string {
				rows := quotaRows(all...)
				if !wide {
					rows = slices.DeleteFunc(rows, func(r quotaRow) bool { return r.Limit == nil && r.Used == 0 })
				}
				return quotaTableOfAll.text(rows, wide)
			}, doing(err, "listing quotas")
		})
	}
	tenant, err := name(c.Context, "TENANT")
	if err != nil {
		return err
	}
	return c.t.show(c.Context, func(ctx context.Context) (any, view, error) {
		q, err := c.api.Quota(ctx, tenant)
		return q, func(wide bool) string { return quotaTable.text(quotaRows(q), wide) }, doing(err, "getting the quota of tenant %s", tenant)
	})
}

func quotaSet(c *call) error {
	args := c.Args().Slice()
	if len(args) < 2 {
		return usage("quota set: name a tenant, and at least one limit as KEY=VALUE")
	}
	patch := v1.QuotaPatch{Limits: map[string]string{}}
	for _, pair := range args[1:] {
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := patch.Limits[key]; !ok || twice {
			return usage("%q is no limit: write KEY=VALUE, each key once", pair)
		}
		if _, _, _, err := v1.ParseLimit(key, value); err != nil {
			return usage("%s: %v", key, err)
		}
		patch.Limits[key] = value
	}
	tenant := args[0]
	if strings.HasPrefix(tenant, "-") || strings.Contains(tenant, "=") {
		return usage("%q is no tenant: write TENANT KEY=VALUE...", tenant)
	}
	q, err := c.api.SetQuota(c.ctx, tenant, patch, c.opts...)
	if err != nil {
		return doing(err, "setting the quota of tenant %s", tenant)
	}
	return c.print(q, func(wide bool) string {
		text := quotaTable.text(quotaRows(q), wide)
		if c.dry() {
			return "Dry run: nothing was changed. It would be:\n" + text
		}
		return text
	})
}
