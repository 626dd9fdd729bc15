package main

import (
	"context"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) tokenCommand() *cli.Command {
	return &cli.Command{
		Name: "token", Usage: "tokens of the API: create, list, revoke",
		Description: "Every request needs a token. What its holder may do is its role:\n" +
			"admin, everything; operator, everything but tokens, join tokens, the audit log and snapshots;\n" +
			"auditor, reads, but no consoles and snapshots, and the audit log; metrics, /metrics only.",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "make a token and show it, once", ArgsUsage: "NAME", Action: t.tokenCreate,
				Description: "The token goes to standard output and is shown nowhere else: the cluster keeps its hash only. Names need not be unique.\n" +
					"Without --expires it is good until it is revoked.\n\nExample: vcctl token create deploy --role operator --expires 720h > deploy.token",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "role", Usage: "`ROLE`: " + strings.Join(tokenRoles, ", ")},
					&cli.DurationFlag{Name: "expires", Usage: "how `LONG` it is good, at least 1m"},
					&cli.BoolFlag{Name: "dry-run", Usage: "check and make nothing"},
				},
			},
			{
				Name: "list", Usage: "list the tokens, without their secrets", ArgsUsage: " ", Flags: []cli.Flag{watchFlag},
				Action: listing(t, "tokens", func(ctx context.Context, api *client.Client, _ *cli.Context) ([]v1.Token, error) {
					return api.Tokens(ctx)
				}, tokenTable),
				Description: "The last use is behind by up to 10 minutes.\n\nExample: vcctl token list",
			},
			{
				Name: "revoke", Usage: "refuse a token from now on, and end what runs with it", ArgsUsage: "ID", Action: t.tokenRevoke,
				Description: "Event streams, consoles and long polls that were opened with it end within 5 s, on every server. The last admin token that does\n" +
					"not expire is not revoked (exit status 5): make another one first.\n\nExample: vcctl token revoke 3f2a9c0d11e4b865",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "say what it would end, and revoke nothing"}},
			},
		},
	}
}

// tokenRoles are those that --role takes.
var tokenRoles = []string{"admin", "operator", "auditor", "metrics"}

func tokenTable(tokens []v1.Token, wide bool) string {
	heads := []string{"ID", "NAME", "ROLE", "EXPIRES", "LAST USED"}
	if wide {
		heads = append(heads, "MADE", "MADE BY")
	}
	tab := newTable(heads...)
	for _, k := range tokens {
		expires := "never"
		if k.Until != nil {
			expires = stamp(*k.Until)
		}
		row := []string{k.ID, k.Name, k.Role, expires, stampOf(k.LastUsed)}
		if wide {
			row = append(row, stampOf(k.MadeAt), k.MadeBy)
		}
		tab.row(row...)
	}
	return tab.String()
}

// stampOf a time that may be missing.
func stampOf(at *time.Time) string {
	if at == nil {
		return ""
	}
	return stamp(*at)
}

func (t *tool) tokenCreate(c *cli.Context) error {
	name, err := name(c, "NAME")
	if err != nil {
		return err
	}
	if _, err := format(c); err != nil { // before a token is made that could not be shown
		return err
	}
	if c.String("role") == "" {
		return usage("token create: say what it may do with --role: %s", strings.Join(tokenRoles, ", "))
	}
	q := v1.TokenRequest{Name: name, Role: c.String("role")}
	if c.IsSet("expires") {
		seconds := c.Duration("expires").Seconds()
		q.Seconds = &seconds
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	var opts []client.Option
	if c.Bool("dry-run") {
		opts = append(opts, client.DryRun())
	}
	k, err := api.MakeToken(c.Context, q, opts...)
	if err != nil {
		return doing(err, "making token %s", name)
	}
	if c.Bool("dry-run") {
		return t.print(c, k, func(bool) string { return "Dry run: nothing was made.\n" })
	}
	err = t.print(c, k, func(bool) string { return k.Token + "\n" })
	if err != nil {
		t.say("Token %s was not shown: revoke it with `vcctl token revoke %s`.\n", k.ID, k.ID)
		return err
	}
	t.say("Token %s (%s, %s) is shown this once. `vcctl token revoke %s` ends it.\n", k.ID, k.Name, k.Role, k.ID)
	return nil
}

func (t *tool) tokenRevoke(c *cli.Context) error {
	id, err := name(c, "ID")
	if err != nil {
		return err
	}
	if _, err := format(c); err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	var opts []client.Option
	if c.Bool("dry-run") {
		opts = append(opts, client.DryRun())
	}
	out, err := api.RevokeToken(c.Context, id, opts...)
	if err != nil {
		return doing(err, "revoking token %s", id)
	}
	return t.print(c, out, func(bool) string { return strings.ToUpper(out.Text[:1]) + out.Text[1:] + ".\n" })
}
