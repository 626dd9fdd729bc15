package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// slowLog lets something happen while leadership is checked.
type slowLog struct {
	*instantLog
	meanwhile func()
}

func (l *slowLog) Linearize(context.Context) error {
	if f := l.meanwhile; f != nil {
		l.meanwhile = nil
		f()
	}
	return nil
}

// slowDevice lets something happen while it turns a host off.
type slowDevice struct {
	device
	meanwhile func()
}

func (d *slowDevice) Off(ctx context.Context, host string) (string, error) {
	d.meanwhile()
	return d.device.Off(ctx, host)
}

// What an agent or an operator asked for in a term does not count in the next one, which may begin while the request is under
// way: no lease, no permit, no report of a host, no proof by a fence device.
func TestRequestsOfATermThatIsOver(t *testing.T) {
	d := &slowDevice{meanwhile: func() {}}
	lead(t, d, func(t *testing.T, s *site, vm state.VM) {
		log := &slowLog{instantLog: s.log}
		s.o.Log = log
		s.Service = leader.New(s.o)
		s.must(s.StartTerm(t.Context(), 1, ""))
		ctx, number := t.Context(), uint64(1)
		next := func() { number++; s.must(s.StartTerm(ctx, number, "")) }
		renewal := agent.Renewal{Host: "h1", Enforcing: true, Watchdog: dog}
		for _, c := range []struct {
			name string
			ask  func() (granted bool, err error)
		}{
			{"renewal", func() (bool, error) { g, err := s.Renew(ctx, renewal); return g.Lease > 0, err }},
			{"permit", func() (bool, error) {
				p, err := s.Permit(ctx, agent.PermitRequest{Host: "h1", Starts: []agent.Instance{{VM: vm.ID, Generation: vm.Generation}}})
				return len(p.Granted) > 0, err
			}},
		} {
			if granted, err := c.ask(); !granted || err != nil {
				t.Fatalf("%s in a term: %v, %v", c.name, granted, err)
			}
			log.meanwhile = next
			if granted, err := c.ask(); granted || !errors.Is(err, leader.ErrNoLeader) {
				t.Errorf("%s while the next term begins: %v, %v", c.name, granted, err)
			}
		}
		report := agent.Report{Host: "h1", Reach: true, Capacity: hypervisor.Capacity{CPU: 3, Memory: 8 << 30}, Allowance: agent.Limits{CPU: 3, Memory: 8 << 30}}
		s.log.before = func(kind state.Kind) {
			if s.log.before = nil; kind == state.KindHostReport {
				next()
			}
		}
		err := s.Report(ctx, report)
		v, _ := s.View(ctx, true)
		if h, _ := v.Host("h1"); !errors.Is(err, leader.ErrNoLeader) || v.HostView(h).State != "unknown" {
			t.Errorf("report while the next term begins: %v, the host is %s", err, v.HostView(h).State)
		}
		d.meanwhile = next
		_, err = s.FenceHost(ctx, "h1", false)
		if h, _ := s.o.State.Snapshot().Host("h1"); !errors.Is(err, leader.ErrNoLeader) || h.Lost.Proof != "" {
			t.Errorf("fence while the next term begins: %v, the host is lost by %q", err, h.Lost.Proof)
		}
	})
}

// A term ends also while a fence device's program hangs, so that the next one can begin. What the device proves later counts for
// nothing.
func TestTermEndsWhileADeviceHangs(t *testing.T) {
	d := &slowDevice{}
	lead(t, d, func(t *testing.T, s *site, _ state.VM) {
		ctx, cancel := context.WithCancel(t.Context())
		goOn, ended := make(chan struct{}), false
		d.meanwhile = func() { cancel(); <-goOn; ended = true }
		s.Guard(ctx)
		if ended {
			t.Error("the guard waited for a fence device that hangs")
		}
		close(goOn)
		synctest.Wait()
		if h, _ := s.o.State.Snapshot().Host("h1"); !ended || h.Lost.Proof != "" {
			t.Errorf("the device went on: %v; the host is lost by %q", ended, h.Lost.Proof)
		}
	})
}
