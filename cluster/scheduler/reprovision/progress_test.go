package reprovision

import (
	"math"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// The trigger: what a run uses and asks for is more than its skyline has (sec. 7), and what it is sure of does not end it in time.
func TestJudge(t *testing.T) {
	contract := &state.SignOff{Step: 300, Cores: []float64{4, 2, 1}} // 2,100 core-seconds
	for _, c := range []struct {
		name     string
		p        Progress
		reserved float64
		demand   float64
		behind   float64
		late     bool
	}{
		{"as its skyline", Progress{Since: 5 * time.Minute, Left: 10 * time.Minute, Done: 1200, Used: 2}, 2, 2, 0, false},
		{"held back, and in time with what is reserved", Progress{Since: time.Minute, Left: time.Hour, Done: 240, Used: 4, Pending: 4}, 4, 8, 0, false},
		{"behind, and the time left is enough", Progress{Since: 5 * time.Minute, Left: 50 * time.Minute, Done: 300, Used: 2, Pending: 6, Sure: 1}, 2, 8, 900, false},
		{"behind, and the time left is not enough", Progress{Since: 5 * time.Minute, Left: 12 * time.Minute, Done: 300, Used: 2, Pending: 6, Sure: 1}, 2, 8, 900, true},
		{"the same, but it uses no more than is reserved", Progress{Since: 5 * time.Minute, Left: 12 * time.Minute, Done: 300, Used: 1}, 2, 1, 900, false},
		{"granted, and not held back any more", Progress{Since: 5 * time.Minute, Left: 12 * time.Minute, Done: 300, Used: 5}, 2, 5, 900, true},
		{"it did all that was expected, and goes on", Progress{Since: 10 * time.Minute, Left: 10 * time.Minute, Done: 2100, Used: 1, Pending: 7}, 1, 8, 0, true},
		{"beyond its skyline it is sure of its minYield", Progress{Since: 20 * time.Minute, Left: 5 * time.Minute, Done: 2000, Used: 1, Pending: 7, Sure: 1}, 1, 8, 100, false},
		{"and that may be too little", Progress{Since: 20 * time.Minute, Left: 5 * time.Minute, Done: 1700, Used: 1, Pending: 7, Sure: 1}, 1, 8, 400, true},
		{"its deadline has passed", Progress{Since: 20 * time.Minute, Left: -time.Minute, Done: 1700, Used: 1, Pending: 7, Sure: 1}, 1, 8, 400, true},
		{"the next minute has more reserved", Progress{Since: -30 * time.Second, Left: time.Hour, Used: 3, Pending: 1}, 4, 4, 0, false},
		{"no VM uses more than it declared", Progress{Since: time.Minute, Left: time.Hour, Done: 240, Used: 5, Pending: 9}, 4, 8, 0, false},
	} {
		c.p.Contract, c.p.Declared = contract, 8
		v := c.p.Judge(time.Minute)
		if v.Reserved != c.reserved || v.Demand != c.demand || math.Abs(v.Behind-c.behind) > 1e-9 || v.Late != c.late {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}
