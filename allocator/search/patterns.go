package search

import (
	"math/bits"
	"slices"
)

// Between equal hosts, and with the greatest load not far above the average, few
// sets of VMs are left that one host can hold: what it does not take, the others
// must, so its load and its memory have a lower limit, too. These sets, the
// patterns, are listed, and whether all VMs fit is the question whether some of
// them, one per host, cover every VM once (set partitioning).
//
// A valuation gives each item a whole number, of any sign. If no pattern is worth
// more than v, what h hosts hold is worth h v at most. So
//
//   - if all items are worth more, they do not fit (a proof that takes one
//     addition per item of a pattern to check), and
//   - if they are worth h v - slack, no pattern worth less than v - slack is used.
//
// Weights with v = the greatest load, and sizes with v = the memory are
// valuations; others come from linear programs (see master).

// pattern is a set of items that one host can hold. deficit is, per valuation, how
// much less it is worth than the most valuable: by weight, by size, by the last
// valuation that refuted a lower load.
type pattern struct {
	set     uint64
	deficit deficits
}

type deficits [3]int64

// within says whether a pattern may be used if this much may be lacking in all.
func (l *deficits) within(slack *deficits) bool {
	return l[0] <= slack[0] && l[1] <= slack[1] && l[2] <= slack[2]
}

// maxItems is up to how many VMs patterns are used: bits of a set.
const maxItems = 64

// maxPatterns bounds the memory for patterns.
const maxPatterns = 1 << 20

// catalogue lists the patterns of a model for a given load.
type catalogue struct {
	vms    []int32 // [item]: VM, largest weight first
	w, s   []int64 // [item]
	after  []int64 // [item]: weight of it and all later ones
	weight int64   // of all items
	size   int64
	hosts  int
	memory int64 // of a host

	// With rules; nil: none. Items that may not be with the item, and sets of
	// items of each of which it must be with one.
	apart []uint64
	with  [][]uint64

	load int64 // most that a host may carry
	list []pattern

	minW, minS int64
	steps      *int64
	stop       func() bool
	gaveUp     bool
	crowded    bool // gave up because there are too many
}

// patterned says whether patterns can be used for the model: what a host may
// hold must be the same for all hosts, and whatever the others hold.
func patterned(m *Model) bool {
	if r := m.Rules; r != nil && (r.Allowed != nil || m.budgeted()) {
		return false
	}
	h := len(m.CPU)
	if len(m.Weight) > maxItems || h < 2 || h > maxItems || !uniform(m.CPU) || !uniform(m.Memory) {
		return false
	}
	weight := int64(0)
	for _, w := range m.Weight {
		weight += w
	}
	// So that no sum overflows.
	return weight < unlimited/int64(h) && m.Memory[0] < unlimited/int64(h)
}

func newCatalogue(m *Model) *catalogue {
	c := &catalogue{vms: all(len(m.Weight)), hosts: len(m.CPU), memory: m.Memory[0]}
	slices.SortStableFunc(c.vms, func(a, b int32) int {
		switch {
		case m.Weight[a] > m.Weight[b]:
			return -1
		case m.Weight[a] < m.Weight[b]:
			return 1
		}
		return 0
	})
	n := len(c.vms)
	c.w, c.s, c.after = make([]int64, n), make([]int64, n), make([]int64, n+1)
	for i, vm := range c.vms {
		c.w[i], c.s[i] = m.Weight[vm], m.Size[vm]
		c.size += c.s[i]
	}
	for i := n - 1; i >= 0; i-- {
		c.after[i] = c.after[i+1] + c.w[i]
	}
	c.weight = c.after[0]
	if m.Rules != nil && m.Rules.Class != nil {
		c.rule(m)
	}
	return c
}

// rule notes which items the rules keep apart, and which must be with which.
func (c *catalogue) rule(m *Model) {
	n := len(c.vms)
	c.apart, c.with = make([]uint64, n), make([][]uint64, n)
	for i, a := range c.vms {
		for k, b := range c.vms {
			if i != k && m.apart(a, b) {
				c.apart[i] |= 1 << uint(k)
				c.apart[k] |= 1 << uint(i)
			}
		}
		for _, classes := range m.withs(a) {
			others := uint64(0)
			for k, b := range c.vms {
				if i != k && has(classes, m.Rules.Class[b]) {
					others |= 1 << uint(k)
				}
			}
			c.with[i] = append(c.with[i], others)
		}
	}
}

// accompanied says whether each item of set is with those that it must be with.
func (c *catalogue) accompanied(set uint64) bool {
	if c.with == nil {
		return true
	}
	for x := set; x != 0; x &= x - 1 {
		for _, others := range c.with[bits.TrailingZeros64(x)] {
			if others&set == 0 {
				return false
			}
		}
	}
	return true
}

// enumerate lists the patterns for loads of at most load. It reports false if
// they are too many, or the work is used up.
func (c *catalogue) enumerate(load int64, steps *int64, stop func() bool) bool {
	c.load, c.list, c.gaveUp = load, c.list[:0], false
	c.steps, c.stop = steps, stop
	others := int64(c.hosts - 1)
	c.minW, c.minS = c.weight-min(unlimited, others*load), c.size-others*c.memory
	c.grow(0, 0, 0, 0)
	return !c.gaveUp
}

// all is the set of all items.
func (c *catalogue) all() uint64 { return 1<<uint(len(c.vms)) - 1 }

// slack is what all hosts together may lack, by weight and by size.
func (c *catalogue) slack() deficits {
	return deficits{int64(c.hosts)*c.load - c.weight, int64(c.hosts)*c.memory - c.size, 0}
}

// grow lists set, of weight w and size s, and all sets with more items from on.
func (c *catalogue) grow(from int, set uint64, w, s int64) {
	*c.steps -= 2
	c.crowded = len(c.list) == maxPatterns
	if c.crowded || *c.steps < 0 || *c.steps&0xffff < 2 && c.stop != nil && c.stop() {
		c.gaveUp = true
		return
	}
	if w >= c.minW && s >= c.minS && c.accompanied(set) {
		c.list = append(c.list, pattern{set, deficits{c.load - w, c.memory - s, 0}})
	}
	// The first that is not too heavy.
	n := len(c.w)
	lo, hi := from, n
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); w+c.w[mid] > c.load {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := lo; i < n && w+c.after[i] >= c.minW && !c.gaveUp; i++ {
		if s+c.s[i] <= c.memory && (c.apart == nil || c.apart[i]&set == 0) {
			c.grow(i+1, set|1<<uint(i), w+c.w[i], s+c.s[i])
		}
	}
}

// worth is the value of a set.
func worth(value []int64, set uint64) int64 {
	v := int64(0)
	for ; set != 0; set &= set - 1 {
		v += value[bits.TrailingZeros64(set)]
	}
	return v
}

// refutes says whether the values prove that the items of left cannot be
// partitioned into as many of the listed patterns as there are hosts. Values are
// below 2^50 in size, so that no sum overflows.
func refutes(value []int64, list []pattern, which []int32, left uint64, hosts int) bool {
	limit := int64(-1) << 62
	for _, k := range which {
		limit = max(limit, worth(value, list[k].set))
	}
	return len(which) == 0 && left != 0 || len(which) > 0 && worth(value, left) > int64(hosts)*limit
}

// thin drops the patterns that the values exclude, and sets what each of the
// others lacks; it returns what all hosts together may. It reports false if the
// values refute the load.
func (c *catalogue) thin(value []int64) (slack int64, possible bool) {
	if len(c.list) == 0 {
		return 0, len(c.vms) == 0
	}
	limit := int64(-1) << 62
	for k := range c.list {
		p := &c.list[k]
		p.deficit[2] = worth(value, p.set)
		limit = max(limit, p.deficit[2])
	}
	slack = int64(c.hosts)*limit - worth(value, c.all())
	kept := c.list[:0]
	for _, p := range c.list {
		if p.deficit[2] = limit - p.deficit[2]; p.deficit[2] <= slack {
			kept = append(kept, p)
		}
	}
	c.list = kept
	return slack, slack >= 0
}
