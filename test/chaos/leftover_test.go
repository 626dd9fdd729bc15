package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
	"evenkeel/test/patience"
)

// leftPaused is what libvirt says of a VM that its migration left behind on the source.
const leftPaused = "paused (migrating)"

// TestMovesAtHandOver strikes live migrations of a VM at their hand-over, on one cluster.
func TestMovesAtHandOver(t *testing.T) {
	lab.Real(t)
	s, w, log := oneGuest(t)
	t.Run("SourceKilled", func(t *testing.T) { sourceKilled(t, s, w, log) }) // first: it judges the whole history
	t.Run("CutOff", func(t *testing.T) { cutOff(t, s, w, log) })
}

// sourceKilled kills libvirtd of the source at the hand-over of a live migration, again and again. Now and then libvirtd
// comes back with the VM paused there, while the VM runs on the target. This leftover must go without an operator, the VM must run once, and
// its next move and its next start must work on that host.
func sourceKilled(t *testing.T, s *Site, w *Work, log *Log) {
	rounds := 3
	if os.Getenv("EVENKEEL_LONG") == "1" {
		rounds = 20
	}
	const name = moving + "-g-0"
	left, started, ends := 0, 0, map[string]int{}
	for n := range rounds {
		begun := time.Now()
		after := time.Duration(n%10) * 8 * time.Millisecond // another moment of the hand-over in each round
		vm, from := s.handedOver(t, n, name, after)
		from.blockRestart(libvirtd, 2*time.Second)
		if err := from.KillDaemon(); err != nil {
			t.Fatal(err)
		}
		log.Say("strike", from.Name, fmt.Sprintf("round %d: libvirtd killed %v into the hand-over", n, after))
		paused := s.leftover(t, from, vm)
		if paused != "" {
			left++
			log.Say("left", from.Name, paused)
			if left%3 == 1 {
				if s.startHere(t, n, from, name) {
					started++
				}
			}
		}
		var d v1.Drain
		var err error
		err = patience.Until(t.Context(), time.Minute, "the drain ends", nil, func() bool {
			d, err = ask(t.Context(), s, 0, func(ctx context.Context, c *client.Client) (v1.Drain, error) { return c.HostDrain(ctx, from.Name) })
			return err == nil && d.Ended()
		})
		ends[d.State]++
		must(t, s, "undrain", func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Undrain(ctx, from.Name) })
		if err != nil {
			t.Errorf("round %d: %v: %s: %s", n, err, d.State, d.Text)
		}
		s.awaitQuiet(t, fmt.Sprintf("round %d", n))
		t.Logf("round %d: libvirtd of %s killed %v into the hand-over; left %q; drain %s (%s); settled %.1f s after it began", n, from.Name, after, paused, d.State, d.Text, time.Since(begun).Seconds())
	}
	if twice := s.Watch.Duplicates(); len(twice) > 0 {
		t.Errorf("VMs ran twice: %q", twice)
	}
	needless, needed := Restarts(s.Watch.History("", time.Time{}), log.Losses(), w.ran())
	if len(needless) > 0 || needed != started {
		t.Errorf("restarts: %d needed, %d hosts were turned off; without need: %q", needed, started, needless)
	}
	for name, b := range w.beats {
		if wrong := Heartbeats(name, b.All(), s.Watch.History(w.domains[name], time.Time{})); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	}
	t.Logf("%d times libvirtd of the source was killed at the hand-over: %d times the VM was left %s there, %d times it was then started on that host; drains: %s", rounds, left, leftPaused, started, counts(ends))
}

// oneGuest is a cluster with a VM that counts, and no other work.
func oneGuest(t *testing.T) (*Site, *Work, *Log) {
	t.Helper()
	out := outputs(t)
	lines, err := os.Create(filepath.Join(out, "timeline.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lines.Close() })
	log := NewLog(lines)
	s, guest := cluster(t, out, log)
	w := &Work{s: s, guest: guest, history: NewHistory(time.Now()), beats: map[string]*lab.Beats{}, domains: map[string]string{}}
	t.Cleanup(w.Close)
	mode, slow := "off", v1.Size(24<<20)
	must(t, s, "settings", func(ctx context.Context, c *client.Client) (v1.ClusterSettings, error) {
		return c.SetSettings(ctx, v1.SettingsPatch{Moves: &v1.MovePatch{Mode: &mode, Bandwidth: &slow}})
	})
	must(t, s, "create", func(ctx context.Context, c *client.Client) (v1.Result, error) {
		return c.Create(ctx, w.counting(moving, 1, "restart"), client.IdempotencyKey(moving))
	})
	if err := w.counted(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return s, w, log
}

// handedOver drains the VM's host, and returns the given time after libvirt there reported that the guest stands still for its hand-over.
func (s *Site) handedOver(t *testing.T, n int, name string, after time.Duration) (v1.VM, *Host) {
	t.Helper()
	vm := must(t, s, "VM", func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, name) })
	from := s.Host(vm.Host)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Within(2*time.Minute))
	defer cancel()
	stands := make(chan error, 1)
	go func() { stands <- from.says(ctx, handOver) }()
	time.Sleep(time.Second) // sleep: until virsh listens
	must(t, s, "drain", func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
		return c.Drain(ctx, from.Name, v1.DrainRequest{}, client.IdempotencyKey(fmt.Sprintf("killed-%d", n)))
	})
	if err := <-stands; err != nil {
		t.Fatalf("round %d: the guest was not handed over: %v", n, err)
	}
	time.Sleep(after) // sleep: into the hand-over
	return vm, from
}

// must have an answer of any server.
func must[T any](t *testing.T, s *Site, what string, f func(context.Context, *client.Client) (T, error)) T {
	t.Helper()
	var out T
	var failed error
	err := patience.Until(t.Context(), time.Minute, what, nil, func() bool {
		out, failed = ask(t.Context(), s, 0, f)
		return failed == nil
	})
	if err != nil {
		t.Fatal(errors.Join(err, failed))
	}
	return out
}

// leftover is what libvirt of the source reports of the VM once libvirt is back, if it left the VM paused.
func (s *Site) leftover(t *testing.T, from *Host, vm v1.VM) string {
	t.Helper()
	if err := patience.Until(t.Context(), time.Minute, "libvirtd is back", nil, from.DaemonRuns); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		output, err := exec.CommandContext(t.Context(), "virsh", "-c", from.URI(), "domstate", "--reason", vm.Domain).CombinedOutput()
		if err == nil && strings.Contains(string(output), leftPaused) {
			return strings.TrimSpace(string(output))
		}
		time.Sleep(100 * time.Millisecond) // sleep: libvirtd looks after its VMs when it has started
	}
	return ""
}

// startHere turns off the host that the VM has moved to, with the third host cordoned: the VM must start on its former host. It is
// false if the VM has not moved, and no host lost its power.
func (s *Site) startHere(t *testing.T, n int, left *Host, name string) bool {
	t.Helper()
	var on *Host
	err := patience.Until(t.Context(), time.Minute, "the VM has moved", nil, func() bool {
		vm, err := ask(t.Context(), s, 0, func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, name) })
		on = s.Host(vm.Host)
		return err == nil && on != nil && on != left
	})
	if err != nil {
		t.Logf("round %d: %v: the VM stays on the source", n, err)
		return false
	}
	for _, h := range s.Hosts {
		if h != on && h != left {
			must(t, s, "cordon", func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Cordon(ctx, h.Name, "chaos") })
			defer must(t, s, "uncordon", func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Uncordon(ctx, h.Name) })
		}
	}
	must(t, s, "undrain", func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Undrain(ctx, left.Name) })
	on.blockRestart(power, time.Hour)
	defer on.blockRestart(power, 0)
	if err := on.PowerOff(); err != nil {
		t.Fatal(err)
	}
	off := time.Now()
	var vm v1.VM
	err = patience.Until(t.Context(), peace, "the VM starts on the host that it was left on", func() any { return []any{vm.State, vm.Host, vm.Reason} }, func() bool {
		vm, err = ask(t.Context(), s, 0, func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, name) })
		i, runs := s.Watch.Of(vm.Domain)
		return err == nil && vm.State == "running" && vm.Host == left.Name && runs && i.Host == left.Name && i.Started.After(off)
	})
	if err != nil {
		t.Errorf("round %d: %s turned off, %s left on %s: %v", n, on.Name, name, left.Name, err)
		return true
	}
	t.Logf("round %d: %s turned off: %s was started on %s, where it had been left paused, after %.1f s", n, on.Name, name, left.Name, time.Since(off).Seconds())
	return true
}

// awaitQuiet waits until nothing is stuck.
func (s *Site) awaitQuiet(t *testing.T, when string) {
	t.Helper()
	var stuck []string
	err := patience.Until(t.Context(), peace, "nothing is stuck", nil, func() bool {
		now, err := look(t.Context(), s)
		if stuck = Stuck(now, waits); err != nil {
			stuck = append(stuck, err.Error())
		}
		return len(stuck) == 0
	})
	if err != nil {
		t.Fatalf("%s: %v: %q", when, err, stuck)
	}
}
