package failover

import (
	"context"
	"testing"
	"time"

	"evenkeel/cluster/lease"
)

// Every combination of what decides about a host, by the rule in words: a host is recorded as lost only where its lease and its
// watchdog prove it, and turned off only where nothing proves it yet, nothing forbids it, and its device is idle.
func TestPlan(t *testing.T) {
	leased := lease.Verdict{Leased: true, In: -1, Text: "it holds a lease"}
	over := lease.Verdict{Over: true, Text: "its lease ended"}
	soon := lease.Verdict{In: 5 * time.Second, Text: "its watchdog turns it off within 5s"}
	never := lease.Verdict{In: -1, Text: "no watchdog"}
	all := 0
	for _, v := range []lease.Verdict{leased, over, soon, never} {
		for bits := range 16 {
			for device := NoDevice; device <= DeviceRest; device++ {
				for _, failure := range []string{"", "no answer"} {
					for _, reported := range []string{"", "no watchdog", "no watchdog; no answer"} {
						o := Observation{Verdict: v, Restartable: bits&1 != 0, Arriving: bits&2 != 0, FencingDisabled: bits&4 != 0, Frozen: bits&8 != 0,
							Device: device, Failure: failure, Reported: reported}
						all++
						if got, want := Plan(o), planned(o); got != want {
							t.Errorf("%+v:\n%+v, want %+v", o, got, want)
						}
					}
				}
			}
		}
	}
	if all != 4*16*4*2*3 {
		t.Errorf("%d combinations", all)
	}
}

// planned is Plan by another way: step by step, each from the conditions of that step alone.
func planned(o Observation) Action {
	silent := !o.Verdict.Leased && o.Restartable
	unprovable := silent && !o.Verdict.Over && o.Verdict.In < 0
	why := o.Verdict.Text
	if o.Failure != "" {
		why = why + "; " + o.Failure
	}
	var steps []Action
	add := func(is bool, a Action) {
		if is {
			steps = append(steps, a)
		}
	}
	fence := unprovable && !o.FencingDisabled && !o.Frozen && o.Device == DeviceIdle
	report := unprovable && !fence && o.Device != DeviceBusy && o.Reported != why
	add(!silent, Action{Step: Nothing})
	add(silent && o.Verdict.Over && !o.Arriving, Action{Step: RecordLoss, Text: o.Verdict.Text})
	add(silent && o.Verdict.Over && o.Arriving, Action{Step: Wait})
	add(silent && o.Verdict.In > 0, Action{Step: Wait, Reported: o.Reported})
	add(fence, Action{Step: FenceHost, Reported: o.Reported})
	add(report, Action{Step: ReportUnproved, Text: why, Reported: why})
	add(unprovable && !fence && !report, Action{Step: Wait, Reported: o.Reported})
	if len(steps) != 1 {
		return Action{Text: "the rule of the test gives no single step"}
	}
	return steps[0]
}

// The cases that operators meet, by name.
func TestPlanOfKnownCases(t *testing.T) {
	never, over := lease.Verdict{In: -1, Text: "no watchdog"}, lease.Verdict{Over: true, Text: "its lease ended"}
	for _, c := range []struct {
		name string
		o    Observation
		want Step
	}{
		{"a host that renews", Observation{Verdict: lease.Verdict{Leased: true}, Restartable: true, Device: DeviceIdle}, Nothing},
		{"a silent host without restartable VMs", Observation{Verdict: over, Device: DeviceIdle}, Nothing},
		{"the watchdog has reset it", Observation{Verdict: over, Restartable: true, Device: DeviceIdle}, RecordLoss},
		{"so it has while fencing is frozen", Observation{Verdict: over, Restartable: true, Frozen: true}, RecordLoss},
		{"a VM came after the lease", Observation{Verdict: over, Restartable: true, Arriving: true}, Wait},
		{"the watchdog is about to", Observation{Verdict: lease.Verdict{In: time.Second}, Restartable: true, Device: DeviceIdle}, Wait},
		{"no watchdog, a device", Observation{Verdict: never, Restartable: true, Device: DeviceIdle}, FenceHost},
		{"the device is at work", Observation{Verdict: never, Restartable: true, Device: DeviceBusy}, Wait},
		{"the device failed", Observation{Verdict: never, Restartable: true, Device: DeviceRest, Failure: "no answer"}, ReportUnproved},
		{"that was reported", Observation{Verdict: never, Restartable: true, Device: DeviceRest, Failure: "no answer", Reported: "no watchdog; no answer"}, Wait},
		{"the device may try again", Observation{Verdict: never, Restartable: true, Device: DeviceIdle, Failure: "no answer", Reported: "no watchdog; no answer"}, FenceHost},
		{"a device during a recovery freeze", Observation{Verdict: never, Restartable: true, Frozen: true, Device: DeviceIdle}, ReportUnproved},
		{"a device while fencing is disabled", Observation{Verdict: never, Restartable: true, FencingDisabled: true, Device: DeviceIdle}, ReportUnproved},
		{"neither watchdog nor device", Observation{Verdict: never, Restartable: true}, ReportUnproved},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Plan(c.o); got.Step != c.want {
				t.Errorf("%s, want %s", got.Step, c.want)
			}
		})
	}
}

// A fence program that no signal ends does not keep for ever from reporting that nothing proves the host dead.
func TestFenceProgramThatHangs(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := New(Options{Clock: func() lease.Instant { return 0 }, Now: func() time.Time { return now }, Fence: devices{}})
	r.devices["h1"] = &deviceUse{busy: true, since: now}
	if is, why := r.device("h1"); is != DeviceBusy || why != "" {
		t.Errorf("at once: %v, %q", is, why)
	}
	now = now.Add(fenceHangs)
	is, why := r.device("h1")
	if is != DeviceRest || why != "its fence program has run since 2027-01-15T08:00:00Z and does not end" {
		t.Errorf("after %s: %v, %q", fenceHangs, is, why)
	}
	never := lease.Verdict{In: -1, Text: "no watchdog"}
	if a := Plan(Observation{Verdict: never, Restartable: true, Device: is, Failure: why}); a.Step != ReportUnproved {
		t.Errorf("it is not reported: %+v", a)
	}
}

// devices are fence devices of all hosts.
type devices struct{}

func (devices) Has(string) bool                              { return true }
func (devices) Test(context.Context, string) (string, error) { return "on", nil }
func (devices) Off(context.Context, string) (string, error)  { return "off", nil }
