package leader

import (
	"errors"
	"slices"
	"testing"

	"evenkeel/cluster/state"
)

// A file, the one before it and what is in force make one spec: what only one side changed is taken, what both changed is a conflict.
func TestMerge(t *testing.T) {
	spec := func(priority int, groups ...state.Group) state.VCSpec {
		return state.VCSpec{MinYield: -1, Priority: priority, Groups: groups}
	}
	group := func(name string, count int) state.Group {
		return state.Group{Name: name, Count: count, CPU: 1, Memory: 1 << 30}
	}
	a1, a2, a3, b1 := group("a", 1), group("a", 2), group("a", 3), group("b", 1)
	for name, c := range map[string]struct {
		base, now, mine, want state.VCSpec
		kept, conflicts       []string
		force                 bool
	}{
		"nothing changed":                       {base: spec(1, a1), now: spec(1, a1), mine: spec(1, a1), want: spec(1, a1)},
		"the file":                              {base: spec(1, a1), now: spec(1, a1), mine: spec(2, a2), want: spec(2, a2)},
		"another":                               {base: spec(1, a1), now: spec(2, a2), mine: spec(1, a1), want: spec(2, a2), kept: []string{"priority", "groups[a].count"}},
		"each another field":                    {base: spec(1, a1), now: spec(2, a1), mine: spec(1, a2), want: spec(2, a2), kept: []string{"priority"}},
		"both the same":                         {base: spec(1, a1), now: spec(1, a2), mine: spec(1, a2), want: spec(1, a2)},
		"both":                                  {base: spec(1, a1), now: spec(1, a2), mine: spec(1, a3), conflicts: []string{"groups[a].count"}},
		"both, by force":                        {base: spec(1, a1), now: spec(1, a2), mine: spec(1, a3), want: spec(1, a3), force: true},
		"another, by force":                     {base: spec(1, a1), now: spec(2, a2), mine: spec(1, a1), want: spec(1, a1), force: true},
		"the file adds a group":                 {base: spec(1, a1), now: spec(1, a1), mine: spec(1, a1, b1), want: spec(1, a1, b1)},
		"another adds a group":                  {base: spec(1, a1), now: spec(1, a1, b1), mine: spec(1, a1), want: spec(1, a1, b1), kept: []string{"groups[b]"}},
		"the file removes a group":              {base: spec(1, a1, b1), now: spec(1, a1, b1), mine: spec(1, a1), want: spec(1, a1)},
		"another removes a group":               {base: spec(1, a1, b1), now: spec(1, b1), mine: spec(1, a1, b1), want: spec(1, b1), kept: []string{"groups[a]"}},
		"the file removes what another changed": {base: spec(1, a1, b1), now: spec(1, a2, b1), mine: spec(1, b1), conflicts: []string{"groups[a]"}},
		"the file changes what another removed": {base: spec(1, a1, b1), now: spec(1, b1), mine: spec(1, a2, b1), conflicts: []string{"groups[a]"}},
		"both add the same group otherwise":     {base: spec(1, b1), now: spec(1, a1, b1), mine: spec(1, a2, b1), conflicts: []string{"groups[a].count"}},
	} {
		got, kept, err := merge(&c.base, c.now, c.mine, c.force)
		var conflicts *Conflicts
		if errors.As(err, &conflicts) != (len(c.conflicts) > 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if conflicts != nil {
			if fields := names(conflicts.Fields, func(f FieldError) string { return f.Field }); !slices.Equal(fields, c.conflicts) {
				t.Errorf("%s: conflicts %v, want %v", name, fields, c.conflicts)
			}
			continue
		}
		if d := differences(&c.want, &got); len(d) > 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if fields := names(kept, func(f FieldChange) string { return f.Field }); !slices.Equal(fields, c.kept) {
			t.Errorf("%s: kept %v, want %v", name, fields, c.kept)
		}
	}
}

func names[T any](in []T, of func(T) string) (out []string) {
	for _, x := range in {
		out = append(out, of(x))
	}
	return out
}
