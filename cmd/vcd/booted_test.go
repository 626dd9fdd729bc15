package main

import "testing"

func TestBootTime(t *testing.T) {
	for _, c := range []struct {
		stat string
		want int64
	}{
		{"cpu  1 2 3\nctxt 5\nbtime 1795715000\nprocesses 9\n", 1795715000},
		{"cpu  1 2 3\n", 0},
		{"btime soon\n", 0},
		{"btime -4\n", 0},
	} {
		got := bootTime(c.stat)
		if got.IsZero() != (c.want == 0) || !got.IsZero() && got.Unix() != c.want {
			t.Errorf("%q: %v, want %d", c.stat, got, c.want)
		}
	}
}
