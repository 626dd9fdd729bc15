package state

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Kinds of commands, in order of their names.
func Kinds() []Kind { return slices.Sorted(maps.Keys(present.kinds)) }

// SeenAmiss returns the ids for which the cache differs from the state.
func (s *Store) SeenAmiss() (ids []string) {
	if s.cache.db != s.db {
		return nil
	}
	for id, vc := range s.cache.vcs {
		if row, _ := s.Snapshot().SharedVC(id); row != vc {
			ids = append(ids, id)
		}
	}
	kept := map[string]ownEvents{}
	each(s.Snapshot(), func(e *Event) bool { count(kept, e.OwnerOf(), e.Kind, 1); return true }, tEvents, "id")
	if s.cache.events.kept != nil && !reflect.DeepEqual(s.cache.events.kept, kept) {
		ids = append(ids, fmt.Sprintf("events %v, not %v", s.cache.events.kept, kept))
	}
	n := 0
	each(s.Snapshot(), func(*Operation) bool { n++; return true }, tOps, "id")
	if s.cache.ops != unknown && s.cache.ops != n {
		ids = append(ids, fmt.Sprintf("%d operations, not %d", n, s.cache.ops))
	}
	return ids
}

// Body returns an empty body of a kind of command.
func Body(k Kind) any { return present.kinds[k].new() }

// Tables of the saved state, in order of their names.
func Tables() []string { return slices.Sorted(maps.Keys(schema().Tables)) }

// Row returns an empty row of a table.
func Row(table string) any {
	row, err := newRow(table)
	if err != nil {
		panic(err)
	}
	return row
}

// FairLimit is fairLimit.
var FairLimit = fairLimit

// SkylineBytes is about what a skyline takes in a saved state.
func SkylineBytes(u *RunUsage) int { return u.bytes() }
