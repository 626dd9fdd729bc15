package periodic

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Run is one run of something that may come again.
type Run struct {
	Owner string
	Name  string // as it was created: render-2026-11-22
	Job   string // the name of the periodic job that its owner declared; "" = none
	Kind  string // what distinguishes jobs of one name, such as the images of its groups
	Begin time.Time
	End   time.Time // zero: it still runs
}

// Key is what all runs of a job share.
type Key struct {
	Owner, Name, Kind string
	Declared          bool // Name was declared, and is no template
}

// Key returns the key of the run's job.
func (r Run) Key() Key {
	if r.Job != "" {
		return Key{Owner: r.Owner, Name: r.Job, Kind: r.Kind, Declared: true}
	}
	return Key{Owner: r.Owner, Name: Template(r.Name), Kind: r.Kind}
}

// Template returns a name without what changes from run to run: each number becomes #, and so does a date or time with its
// separators. render-2026-11-22 and render-2026-11-23 are both render-#.
func Template(name string) string {
	digit := func(i int) bool { return i < len(name) && name[i] >= '0' && name[i] <= '9' }
	var out strings.Builder
	for i := 0; i < len(name); {
		if !digit(i) {
			out.WriteByte(name[i])
			i++
			continue
		}
		for digit(i) || i < len(name) && strings.IndexByte("-_.:Tt", name[i]) >= 0 && digit(i+1) {
			i++
		}
		out.WriteByte('#')
	}
	return out.String()
}

// Job is what was found: runs that come again in one pattern.
type Job struct {
	Key
	Pattern
	// Recurrence is the pattern as a rule.
	Recurrence Recurrence
}

// Jobs groups runs by their keys, and finds the patterns of each group. Runs in the jobs' patterns are positions in runs. Where
// several jobs share a key, the one that explains most comes first.
func Jobs(runs []Run, zone *time.Location) []Job {
	groups := map[Key][]int{}
	for i, r := range runs {
		groups[r.Key()] = append(groups[r.Key()], i)
	}
	var out []Job
	for key, members := range groups {
		times := make([]time.Time, len(members))
		for i, m := range members {
			times[i] = runs[m].Begin
		}
		for _, p := range Patterns(times, zone) {
			rule := p.recurrence(times, zone)
			for i, at := range p.Runs {
				p.Runs[i] = members[at]
			}
			out = append(out, Job{Key: key, Pattern: p, Recurrence: rule})
		}
	}
	slices.SortStableFunc(out, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(len(b.Runs), len(a.Runs)))
	})
	return out
}
