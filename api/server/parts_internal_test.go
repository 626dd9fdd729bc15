package server

import (
	"fmt"
	"slices"
	"testing"
)

// TestListPart: which items a part has, and that of the others none is made.
func TestListPart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		asked          PartParams
		items          []string
		matches, total int
	}{
		{"all", PartParams{}, []string{"VM-0 h0", "VM-1 h1", "VM-2 h0", "VM-3 h1", "VM-4 h0"}, 0, 0},
		{"a search alone", PartParams{Search: "h1"}, []string{"VM-1 h1", "VM-3 h1"}, 0, 0},
		{"the first", PartParams{Limit: 2}, []string{"VM-0 h0", "VM-1 h1"}, 5, 5},
		{"the middle", PartParams{Limit: 2, Offset: 2}, []string{"VM-2 h0", "VM-3 h1"}, 5, 5},
		{"the end", PartParams{Limit: 2, Offset: 4}, []string{"VM-4 h0"}, 5, 5},
		{"behind the end", PartParams{Limit: 2, Offset: 9}, []string{}, 5, 5},
		{"a part of what a search finds", PartParams{Search: " H0 vm ", Limit: 1, Offset: 1}, []string{"VM-2 h0"}, 3, 5},
		{"nothing is found", PartParams{Search: "h0 h1", Limit: 2}, []string{}, 0, 5},
		{"without a limit all are answered", PartParams{Offset: 3}, []string{"VM-0 h0", "VM-1 h1", "VM-2 h0", "VM-3 h1", "VM-4 h0"}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			list, made := listPart[string](c.asked), 0
			for i := range 5 {
				text := fmt.Sprintf("VM-%d h%d", i, i%2)
				list.offer(func() string { return text }, func() string { made++; return text })
			}
			got := list.answer().Body
			if !slices.Equal(got.Items, c.items) || got.Items == nil || got.Matches != c.matches || got.Total != c.total {
				t.Errorf("%+v", got)
			}
			if made != len(c.items) {
				t.Errorf("%d items made for %d", made, len(c.items))
			}
		})
	}
}
