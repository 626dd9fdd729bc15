package leader

import (
	"math"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/forecast"
)

// The rate of a host's clock follows from its renewals, once they have come for long enough, of one run of the machine.
func TestClockRate(t *testing.T) {
	f := newHostClocks()
	renew := func(here time.Duration, fast float64, boot string) {
		f.renewed(agent.Renewal{Host: "h", Boot: boot, At: lease.Instant(float64(here)*fast) + time.Hour}, here)
	}
	for s := time.Duration(0); s < 4*time.Minute; s += 5 * time.Second {
		renew(s, 1.001, "a")
	}
	if f.clocks["h"].known {
		t.Error("known after 4 minutes")
	}
	for s := 4 * time.Minute; s < 3*time.Hour; s += 5 * time.Second {
		renew(s, 1.001, "a")
	}
	if r := f.clocks["h"]; !r.known || math.Abs(r.value-0.001) > 1e-6 {
		t.Errorf("%+v, want 0.001", r)
	}
	renew(3*time.Hour, 1, "b")
	if f.clocks["h"].known {
		t.Error("another run of the machine has the rate of the last one")
	}
	f.renewed(agent.Renewal{Host: "old"}, time.Hour)
	if f.clocks["old"] != nil {
		t.Error("a host that does not report its clock has a rate")
	}
}

// A VM's need does not depend on how many steps of the forecast were asked for. Its buffer is that of the step that needs most.
func TestNeedByForecast(t *testing.T) {
	var ahead []forecast.Prediction
	for i := range 60 {
		ahead = append(ahead, forecast.Normal(0.5+0.01*float64(i), 0.0001*float64(i)))
	}
	last := ahead[forecast.Horizon-1]
	size := forecast.DefaultBuffer.Size(2, last)
	for _, c := range []struct {
		declared float64
		ahead    []forecast.Prediction
		want     Need
	}{
		{2, ahead[:forecast.Horizon], Need{2, last.Mean + size, size}},
		{2, ahead, Need{2, last.Mean + size, size}},
		{0.4, ahead, Need{0.4, 0.4, forecast.DefaultBuffer.Size(0.4, last)}},
		{2, nil, Need{Declared: 2}},
	} {
		n := Need{Declared: c.declared}
		n.by(c.ahead, forecast.DefaultBuffer)
		if n != c.want {
			t.Errorf("%d steps of %v: %+v, want %+v", len(c.ahead), c.declared, n, c.want)
		}
	}
}
