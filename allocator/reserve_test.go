package allocator_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

func TestReserve(t *testing.T) {
	of := func(deficit ...int64) (r allocator.Reserve[int64]) {
		for _, x := range deficit {
			r.Add(x)
		}
		return r
	}
	changed := func(r allocator.Reserve[int64], from, to int64) allocator.Reserve[int64] {
		r.Change(from, to)
		return r
	}
	for name, c := range map[string]struct {
		r              allocator.Reserve[int64]
		largest, bytes int64
	}{
		"of no VMs":                            {of(), 0, 0},
		"of those who have all, or more":       {of(0, -5), 0, 0},
		"the largest of few":                   {of(3, 8, 5), 8, 8},
		"four equal ones are just the largest": {of(8, 8, 8, 8), 8, 8},
		"a quarter of many":                    {of(8, 8, 8, 8, 8), 8, 10},
		"no less than a quarter":               {of(8, 8, 8, 8, 7), 8, 10},
		"the next where the largest has all":   {changed(of(8, 5, 3), 8, 0), 5, 5},
		"and where it has some":                {changed(of(8, 5, 3), 8, 6), 6, 6},
		"of two equal ones one has all":        {changed(of(8, 8), 8, 0), 8, 8},
		"another has all":                      {changed(of(8, 8, 8, 8, 8, 4), 4, 0), 8, 10},
		"another lacks more":                   {changed(of(8, 5), 5, 9), 9, 9},
		"one comes":                            {of(8, 5).With(20), 20, 20},
	} {
		if c.r.Largest() != c.largest || c.r.Bytes() != c.bytes {
			t.Errorf("%s: largest %d, in all %d, want %d and %d", name, c.r.Largest(), c.r.Bytes(), c.largest, c.bytes)
		}
	}
	for name, c := range map[string]struct {
		r             allocator.Reserve[int64]
		deficit, free int64
		want          int64
	}{
		"no other VM is short":                   {of(8), 8, 5, 5},
		"all that is left beside another":        {of(8, 6), 8, 9, 3},
		"another than the largest":               {of(8, 6), 6, 9, 1},
		"as large as another":                    {of(8, 8), 8, 9, 1},
		"its own is no obstacle":                 {of(8), 8, 3, 3},
		"beside a quarter of what is left":       {of(8, 8, 8, 8, 8, 8, 8, 8), 8, 19, 4}, // 4 + (64-4)/4 = 19
		"not where the quarter is short":         {of(8, 8, 8, 8, 8, 8, 8, 8), 8, 16, 0},
		"not where another's is":                 {of(8, 6), 6, 7, 0},
		"not where more is in use than there is": {of(8), 8, -3, 0},
	} {
		if got := c.r.MaxGrant(c.deficit, c.free); got != c.want {
			t.Errorf("%s: %d may be given, want %d", name, got, c.want)
		}
	}
}

// The reserve is never less than what any one VM may take back, nor than a quarter of what all may; it is no more than that as long as no
// VM's deficit was lowered. With LargestOnly the quarter goes from all of that, and nothing else. What MaxGrant allows a VM leaves the reserve for the others, and for all together.
func TestReserveLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := allocator.Reserve[int64]{LargestOnly: rapid.Bool().Draw(t, "largest only")}
		var deficit []int64
		exact := true
		kept := func() (bytes int64) { // as it is said
			sum := int64(0)
			for _, x := range deficit {
				sum += x
				bytes = max(bytes, x)
			}
			if r.LargestOnly {
				return bytes
			}
			return max(bytes, (sum+3)/4)
		}
		amount := rapid.Int64Range(0, 12)
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			if len(deficit) > 0 && rapid.IntRange(0, 2).Draw(t, "change") == 0 {
				i, to := rapid.IntRange(0, len(deficit)-1).Draw(t, "VM"), amount.Draw(t, "to")
				exact = exact && to >= deficit[i]
				r.Change(deficit[i], to)
				deficit[i] = to
			} else {
				x := amount.Draw(t, "lacks")
				r.Add(x)
				deficit = append(deficit, x)
			}
			limit := slices.Max(deficit)
			switch bytes := r.Bytes(); {
			case bytes < kept():
				t.Fatalf("%d are kept for %v", bytes, deficit)
			case exact && bytes > kept():
				t.Fatalf("%d are kept for %v, fewer would do", bytes, deficit)
			case r.Largest() < limit || exact && r.Largest() != limit:
				t.Fatalf("the largest of %v is %d", deficit, r.Largest())
			}
		}
		if len(deficit) == 0 {
			return
		}
		i, free := rapid.IntRange(0, len(deficit)-1).Draw(t, "grows"), rapid.Int64Range(-5, 40).Draw(t, "free")
		own := deficit[i]
		fits := func(d int64) bool { // what is kept for it alone may be short
			sum, others := -d, int64(0)
			for k, x := range deficit {
				sum += x
				if k != i {
					others = max(others, x)
				}
			}
			return d+others <= free && (r.LargestOnly || 4*(max(free, own)-d) >= sum)
		}
		d := min(own, r.MaxGrant(own, free))
		if d > 0 && !fits(d) {
			t.Fatalf("of %v number %d may be given %d where %d are free", deficit, i, d, free)
		}
		if exact && d < own && fits(d+1) {
			t.Fatalf("of %v number %d may be given no more than %d where %d are free", deficit, i, d, free)
		}
		before := kept()
		r.Change(own, own-d)
		deficit[i] -= d
		if r.Bytes() < kept() {
			t.Fatalf("then %d are kept for %v", r.Bytes(), deficit)
		}
		if d+kept() > max(free, before) {
			t.Fatalf("%d are kept for %v where %d are free, and %d were", kept(), deficit, free-d, before)
		}
	})
}
