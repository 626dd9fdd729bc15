package search

import "slices"

// memo remembers sets of items that did not fit into the hosts that were left,
// with the most money for which that is known.
type memo struct {
	width   int
	keys    []uint64 // slots of words
	money   []int64
	used    []bool
	count   int
	scratch []uint64

	first struct { // the room to begin with
		used  [32]bool
		money [32]int64
		keys  [32 * 2]uint64
	}
}

// maxMemo bounds the memory of a memo, in words of its keys.
const maxMemo = 1 << 24

func (t *memo) reset(width int) {
	if t.count > 0 {
		clear(t.used)
	}
	t.width, t.count = width, 0
	t.scratch = resize(t.scratch, width)
	if len(t.used) == 0 {
		t.used, t.money, t.keys = t.first.used[:], t.first.money[:], t.first.keys[:]
	}
	if len(t.used) > 1<<12 { // a large table is dear to clear
		t.used = t.used[:64]
		clear(t.used)
	}
	t.keys, t.money = resize(t.keys, len(t.used)*width), resize(t.money, len(t.used))
}

func (t *memo) key(left []uint64, kinds []kind) uint64 {
	copy(t.scratch, left)
	for k := range kinds {
		t.scratch[len(left)+k] = uint64(kinds[k].used)
	}
	h := uint64(0x9e3779b97f4a7c15)
	for _, x := range t.scratch {
		h ^= x
		h *= 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

// slot finds the key in scratch, or the free slot for it.
func (t *memo) slot(h uint64) int {
	mask := uint64(len(t.used) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if !t.used[i] || slices.Equal(t.keys[int(i)*t.width:int(i+1)*t.width], t.scratch) {
			return int(i)
		}
	}
}

func (t *memo) failed(left []uint64, kinds []kind, money int64) bool {
	i := t.slot(t.key(left, kinds))
	return t.used[i] && money <= t.money[i]
}

func (t *memo) add(left []uint64, kinds []kind, money int64) {
	if 2*t.count >= len(t.used) {
		if len(t.used)*t.width >= maxMemo {
			return
		}
		old := *t
		t.used = make([]bool, 4*len(old.used))
		t.keys = make([]uint64, len(t.used)*t.width)
		t.money = make([]int64, len(t.used))
		for i := range old.used {
			if !old.used[i] {
				continue
			}
			copy(t.scratch, old.keys[i*t.width:(i+1)*t.width])
			h := uint64(0x9e3779b97f4a7c15)
			for _, x := range t.scratch {
				h ^= x
				h *= 0xff51afd7ed558ccd
				h ^= h >> 32
			}
			s := t.slot(h)
			t.used[s], t.money[s] = true, old.money[i]
			copy(t.keys[s*t.width:], t.scratch)
		}
	}
	i := t.slot(t.key(left, kinds))
	if !t.used[i] {
		t.used[i] = true
		copy(t.keys[i*t.width:], t.scratch)
		t.count++
		t.money[i] = money
	}
	t.money[i] = max(t.money[i], money)
}
