package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) tokenCommand() *cli.Command {
	return &cli.Command{
		Name: "token", Usage: "tokens of the API: create, list, revoke",
		Description: "Every request needs a token. What its holder may do is its role:\n" +
			"admin, everything; operator, everything but tokens, join tokens, the audit log and snapshots;\n" +
			"auditor, reads, but no consoles and snapshots, and the audit log; metrics, /metrics only.\n" +
			"Of a tenant: owner, everything in it, its tokens too; editor, its virtual clusters, consoles too; viewer, reads.",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "make a token and show it, once", ArgsUsage: "NAME", Action: t.action(tokenCreate),
				Description: "The token goes to standard output and is shown nowhere else: the cluster keeps its hash only. Names need not be unique.\n" +
					"Without --expires it is good until it is revoked, or as long as the token that makes it, which it never outlives. The roles owner, editor and viewer are of the tenant of --tenant, or else of the\n" +
					"token that asks. With --from it is good from these addresses only, at most 16 ranges, none wider than those of the token that makes it.\n\n" +
					"Example: vcctl token create deploy --role operator --expires 720h > deploy.token\n   vcctl token create anna --tenant film --role editor > anna.token",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "role", Usage: "`ROLE`: " + strings.Join(tokenRoles, ", ")},
					&cli.StringFlag{Name: "from", Usage: "the `CIDR[,CIDR...]` of the clients' addresses that it is good from"},
					&cli.DurationFlag{Name: "expires", Usage: "how `LONG` it is good, at least 1m"},
					&cli.BoolFlag{Name: "dry-run", Usage: "check and make nothing"},
				},
			},
			{
				Name: "list", Usage: "list the tokens, without their secrets", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag},
				Action:      t.ask("listing tokens", func(c *call) (any, view, error) { return tokenTable.answer(c.api.Tokens(c.ctx)) }),
				Description: "Those of the cluster and of all tenants, or with --tenant of one. The last use is behind by up to 10 minutes.\n\nExample: vcctl token list",
			},
			{
				Name: "revoke", Usage: "refuse a token from now on, and end what runs with it", ArgsUsage: "ID", Action: t.ask("revoking token %s", tokenRevoke),
				Description: "Event streams, consoles and long polls that were opened with it end within 5 s, on every server. The last admin token that does\n" +
					"not expire is not revoked (exit status 5): make another one first.\n\nExample: vcctl token revoke 3f2a9c0d11e4b865",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "say what it would end, and revoke nothing"}},
			},
		},
	}
}

// tokenRoles are those that --role takes.
var tokenRoles = append([]string{"admin", "operator", "auditor", "metrics"}, tenantRoles...)

// tenantRoles are those that go with a tenant.
var tenantRoles = []string{"owner", "editor", "viewer"}

var tokenTable = tableOf("ID,NAME,ROLE,TENANT,FROM,EXPIRES,LAST USED", "MADE,MADE BY", func(k v1.Token) []string {
	expires := "never"
	if k.Until != nil {
		expires = stamp(*k.Until)
	}
	return []string{k.ID, k.Name, k.Role, k.Tenant, strings.Join(k.From, ","), expires, stampOf(k.LastUsed), stampOf(k.MadeAt), k.MadeBy}
})

// stampOf a time that may be missing.
func stampOf(at *time.Time) string {
	if at == nil {
		return ""
	}
	return stamp(*at)
}

func tokenCreate(c *call) error {
	if c.String("role") == "" {
		return usage("token create: say what it may do with --role: %s", strings.Join(tokenRoles, ", "))
	}
	q := v1.TokenRequest{Name: c.name, Role: c.String("role")}
	if c.IsSet("from") {
		q.From = strings.Split(strings.ReplaceAll(c.String("from"), " ", ""), ",")
	}
	if c.IsSet("expires") {
		seconds := c.Duration("expires").Seconds()
		q.Seconds = &seconds
	}
	var err error
	if q.Tenant, err = c.tenantOfRole("token create", q.Role); err != nil {
		return err
	}
	k, err := c.api.MakeToken(c.ctx, q, c.opts...)
	if err != nil {
		return doing(err, "making token %s", c.name)
	}
	if c.dry() {
		return c.print(k, func(bool) string { return "Dry run: nothing was made.\n" })
	}
	if err := c.print(k, func(bool) string { return k.Token + "\n" }); err != nil {
		c.t.say("Token %s was not shown: revoke it with `vcctl token revoke %s`.\n", k.ID, k.ID)
		return err
	}
	role := k.Role
	if len(k.From) > 0 {
		role += " from " + strings.Join(k.From, ", ")
	}
	if k.Tenant != "" {
		role += " of tenant " + k.Tenant
	}
	c.t.say("Token %s (%s, %s) is shown this once. `vcctl token revoke %s` ends it.\n", k.ID, k.Name, role, k.ID)
	return nil
}

func tokenRevoke(c *call) (any, view, error) {
	out, err := c.api.RevokeToken(c.ctx, c.name, c.opts...)
	return out, func(bool) string { return sentence(out.Text) + ".\n" }, err
}
