package leader_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

// play is what a cluster goes through whose settings are the defaults but for a change. It returns what a user sees that depends on
// the change, as a text.
type play func(t *testing.T, change func(*state.Settings)) string

// settingsThatAct has a row for each setting, by its name.
var settingsThatAct = map[string]struct {
	change        func(*state.Settings) // of this setting alone
	play          play
	before, after string // what the play returns without the change, and with it
}{
	"minYield":  {func(s *state.Settings) { s.MinYield = 0.9 }, asked(vc("x", 1, 4, 512<<20)), "running", "queued"},
	"onFull":    {func(s *state.Settings) { s.OnFull = state.Reject }, asked(vc("x", 1, 1, 6<<30)), "queued", "refused"},
	"image":     {func(s *state.Settings) { s.Image = "other" }, ordered(func(s hypervisor.Spec) string { return s.Boot.Kernel }), "/tiny", "/other"},
	"pool":      {func(s *state.Settings) { s.Pool = "fast" }, ordered(func(s hypervisor.Spec) string { return s.Disk.Pool }), "default", "fast"},
	"minMemory": {func(s *state.Settings) { s.MinMemory = 1 << 30 }, asked(vc("x", 1, 1, 512<<20)), "running", "invalid: groups[0].memory"},
	"maxVMs":    {func(s *state.Settings) { s.MaxVMs = 1 }, asked(vc("x", 2, 1, 512<<20)), "running", "invalid: groups[0].count"},
	"placement": {func(s *state.Settings) { s.Placement = state.Pack }, placed, "on 2 hosts", "on 1 hosts"},
	"sharedPools": {func(s *state.Settings) { s.SharedPools = []string{"default"} }, asked(onDisk(restarted(vc("x", 1, 1, 512<<20)))),
		"invalid: groups[0].disk", "running"},
	"networks": {func(s *state.Settings) { s.Networks = []string{"lab=film"} }, asked(onNetwork(vc("x", 1, 1, 512<<20), "lab")), "running", "invalid: groups[0].network"},
	"pools":    {func(s *state.Settings) { s.Pools = []string{"fast=film"} }, asked(inPool(vc("x", 1, 1, 512<<20), "fast")), "running", "invalid: groups[0].disk.pool"},

	"moves.mode":                {func(s *state.Settings) { s.Moves.Mode = state.MovesPropose }, crowded(4), "running after 1m0s", "proposed after 1m0s"},
	"moves.period":              {func(s *state.Settings) { s.Moves.Period = minutes(4) }, joined, "running after 9m0s", "running after 3m0s"},
	"moves.minResidency":        {func(s *state.Settings) { s.Moves.MinResidency = minutes(4) }, drained, "running after 10m0s", "running after 4m0s"},
	"moves.coolDown":            {func(s *state.Settings) { s.Moves.CoolDown = minutes(5) }, balanced, "running after 30m0s", "running after 5m0s"},
	"moves.stabilizationWindow": {func(s *state.Settings) { s.Moves.StabilizationWindow = minutes(3) }, crowded(4), "running after 1m0s", "running after 3m0s"},
	"moves.minGain":             {func(s *state.Settings) { s.Moves.MinGain = 0.01 }, crowded(2.1), "never", "running after 1m0s"},
	"moves.idleBelow":           {func(s *state.Settings) { s.Moves.IdleBelow = 0.9 }, crowded(3), "running after 1m0s", "never"},
	"moves.maxBytes":            {func(s *state.Settings) { s.Moves.MaxBytes = 1 << 20 }, crowded(4), "running after 1m0s", "never"},
	"moves.perHost":             {func(s *state.Settings) { s.Moves.PerHost = 1 }, together, "2 at once", "1 at once"},
	"moves.total":               {func(s *state.Settings) { s.Moves.Total = 1 }, together, "2 at once", "1 at once"},
	"moves.bandwidth":           {func(s *state.Settings) { s.Moves.Bandwidth = 16 << 20 }, migrated(0, 0), "done in 8s", "done in 32s"},
	"moves.autoConverge":        {func(s *state.Settings) { s.Moves.AutoConverge = true }, migrated(64<<20, 0), "failed in 34s", "done in 32s"},
	"moves.postCopy":            {func(s *state.Settings) { s.Moves.PostCopy = true }, migrated(64<<20, 0), "failed in 34s", "done in 8s"},
	"moves.copyStorage":         {func(s *state.Settings) { s.Moves.CopyStorage = true }, migrated(0, 1<<30), "none", "done in 8s"},
	"moves.deadline":            {func(s *state.Settings) { s.Moves.Deadline = 5000 }, migrated(0, 0), "done in 8s", "failed in 5s"},
	"moves.onJoin":              {func(s *state.Settings) { s.Moves.OnJoin = true }, joined, "running after 9m0s", "running after 1m0s"},

	"periodic.reprovision": {func(s *state.Settings) { s.Periodic.Reprovision = 0 }, delayed, "sure of 2.0 cores", "sure of its minYield"},

	"rightsizing.mode":  {func(s *state.Settings) { s.Rightsizing.Mode = state.RightsizingOn }, rightsized("", state.NeedsEstimated), "1.0 cores", "0.2 cores"},
	"rightsizing.needs": {func(s *state.Settings) { s.Rightsizing.Needs = state.NeedsEstimated }, rightsized(state.RightsizingOn, ""), "1.0 cores", "0.2 cores"},
	"rightsizing.aggressiveness": {func(s *state.Settings) { s.Rightsizing.Aggressiveness = state.Conservative }, rightsized(state.RightsizingOn, state.NeedsEstimated),
		"0.2 cores", "0.4 cores"},
	"rightsizing.disabledStages": {func(s *state.Settings) { s.Rightsizing.DisabledStages = []string{state.StageForecast} },
		rightsized(state.RightsizingOn, state.NeedsEstimated), "0.2 cores", "1.0 cores"},
}

// A change of a setting changes what the cluster does: a setting that is stored and ignored fails here.
func TestEachSettingActs(t *testing.T) {
	defaults := valuesOf(state.DefaultSettings())
	for key := range defaults {
		if _, ok := settingsThatAct[key]; !ok {
			t.Errorf("setting %s has no row in settingsThatAct: play what depends on it", key)
		}
	}
	for key, row := range settingsThatAct {
		set := state.DefaultSettings()
		row.change(&set)
		now := valuesOf(set)
		var changes []string
		for other := range now {
			if now[other] != defaults[other] {
				changes = append(changes, other)
			}
		}
		if !slices.Equal(changes, []string{key}) {
			t.Errorf("the row of %s changes %v", key, changes)
			continue
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			if seen := row.play(t, func(*state.Settings) {}); seen != row.before {
				t.Errorf("%s has its default: %s, want %s", key, seen, row.before)
			}
			if seen := row.play(t, row.change); seen != row.after || seen == row.before {
				t.Errorf("%s is changed to %s: %s, want %s", key, now[key], seen, row.after)
			}
		})
	}
}

// valuesOf settings, by the names that people write.
func valuesOf(s state.Settings) map[string]string {
	out := map[string]string{}
	var add func(prefix string, of reflect.Value)
	add = func(prefix string, of reflect.Value) {
		for f, v := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if v.Kind() == reflect.Struct {
				add(prefix+name+".", v)
			} else if d, ok := v.Interface().(state.Millis); ok {
				out[prefix+name] = d.Duration().String()
			} else {
				out[prefix+name] = fmt.Sprint(v)
			}
		}
	}
	add("", reflect.ValueOf(s))
	return out
}

func minutes(n int) state.Millis {
	return state.Millis(time.Duration(n) * time.Minute / time.Millisecond)
}

// hosts plays on h1 and other hosts.
func hosts(others []string, f func(c *crew) string) play {
	return func(t *testing.T, change func(*state.Settings)) (seen string) {
		newCrew(t, func(t *testing.T, c *crew) {
			_, _, err := c.AddImage(t.Context(), state.Image{Name: "other", Kind: state.KernelImage, File: "/other"}, leader.Call{})
			c.must(err)
			_, err = c.Settings(t.Context(), func(s *state.Settings) error { *s = state.DefaultSettings(); change(s); return nil }, leader.Call{})
			c.must(err)
			seen = f(c)
		}, others...)
		return seen
	}
}

// asked is what becomes of a VC on a host that has one of 1 core and 4 GiB.
func asked(x state.VC) play {
	return hosts(nil, func(c *crew) string {
		_, err := c.Create(c.t.Context(), vc("first", 1, 1, 4<<30), leader.Call{})
		c.must(err)
		r, err := c.Create(c.t.Context(), x, leader.Call{})
		var bad *leader.Invalid
		var no *leader.Refused
		switch {
		case errors.As(err, &bad):
			return "invalid: " + bad.Fields[0].Field
		case errors.As(err, &no):
			return "refused"
		}
		c.must(err)
		c.agents("h1")
		s := c.state()
		x, _ := s.VC(r.VC.ID)
		return string(state.StateOf(x, s.VMsOf(x.ID)))
	})
}

func restarted(x state.VC) state.VC { x.OnHostLoss = state.RestartOnLoss; return x }

func onNetwork(x state.VC, name string) state.VC { x.Groups[0].Network = name; return x }

func inPool(x state.VC, name string) state.VC { x = onDisk(x); x.Groups[0].Disk.Pool = name; return x }

func onDisk(x state.VC) state.VC { x.Groups[0].Disk.Size = 1 << 30; return x }

// ordered is what the agent is to start for a VC that names neither image nor pool.
func ordered(what func(hypervisor.Spec) string) play {
	return hosts(nil, func(c *crew) string {
		_, err := c.Create(c.t.Context(), onDisk(vc("x", 1, 1, 512<<20)), leader.Call{})
		c.must(err)
		want, _, err := c.Desired(c.t.Context(), "h1")
		c.must(err)
		return what(want.VMs[0].Spec)
	})
}

// placed is on how many of two hosts two VMs run that come one after the other.
var placed = hosts([]string{"h2"}, func(c *crew) string {
	on := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		_, err := c.Create(c.t.Context(), vc(name, 1, 1, 512<<20), leader.Call{})
		c.must(err)
	}
	for _, vm := range c.state().VMs() {
		on[vm.Host] = true
	}
	return fmt.Sprintf("on %d hosts", len(on))
})

// crowded has two VMs on h1 that need so many cores each, and room on h2.
func crowded(cpu float64) play {
	return hosts([]string{"h2"}, func(c *crew) string {
		c.crowd([]string{"h2"}, "a", "b")
		for _, name := range []string{"a", "b"} {
			_, err := c.Scale(c.t.Context(), name, leader.Scale{CPU: &cpu}, leader.Call{})
			c.must(err)
		}
		return c.planned()
	})
}

// planned is what the leader's next plan is, and how many minutes from now.
func (c *crew) planned() string {
	c.t.Helper()
	begun, before := time.Now(), len(c.state().MovePlans())
	for time.Since(begun) < 35*time.Minute {
		if plans := c.state().MovePlans(); len(plans) > before {
			return fmt.Sprintf("%s after %s", plans[before].State, time.Since(begun).Round(time.Minute))
		}
		c.report(5 * time.Second)
	}
	return "never"
}

// report of all hosts, and time that passes after it.
func (c *crew) report(d time.Duration) {
	c.t.Helper()
	for _, h := range c.state().Hosts() {
		c.round(h.Name)
	}
	pass(d)
}

// during the time until a plan has ended, all hosts report, and each time something is looked at.
func (c *crew) during(plan string, look func()) {
	c.t.Helper()
	for range 1000 {
		if p, _ := c.state().MovePlan(plan); p.State.Ended() {
			return
		}
		look()
		c.report(100 * time.Millisecond)
	}
	c.t.Fatalf("plan %s goes on", plan)
}

// joined has no host for VMs of h1 when it is looked for, and one a minute later.
var joined = hosts([]string{"h2"}, func(c *crew) string {
	c.crowd([]string{"h2"}, "a", "b")
	c.cordon(true, "h2")
	for range 24 {
		c.report(5 * time.Second)
	}
	c.cordon(false, "h2")
	return c.planned()
})

// drained moves the VMs of h1 to h2, and opens h1 again.
var drained = hosts([]string{"h2"}, func(c *crew) string {
	c.crowd([]string{"h2"}, "a", "b")
	_, err := c.Drain(c.t.Context(), "h1", leader.DrainRequest{}, leader.Call{})
	c.must(err)
	for range 100 {
		c.report(100 * time.Millisecond)
	}
	c.must(c.Undrain(c.t.Context(), "h1", leader.Call{}))
	c.moves(func(m *state.MoveSettings) { m.Period = minutes(1) })
	return c.planned()
})

// balanced moves VMs of h1 to h2; then there is h3 for more.
var balanced = hosts([]string{"h2", "h3"}, func(c *crew) string {
	c.crowd([]string{"h2", "h3"}, "a", "b", "c")
	c.cordon(true, "h3")
	c.during(c.underWay().ID, func() {})
	c.cordon(false, "h3")
	c.moves(func(m *state.MoveSettings) { m.Period = minutes(1) })
	return c.planned()
})

// together is how many VMs move at once to h2, of two that shall.
var together = hosts([]string{"h2"}, func(c *crew) string {
	c.crowd([]string{"h2"}, "a", "b", "c", "d")
	peak := 0
	c.during(c.underWay().ID, func() {
		now := 0
		for _, m := range c.state().Migrations() {
			if m.State == state.MigrationRunning {
				now++
			}
		}
		peak = max(peak, now)
	})
	return fmt.Sprintf("%d at once", peak)
})

// migrated is how the first migration of a re-balance ends, over a link of 64 MiB/s, of guests with 512 MiB that change so many
// bytes per second and have disks of that size.
func migrated(dirty, disk int64) play {
	return func(t *testing.T, change func(*state.Settings)) (seen string) {
		synctest.Test(t, func(t *testing.T) {
			world, err := simulated.New(simulated.Options{Hosts: 2, CPU: 4, Memory: 8 << 30, Timing: &simulated.Timing{Link: 64 << 20, Progress: 100 * time.Millisecond},
				DirtyRate: func(hypervisor.Spec) int64 { return dirty }, Written: func(hypervisor.Spec) int64 { return 0 }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = world.Close() })
			c := startCluster(t, scratch.Dir(t), world, 2)
			must[state.Settings](t)(c.Settings(t.Context(), func(s *state.Settings) error { s.Moves.Mode = state.MovesOff; change(s); return nil }, leader.Call{}))
			if err := c.Cordon(t.Context(), "h2", true, "", false); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a", "b"} {
				x := vc(name, 1, 4, 512<<20)
				x.Groups[0].Disk.Size = disk
				c.done(c.Create(t.Context(), x, leader.Call{}))
			}
			if err := c.Cordon(t.Context(), "h2", false, "", false); err != nil {
				t.Fatal(err)
			}
			budget := int64(4 << 30)
			r := must[leader.MoveResult](t)(c.Rebalance(t.Context(), leader.RebalanceRequest{MaxBytes: &budget}, leader.Call{}))
			if len(r.Plan.Steps) == 0 {
				seen = "none"
				return
			}
			c.eventually("a migration has ended", func(v *leader.View) bool {
				for _, m := range v.MigrationsOf(r.Plan.ID) {
					if m.State != state.MigrationRunning {
						seen = fmt.Sprintf("%s in %.0fs", m.State, m.EndedAt.Sub(m.OpenedAt).Seconds())
						return true
					}
				}
				return false
			})
		})
		return seen
	}
}

// rightsized is what a VM is thought to need that declared one core and uses a fifth of one. Its VC does not set how that is found.
func rightsized(mode state.RightsizingMode, needs string) play {
	return func(t *testing.T, change func(*state.Settings)) (seen string) {
		recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
			must[state.Settings](t)(h.Settings(t.Context(), func(s *state.Settings) error {
				s.Rightsizing.Mode, s.Rightsizing.Needs = mode, needs
				change(s)
				return nil
			}, leader.Call{}))
			h.run("x", "", "core", 1<<30, 512<<20)
			h.pass(25 * time.Minute)
			_, g := h.vm("x-g-0")
			seen = fmt.Sprintf("%.1f cores", g.Need())
		})
		return seen
	}
}
