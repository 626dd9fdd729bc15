package placement

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
)

// The peak is what comes out when all pieces are added up at the start of each.
func TestPeakOf(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	rapid.Check(t, func(t *rapid.T) {
		var all []piece
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			from := rapid.IntRange(0, 8).Draw(t, "from")
			all = withPiece(all, piece{at(from), at(from + rapid.IntRange(0, 5).Draw(t, "for")), rapid.Float64Range(0, 64).Draw(t, "cpu"), int64(rapid.IntRange(0, 99).Draw(t, "memory"))})
		}
		var want state.Resources
		for _, x := range all {
			var sum state.Resources
			for _, p := range all {
				if !p.from.After(x.from) && x.from.Before(p.to) {
					sum.CPU, sum.Memory = sum.CPU+p.cpu, sum.Memory+p.memory
				}
			}
			want.CPU, want.Memory = max(want.CPU, sum.CPU), max(want.Memory, sum.Memory)
		}
		if got := peakOf(all); math.Abs(got.CPU-want.CPU) > 1e-12*want.CPU || got.Memory != want.Memory {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// What was added and taken again leaves nothing.
func TestPeakOfLeavesNothing(t *testing.T) {
	var all []piece
	for k := range 10_000 {
		from := time.Unix(int64(k), 0)
		all = append(all, piece{from, from.Add(time.Second), 0.1 + float64(k%7)*1e-9, 1}, piece{from, from.Add(time.Second), 1e6, 1})
	}
	if got, want := peakOf(all).CPU, 1e6+0.1+6e-9; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Beside 150 runs of 200 VMs on a host.
func BenchmarkPeakOf(b *testing.B) {
	for b.Loop() {
		var all []piece
		for k := range 150 {
			from := time.Unix(int64(600*k), 0)
			for range 200 {
				all = withPiece(all, piece{from, from.Add(10 * time.Minute), 0.25, 1 << 30})
			}
		}
		if got := peakOf(all); got.CPU != 50 {
			b.Fatal(got)
		}
	}
}
