package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

func settingsText(s v1.ClusterSettings) string {
	m := s.Moves
	size := func(v v1.Size) string {
		if v == 0 {
			return "0"
		}
		return v.String()
	}
	budget, link, total := size(m.MaxBytes), size(m.Bandwidth), strconv.Itoa(m.Total)
	if m.MaxBytes == 0 {
		budget += " (what one migration sends in a period: " + m.Budget.Short() + ")"
	}
	if m.Bandwidth == 0 {
		link += " (no limit)"
	} else {
		link += " (per second)"
	}
	if m.Total == 0 {
		total += " (8, or one for every four hosts)"
	}
	rows := []string{
		"minYield", fmt.Sprint(s.MinYield), "onFull", s.OnFull, "image", seen(s.Image, s.Image == ""), "pool", s.Pool, "minMemory", size(s.MinMemory),
		"maxVMs", strconv.Itoa(s.MaxVMs), "sharedPools", seen(strings.Join(s.SharedPools, ","), len(s.SharedPools) == 0),
		"moves.mode", m.Mode, "moves.period", m.Period, "moves.minResidency", m.MinResidency, "moves.coolDown", m.CoolDown, "moves.stabilizationWindow", m.StabilizationWindow,
		"moves.minGain", fmt.Sprint(m.MinGain), "moves.idleBelow", fmt.Sprint(m.IdleBelow), "moves.maxBytes", budget, "moves.perHost", strconv.Itoa(m.PerHost),
		"moves.total", total, "moves.bandwidth", link, "moves.autoConverge", strconv.FormatBool(m.AutoConverge), "moves.postCopy", strconv.FormatBool(m.PostCopy),
		"moves.copyStorage", strconv.FormatBool(m.CopyStorage),
		"moves.deadline", m.Deadline, "moves.onJoin", strconv.FormatBool(m.OnJoin),
		"rightsizing.mode", s.Rightsizing.Mode, "rightsizing.needs", s.Rightsizing.Needs, "rightsizing.aggressiveness", s.Rightsizing.Aggressiveness}
	tab := newTable("SETTING", "VALUE")
	for i := 0; i < len(rows); i += 2 {
		tab.row(rows[i], rows[i+1])
	}
	return tab.String()
}

func (t *tool) settingsSet(c *cli.Context) error {
	pairs := c.Args().Slice()
	if len(pairs) == 0 {
		return usage("cluster settings set: name at least one setting, as KEY=VALUE")
	}
	for _, p := range pairs {
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
		if c.Bool("dry-run") {
			return "Dry run: nothing was changed. It would be:\n" + settingsText(s)
		}
		return settingsText(s)
	})
}
