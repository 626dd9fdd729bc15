package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) imageCommand() *cli.Command {
	return &cli.Command{
		Name: "image", Usage: "the image catalogue: list, add, delete",
		Description: "VC files name images of the catalogue; they never have paths.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the image catalogue", ArgsUsage: " ", Flags: []cli.Flag{watchFlag}, Action: listing(t, "images", func(ctx context.Context, api *client.Client, _ *cli.Context) ([]v1.Image, error) {
					return api.Images(ctx)
				}, imageTable),
				Description: "Example: vcctl image list",
			},
			{
				Name: "add", Usage: "enter a file on the hosts into the catalogue", ArgsUsage: "NAME", Action: t.imageAdd,
				Description: "The file is looked at, not copied: it must lie at the same path on every host.\n\n" +
					"Example: vcctl image add debian-12 --kind disk --file /var/lib/evenkeel/images/debian-12.qcow2",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "kind", Value: "disk", Usage: "disk (a qcow2 base), kernel or initrd"},
					&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "absolute path of the `FILE` on the hosts"},
					&cli.StringFlag{Name: "initrd", Usage: "kernel only: `NAME` of the initrd image it boots with"},
					&cli.StringFlag{Name: "cmdline", Usage: "kernel only: its default command `LINE`"},
					&cli.BoolFlag{Name: "dry-run", Usage: "check and change nothing"},
				},
			},
			{
				Name: "delete", Usage: "take an image out of the catalogue; the file stays", ArgsUsage: "NAME", Action: t.imageDelete,
				Description: "An image that a virtual cluster uses is not deleted (exit status 5).\n\nExample: vcctl image delete debian-12",
				Flags:       []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "check and change nothing"}},
			},
		},
	}
}

func imageTable(images []v1.Image, wide bool) string {
	heads := []string{"NAME", "KIND", "SIZE", "FILE"}
	if wide {
		heads = append(heads, "INITRD", "CMDLINE", "ADDED")
	}
	tab := newTable(heads...)
	for _, i := range images {
		row := []string{i.Name, i.Kind, i.Size.Short(), i.File}
		if wide {
			row = append(row, i.Initrd, i.Cmdline, stamp(i.AddedAt))
		}
		tab.row(row...)
	}
	return tab.String()
}

func (t *tool) imageAdd(c *cli.Context) error {
	name, err := name(c, "NAME")
	if err != nil {
		return err
	}
	if _, err := format(c); err != nil {
		return err
	}
	if c.String("file") == "" {
		return usage("image add: give the path of the file on the hosts with --file")
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	var opts []client.Option
	if c.Bool("dry-run") {
		opts = append(opts, client.DryRun())
	}
	img, err := api.AddImage(c.Context, v1.ImageSpec{Name: name, Kind: c.String("kind"), File: c.String("file"), Initrd: c.String("initrd"), Cmdline: c.String("cmdline")}, opts...)
	if err != nil {
		return doing(err, "adding image %s", name)
	}
	return t.print(c, img, func(bool) string {
		if c.Bool("dry-run") {
			return fmt.Sprintf("Dry run: image %s could be added; nothing was changed.\n", img.Name)
		}
		return fmt.Sprintf("Image %s added.\n", img.Name)
	})
}

func (t *tool) imageDelete(c *cli.Context) error {
	name, err := name(c, "NAME")
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
	text := "Image " + name + " is out of the catalogue; its file stays.\n"
	if c.Bool("dry-run") {
		opts, text = append(opts, client.DryRun()), "Dry run: nothing was changed.\n"
	}
	if err := api.DeleteImage(c.Context, name, opts...); err != nil {
		return doing(err, "deleting image %s", name)
	}
	return t.print(c, map[string]any{"name": name, "dryRun": c.Bool("dry-run")}, func(bool) string { return text })
}
