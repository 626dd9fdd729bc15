package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) settingsCommand() *cli.Command {
	return &cli.Command{
		Name: "settings", Usage: "show the cluster's defaults and limits, or set them", ArgsUsage: " ", Action: t.settings, Flags: []cli.Flag{watchFlag},
		Description: "Defaults of virtual clusters, when VMs move, and whose needs are estimated: moves.mode is auto (plans that are worth it are carried out), propose (they\n" +
			"wait for `vcctl plan apply`) or off. rightsizing.mode is off, shadow or on: see vcctl rightsizing status.\n\nExample: vcctl cluster settings",
		Subcommands: []*cli.Command{{
			Name: "set", Usage: "change settings", ArgsUsage: "KEY=VALUE...", Action: t.settingsSet, Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "check and change nothing"}},
			Description: "Names are those that `vcctl cluster settings` prints; durations are like 10m, sizes like 64GiB. What is not named stays. A value\n" +
				"of 0 or 0s brings a default back.\n\nExample: vcctl cluster settings set moves.mode=propose moves.period=20m",
		}},
	}
}

func (t *tool) settings(c *cli.Context) error {
	if _, err := names(c); err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	return t.show(c, func(ctx context.Context) (any, func(bool) string, error) {
		s, err := api.Settings(ctx)
		return s, func(bool) string { return settingsText(s) }, doing(err, "getting the cluster's settings")
	})
}

// settingsText shows settings; keys: those alone, or below them.
func settingsText(s v1.ClusterSettings, keys ...string) string {
	wanted := func(name string) bool {
		return len(keys) == 0 || slices.ContainsFunc(keys, func(k string) bool { return name == k || strings.HasPrefix(name, k+".") })
	}
	notes := map[string]string{ // of a value that says little by itself
		"moves.maxBytes 0":  " (what one migration sends in a period: " + s.Moves.Budget.Short() + ")",
		"moves.bandwidth 0": " (no limit)",
		"moves.total 0":     " (8, or one for every four hosts)",
	}
	if s.Moves.Bandwidth > 0 {
		notes["moves.bandwidth "+s.Moves.Bandwidth.String()] = " (per second)"
	}
	tab := newTable("SETTING", "VALUE")
	var add func(prefix string, of reflect.Value)
	add = func(prefix string, of reflect.Value) {
		for f, v := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			name = prefix + name
			text := fmt.Sprint(v.Interface())
			switch x := v.Interface().(type) {
			case v1.Size:
				if x == 0 {
					text = "0"
				}
			case []string:
				text = strings.Join(x, ",")
			}
			switch {
			case s.Moves == (v1.MoveSettings{}) && slices.Contains([]string{"placement", "moves", "rightsizing"}, name): // not shown to a token of a tenant
			case v.Kind() == reflect.Struct:
				add(name+".", v)
			case name != "moves.budget" && wanted(name): // maxBytes says it
				tab.row(name, seen(text+notes[name+" "+text], text == ""))
			}
		}
	}
	add("", reflect.ValueOf(s))
	return tab.String()
}

func (t *tool) settingsSet(c *cli.Context) error {
	pairs := c.Args().Slice()
	if len(pairs) == 0 {
		return usage("cluster settings set: name at least one setting, as KEY=VALUE")
	}
	keys := make([]string, 0, len(pairs))
	for _, p := range pairs {
		key, _, _ := strings.Cut(p, "=")
		keys = append(keys, key)
		if strings.HasPrefix(p, "-") {
			return usage("%q is no setting: write KEY=VALUE", p)
		}
	}
	patch, err := v1.ParseSettingPairs(pairs)
	if err != nil {
		var invalid *v1.Invalid
		if errors.As(err, &invalid) {
			return usage("%v", err)
		}
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	s, err := api.SetSettings(c.Context, patch, dryRun(c)...)
	if err != nil {
		return doing(err, "changing the cluster's settings")
	}
	return t.print(c, s, func(bool) string {
		text := settingsText(s, keys...)
		if c.Bool("dry-run") {
			text = "Dry run: nothing was changed. It would be:\n" + text
		}
		return text
	})
}
