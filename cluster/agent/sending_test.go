package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
)

// A move that was begun is known to the next agent: if it ended without a report, all that it was allowed counts as sent, and
// the VM is not sent again under that allotment. A move that is open no more is forgotten.
func TestUncountedBytes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		kept    map[string]agent.Sending
		full    bool // the disk
		went    bool
		counted int64
	}{
		{"nothing was begun", nil, false, true, 0},
		{"it was begun", map[string]agent.Sending{"m": {Open: 5, MaxBytes: 3 * gib}}, false, false, 3 * gib},
		{"an earlier one was begun", map[string]agent.Sending{"m": {Open: 4, MaxBytes: 3 * gib}}, false, true, 0},
		{"without a limit", map[string]agent.Sending{"m": {Open: 5}}, false, false, 0},
		{"what cannot be kept is not begun", nil, true, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := withM(t)
				l := newLeader(wanted("m", moving(func(m *agent.Move) { m.MaxBytes = 5 * gib })))
				g := &guarded{w: w, l: l, keep: &memoryState{m: agent.PersistentState{Boot: "b", Sending: tc.kept}, full: tc.full}, boot: "b", zero: time.Now()}
				stop := g.start(t)
				after(10 * time.Second)
				m, _ := g.keep.Load()
				if s := m.Sending["m"]; tc.went && s != (agent.Sending{Open: 5, MaxBytes: 5 * gib}) {
					t.Errorf("on its way, kept: %+v", m.Sending)
				}
				after(30 * time.Second)
				if on(t, w, "h1") == tc.went || on(t, w, "h2") != tc.went {
					t.Errorf("it runs on h1: %v, on h2: %v", on(t, w, "h1"), on(t, w, "h2"))
				}
				reported := strings.Join(l.received(), "\n")
				if strings.Contains(reported, "m/1 stayed") == tc.went {
					t.Errorf("reported %q", reported)
				}
				counted := int64(0)
				for _, st := range l.last().Statuses {
					if st.Phase == agent.PhaseStayed {
						counted = st.Bytes
					}
				}
				if counted != tc.counted {
					t.Errorf("%d bytes are reported, not %d: %q", counted, tc.counted, reported)
				}
				l.order(func(d *agent.Desired) { d.VMs = nil })
				after(10 * time.Second)
				if m, _ := g.keep.Load(); len(m.Sending) > 0 && !tc.full {
					t.Errorf("it is over, and kept: %+v", m.Sending)
				}
				stop()
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
