package state_test

import (
	"errors"
	"testing"

	"evenkeel/cluster/state"
)

// A host that an operator cordons while it drains stays cordoned once the drain is taken back. A change of the drain that was decided
// before is refused.
func TestCordonDuringADrain(t *testing.T) {
	c := small(t, 1)
	drain := func(d state.Drain, version uint64) error {
		return c.apply(t, state.KindDrain, state.HostDrain{Host: "h1", Drain: d, Version: version})
	}
	row := func() state.Host { h, _ := c.Snapshot().Host("h1"); return h }
	if err := drain(row().BeginDrain(state.Drain{Reason: "disk"}, start, state.FormatVersion), 0); err != nil {
		t.Fatal(err)
	}
	before := row().Drain
	c.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true, Reason: "fan"})
	if err := drain(before.End(state.DrainStopped, "no time"), before.Index); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a change that was decided before the cordon: %v", err)
	}
	if err := drain(state.Drain{}, row().Drain.Index); err != nil {
		t.Fatal(err)
	}
	if h := row(); !h.Cordoned || h.CordonReason != "fan" || h.Drain != (state.Drain{}) {
		t.Errorf("%+v", h)
	}
	if c.must(t, state.KindHostCordon, state.HostCordon{Host: "h1"}); row().Cordoned {
		t.Errorf("uncordoned: %+v", row())
	}
}
