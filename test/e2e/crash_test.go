package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
)

// kills of vcd in TestKillNine.
const kills = 50

// ledger is what a client knows for sure: what was acknowledged, and of which
// names the last request got no answer.
type ledger struct {
	mu    sync.Mutex
	count map[string]int  // acknowledged VCs and how many VMs they are to have
	gone  map[string]bool // acknowledged deletions
	open  map[string]bool // no answer: either may be true
	made  int
	acked int
	lost  int // requests without an answer
}

// record the answer to a change that would leave the VC with n VMs (0: deleted).
func (l *ledger) record(name string, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && n > 0:
		l.count[name] = n
		l.acked++
	case err == nil:
		delete(l.count, name)
		l.gone[name] = true
		l.acked++
	case answered(err):
		// refused, and said so: all is as before
	default:
		l.open[name] = true
		l.lost++
		delete(l.count, name)
	}
}

// answered: the server refused, as opposed to no answer.
func answered(err error) bool {
	for _, kind := range []string{v1.ProblemRefused, v1.ProblemConflict, v1.ProblemNotFound, v1.ProblemInvalid} {
		if client.IsProblem(err, kind) {
			return true
		}
	}
	return false
}

// churn creates, scales and deletes VCs until ctx ends.
func (l *ledger) churn(ctx context.Context, c *client.Client, rng *rand.Rand) {
	for ctx.Err() == nil {
		l.mu.Lock()
		var name string
		for n := range l.count {
			name = n
			break
		}
		have := len(l.count)
		l.mu.Unlock()
		switch {
		case have < 2 || (have < 4 && rng.IntN(3) == 0):
			l.mu.Lock()
			l.made++
			name = fmt.Sprintf("churn%d", l.made)
			l.mu.Unlock()
			n := 1 + rng.IntN(2)
			_, err := c.Create(ctx, spec(name, n, 0.2), client.IdempotencyKey(name))
			l.record(name, n, err)
		case rng.IntN(2) == 0:
			n := 1 + rng.IntN(3)
			_, err := c.Scale(ctx, name, v1.ScaleRequest{Count: &n})
			l.record(name, n, err)
		default:
			_, err := c.Delete(ctx, name)
			l.record(name, 0, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(60)) * time.Millisecond):
		}
	}
}

// kill -9 at any moment: nothing acknowledged is lost, no VM is lost, doubled or
// orphaned, and the VMs do not notice.
func TestKillNine(t *testing.T) {
	lab.Real(t)
	t.Parallel()
	h := lab.New(t, lab.Options{Hosts: 1}).Host(1)
	d := daemon.New(t, h, "--min-yield", "0.05")
	d.Done(d.Create(t.Context(), spec("steady", 2, 0.3)))
	steady := must(d.VMs(t.Context(), "steady", ""))(t)
	before := d.Processes()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := &ledger{count: map[string]int{}, gone: map[string]bool{}, open: map[string]bool{}}
	for range kills {
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		workers := rand.New(rand.NewPCG(seed, rng.Uint64()))
		wg.Go(func() { l.churn(ctx, d.Client, workers) })
		// sleep: the kill comes at any moment
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		d.Kill()
		stop()
		wg.Wait()
		d.Launch()
		l.check(t, d)
	}
	t.Logf("%d kills, %d changes acknowledged, %d left without an answer", kills, l.acked, l.lost)
	if l.acked < kills {
		t.Errorf("only %d changes were acknowledged over %d kills: the test did not test much", l.acked, kills)
	}
	awaitQuiet(t, d, h)
	after := d.Processes()
	for _, vm := range steady {
		if was := before[vm.Domain]; was == "" || after[vm.Domain] != was {
			t.Errorf("%s ran as process %q before the kills and %q after", vm.Name, was, after[vm.Domain])
		}
	}
	for _, vc := range must(d.VirtualClusters(t.Context()))(t) {
		d.Done(d.Delete(t.Context(), vc.Name))
	}
	if left := d.Processes(); len(left) != 0 {
		t.Errorf("domains left after all was deleted: %v", left)
	}
}

// check that the state agrees with what was acknowledged, and learn from it what became of requests without an answer: no server
// is left that could act on one.
func (l *ledger) check(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	vcs := map[string]v1.VirtualCluster{}
	for _, vc := range must(d.VirtualClusters(t.Context()))(t) {
		vcs[vc.Name] = vc
	}
	for name, n := range l.count {
		vc, ok := vcs[name]
		if !ok || vc.State == "deleting" || vc.Groups[0].Count != n {
			t.Fatalf("%s with %d VMs was acknowledged, there is %+v (found: %v)", name, n, vc, ok)
		}
	}
	for name := range l.gone {
		if vc, ok := vcs[name]; ok && vc.State != "deleting" {
			t.Fatalf("the deletion of %s was acknowledged, it is %s", name, vc.State)
		}
	}
	for name := range l.open {
		if vc, ok := vcs[name]; ok && vc.State != "deleting" {
			l.count[name] = vc.Groups[0].Count
		} else {
			l.gone[name] = true
		}
	}
	clear(l.open)
	for _, vm := range must(d.VMs(t.Context(), "", ""))(t) {
		if vm.Generation != 1 || vm.State == "failed" {
			t.Fatalf("%s has generation %d and is %s (%s): not asked for", vm.Name, vm.Generation, vm.State, vm.Reason)
		}
	}
}

// awaitQuiet waits until libvirt runs exactly what the state says, each VM once.
func awaitQuiet(t *testing.T, d *daemon.Daemon, h *lab.Host) {
	t.Helper()
	d.Eventually(2*time.Minute, "what libvirt runs is what the state says", func(ctx context.Context) (bool, error) {
		vms, err := d.VMs(ctx, "", "")
		if err != nil {
			return false, err
		}
		there := d.Processes()
		if len(there) != len(vms) {
			return false, fmt.Errorf("%d domains for %d VMs", len(there), len(vms))
		}
		for _, vm := range vms {
			if _, runs := there[vm.Domain]; !runs || vm.State != "running" {
				return false, fmt.Errorf("%s is %s, libvirt runs it: %v", vm.Name, vm.State, runs)
			}
		}
		hosts, err := d.Hosts(ctx)
		if err != nil || len(hosts) != 1 || len(hosts[0].Unmanaged) > 0 || hosts[0].ForeignVMs > 0 {
			return false, fmt.Errorf("host %+v: %w", hosts, err)
		}
		return true, nil
	})
}

// must have the answer.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// libvirtd ends and comes back under a running vcd. The VMs run on, and vcd carries requests of
// that time out afterwards.
func TestLibvirtRestart(t *testing.T) {
	lab.Real(t)
	t.Parallel()
	h := lab.New(t, lab.Options{Hosts: 1}).Host(1)
	d := daemon.New(t, h)
	d.Done(d.Create(t.Context(), spec("steady", 2, 0.3)))
	before := d.Processes()

	if err := h.KillDaemon(); err != nil {
		t.Fatal(err)
	}
	d.Eventually(30*time.Second, "the host is unreachable", func(ctx context.Context) (bool, error) {
		host, err := d.Host(ctx, "h1")
		return host.State == "unreachable", err
	})
	for _, vm := range must(d.VMs(t.Context(), "", ""))(t) {
		if vm.State != "unknown" {
			t.Errorf("%s is %s while no server can know", vm.Name, vm.State)
		}
	}
	if _, err := d.Create(t.Context(), spec("now", 1, 0.3)); !client.IsProblem(err, v1.ProblemRefused) {
		t.Errorf("a VM that cannot wait was promised a host that does not answer: %v", err)
	}
	waits := spec("later", 1, 0.3)
	waits.OnFull = "queue"
	later, err := d.Create(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Done(later, nil)
	awaitQuiet(t, d, h)
	after := d.Processes()
	for name, pid := range before {
		if pid == "" || after[name] != pid {
			t.Errorf("%s ran as process %q before the restart and %q after", name, pid, after[name])
		}
	}
}

// A guest that powers off by itself is not started again, and the API reports it truly.
func TestGuestPowersOff(t *testing.T) {
	lab.Real(t)
	t.Parallel()
	h := lab.New(t, lab.Options{Hosts: 1}).Host(1)
	d := daemon.New(t, h)
	d.Done(d.Create(t.Context(), spec("a", 1, 1)))
	console := attach(t, d, "a-g-0")
	defer console.Close()
	waitFor(t, console, "EVENKEEL-GUEST ready", time.Minute)
	if _, err := console.Write([]byte("poweroff\n")); err != nil {
		t.Fatal(err)
	}
	d.Eventually(30*time.Second, "a has failed", func(ctx context.Context) (bool, error) {
		vc, err := d.VirtualCluster(ctx, "a")
		return vc.State == "failed" && vc.Reason != "", err
	})
	if there := d.Processes(); len(there) != 0 {
		t.Errorf("runs again: %v", there)
	}
	d.Done(d.Start(t.Context(), "a"))
	if vm := must(d.VM(t.Context(), "a-g-0"))(t); vm.Generation != 2 {
		t.Errorf("generation %d after a second start", vm.Generation)
	}
}
