package failover

import "evenkeel/cluster/lease"

// Device is the state of a host's fence device.
type Device int

const (
	NoDevice   Device = iota // there is none
	DeviceIdle               // it can be asked to turn the host off
	DeviceBusy               // it was asked, and has not answered
	DeviceRest               // it did not confirm, and is not to be asked again yet
)

// Observation is what decides about one host.
type Observation struct {
	Verdict lease.Verdict
	// Restartable says whether the host may run restartable VMs. It need not be known of a host with a lease.
	Restartable bool
	// Arriving says whether a restartable VM may have come to the host after its lease ended: see arrivals. It needs to be known
	// only where the verdict is Over.
	Arriving        bool
	FencingDisabled bool // by an operator
	Frozen          bool // during a recovery freeze
	Device          Device
	Failure         string // why the device did not confirm when it was last asked; "": it did, or was not asked
	Reported        string // why nothing proves that the host is dead, as last reported; "": it was not
}

// Step is what is done about a host.
type Step int

const (
	Nothing        Step = iota // the host has its lease, or runs nothing that depends on it
	Wait                       // for the proof, or for the fence device; or what there is to report was reported
	FenceHost                  // ask the device to turn the host off
	RecordLoss                 // record that the host is lost: it is proved
	ReportUnproved             // report that nothing proves that the host is dead
)

// String names a step.
func (s Step) String() string {
	return [...]string{"nothing", "wait", "fence the host", "record the loss", "report that it is unproved"}[s]
}

// Action is what is done about a host, and what counts as reported of it afterwards.
type Action struct {
	Step     Step
	Text     string // the proof of RecordLoss, the reason of ReportUnproved
	Reported string
}

// Plan decides about one host.
func Plan(o Observation) Action {
	v := o.Verdict
	mayFence := !o.FencingDisabled && !o.Frozen
	text := v.Text
	if o.Failure != "" {
		text += "; " + o.Failure
	}
	switch {
	case v.Leased, !o.Restartable:
		return Action{Step: Nothing}
	case v.Over && o.Arriving:
		return Action{Step: Wait}
	case v.Over:
		return Action{Step: RecordLoss, Text: v.Text}
	case v.In >= 0: // the watchdog resets the host
		return Action{Step: Wait, Reported: o.Reported}
	case o.Device == DeviceIdle && mayFence:
		return Action{Step: FenceHost, Reported: o.Reported}
	case o.Device == DeviceBusy, o.Reported == text:
		return Action{Step: Wait, Reported: o.Reported}
	default:
		return Action{Step: ReportUnproved, Text: text, Reported: text}
	}
}
