package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) eventsCommand() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "what happened, and with -w what happens", ArgsUsage: " ", Action: t.events,
		Description: "Prints the newest events, oldest of them first. With -w it goes on as they happen, takes a broken connection\n" +
			"up again where it ended, and with -o json prints one object per line. The filters apply to both, and come before the limit.\n\n" +
			"Example: vcctl events -w\n   vcctl events --kind 'host-*,vm-lost' --since 6h\n   vcctl events --name render-worker-0",
		Flags: []cli.Flag{watchFlag,
			&cli.Uint64Flag{Name: "after", Usage: "only events after this `NUMBER`; 0: all that are kept"},
			&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 100, Usage: "at most so many, 1 to 10000"},
			&cli.StringSliceFlag{Name: "kind", Usage: "only events of this `KIND`, as -o wide shows it; vm-* is all that begin like it; may be given many times, or with commas"},
			&cli.StringFlag{Name: "name", Usage: "only events about the object `NAME`"},
			&cli.StringFlag{Name: "since", Usage: "only from a `TIME` on: how long ago (30m, 6h), or 2026-03-01T12:00:00Z"}},
	}
}

func (t *tool) events(c *cli.Context) error {
	if _, err := names(c); err != nil {
		return err
	}
	f, err := format(c)
	if err != nil {
		return err
	}
	limit := c.Int("limit")
	if limit < 1 || limit > 10000 {
		return usage("--limit must be from 1 to 10000")
	}
	if err := checkTimes(c, "since"); err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	q := client.EventQuery{Limit: limit, Kinds: c.StringSlice("kind"), Name: c.String("name"), Since: c.String("since")}
	if c.IsSet("after") {
		n := c.Uint64("after")
		q.After = &n
	}
	answer, err := api.ListEvents(c.Context, q)
	list := answer.Items
	if err != nil {
		return doing(err, "listing events")
	}
	if !c.Bool("watch") {
		return t.print(c, items(list), func(wide bool) string {
			heads := []string{"NUMBER", "TIME", "WHAT", "NAME", "EVENT"}
			if wide {
				heads = append(heads, "KIND", "INDEX")
			}
			tab := newTable(heads...)
			for _, e := range list {
				row := []string{strconv.FormatUint(e.Seq, 10), stamp(e.At), e.Object, e.Name, e.Text}
				if wide {
					row = append(row, e.Kind, strconv.FormatUint(e.Index, 10))
				}
				tab.row(row...)
			}
			return tab.String()
		})
	}
	for _, e := range list {
		if err := t.printEvent(f, e); err != nil {
			return err
		}
	}
	q.After, q.Since = &answer.Last, "" // what comes now is newer
	if n := len(list); n == limit {     // with --after there may be more
		q.After = &list[n-1].Seq
	}
	err = api.Follow(c.Context, q, func(m client.Message) error {
		if m.Gap != nil {
			t.say("events after %d and before %d are no longer kept\n", m.Gap.After, m.Gap.Next)
			return nil
		}
		return t.printEvent(f, m.Event)
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return doing(err, "following events")
}

func (t *tool) printEvent(f string, e v1.Event) error {
	switch f {
	case formatJSON:
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return t.write(string(b) + "\n")
	case formatYAML:
		s, err := render(f, e, nil)
		if err != nil {
			return err
		}
		return t.write("---\n" + s)
	}
	return t.write(fmt.Sprintf("%d  %s  %-7s  %-24s  %s\n", e.Seq, stamp(e.At), e.Object, oneLine(e.Name), oneLine(e.Text)))
}
