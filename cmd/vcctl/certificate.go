package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) certificatesCommand() *cli.Command {
	return &cli.Command{
		Name: "certificates", Usage: "list the certificates of members, and renew one now",
		Description: "Members renew their certificates by themselves at two thirds of their life, without a restart.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the certificates that have not expired", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag},
				Action:      t.ask("listing certificates", func(c *call) (any, view, error) { return certificateTable.answer(c.api.Certificates(c.ctx)) }),
				Description: "An older one is good until it expires, or its member is removed or let in again.\n\nExample: vcctl cluster certificates list --sort until",
			},
			{
				Name: "renew", Usage: "have a member renew its certificate now", ArgsUsage: "MEMBER", Action: t.ask("renewing the certificate of %s", func(c *call) (any, view, error) {
					got, err := c.api.RenewCertificate(c.ctx, c.name)
					return got, func(bool) string {
						return fmt.Sprintf("%s has a new certificate, until %s\n", got.Member, stamp(got.Until))
					}, err
				}),
				Description: "The member makes a new key, and its VMs and its host's lease are not touched. Its older certificates are good until they\n" +
					"expire. Where another party may have one, let the member in again, which revokes them: vcctl cluster join-token --for MEMBER.\n" +
					"A member whose certificate has expired cannot be asked: let it in again, too.\n\n" +
					"Example: vcctl cluster certificates renew h2",
			},
		},
	}
}

var certificateTable = tableOf("MEMBER,UNTIL,USE,SERIAL", "", func(c v1.Certificate) []string {
	use := "older"
	if c.Newest {
		use = "newest"
	}
	return []string{c.Member, stamp(c.Until), use, c.Serial}
})
