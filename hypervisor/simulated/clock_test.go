package simulated

import (
	"slices"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

func TestVirtualClock(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	v := NewVirtual(start)
	var ran []string
	note := func(s string) func() { return func() { ran = append(ran, s+"@"+v.Now().Sub(start).String()) } }
	v.AfterFunc(2*time.Second, note("b"))
	v.AfterFunc(time.Second, func() {
		note("a")()
		v.AfterFunc(time.Second, note("c")) // due with b, made later
		v.AfterFunc(time.Hour, note("late"))
	})
	stop := v.AfterFunc(1500*time.Millisecond, note("stopped"))
	if !stop() || stop() {
		t.Error("a timer can be stopped once")
	}
	if at, ok := v.Next(); !ok || !at.Equal(start.Add(time.Second)) {
		t.Errorf("next is %v, %v", at, ok)
	}
	v.Advance(3 * time.Second)
	if want := []string{"a@1s", "b@2s", "c@2s"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	if got := v.Now().Sub(start); got != 3*time.Second {
		t.Errorf("stands at %v", got)
	}
	v.Advance(-time.Second)
	if got := v.Now().Sub(start); got != 3*time.Second {
		t.Errorf("went back to %v", got)
	}
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	steps := Steps{{At: 10 * time.Second, Cores: 1}, {At: 20 * time.Second, Cores: 0.5}}
	trace := Trace{Interval: time.Minute, Cores: []float64{1, 2}}
	for _, x := range []struct {
		w     Workload
		at    time.Duration
		cores float64
		until time.Duration
	}{
		{Constant(2), time.Hour, 2, 0},
		{steps, 0, 0, 10 * time.Second},
		{steps, 10 * time.Second, 1, 20 * time.Second},
		{steps, time.Hour, 0.5, 0},
		{Steps(nil), 0, 0, 0},
		{trace, 0, 1, time.Minute},
		{trace, 61 * time.Second, 2, 2 * time.Minute},
		{trace, 2 * time.Minute, 1, 3 * time.Minute},
		{Trace{}, time.Hour, 0, 0},
	} {
		if cores, until := x.w.Demand(x.at); cores != x.cores || until != x.until {
			t.Errorf("%T at %v: %v until %v, want %v until %v", x.w, x.at, cores, until, x.cores, x.until)
		}
	}
}

func TestFromCmdline(t *testing.T) {
	t.Parallel()
	for cmdline, want := range map[string]float64{
		"":                               4,
		"console=ttyS0 quiet":            4,
		"ek.burn=all":                    4,
		"ek.burn=0":                      0,
		"ek.burn=2":                      2,
		"ek.burn=9":                      4,
		"console=ttyS0 ek.burn=2 x=1":    2,
		"ek.burn=2 ek.duty=50":           1,
		"ek.duty=25":                     1,
		"ek.duty=0":                      4,
		"ek.duty=101":                    4,
		"ek.burn=-1":                     4,
		"ek.burn=99999999999999999999":   4,
		"ek.burn= ek.burn ek.duty=x ek.": 4,
	} {
		got, _ := FromCmdline(hypervisor.Spec{VCPUs: 4, Boot: hypervisor.Boot{Cmdline: cmdline}}).Demand(0)
		if got != want {
			t.Errorf("%q: %v cores, want %v", cmdline, got, want)
		}
	}
}
