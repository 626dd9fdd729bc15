package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) eventsCommand() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "what happened, and with -w what happens", ArgsUsage: " ", Action: t.action(events),
		Description: "Prints the newest events, oldest of them first. With -w it goes on as they happen, takes a broken connection\n" +
			"up again where it ended, and with -o json prints one object per line. The filters apply to both, and come before the limit.\n\n" +
			"Example: vcctl events -w\n   vcctl events --severity warning --since 24h\n   vcctl events --kind 'host-*,vm-lost' --since 6h\n   vcctl events --name render-worker-0",
		Flags: []cli.Flag{watchFlag, sortFlag,
			&cli.Uint64Flag{Name: "after", Usage: "only events after this `NUMBER`; 0: all that are kept"},
			&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 100, Usage: "at most so many, 1 to 10000"},
			&cli.StringSliceFlag{Name: "kind", Usage: "only events of this `KIND`, as the list shows it; vm-* is all that begin like it; may be given many times, or with commas"},
			&cli.StringFlag{Name: "severity", Usage: "only events that are at least so severe: `info`, warning or critical"},
			&cli.StringFlag{Name: "name", Usage: "only events about the object `NAME`"},
			&cli.StringFlag{Name: "since", Usage: "only from a `TIME` on: how long ago (30m, 6h), or 2026-03-01T12:00:00Z"}},
	}
}

var eventTable = tableOf("TIME,SEVERITY,KIND,NAME,EVENT", "NUMBER,WHAT,INDEX", func(e v1.Event) []string {
	return []string{stamp(e.At), e.Severity, e.Kind, e.Name, e.Text, strconv.FormatUint(e.Seq, 10), e.Object, strconv.FormatUint(e.Index, 10)}
})

// maxEvents of one answer.
const maxEvents = 10000

func events(c *call) error {
	wanted, err := limit(c, maxEvents)
	if err != nil {
		return err
	}
	if err := checkTimes(c.Context, "since"); err != nil {
		return err
	}
	if s := c.String("severity"); s != "" && !slices.Contains(v1.Severities, s) {
		return usage("--severity %s: must be %s", s, strings.Join(v1.Severities, ", "))
	}
	if c.Bool("watch") && (listFormat(c.format) || c.String("sort") != "") {
		return usage("-w goes on without an end: it takes neither --sort nor the formats of lists")
	}
	q := client.EventQuery{Limit: wanted, Kinds: c.StringSlice("kind"), Name: c.String("name"), Since: c.String("since"), Severity: c.String("severity")}
	if c.IsSet("after") {
		n := c.Uint64("after")
		q.After = &n
	}
	answer, err := c.api.ListEvents(c.ctx, q)
	list := answer.Items
	if err != nil {
		return doing(err, "listing events")
	}
	if !c.Bool("watch") {
		value, text, _ := eventTable.answer(list, nil)
		return c.print(value, text)
	}
	printEvent := func(e v1.Event) error {
		return c.printEntry(e, fmt.Sprintf("%s  %-8s  %-16s  %-24s  %s\n", stamp(e.At), e.Severity, oneLine(e.Kind), oneLine(e.Name), oneLine(e.Text)))
	}
	for _, e := range list {
		if err := printEvent(e); err != nil {
			return err
		}
	}
	q.After, q.Since = &answer.Last, "" // what comes now is newer
	if n := len(list); n == wanted {    // with --after there may be more
		q.After = &list[n-1].Seq
	}
	missing := false
	err = c.api.Follow(c.ctx, q, func(m client.Message) error {
		if m.Gap != nil { // kinds with many events leave many
			if !missing {
				c.t.say("some events after %d are no longer kept\n", m.Gap.After)
			}
			missing = true
			return nil
		}
		return printEvent(m.Event)
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return doing(err, "following events")
}
