package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The equations one by one, with numbers that can be followed by hand.
func TestDampedEquations(t *testing.T) {
	type step struct {
		what string
		do   func(*Damped)
		want float64
	}
	observe := func(u float64) func(*Damped) { return func(d *Damped) { d.Observe(u) } }
	for name, c := range map[string]struct {
		factor float64
		steps  []step
	}{
		"the default factor": {DampingFactor, []step{
			{"placed (2)", func(d *Damped) { d.Place(8) }, 8},
			{"used 4 (1)", observe(4), 7.5}, // 7/8*8 + 1/8*4
			{"used 4 (1)", observe(4), 7.0625},
			{"placed another (2)", func(d *Damped) { d.Place(2) }, 9.0625},
			{"a spike (3)", observe(20), 20},
			{"and down (1)", observe(4), 18},
		}},
		"exit after three steps": {0.5, []step{
			{"placed (2)", func(d *Damped) { d.Place(8) }, 8},
			{"idle (1)", observe(0), 4},
			{"idle (1)", observe(0), 2},
			{"idle (1)", observe(0), 1},
			{"exit (4)", func(d *Damped) { d.Exit(8, 3) }, 0}, // 1 - (1/2)^3 * 8
		}},
		"exit of one of two": {0.5, []step{
			{"placed (2)", func(d *Damped) { d.Place(8) }, 8},
			{"used 2 (1)", observe(2), 5},
			{"placed (2)", func(d *Damped) { d.Place(4) }, 9},
			{"used 4 (1)", observe(4), 6.5},
			{"exit of the first (4)", func(d *Damped) { d.Exit(8, 2) }, 4.5},
			{"used 2 (1)", observe(2), 3.25},
		}},
		"exit after two steps": {0.125, []step{
			{"placed (2)", func(d *Damped) { d.Place(64) }, 64},
			{"idle (1)", observe(0), 56},
			{"used 8 (1)", observe(8), 50},
			{"exit (4)", func(d *Damped) { d.Exit(64, 2) }, 1}, // 50 - (7/8)^2 * 64
		}},
		"exit at once": {0.125, []step{
			{"placed (2)", func(d *Damped) { d.Place(3) }, 3},
			{"exit (4)", func(d *Damped) { d.Exit(3, 0) }, 0},
			{"exit once more", func(d *Damped) { d.Exit(3, 0) }, 0},
		}},
		"nothing measured": {0.125, []step{
			{"placed (2)", func(d *Damped) { d.Place(3) }, 3},
			{"not measured", observe(math.NaN()), 3},
		}},
		"a factor of 1 is use alone": {1, []step{
			{"placed (2)", func(d *Damped) { d.Place(3) }, 3},
			{"used 1 (1)", observe(1), 1},
		}},
		"a factor that is none": {-2, []step{{"placed (2)", func(d *Damped) { d.Place(8) }, 8}, {"used 4 (1)", observe(4), 7.5}}},
		"no factor":             {0, []step{{"placed (2)", func(d *Damped) { d.Place(8) }, 8}, {"used 4 (1)", observe(4), 7.5}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDamped(c.factor)
			if c.factor == 0 {
				d = Damped{}
			}
			for i, s := range c.steps {
				if s.do(&d); math.Abs(d.Estimate()-s.want) > 1e-12 {
					t.Fatalf("%d, %s: %v, want %v", i, s.what, d.Estimate(), s.want)
				}
			}
		})
	}
}

func TestDampedAvailable(t *testing.T) {
	for _, c := range []struct{ allowance, used, capacity, estimate, want float64 }{
		{28, 10, 32, 12, 18}, // eq. 5 binds: 28-10 against 32-12
		{28, 10, 32, 20, 12}, // eq. 6 binds: 18 against 32-20
		{28, 30, 32, 30, -2}, // overloaded
	} {
		var d Damped
		d.Place(c.estimate)
		if got := d.Available(c.allowance, c.used, c.capacity); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A host and its VMs: a VM that has come and gone leaves only what its use changed by eq. 1, and the estimate is never below use.
func TestDampedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := NewDamped(rapid.Float64Range(0.01, 1).Draw(t, "factor"))
		type vm struct {
			request float64
			since   int
		}
		var vms []vm
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			switch rapid.IntRange(0, 2).Draw(t, "event") {
			case 0:
				v := vm{rapid.Float64Range(0, 64).Draw(t, "request"), d.Steps()}
				before := d.Estimate()
				if d.Place(v.request); d.Estimate() != before+v.request {
					t.Fatalf("%v placed upon %v: %v", v.request, before, d.Estimate())
				}
				vms = append(vms, v)
			case 1:
				u := rapid.Float64Range(0, 64).Draw(t, "used")
				before := d.Estimate()
				if d.Observe(u); d.Estimate() < u || d.Estimate() > max(u, before)*(1+1e-12) {
					t.Fatalf("%v used, %v thought before: %v", u, before, d.Estimate())
				}
			case 2:
				if len(vms) > 0 {
					d.Exit(vms[0].request, d.Steps()-vms[0].since)
					vms = vms[1:]
				}
			}
			if !(d.Estimate() >= 0) {
				t.Fatalf("the estimate is %v", d.Estimate())
			}
		}
	})
}
