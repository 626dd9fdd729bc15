package state

import (
	"fmt"
	"maps"
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
	n := 0
	each(s.Snapshot(), func(*Operation) bool { n++; return true }, tOps, "id")
	if s.cache.ops != unknown && s.cache.ops != n {
		ids = append(ids, fmt.Sprintf("%d operations, not %d", n, s.cache.ops))
	}
	return ids
}
