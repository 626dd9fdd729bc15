// Package quota plays a replicated log again, entry by entry, and checks after each that no tenant went over a quota.
//
// It adds up what tenants use by itself, from the rows of the state, and compares that with what the state says. It is for tests.
package quota

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"evenkeel/cluster/state"
)

// Entry is an entry of a Raft log. Data is nil where Raft wrote it for itself.
type Entry struct {
	Index, Term uint64
	Data        []byte
}

// Log collects what servers write, each the entries that it was sent. An entry that was committed is the one of the highest term
// at its index: no leader of a later term has another one there.
type Log struct{ entries map[uint64]Entry }

// Add takes in what a server wrote.
func (l *Log) Add(e Entry) {
	if l.entries == nil {
		l.entries = map[uint64]Entry{}
	}
	if old, there := l.entries[e.Index]; !there || e.Term >= old.Term {
		l.entries[e.Index] = e
	}
}

// Report is what a check found.
type Report struct {
	Entries    int // that were played
	Grew       int // of them, those after which a tenant with a limit used more than before
	AtLimit    int // of those, where it came to use all that it may
	Refused    int // of them, those that the state refused for a quota
	Violations []string
}

// Check plays the log up to an index, or to the first index that no server wrote: a state that was restored from outside the log
// begins after it.
func (l *Log) Check(committed uint64) Report {
	c := checker{store: state.New(), before: map[string]state.Use{}}
	l.each(committed, c.play)
	return c.report
}

// each calls f with the entries that hold commands, in order.
func (l *Log) each(committed uint64, f func(Entry)) {
	next := uint64(0)
	for _, index := range slices.Sorted(maps.Keys(l.entries)) {
		if next != 0 && index != next || index > committed {
			return
		}
		next = index + 1
		if e := l.entries[index]; e.Data != nil {
			f(e)
		}
	}
}

// Applied is an entry as it was played again, with the states before and after it.
type Applied struct {
	Entry
	Command       state.Command
	Body          any
	Outcome       error // of the state machine; nil: it was taken
	Before, After *state.Snapshot
}

// Play plays the log as Check does, and calls f after each entry.
func (l *Log) Play(committed uint64, f func(Applied)) {
	store := state.New()
	l.each(committed, func(e Entry) {
		cmd, body, err := state.Decode(e.Data)
		if err != nil {
			return // Check says so
		}
		x := Applied{Entry: e, Command: cmd, Body: body, Before: store.Snapshot()}
		x.Outcome = store.Apply(e.Index, e.Data)
		x.After = store.Snapshot()
		f(x)
	})
}

type checker struct {
	store  *state.Store
	before map[string]state.Use // by tenant, after the entry before
	report Report
}

func (c *checker) violate(index uint64, format string, args ...any) {
	if len(c.report.Violations) < 10 {
		c.report.Violations = append(c.report.Violations, fmt.Sprintf("index %d: ", index)+fmt.Sprintf(format, args...))
	}
}

func (c *checker) play(e Entry) {
	cmd, body, err := state.Decode(e.Data)
	if err != nil {
		c.violate(e.Index, "%v", err)
		return
	}
	c.report.Entries++
	outcome := c.store.Apply(e.Index, e.Data)
	var over *state.QuotaError
	if errors.As(outcome, &over) {
		c.report.Refused++
	}
	s := c.store.Snapshot()
	replaced := cmd.Kind == state.KindRestore && outcome == nil
	for _, t := range s.Tenants() {
		use := Sum(s, t.Name)
		if says := s.UseOf(t.Name); !Same(use, says) {
			c.violate(e.Index, "tenant %s uses %v, the state says %v", t.Name, use, says)
		}
		grew, full := false, false
		for _, key := range state.QuotaKeys() {
			limit, limited := limitOf(s, t, key)
			if !limited || !(use[key] > c.before[t.Name][key]+slack(limit)) || key == state.QuotaQueued && !asked(body) {
				continue
			}
			grew, full = true, full || use[key] > limit-slack(limit)
			if use[key] > limit+slack(limit) && !replaced {
				c.violate(e.Index, "%s: tenant %s uses %s of quota %s, whose limit is %s; before it was %s",
					cmd.Kind, t.Name, key.Text(use[key]), key, key.Text(limit), key.Text(c.before[t.Name][key]))
			}
		}
		if grew && outcome != nil {
			c.violate(e.Index, "%s was refused (%v), and tenant %s uses more", cmd.Kind, outcome, t.Name)
		}
		if grew {
			c.report.Grew++
		}
		if full {
			c.report.AtLimit++
		}
		c.before[t.Name] = use
	}
}

// asked says whether a tenant asked for what an entry does. What the cluster evicts waits whatever the quota of what may wait.
func asked(body any) bool {
	p, is := body.(*state.Plan)
	return is && p.Operation != nil
}

// slack is by how much sums of cores may be wrong.
func slack(limit float64) float64 { return 1e-9 * max(1, limit) }

// Same says whether two sums are equal.
func Same(a, b state.Use) bool {
	for _, key := range state.QuotaKeys() {
		if d := a[key] - b[key]; d > slack(a[key]) || d < -slack(a[key]) {
			return false
		}
	}
	return true
}

// limitOf reads a limit off the rows: the tenant's own, or that of all without one.
func limitOf(s *state.Snapshot, t state.Tenant, key state.QuotaKey) (float64, bool) {
	limit, set := t.Quota[key]
	if !set && t.Name != state.DefaultTenant {
		limit, set = s.QuotaDefaults().Quota[key]
	}
	return float64(limit), set && limit != state.Unlimited
}

// Sum adds up what a tenant uses, from its virtual clusters and tokens: what docs/explanation/tenants.md says that counts.
func Sum(s *state.Snapshot, tenant string) state.Use {
	use := state.Use{}
	for _, vc := range s.VCs() {
		if of, _ := state.SplitName(vc.Name); of != tenant {
			continue
		}
		use[state.QuotaVCs]++
		if !vc.Admitted && vc.Goal == state.GoalRun {
			use[state.QuotaQueued]++
		}
		for _, g := range vc.Groups {
			img, _ := s.Image(g.Image)
			disk := g.Disk.Size
			if img.Kind == state.DiskImage {
				disk = cmp.Or(disk, img.DiskSize)
			}
			for range g.Count {
				use[state.QuotaVMs]++
				use[state.QuotaCPU] += g.CPU
				use[state.QuotaMemory] += float64(g.Memory)
				use[state.QuotaDisk] += float64(disk)
			}
			use[state.QuotaCloudInit] += float64(len(g.CloudInit.UserData) + len(g.CloudInit.MetaData) + len(g.CloudInit.NetworkConfig))
		}
	}
	for _, j := range s.PeriodicJobs() {
		if of, _ := state.SplitName(j.Name); of == tenant && j.SignOff.State == state.SignedOff {
			use[state.QuotaPeriodic]++
		}
	}
	for _, t := range s.Tokens() {
		if t.Tenant == tenant {
			use[state.QuotaTokens]++
		}
	}
	return use
}
