package migration

import "testing"

// What a plan says a group ends with differs from what its steps give by at most the share that check_test.go allows. A cap of
// 1 + 1e-9 is more than that above 1: the float nearest to it lies above it.
func TestAdjustSkipsRoundingOnly(t *testing.T) {
	for _, tt := range []struct {
		now, then float64
		steps     int
	}{
		{1, 1, 0},
		{1, 1 + 0.5e-9, 0},
		{1, 1 + 1e-9, 1},
		{1, 1 + 2e-9, 1},
		{1, 1 - 1e-12, 1}, // a cap that shrinks always does: what grows may need it
		{0, 1e-12, 1},
	} {
		p := Problem{Hosts: []Host{{Name: "h", CPU: 4, Memory: 4}}, Groups: []Group{{Name: "g", Count: 1, CPU: 2, Memory: 1, Hosts: []int{0}, Bytes: []float64{1}}}}
		f, err := p.fleet()
		if err != nil {
			t.Fatal(err)
		}
		s := newSchedule(f, []float64{tt.now}, []float64{tt.then}, []int{0}, 0)
		if got := len(s.run(nil)); got != tt.steps {
			t.Errorf("%v to %v: %d steps, want %d", tt.now, tt.then, got, tt.steps)
		}
	}
}
