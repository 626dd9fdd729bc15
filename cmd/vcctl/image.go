package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) imageCommand() *cli.Command {
	return &cli.Command{
		Name: "image", Usage: "the image catalogue: list, add, delete",
		Description: "VC files name images of the catalogue; they never have paths.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the image catalogue", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag}, Action: t.ask("listing images", func(c *call) (any, view, error) { return imageTable(c.tenant).answer(c.api.Images(c.ctx)) }),
				Description: "Example: vcctl image list",
			},
			{
				Name: "add", Usage: "enter a file on the hosts into the catalogue", ArgsUsage: "NAME", Action: t.ask("adding image %s", imageAdd),
				Description: "The file is looked at, not copied: it must lie at the same path on every host. With --tenant it belongs to that\n" +
					"tenant: no other one sees it, and it counts in the tenant's quotas images and disk.\n\n" +
					"Example: vcctl image add debian-12 --kind disk --file /var/lib/evenkeel/images/debian-12.qcow2",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "kind", Value: "disk", Usage: "disk (a qcow2 base), kernel or initrd"},
					&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "absolute path of the `FILE` on the hosts"},
					&cli.StringFlag{Name: "initrd", Usage: "kernel only: `NAME` of the initrd image it boots with"},
					&cli.StringFlag{Name: "cmdline", Usage: "kernel only: its default command `LINE`"},
					checkFlag,
				},
			},
			{
				Name: "delete", Usage: "take an image out of the catalogue; the file stays", ArgsUsage: "NAME", Action: t.ask("deleting image %s", imageDelete),
				Description: "An image that a virtual cluster uses is not deleted (exit status 5).\n\nExample: vcctl image delete debian-12",
				Flags:       []cli.Flag{checkFlag},
			},
		},
	}
}

// imageTable of the images that were asked for in a tenant. Those of others have their full names. To a role of a tenant, which gets
// no paths, all are its own or open to all.
func imageTable(tenant string) listView[v1.Image] {
	return tableOf("NAME,KIND,SIZE,FILE", "TENANT,INITRD,CMDLINE,ADDED", func(i v1.Image) []string {
		name := i.Name
		if i.Tenant != tenant && i.File != "" {
			name = fullName(i.Tenant, name)
		}
		return []string{name, i.Kind, i.Size.Short(), i.File, i.Tenant, i.Initrd, i.Cmdline, stamp(i.AddedAt)}
	})
}

func imageAdd(c *call) (any, view, error) {
	if c.String("file") == "" {
		return nil, nil, usage("image add: give the path of the file on the hosts with --file")
	}
	img, err := c.api.AddImage(c.ctx, v1.ImageSpec{Name: c.name, Kind: c.String("kind"), File: c.String("file"), Initrd: c.String("initrd"), Cmdline: c.String("cmdline")}, c.opts...)
	return img, func(bool) string {
		if c.dry() {
			return fmt.Sprintf("Dry run: image %s could be added; nothing was changed.\n", img.Name)
		}
		return fmt.Sprintf("Image %s added.\n", img.Name)
	}, err
}

func imageDelete(c *call) (any, view, error) {
	err := c.api.DeleteImage(c.ctx, c.name, c.opts...)
	return map[string]any{"name": c.name, "dryRun": c.dry()}, c.changed("", "Image "+fullName(c.tenant, c.name)+" is out of the catalogue; its file stays."), err
}
