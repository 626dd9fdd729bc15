package chaos

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestPlan: the faults follow from the seed, every kind has its turn, and each can be carried out.
func TestPlan(t *testing.T) {
	names := []string{"h1", "h2", "h3"}
	plan := Plan(7, Kinds, names, 10*time.Minute)
	if !reflect.DeepEqual(plan, Plan(7, Kinds, names, 10*time.Minute)) {
		t.Error("two plans of a seed differ")
	}
	if reflect.DeepEqual(plan, Plan(8, Kinds, names, 10*time.Minute)) {
		t.Error("plans of two seeds are the same")
	}
	if short := Plan(7, Kinds, names, time.Minute); len(short) == 0 || !reflect.DeepEqual(short, plan[:len(short)]) {
		t.Error("a shorter run does not begin as a longer one does")
	}
	kinds := map[string]int{}
	for n, f := range plan {
		kinds[f.Kind]++
		if f.N != n+1 || f.For <= 0 || f.At < 0 || f.At >= 10*time.Minute || n > 0 && f.At < plan[n-1].At {
			t.Errorf("fault %d: %s at %v, number %d", n, f, f.At, f.N)
		}
		if (f.What == "one-way" || f.What == "pair") && (f.Peer == "" || f.Peer == f.On) {
			t.Errorf("fault %d: %s", n, f)
		}
		if f.Kind == "stop" && (f.For < time.Second || f.For > 28*time.Second) {
			t.Errorf("fault %d: %s", n, f)
		}
	}
	lowest, limit := len(plan), 0
	for _, k := range Kinds {
		lowest, limit = min(lowest, kinds[k]), max(limit, kinds[k])
	}
	if lowest == 0 || limit-lowest > 1 {
		t.Errorf("faults by kind: %v", kinds)
	}
	for _, f := range Plan(7, []string{"net"}, names, 10*time.Minute) {
		if f.Kind != "net" {
			t.Errorf("only the network was to be disturbed: %s", f)
		}
	}
}

// TestParseKinds reads what an operator writes.
func TestParseKinds(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{{"", Kinds}, {"all", Kinds}, {"kill", []string{"kill"}}, {"net, kill,net", []string{"net", "kill"}}, {"kill,fire", nil}} {
		got, err := ParseKinds(c.text)
		if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%q: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}
