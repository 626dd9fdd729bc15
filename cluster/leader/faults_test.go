package leader_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

func (c *testCluster) vc(v *leader.View, name string) leader.VCView {
	c.t.Helper()
	x, ok := v.VCNamed(name)
	if !ok {
		c.t.Fatalf("no virtual cluster %s", name)
	}
	return v.VCView(x)
}

func (c *testCluster) host(v *leader.View, name string) leader.HostView {
	c.t.Helper()
	h, ok := v.Host(name)
	if !ok {
		c.t.Fatalf("no host %s", name)
	}
	return v.HostView(h)
}

// A hypervisor that cannot be reached is reported as such. Its VMs are not reported as gone, and are as before when it is back.
func TestHypervisorOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1)
		c := startCluster(t, scratch.Dir(t), world, 1)
		ctx := t.Context()
		before := c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{})).VMs()
		if err := world.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		v := c.eventually("h1 is unreachable", func(v *leader.View) bool { return c.host(v, "h1").State == "unreachable" })
		if h := c.host(v, "h1"); h.Error == "" {
			t.Errorf("host %+v, want the error", h)
		}
		for _, vm := range v.VMs() {
			if vm.Phase != state.Running || v.VMView(vm).State == "running" {
				t.Errorf("VM %s: phase %s, shown as %s", vm.Name, vm.Phase, v.VMView(vm).State)
			}
		}
		if a := c.vc(v, "a"); a.State != state.VCDegraded || a.Unknown != 2 || a.Reason != "2 of its VMs are unknown: out of reach: h1" {
			t.Errorf("virtual cluster %s, %d VMs unknown: %s", a.State, a.Unknown, a.Reason)
		}
		// What is asked meanwhile is accepted, and happens when the hypervisor is back.
		r, err := c.Create(ctx, vc("b", 1, 1, 512*mib), leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		if err := world.Reconnect("h1"); err != nil {
			t.Fatal(err)
		}
		v = c.done(r, nil)
		for _, old := range before {
			if vm, _ := v.VM(old.ID); vm.Phase != state.Running || vm.Generation != old.Generation {
				t.Errorf("VM %+v, was %+v", vm, old)
			}
		}
		if h := c.host(v, "h1"); h.State != "ready" || h.Error != "" {
			t.Errorf("host %+v", h)
		}
	})
}

// A start that can never work fails the operation with the reason; deleting cleans up, and the next one works.
func TestStartFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1)
		c := startCluster(t, scratch.Dir(t), world, 1)
		ctx := t.Context()
		cause := fmt.Errorf("no network of that name: %w", hypervisor.ErrInvalid)
		if err := world.Inject("h1", simulated.Fault{Call: simulated.CallStart, Times: -1, Err: cause}); err != nil {
			t.Fatal(err)
		}
		r, err := c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		v := c.eventually("the operation fails", func(v *leader.View) bool { return v.Progress(r.Operation).State == state.OpFailed })
		if p := v.Progress(r.Operation); !strings.Contains(p.Text, "no network of that name") || !strings.Contains(p.Text, " on host h") || !strings.Contains(p.Text, "vcctl vc start a") {
			t.Errorf("progress %+v, want the cause", p)
		}
		v = c.eventually("a has failed", func(v *leader.View) bool { return c.vc(v, "a").State == state.VCFailed })
		if x := c.vc(v, "a"); !strings.Contains(x.Reason, "no network of that name") {
			t.Errorf("reason %q", x.Reason)
		}
		if l := v.LoadOf("h1"); l.VMs != 0 {
			t.Errorf("what does not run holds %+v", l)
		}
		c.done(c.Delete(ctx, "a", leader.Call{}))
		if err := world.ClearFaults("h1"); err != nil {
			t.Fatal(err)
		}
		c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{}))
	})
}

// A balloon that sticks: the memory stays charged to the VM, no other VM gets it, and it is freed when the guest gives it back.
func TestBalloonSticks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1)
		c := startCluster(t, scratch.Dir(t), world, 1)
		ctx := t.Context()
		x := vc("a", 2, 1, 3072*mib)
		x.Groups[0].MemoryMin = 512 * mib
		v := c.done(c.Create(ctx, x, leader.Call{}))
		for _, vm := range v.VMs() {
			if err := world.StickBalloon("h1", vm.ID, true); err != nil {
				t.Fatal(err)
			}
		}
		less := int64(1024 * mib)
		c.done(c.Scale(ctx, "a", leader.Scale{Memory: &less}, leader.Call{}))
		r, err := c.Create(ctx, vc("b", 1, 1, 3072*mib), leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		v, _ = c.View(ctx, false)
		if l := v.LoadOf("h1"); c.vc(v, "b").State != state.VCQueued || l.Memory != 2*(3072+64)*mib {
			t.Errorf("b is %s, load %+v: the guests hold 6 GiB", c.vc(v, "b").State, l)
		}
		for _, vm := range v.VMs() {
			if err := world.StickBalloon("h1", vm.ID, false); err != nil {
				t.Fatal(err)
			}
		}
		c.eventually("b runs", func(v *leader.View) bool { return v.Progress(r.Operation).State == state.OpDone })
		noHarm(t, world, 4, 8<<30)
	})
}

// A host that lost its power: its VMs run on no other host, and their state says so. When the host is back they have failed,
// and run again when a user asks for it.
func TestPowerLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		ctx := t.Context()
		v := c.done(c.Create(ctx, vc("a", 4, 1.5, 512*mib), leader.Call{}))
		on := map[string]int{}
		for _, vm := range v.VMs() {
			on[vm.Host]++
		}
		if on["h1"] == 0 || on["h2"] == 0 {
			t.Fatalf("placed on one host only: %v", on)
		}
		if err := world.PowerOff("h1"); err != nil {
			t.Fatal(err)
		}
		v = c.eventually("h1 is unreachable", func(v *leader.View) bool { return c.host(v, "h1").State == "unreachable" })
		for _, vm := range v.VMs() {
			if vm.Generation != 1 || vm.Phase != state.Running {
				t.Errorf("VM %+v: nothing is known of it", vm)
			}
		}
		if err := world.PowerOn("h1"); err != nil {
			t.Fatal(err)
		}
		c.eventually("a is degraded", func(v *leader.View) bool {
			return c.vc(v, "a").State == state.VCDegraded && c.vc(v, "a").Count.Failed == on["h1"]
		})
		if n := len(ours(t, world)); n != on["h2"] {
			t.Errorf("%d VMs run, want the %d of h2: nothing starts by itself", n, on["h2"])
		}
		v = c.done(c.Start(ctx, "a", leader.Call{}))
		for _, vm := range v.VMs() {
			if vm.Phase != state.Running || vm.Generation > 2 {
				t.Errorf("VM %+v", vm)
			}
		}
		noHarm(t, world, 4, 8<<30)
	})
}

// Foreign VMs take all the CPU of a host: the cluster's VMs get the minimum, their status shows it, and they get their share
// back.
func TestForeignTakesAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1)
		c := startCluster(t, scratch.Dir(t), world, 1)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 2, 1, 512*mib), leader.Call{}))
		foreign := hypervisor.Spec{Name: "theirs", VCPUs: 4, Memory: 512 * mib, Balloon: 512 * mib}
		if err := world.AddForeign("h1", foreign); err != nil {
			t.Fatal(err)
		}
		v := c.eventually("caps follow", func(v *leader.View) bool {
			return c.vc(v, "a").State == state.VCDegraded && !slices.ContainsFunc(v.VMs(), func(vm state.VM) bool { return v.VMView(vm).Cap != 0.001 })
		})
		if h := c.host(v, "h1"); h.ForeignVMs != 1 || h.Foreign.CPU != 4 {
			t.Errorf("host %+v", h.Host)
		}
		if err := world.RemoveForeign("h1", "theirs"); err != nil {
			t.Fatal(err)
		}
		c.eventually("caps are back", func(v *leader.View) bool {
			return c.vc(v, "a").State == state.VCRunning && !slices.ContainsFunc(v.VMs(), func(vm state.VM) bool { return v.VMView(vm).Cap != 1 })
		})
	})
}

// A thousand VMs in virtual clusters of 1 to 64 on 12 hosts: each is admitted, or refused with its reasons; all that
// is admitted runs, within the limits; and all is there after a restart.
func TestThousand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const hosts, cores, memory = 12, 32, 128 << 30
		world, err := simulated.New(simulated.Options{Hosts: hosts, CPU: cores, Memory: memory, Timing: &simulated.Timing{Boot: time.Millisecond, Timeout: 5 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = world.Close() })
		dir := scratch.Dir(t)
		c := startCluster(t, dir, world, hosts)
		ctx := t.Context()
		c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesPropose }) // where this takes minutes, a re-balance would begin
		rng := rand.New(rand.NewPCG(3, 4))
		var admitted, refused int
		for asked := 0; asked < 1000; {
			n := min(1+rng.IntN(64), 1000-asked)
			asked += n
			x := vc(fmt.Sprintf("v%d", asked), n, 0.25+rng.Float64(), int64(1+rng.IntN(16))*256*mib)
			x.OnFull = state.Reject
			r, err := c.Create(ctx, x, leader.Call{})
			var no *leader.Refused
			switch {
			case err == nil:
				admitted += n
			case errors.As(err, &no) && len(no.Decision.Hosts) == hosts && no.Decision.Summary != "":
				refused += n
			default:
				t.Fatalf("%s: %+v, %v", x.Name, r, err)
			}
		}
		t.Logf("%d VMs admitted, %d refused", admitted, refused)
		if admitted < 500 || admitted+refused != 1000 {
			t.Errorf("%d admitted and %d refused", admitted, refused)
		}
		running := func(v *leader.View) bool {
			return !slices.ContainsFunc(v.VMs(), func(vm state.VM) bool { return vm.Phase != state.Running })
		}
		before := c.eventually("all run", running).VMs()
		noHarm(t, world, cores, memory)
		c.stop()
		c = startCluster(t, dir, world, hosts)
		v := c.eventually("all run after a restart", running)
		after := v.VMs()
		if len(after) != admitted || len(ours(t, world)) != admitted {
			t.Errorf("%d VMs in the state, %d in the world, %d admitted", len(after), len(ours(t, world)), admitted)
		}
		for i := range before {
			if before[i].ID != after[i].ID || before[i].Host != after[i].Host || after[i].Generation != 1 {
				t.Fatalf("VM %+v, was %+v", after[i], before[i])
			}
		}
		noHarm(t, world, cores, memory)
	})
}

// A hypervisor that takes calls and hangs in a start: the host is named with the call, other VMs start, and once the daemon was started again
// the VM runs.
func TestHypervisorHangsInAStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		timing := simulated.DefaultTiming()
		timing.Timeout = 100 * time.Millisecond
		world, err := simulated.New(simulated.Options{Hosts: 1, Timing: &timing})
		if err != nil {
			t.Fatal(err)
		}
		c := startCluster(t, scratch.Dir(t), world, 1)
		ctx := t.Context()
		if err := world.Inject("h1", simulated.Fault{Call: simulated.CallStart, Hang: true, Stuck: true}); err != nil {
			t.Fatal(err)
		}
		r, err := c.Create(ctx, vc("a", 1, 1, 512*mib), leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		v := c.eventually("h1 is named", func(v *leader.View) bool { return len(c.host(v, "h1").Hangs) == 1 })
		h := c.host(v, "h1")
		if !strings.HasPrefix(h.Hangs[0], "start ") || !strings.Contains(h.Hangs[0], " has been waiting for ") || !strings.HasSuffix(h.Error, h.Hangs[0]) {
			t.Errorf("hangs %q, error %q", h.Hangs, h.Error)
		}
		c.done(c.Create(ctx, vc("b", 1, 1, 512*mib), leader.Call{}))
		v = c.eventually("a is still reported", func(v *leader.View) bool { return len(c.host(v, "h1").Hangs) == 1 })
		if x := c.vc(v, "a"); x.State != state.VCStarting {
			t.Errorf("a: %+v", x)
		}
		if err := world.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		if err := world.Reconnect("h1"); err != nil {
			t.Fatal(err)
		}
		c.done(r, nil)
		c.eventually("nothing hangs", func(v *leader.View) bool { h := c.host(v, "h1"); return len(h.Hangs) == 0 && h.Error == "" })
	})
}

// How long a call hangs is distinguished from when its agent first reported it, by this clock.
func TestHowLongCallsHang(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a, b := agent.Hang{Call: "virDomainCreateXML of ek-a", VM: "a", Waited: time.Minute}, agent.Hang{Call: "virConnectGetAllDomainStats", Waited: 15 * time.Second}
	first := leader.HangsOf(nil, []agent.Hang{a}, at)
	second := leader.HangsOf(first, []agent.Hang{a, b}, at.Add(90*time.Second))
	var got []string
	for _, h := range second {
		got = append(got, h.Text(at.Add(100*time.Second)))
	}
	want := []string{"virDomainCreateXML of ek-a has been waiting for 2m40s", "virConnectGetAllDomainStats has been waiting for 25s"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if left := leader.HangsOf(second, nil, at); len(left) != 0 {
		t.Errorf("over, and still reported: %+v", left)
	}
}
