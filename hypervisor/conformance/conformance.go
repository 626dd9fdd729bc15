// Package conformance is the contract of hypervisor.Host as tests: one suite
// that every implementation passes, the simulated one in milliseconds and the
// real one with QEMU guests under software emulation.
//
// An implementation's own test calls Run with a function that makes a Setup:
// a fresh host, how to describe a guest that boots, how long to wait, and what
// else the surroundings can do (restart the daemon, run a foreign VM, offer a
// second host). An ability that is nil is skipped by name, never silently.
//
// The suite boots few guests (at most two at a time, five in all without
// a second host), because a guest under emulation takes seconds. It never sleeps for a
// fixed time to let something happen: it waits for an event or a condition up
// to Setup.Wait. It never starts or configures a hypervisor itself, and it
// leaves no VM behind on a host it was given.
package conformance

import (
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// Setup is one host to test, and how to use it.
type Setup struct {
	// Host is connected and has no VM of the suite's on it.
	Host hypervisor.Host

	// Spec describes an idle VM of one vCPU, no cap, and a balloon equal to its
	// memory, that boots on Host. It has the given name and an id and
	// cluster of its own, generation 1.
	Spec func(name string) hypervisor.Spec

	// Busy changes a spec so that its guest, once booted, keeps that many
	// threads computing.
	Busy func(spec hypervisor.Spec, threads int) hypervisor.Spec

	// Wait bounds everything that a guest or a daemon does in its own time:
	// to boot, to power off, to follow its balloon. Some seconds for a
	// simulated host, minutes for emulated guests on a busy machine.
	Wait time.Duration

	// Window is how long, by the host's own clock, CPU use is measured over.
	Window time.Duration

	// Tolerance is the error allowed in a measured rate, in cores.
	// 0 means 0.1.
	Tolerance float64

	// Cores is the CPU that the suite may count on getting. No cap it expects to
	// be used in full is larger. 0 means 1.
	Cores float64

	// BalloonLow is a balloon in bytes that the guest of Spec can live with.
	// 0 means three quarters of its memory.
	BalloonLow int64

	// Link is a bandwidth in bytes/s at which a migration of a busy guest takes several passes over what the guest
	// writes meanwhile. 0 means 16 MiB/s.
	Link int64

	// Poll is the time between two looks at a condition. 0 means Wait/500,
	// at least 1 ms.
	Poll time.Duration

	Abilities
}

// Abilities are what the surroundings of a host can do beside its interface.
// Each may be nil: what needs it is then skipped and says so.
type Abilities struct {
	// Foreign runs a VM of that name that carries no mark of ours, until the
	// test ends.
	Foreign func(t *testing.T, name string)

	// RestartDaemon stops the hypervisor's daemon and starts it again, and
	// returns when it takes connections. VMs run on.
	RestartDaemon func(t *testing.T)

	// Reconnect makes another connection to the same machine as Host. The
	// suite closes it.
	Reconnect func(t *testing.T) hypervisor.Host

	// Kill ends a VM from outside as a crash of its process would.
	Kill func(t *testing.T, id string)

	// Console is what to send to a booted guest of Spec on its console, and what it says
	// in answer. Where the line echoes, Expect should be more than the echo.
	Console *Console

	// Second is another host that VMs of Host can be migrated to.
	Second *Second

	// Throttles: Host says how long VMs are held back by their caps.
	Throttles bool

	// Occupies changes a spec so that its guest, once booted, holds so many bytes besides what its kernel takes.
	Occupies func(spec hypervisor.Spec, bytes int64) hypervisor.Spec
	// Occupied is what such a guest prints on its console once it holds them. nil: it holds them once it reports the same use twice,
	// which a guest that waits for a CPU may do before.
	Occupied func(bytes int64) string
}

// Console is one exchange with a guest.
type Console struct {
	Send   string
	Expect string
}

// Second is the target of a migration.
type Second struct {
	Host    hypervisor.Host
	Address string // for hypervisor.Migration.To, as seen from the first host
	Back    string // the first host's, as seen from this one; "" = there is no way back
}

func (s Setup) filled() Setup {
	if s.Wait <= 0 {
		s.Wait = 30 * time.Second
	}
	if s.Window <= 0 {
		s.Window = 2 * time.Second
	}
	if s.Tolerance <= 0 {
		s.Tolerance = 0.1
	}
	if s.Cores <= 0 {
		s.Cores = 1
	}
	if s.Link <= 0 {
		s.Link = 16 << 20
	}
	if s.Poll <= 0 {
		s.Poll = max(s.Wait/500, time.Millisecond)
	}
	return s
}

// groups are the parts of the suite: each begins with no VM.
var groups = []struct {
	name string
	run  func(t *testing.T, s Setup)
}{
	{"NoGuest", noGuest},
	{"OneGuest", oneGuest},
	{"Memory", guestMemory},
	{"ManyVCPUs", manyVCPUs},
	{"Migration", migration},
}

// Groups are the names of the subtests of Run, each of which can run alone.
func Groups() []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// Run runs the whole suite. It calls setup once for each group of tests; each
// call returns a host with no VM of the suite's on it (it may be the same
// machine each time). What setup needs to take down it registers with t.Cleanup.
func Run(t *testing.T, setup func(t *testing.T) Setup) {
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			s := setup(t).filled()
			if s.Host == nil || s.Spec == nil || s.Busy == nil {
				t.Fatal("a Setup needs Host, Spec and Busy")
			}
			g.run(t, s)
		})
	}
}

// lacking skips a test for want of an ability, by name.
func lacking(t *testing.T, ability string) {
	t.Helper()
	t.Logf("not tested here: this setup has no ability %s", ability)
	t.SkipNow()
}
