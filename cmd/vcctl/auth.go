package main

import (
	"cmp"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) authCommand() *cli.Command {
	return &cli.Command{
		Name: "auth", Usage: "rights: whoami, can-i, permissions, revoke, revocations",
		Description: "The server knows you by the token of the request: one of the API, or one of `vcctl login`.",
		Subcommands: []*cli.Command{
			{
				Name: "whoami", Usage: "show as whom the server sees you, and with which role", ArgsUsage: " ",
				Action: t.ask("asking who you are", func(c *call) (any, view, error) {
					self, err := c.api.Self(c.ctx)
					return self, func(wide bool) string { return selfTable.text([]v1.Self{self}, wide) }, err
				}),
				Description: "With --tenant, as in that tenant. -o json has all roles.\n\nExample: vcctl auth whoami",
			},
			{
				Name: "can-i", Usage: "ask whether your role allows something", ArgsUsage: "VERB KIND", Action: t.action(canI),
				Description: "Exit status 0: it does; 1: it does not. vcctl auth permissions lists verbs and kinds. Quotas, and what the cluster is doing, may\n" +
					"still refuse what a role allows.\n\nExample: vcctl auth can-i create vc --tenant film",
			},
			{
				Name: "permissions", Usage: "list what your role allows", ArgsUsage: " ",
				Action: t.ask("listing your permissions", func(c *call) (any, view, error) {
					p, err := c.api.Permissions(c.ctx)
					return p, func(wide bool) string { return permissionTable.text(p.Items, wide) }, err
				}),
				Description: "With --tenant, in that tenant.\n\nExample: vcctl auth permissions",
			},
			{
				Name: "revoke", Usage: "refuse the tokens that the issuer made for a user so far", ArgsUsage: "SUB", Action: t.ask("revoking the tokens of user %s", userRevoke),
				Description: "SUB is the user at the OpenID Connect issuer, as the audit log names it: oidc:SUB. What runs with the tokens ends within 5 s, on every\n" +
					"server. End the sessions of the user at the issuer first: a token that the issuer makes more than 30 s later is taken again.\n" +
					"vcctl token revoke is for tokens of the API, and vcctl role revoke for roles.\n\nExample: vcctl auth revoke oidc:7f3a",
				Flags: []cli.Flag{checkFlag},
			},
			{
				Name: "revocations", Usage: "list the users whose tokens from before a time are refused", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag},
				Action:      t.ask("listing revocations", func(c *call) (any, view, error) { return revocationTable.answer(c.api.UserRevocations(c.ctx)) }),
				Description: "Each ends once no token from before could be good any more, because of its age.\n\nExample: vcctl auth revocations",
			},
		},
	}
}

var selfTable = tableOf("NAME,ROLE,TENANT,EXPIRES,GROUPS", "ID,ACTOR", func(s v1.Self) []string {
	expires := "never"
	if s.Until != nil {
		expires = stamp(*s.Until)
	}
	return []string{oneLine(s.Name), s.Role, cmp.Or(s.Tenant, "all"), expires, oneLine(strings.Join(s.Groups, ", ")), s.ID, oneLine(s.Actor)}
})

var permissionTable = tableOf("KIND,VERB", "ROLES,OPERATIONS", func(p v1.Permission) []string {
	return []string{p.Kind, p.Verb, strings.Join(p.Roles, ", "), strings.Join(p.Operations, ", ")}
})

var revocationTable = tableOf("USER,BEFORE,ENDS", "ID,MADE,MADE BY", func(r v1.UserRevocation) []string {
	return []string{oneLine(r.User), stamp(r.Before), stamp(r.Until), r.ID, stamp(r.MadeAt), r.MadeBy}
})

func canI(c *call) error {
	verb, kind := c.Args().Get(0), c.Args().Get(1)
	may, err := c.api.CanI(c.ctx, verb, kind)
	if err != nil {
		return doing(err, "asking whether you may %s %s", verb, kind)
	}
	if err := c.print(may, func(bool) string {
		if may.Allowed {
			return "yes\n"
		}
		return "no: " + may.Text + "\n"
	}); err != nil || may.Allowed {
		return err
	}
	return cli.Exit("", statusFailed)
}

func userRevoke(c *call) (any, view, error) {
	r, err := c.api.RevokeUser(c.ctx, v1.UserRevocationRequest{User: c.name}, c.opts...)
	return r, c.changed("", "Tokens that were issued to user "+oneLine(r.User)+" before "+stamp(r.Before)+" are refused, and what runs with them ends within 5 s."), err
}
