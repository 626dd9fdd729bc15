package leader_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// instantLog has a majority of one, and shows what is about to be recorded.
type instantLog struct {
	mu     sync.Mutex
	store  *state.Store
	n      uint64
	before func(state.Kind)
	after  func(state.Kind)
}

func (l *instantLog) Apply(_ context.Context, entry []byte) (index uint64, outcome, err error) {
	cmd, _, err := state.Decode(entry)
	if err != nil {
		return 0, nil, err
	}
	if l.before != nil {
		l.before(cmd.Kind)
	}
	index, outcome = l.put(entry)
	if l.after != nil {
		l.after(cmd.Kind)
	}
	return index, outcome, nil
}

func (l *instantLog) put(entry []byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.n, l.store.Apply(l.n, entry)
}

func (l *instantLog) Linearize(context.Context) error { return nil }
func (l *instantLog) Leads() bool                     { return true }
func (l *instantLog) Leader() string                  { return "s1" }

// device turns hosts off, and notes which.
type device struct {
	mu  sync.Mutex
	off []string
}

func (d *device) Has(string) bool                              { return true }
func (d *device) Test(context.Context, string) (string, error) { return "on", nil }
func (d *device) Off(_ context.Context, host string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = append(d.off, host)
	return "off", nil
}

type site struct {
	*leader.Service
	t   *testing.T
	log *instantLog
	o   leader.Options
}

// lead runs f on a leader that knows hosts h1 and h2 and one restartable VM, which is to start on h1.
func lead(t *testing.T, fence leader.Fence, f func(t *testing.T, s *site, vm state.VM)) {
	synctest.Test(t, func(t *testing.T) {
		store, zero := state.New(), time.Now()
		s := &site{t: t, log: &instantLog{store: store}}
		s.o = leader.Options{State: store, Log: s.log, Settings: state.DefaultSettings(), Logger: slog.New(slog.DiscardHandler), Fence: fence,
			Inspect: func(i state.Image) (state.Image, error) { return i, nil }, Clock: func() lease.Instant { return time.Since(zero) }}
		s.Service = leader.New(s.o)
		s.must(s.StartTerm(t.Context(), 1, "c1"))
		for _, h := range []string{"h1", "h2"} {
			s.report(h)
		}
		_, _, err := s.AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/tiny"}, leader.Call{})
		s.must(err)
		s.must(s.Cordon(t.Context(), "h2", true, "", false))
		r, err := s.Create(t.Context(), state.VC{Name: "r", OnHostLoss: state.RestartOnLoss, Groups: []state.Group{{Name: "g", Count: 1, CPU: 1, Memory: 1 << 30}}}, leader.Call{})
		s.must(err)
		s.must(s.Cordon(t.Context(), "h2", false, "", false))
		f(t, s, store.Snapshot().VMsOf(r.VC.ID)[0])
	})
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) report(host string) {
	s.t.Helper()
	s.must(s.Report(s.t.Context(), agent.Report{Host: host, Reach: true, Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30},
		Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Running: []agent.Instance{}}))
}

// freeze the cluster, as after a restore.
func (s *site) freeze() {
	s.t.Helper()
	var saved, delayed bytes.Buffer
	s.must(s.o.State.Snapshot().Save(&saved))
	s.must(state.PrepareRestore(&saved, &delayed, "restore", time.Now(), s.o.State.Snapshot()))
	s.must(s.o.State.Restore(&delayed))
}

// guard the hosts for so long.
func (s *site) guard(long time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), long)
	defer cancel()
	s.Guard(ctx)
	synctest.Wait()
}

const dog = 15 * time.Second

// A host that comes back while its loss is on its way into the log is granted nothing that the
// proof does not cover.
func TestNothingIsGrantedWhileALossIsRecorded(t *testing.T) {
	lead(t, nil, func(t *testing.T, s *site, vm state.VM) {
		renewal := agent.Renewal{Host: "h1", Enforcing: true, Watchdog: dog}
		_, err := s.Renew(t.Context(), renewal)
		s.must(err)
		met, granted := false, 0
		s.log.before = func(kind state.Kind) {
			if kind != state.KindHostLost || met {
				return
			}
			met = true
			if _, err := s.Renew(t.Context(), renewal); err == nil {
				p, err := s.Permit(t.Context(), agent.PermitRequest{Host: "h1", Starts: []agent.Instance{{VM: vm.ID, Generation: vm.Generation}}})
				if err == nil {
					granted = len(p.Granted)
				}
			}
		}
		s.guard(time.Minute)
		now, _ := s.o.State.Snapshot().VM(vm.ID)
		if !met || granted > 0 || now.Phase != state.Lost {
			t.Errorf("a loss was proposed: %v; starts granted meanwhile: %d; the VM is %s", met, granted, now.Phase)
		}
		if _, err := s.Renew(t.Context(), renewal); err != nil {
			t.Errorf("renewal once the loss is recorded: %v", err)
		}
	})
}

// During a recovery freeze after a restore the leader turns no host off by itself.
func TestNothingIsFencedDuringARecoveryFreeze(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		d := &device{}
		lead(t, d, func(t *testing.T, s *site, vm state.VM) {
			if frozen {
				s.freeze()
			}
			s.guard(5 * time.Minute)
		})
		if fenced := len(d.off) > 0; fenced == frozen {
			t.Errorf("held %v: turned off: %q", frozen, d.off)
		}
	}
}

// A leader with shorter leases than the one before it waits for the end of those that were granted.
func TestLeasesOfAnotherLeaderAreLonger(t *testing.T) {
	lead(t, nil, func(t *testing.T, s *site, vm state.VM) {
		_, err := s.Renew(t.Context(), agent.Renewal{Host: "h1", Enforcing: true, Watchdog: dog})
		s.must(err)
		s.o.Lease = 4 * time.Second
		s.Service = leader.New(s.o)
		s.must(s.StartTerm(t.Context(), 2, ""))
		s.guard(leader.DefaultLease + dog)
		if now, _ := s.o.State.Snapshot().VM(vm.ID); now.Phase == state.Lost {
			t.Fatal("lost before the lease and the watchdog of the host are over")
		}
		// Its next renewal is answered, but what it holds is still the longer one.
		_, err = s.Renew(t.Context(), agent.Renewal{Host: "h1", Enforcing: true, Watchdog: dog, Left: leader.DefaultLease})
		s.must(err)
		s.guard(leader.DefaultLease + dog)
		if now, _ := s.o.State.Snapshot().VM(vm.ID); now.Phase == state.Lost {
			t.Fatal("lost before the lease that the host said it holds is over")
		}
		s.guard(10 * time.Second)
		if now, _ := s.o.State.Snapshot().VM(vm.ID); now.Phase != state.Lost {
			t.Errorf("the VM is %s", now.Phase)
		}
	})
}

// A migration that was under way when a snapshot was restored is over before the recovery freeze is: before that neither of its
// hosts can report where the VM runs.
func TestRecoveryFreezeWaitsForMigrations(t *testing.T) {
	lead(t, nil, func(t *testing.T, s *site, vm state.VM) {
		s.freeze()
		m, _ := s.o.State.Snapshot().Meta()
		report := func(host string, running ...agent.Instance) {
			s.must(s.Report(t.Context(), agent.Report{Host: host, Reach: true, Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30}, Epoch: m.Epoch,
				Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Running: append([]agent.Instance{}, running...)}))
		}
		here := agent.Instance{VM: vm.ID, Generation: vm.Generation}
		leaving, coming := here, here
		leaving.Leaving, coming.Incoming = true, true
		report("h1", leaving)
		report("h2", coming)
		if m, _ := s.o.State.Snapshot().Meta(); len(m.RecoveryFreeze.Pending) != 2 {
			t.Fatalf("waits for %q only", m.RecoveryFreeze.Pending)
		}
		report("h2", here)
		report("h1")
		now, _ := s.o.State.Snapshot().VM(vm.ID)
		if m, _ := s.o.State.Snapshot().Meta(); m.RecoveryFreeze.On() || now.Host != "h2" || now.Phase != state.Running {
			t.Errorf("hold %+v, VM %+v", m.RecoveryFreeze, now)
		}
	})
}
