package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of the idempotency keys that are kept. A key of the API has at most 128 bytes, with its tenant 230, and an answer
// takes less than 1.5 kB with its place in the tables: all of them stay below 15 MiB. There are as many as operations,
// because the answer to a key is its operation.
const (
	keepRemembered = 24 * time.Hour
	maxRemembered  = keepOperations
	boundedSince   = 2 // version of the format that brought maxRemembered
)

const tenantEnd = "\x1f" // no header holds a control character

// KeyOfTenant is the idempotency key of a tenant's request among those of all tenants. since differs for a tenant that is made
// again under the name of a deleted one.
func KeyOfTenant(tenant string, since uint64, key string) string {
	return fmt.Sprintf("%s.%d%s%s", tenant, since, tenantEnd, key)
}

// tenantOf is the part of a key that names its tenant, "" for the default tenant.
func (r *Remembered) tenantOf() string {
	tenant, _, of := strings.Cut(r.Key, tenantEnd)
	if !of {
		return ""
	}
	return tenant
}

// forgetRemembered drops the keys of requests that are too old, and the oldest where there are too many. Every tenant keeps its
// share of maxRemembered, and more where others leave theirs: no tenant's requests push out the keys of another.
func (w *writer) forgetRemembered() {
	forgetRows(w, tIdem, func(r *Remembered) bool { return w.at.Sub(r.At) > keepRemembered })
	if w.version < boundedSince {
		return
	}
	n, by := 0, map[string][]*Remembered{}
	each(w.read(), func(r *Remembered) bool {
		n++
		by[r.tenantOf()] = append(by[r.tenantOf()], r)
		return true
	}, tIdem, "id")
	if n <= maxRemembered {
		return
	}
	var counts []int
	for _, rows := range by {
		counts = append(counts, len(rows))
	}
	limit := fairLimit(counts, maxRemembered)
	for _, tenant := range slices.Sorted(maps.Keys(by)) {
		rows := by[tenant]
		slices.SortFunc(rows, func(a, b *Remembered) int { return cmp.Compare(a.Index, b.Index) })
		for _, r := range rows[:max(0, len(rows)-limit)] {
			w.drop(tIdem, r)
		}
	}
}

// fairLimit is the largest limit for each under which all together keep at most n.
func fairLimit(counts []int, n int) int {
	slices.Sort(counts)
	for i, c := range counts {
		if share := n / (len(counts) - i); c > share {
			return share
		}
		n -= c
	}
	return n + slices.Max(counts)
}
