package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
)

// reconfigured runs an agent with a restartable VM and an armed watchdog, and then another agent with that configuration, which
// finds the armed watchdog by the configuration that armed it. cut is why that agent does not reach the leader; nil: it does.
func reconfigured(t *testing.T, now *wdog, as string, cut error, f func(t *testing.T, g *guarded)) {
	t.Helper()
	guard(t, &wdog{}, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		run := func(change func(*agent.Options)) (stop func()) {
			o := g.options()
			o.WatchdogAs = "dog 15s"
			change(&o)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- agent.Run(ctx, o) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
		}
		stop := run(func(*agent.Options) {})
		after(30 * time.Second)
		stop()
		if !g.wd.armed {
			t.Fatalf("watchdog: %q", g.wd.did)
		}
		g.l.renewals = nil
		g.wd.did = nil
		g.l.renewing = func() { // with the leader's lock held: what it counts on is what the agent does
			if last := g.l.renewals[len(g.l.renewals)-1]; last.Watchdog > 0 && now == nil {
				t.Errorf("the leader knows of a watchdog that is to be disarmed: %+v", last)
			}
		}
		g.l.cut(cut)
		stop = run(func(o *agent.Options) {
			o.Watchdog, o.WatchdogAs = nil, as
			if now != nil {
				o.Watchdog = now
			}
			o.Earlier = func(as string) (agent.Watchdog, error) {
				if as != "dog 15s" {
					t.Errorf("it was armed by %q", as)
				}
				return g.wd, nil
			}
		})
		f(t, g)
		stop()
		equal(t, "VMs", names(list(t, g.w)), []string{"a"})
		if g.wd.ranOut() || now != nil && now.ranOut() {
			t.Error("the host was reset")
		}
		if now != nil && now.timer != nil {
			now.timer.Stop()
		}
	})
}

// A watchdog that was taken out of the configuration while it was armed is petted until the leader knows that it counts on it
// no more, and only then disarmed.
func TestWatchdogOutOfTheConfiguration(t *testing.T) {
	reconfigured(t, nil, "", nil, func(t *testing.T, g *guarded) {
		after(time.Minute)
		if did := strings.Join(g.wd.did, " "); !strings.HasSuffix(did, "disarm") || g.wd.armed {
			t.Errorf("watchdog: %q", g.wd.did)
		}
		if len(g.l.renewals) == 0 {
			t.Error("it was disarmed without a word to the leader")
		}
	})
}

// While there is no leader it stays armed and is petted for as long as the lease lasts.
func TestWatchdogStaysArmedUnheard(t *testing.T) {
	reconfigured(t, nil, "", errCut, func(t *testing.T, g *guarded) {
		after(10 * time.Second)
		if slices.Contains(g.wd.did, "disarm") {
			t.Errorf("watchdog: %q, while the leader counts on it", g.wd.did)
		}
		g.l.cut(nil)
		after(10 * time.Second)
		if g.wd.armed {
			t.Errorf("watchdog: %q", g.wd.did)
		}
	})
}

// Another time-out, or another device, counts from when the one before it was disarmed: there is never a time-out in force
// that is longer than the one that the leader knows of.
func TestWatchdogOfAnotherConfiguration(t *testing.T) {
	now := &wdog{}
	reconfigured(t, now, "dog 60s", nil, func(t *testing.T, g *guarded) {
		after(10 * time.Second)
		if g.wd.armed || !now.armed || now.did[0] != "arm" {
			t.Errorf("the old one: %q, the new one: %q", g.wd.did, now.did)
		}
		reported := []time.Duration{}
		for _, r := range g.l.renewals {
			reported = append(reported, r.Watchdog)
		}
		if reported[0] != 0 || reported[len(reported)-1] != bite {
			t.Errorf("the leader received of %v", reported)
		}
	})
}
