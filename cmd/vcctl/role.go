package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) roleCommand() *cli.Command {
	return &cli.Command{
		Name: "role", Usage: "roles that users, groups and tokens have: list, grant, revoke",
		Description: "A role binding gives a user or a group of the OpenID Connect issuer, or a token, a role in the cluster (admin, operator, auditor,\n" +
			"metrics) or in a tenant (owner, editor, viewer). It comes beside what the token itself and oidc.roles in vcd.yaml give.\n" +
			"Admins bind all roles, and the owner of a tenant those in it to the tenant's tokens. A token that expires binds none.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the role bindings", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag},
				Action:      t.ask("listing role bindings", func(c *call) (any, view, error) { return roleTable.answer(c.api.RoleBindings(c.ctx)) }),
				Description: "Those in the cluster and in all tenants, or with --tenant in one.\n\nExample: vcctl role list",
			},
			{
				Name: "grant", Usage: "bind a role to a user, a group or a token", ArgsUsage: "ROLE", Action: t.ask("granting role %s", roleGrant),
				Description: "A subject has one role in the cluster and one in each tenant: the new one takes the place of another. Roles of a tenant are in that\n" +
					"of --tenant, or else in that of the token that asks. vcctl auth whoami -o json shows a person the user (sub, after oidc: in the\n" +
					"actor) and the groups.\n\n" +
					"Example: vcctl role grant editor --group film-people --tenant film\n   vcctl role grant auditor --user 7f3a",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "user", Usage: "`SUB` of a user of the issuer"},
					&cli.StringFlag{Name: "group", Usage: "`NAME` of a group of the issuer"},
					&cli.StringFlag{Name: "of-token", Usage: "`ID` of a token of the API"},
					checkFlag,
				},
			},
			{
				Name: "revoke", Usage: "take a role binding away, and end what runs by it", ArgsUsage: "ID", Action: t.ask("revoking role binding %s", roleRevoke),
				Description: "Event streams, consoles and long polls of who had the role by it end within 5 s, on every server.\n\nExample: vcctl role revoke 3f2a9c0d11e4b865",
				Flags:       []cli.Flag{checkFlag},
			},
		},
	}
}

var roleTable = tableOf("ID,KIND,SUBJECT,ROLE,TENANT", "MADE,MADE BY,ISSUER", func(b v1.RoleBinding) []string {
	return []string{b.ID, b.Subject.Kind, oneLine(b.Subject.Name), b.Role, b.Tenant, stamp(b.MadeAt), b.MadeBy, b.Issuer}
})

// roleText says what a binding gives.
func roleText(b v1.RoleBinding) string {
	where := "in the cluster"
	if b.Tenant != "" {
		where = "in tenant " + b.Tenant
	}
	return b.Subject.Kind + " " + oneLine(b.Subject.Name) + " has role " + b.Role + " " + where
}

func roleGrant(c *call) (any, view, error) {
	q := v1.RoleBindingRequest{Role: c.name}
	for kind, flag := range map[string]string{"user": "user", "group": "group", "token": "of-token"} {
		switch name := c.String(flag); {
		case name == "":
		case q.Subject.Name != "":
			return nil, nil, usage("role grant: name one of --user, --group and --of-token")
		default:
			q.Subject = v1.Subject{Kind: kind, Name: name}
		}
	}
	if q.Subject.Name == "" {
		return nil, nil, usage("role grant: say who gets the role, with --user, --group or --of-token")
	}
	var err error
	if q.Tenant, err = c.tenantOfRole("role grant", q.Role); err != nil {
		return nil, nil, err
	}
	b, err := c.api.GrantRole(c.ctx, q, c.opts...)
	return b, c.changed("", sentence(roleText(b))+" (binding "+b.ID+")."), err
}

// tenantOfRole is the tenant that a new token or binding with a role is of: "" for a role of the cluster, and where the server knows.
func (c *call) tenantOfRole(command, role string) (string, error) {
	switch ofTenant := slices.Contains(tenantRoles, role); {
	case ofTenant && c.tenant == client.AllTenants:
		return "", usage("%s: name one tenant with --tenant, not all", command)
	case ofTenant:
		return c.tenant, nil
	case c.IsSet("tenant") && c.String("tenant") != "":
		return "", usage("%s: role %s is of the cluster, and --tenant names a tenant: its roles are %s", command, role, strings.Join(tenantRoles, ", "))
	}
	return "", nil
}

func roleRevoke(c *call) (any, view, error) {
	b, err := c.api.RevokeRole(c.ctx, c.name, c.opts...)
	return b, c.changed("; "+roleText(b)+" by this binding", "Role binding "+b.ID+" is gone: "+strings.Replace(roleText(b), " has role ", " has by it no longer role ", 1)+"."), err
}
