package reservation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// 900 reservations, 1,440 steps, 3 resources (the paper's scale test has 900 in its plan): one more.
func BenchmarkPlace(b *testing.B) {
	draw := rand.New(rand.NewPCG(1, 0))
	request := func(i int, elastic bool) Request {
		period := []int{5, 15, 30, 60, 60, 60, 360, 1440, 1440, 1440}[draw.IntN(10)]
		r := Request{Name: fmt.Sprint(i), Period: period, Phase: draw.IntN(period), Due: period, MinYield: 0.5}
		for range 1 + draw.IntN(min(60, max(1, period/4))) {
			n := 1 + draw.IntN(200)
			r.Stages = append(r.Stages, Stage{n, float64(n), float64(n) * 8})
		}
		if elastic {
			r.Elastic = &Elastic{Unit: Amount{1, 8, 1}}
		}
		return r
	}
	for _, elastic := range []bool{true, false} {
		b.Run(map[bool]string{true: "elastic", false: "rigid"}[elastic], func(b *testing.B) {
			l, err := NewLoad(Amount{1e5, 8e5, math.Inf(1)}, 1440)
			if err != nil {
				b.Fatal(err)
			}
			for i := range 900 {
				s, err := l.Place(request(i, elastic), DefaultOptions())
				if err != nil {
					b.Fatal(err)
				}
				l.Add(&s)
			}
			daily := request(900, elastic)
			daily.Period, daily.Due, daily.Phase, daily.Stages = 1440, 1440, 0, nil
			for range 60 {
				daily.Stages = append(daily.Stages, Stage{100, 100, 800})
			}
			hourly := daily
			hourly.Period, hourly.Due = 60, 60
			for _, r := range []Request{daily, hourly} {
				b.Run(fmt.Sprintf("period=%d", r.Period), func(b *testing.B) {
					for b.Loop() {
						if _, err := l.Place(r, DefaultOptions()); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// 900 slots on 100 hosts: one more, with its witness.
func BenchmarkAccept(b *testing.B) {
	draw := rand.New(rand.NewPCG(1, 0))
	a, err := New(Cluster{Steps: 1440, Hosts: hosts(100, 64, 512*gib)}, DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	request := func(i int) Request {
		period := []int{60, 360, 1440, 1440, 1440}[draw.IntN(5)]
		r := Request{Name: fmt.Sprint(i), Period: period, Phase: draw.IntN(period), Due: period, MinYield: 0.5}
		for range 1 + draw.IntN(20) {
			r.Stages = append(r.Stages, Stage{4, 4 + 4*draw.Float64(), 32 * gib})
		}
		return r
	}
	for i := range 900 {
		if _, _, err := a.Accept(request(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(a.Accepted())), "slots")
	r := request(900)
	for b.Loop() {
		if _, no, err := a.Accept(r); no != nil || err != nil {
			b.Fatal(no, err)
		}
		a.Remove(r.Name)
	}
}
