package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// cutOff cuts source and target of a live migration off from one another when the target has taken the guest over and the source has
// not heard of it yet, again and again, for longer than libvirt takes to notice. The guest may go on in one place only, whatever each of the two
// libvirts decides.
func cutOff(t *testing.T, s *Site, w *Work, log *Log) {
	rounds := 2
	if os.Getenv("EVENKEEL_LONG") == "1" {
		rounds = 20
	}
	const name = moving + "-g-0"
	for n := range rounds {
		begun := time.Now()
		vm := must(t, s, "VM", func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, name) })
		from := s.Host(vm.Host)
		to := s.takenOver(t, n, from)
		if err := errors.Join(s.Lab.Block(from.Host.Host, to.Host.Host), s.Lab.Block(to.Host.Host, from.Host.Host)); err != nil {
			t.Fatal(err)
		}
		log.Say("strike", from.Name, fmt.Sprintf("round %d: cut off from %s, which has taken the guest over", n, to.Name))
		time.Sleep(15 * time.Second) // sleep: the cut lasts
		if err := s.Lab.Heal(); err != nil {
			t.Fatal(err)
		}
		for _, h := range s.Hosts {
			if err := h.Delay(0); err != nil {
				t.Fatal(err)
			}
		}
		var d v1.Drain
		ended := patience.Until(t.Context(), time.Minute, "the drain ends", nil, func() bool {
			var err error
			d, err = ask(t.Context(), s, 0, func(ctx context.Context, c *client.Client) (v1.Drain, error) { return c.HostDrain(ctx, from.Name) })
			return err == nil && d.Ended()
		})
		must(t, s, "undrain", func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Undrain(ctx, from.Name) })
		if ended != nil {
			t.Errorf("round %d: %v: %s: %s", n, ended, d.State, d.Text)
		}
		s.awaitQuiet(t, fmt.Sprintf("round %d", n))
		wrong := Heartbeats(name, w.beats[name].All(), s.Watch.History(vm.Domain, time.Time{}))
		t.Logf("round %d: %s and %s cut off from one another; drain %s (%s); settled %.1f s after it began; %q", n, from.Name, to.Name, d.State, d.Text, time.Since(begun).Seconds(), wrong)
		if len(wrong) > 0 {
			t.Fatalf("round %d: the VM ran twice: %s", n, strings.Join(wrong, "; "))
		}
	}
}

// takenOver drains a host, and returns the target as soon as it has taken the guest over. The target's frames are delayed, so that its
// answer is still on its way to the source.
func (s *Site) takenOver(t *testing.T, n int, from *Host) *Host {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Within(2*time.Minute))
	defer cancel()
	goes := make(chan *Host, len(s.Hosts))
	for _, h := range s.Hosts {
		if h == from {
			continue
		}
		if err := h.Delay(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		go func() {
			if h.says(ctx, takeOver) == nil {
				goes <- h
			}
		}()
	}
	time.Sleep(time.Second) // sleep: until virsh listens
	must(t, s, "drain", func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
		return c.Drain(ctx, from.Name, v1.DrainRequest{}, client.IdempotencyKey(fmt.Sprintf("cut-%d", n)))
	})
	select {
	case to := <-goes:
		return to
	case <-ctx.Done():
		t.Fatalf("round %d: no other host took the guest over", n)
		return nil
	}
}
