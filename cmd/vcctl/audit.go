package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// auditPoll is how often audit follow asks, and auditOverlap how far back it asks again each time: servers' clocks may
// differ so much, and a record still be found.
const (
	auditPoll    = 2 * time.Second
	auditOverlap = time.Minute
	maxAudit     = 10000 // records of one answer
)

var auditOutcome = regexp.MustCompile(`^(ok|refused|failed|[1-5][0-9][0-9])?$`)

func (t *tool) auditCommand() *cli.Command {
	filters := []cli.Flag{
		&cli.StringFlag{Name: "actor", Usage: "only of a token, by its `ID` or name, or of a client's address"},
		&cli.StringFlag{Name: "verb", Usage: "only of an operation of the API, such as `createVirtualCluster`"},
		&cli.StringFlag{Name: "object", Usage: "only about an `OBJECT`: kind, name or kind/name"},
		&cli.StringFlag{Name: "outcome", Usage: "only what is `ok`, refused, failed, or has an HTTP status"},
	}
	return &cli.Command{
		Name: "audit", Usage: "who asked for what, and what came of it",
		Description: "Every server keeps a log of changes, of reads that matter, and of what it refused; an admin's or auditor's token reads them.\n\n" +
			"Example: vcctl audit list --since 24h --outcome refused",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list audit records, newest last", ArgsUsage: " ", Action: t.action(auditList),
				Description: "The newest records that match, of all servers. It says which servers could not be asked.\n\n" +
					"Example: vcctl audit list --since 24h --object virtual-cluster/web",
				Flags: append([]cli.Flag{sortFlag,
					&cli.StringFlag{Name: "since", Usage: "only from a `TIME` on: how long ago (30m, 6h), or 2026-03-01T12:00:00Z"},
					&cli.StringFlag{Name: "until", Usage: "only before a `TIME`"},
					&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 100, Usage: "at most so many, 1 to 10000"}}, filters...)},
			{Name: "follow", Usage: "print audit records as they are written", ArgsUsage: " ", Action: t.action(auditFollow),
				Description: "Asks every two seconds until it is interrupted. With -o json it prints one object per line.\n\n" +
					"Example: vcctl audit follow --outcome refused",
				Flags: append([]cli.Flag{&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 10, Usage: "begin with the newest so many, 1 to 10000"}}, filters...)},
		},
	}
}

// auditQuery that the flags ask for.
func auditQuery(c *call) (q client.AuditQuery, err error) {
	q = client.AuditQuery{Since: c.String("since"), Until: c.String("until"), Actor: c.String("actor"), Verb: c.String("verb"), Object: c.String("object"),
		Outcome: c.String("outcome")}
	if err := checkTimes(c.Context, "since", "until"); err != nil {
		return q, err
	}
	if !auditOutcome.MatchString(q.Outcome) {
		return q, usage("--outcome %s: must be ok, refused, failed or an HTTP status", q.Outcome)
	}
	q.Limit, err = limit(c, maxAudit)
	return q, err
}

// checkTimes of flags that take a time, or how long ago it was.
func checkTimes(c *cli.Context, flags ...string) error {
	for _, name := range flags {
		text := c.String(name)
		ago, err := time.ParseDuration(text)
		if _, err2 := time.Parse(time.RFC3339, text); text != "" && err2 != nil && (err != nil || ago < 0) {
			return usage("--%s %s: must be how long ago, like 30m, or a time like 2026-03-01T12:00:00Z", name, text)
		}
	}
	return nil
}

func auditList(c *call) error {
	q, err := auditQuery(c)
	if err != nil {
		return err
	}
	a, err := c.api.Audit(c.ctx, q)
	if err != nil {
		return doing(err, "listing audit records")
	}
	value, text, err := auditTable.answer(a.Items, err)
	if !listFormat(c.format) && c.String("sort") == "" {
		value = a // with what is missing
	}
	if err := c.print(value, text); err != nil {
		return err
	}
	c.t.missing(a.Missing)
	return nil
}

// missing says on standard error what is not in an answer.
func (t *tool) missing(list []string) {
	for _, m := range list {
		t.say("vcctl: not in this list: %s\n", oneLine(m))
	}
}

var auditTable = tableOf("TIME,ACTOR,VERB,OBJECT,OUTCOME,DETAIL", "CLIENT,SERVER,NUMBER,REQUEST", func(r v1.AuditRecord) []string {
	return []string{stamp(r.At), auditActor(r.Actor), r.Verb, auditObject(r.Object), auditResult(r), r.Detail, r.Actor.Client, r.Server, strconv.FormatUint(r.Seq, 10), r.Actor.Request}
})

func auditActor(a v1.AuditActor) string {
	switch {
	case a.ID == "" && a.Client != "":
		return a.Client
	case a.Name == "":
		return a.ID
	}
	return a.Name + " (" + a.ID + ")"
}

func auditObject(o v1.AuditObject) string {
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + "/" + o.Name
}

func auditResult(r v1.AuditRecord) string {
	out := r.Outcome
	if r.Status != 0 {
		out += fmt.Sprintf(" %d", r.Status)
	}
	if r.Count > 1 {
		out += fmt.Sprintf(" x%d", r.Count)
	}
	return out
}

func auditFollow(c *call) error {
	q, err := auditQuery(c)
	if err != nil {
		return err
	}
	follow := auditFollower{seen: map[auditName]time.Time{}}
	return c.t.poll(c.ctx, auditPoll, func(bool) error {
		a, err := c.api.Audit(c.ctx, q)
		if err != nil {
			return doing(err, "following the audit log")
		}
		for _, r := range follow.news(a.Items) {
			if err := c.printEntry(r, fmt.Sprintf("%s  %s  %s  %s  %s  %s\n", stamp(r.At), oneLine(auditActor(r.Actor)), oneLine(r.Verb), oneLine(auditObject(r.Object)),
				auditResult(r), oneLine(r.Detail))); err != nil {
				return err
			}
		}
		c.t.missing(follow.unprinted(a.Missing))
		q.Since, q.Limit = follow.since(time.Now()), maxAudit
		return nil
	})
}

type auditName struct {
	server string
	seq    uint64
}

// auditFollower knows which records were printed.
type auditFollower struct {
	newest  time.Time
	seen    map[auditName]time.Time
	printed map[string]bool
}

// news are the records that were not given before.
func (f *auditFollower) news(list []v1.AuditRecord) (out []v1.AuditRecord) {
	for _, r := range list {
		name := auditName{r.Server, r.Seq}
		if _, old := f.seen[name]; old {
			continue
		}
		f.seen[name] = r.At
		out = append(out, r)
		if r.At.After(f.newest) {
			f.newest = r.At
		}
	}
	for name, at := range f.seen {
		if at.Before(f.newest.Add(-2 * auditOverlap)) {
			delete(f.seen, name)
		}
	}
	return out
}

// since when to ask next.
func (f *auditFollower) since(now time.Time) string {
	if f.newest.IsZero() {
		f.newest = now
	}
	return f.newest.Add(-auditOverlap).UTC().Format(time.RFC3339)
}

// unprinted are the notes that were not printed the last time.
func (f *auditFollower) unprinted(notes []string) (out []string) {
	now := map[string]bool{}
	for _, n := range notes {
		now[n] = true
		if !f.printed[n] {
			out = append(out, n)
		}
	}
	f.printed = now
	return out
}
