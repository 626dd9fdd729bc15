package replay

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator/rightsizing"
	"evenkeel/forecast"
)

// Asking the rightsizer only about overloaded hosts gives the same decisions as asking it about all.
func TestApartAsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, hosts := drawn(t)
		foresights := []Foresight{&Oracle{}, &Persist{}}
		p := &Rightsizing{Foresight: foresights[rapid.IntRange(0, 1).Draw(t, "foresight")], Buffer: forecast.Buffer{K1: rapid.SampledFrom([]float64{0, 0.05, 1}).Draw(t, "k1")},
			Yield: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "yield"), Trust: int32(rapid.IntRange(0, 3).Draw(t, "trust")), EmergencyEviction: rapid.Bool().Draw(t, "relief"),
			How: Enforcement{Capped: rapid.Bool().Draw(t, "capped"), Hard: rapid.Bool().Draw(t, "hard")},
			Options: rightsizing.Options{Policy: rapid.SampledFrom([]rightsizing.Policy{rightsizing.Pessimistic, rightsizing.Optimistic}).Draw(t, "policy"),
				MinAge: rapid.SampledFrom([]int64{0, 120}).Draw(t, "grace"), Rest: rapid.SampledFrom([]int64{0, 300}).Draw(t, "rest"),
				Reserve: rapid.Bool().Draw(t, "reserve"), Step: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "step")}}
		o := Options{Until: 1e5}
		apart, err := Run(w, hosts, p, o)
		if err != nil {
			t.Fatal(err)
		}
		together, err := Run(w, hosts, &alwaysAll{p}, o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(apart.PerApp, together.PerApp) || apart.Preempted != together.Preempted || apart.Kills != together.Kills || apart.QoS != together.QoS {
			t.Fatalf("other decisions: %+v, %+v", apart, together)
		}
		for _, m := range Metrics {
			if a, b := m.Of(apart), m.Of(together); math.Abs(a-b) > 1e-11*math.Abs(b) { // sums of up to 50,000 terms in another order: each rounds by 1.1e-16, twice
				t.Fatalf("%s: %v and %v", m.Name, a, b)
			}
		}
	})
}

// alwaysAll asks the rightsizer about all hosts.
type alwaysAll struct{ *Rightsizing }

func (p *alwaysAll) Begin(c *Cluster) Enforcement {
	how := p.Rightsizing.Begin(c)
	p.claims.everybody = true
	return how
}
