package cluster

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// historiesMove: the use that a VM had on one host is known on the host that it moves to, by the figures of real QEMU, the
// guest's balloon driver and the control groups.
func historiesMove(t *testing.T, s *site, tab *table) {
	from := s.hosts[0]
	vc := loaded("remembered", 1, from)
	s.create(t, vc, from)
	samples := func(ctx context.Context, resource string) (v1.Samples, error) {
		return ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Samples, error) {
			return c.Samples(ctx, "remembered-g-0", resource, "raw", "")
		})
	}
	var before v1.Samples
	eventually(t, 2*time.Minute, "a guest that computes is measured at its cap", func(ctx context.Context) (err error) {
		if before, err = samples(ctx, "cpu"); err != nil {
			return err
		}
		n := 0
		for _, x := range before.Items {
			if x.Censored != nil && *x.Censored == 1 && x.Throttled != nil && *x.Throttled > 0.3 && x.Cap != nil && math.Abs(x.Mean-*x.Cap) < 0.1*(*x.Cap) {
				n++
			}
		}
		if n < 2 || before.Host != from.Name {
			return fmt.Errorf("on %s: %+v", before.Host, before.Items)
		}
		return nil
	})
	// reported says whether the guest itself reported what it uses, in the last sample: an emulator takes more than its guest's balloon.
	reported := func(ctx context.Context, since time.Time) (v1.SampleStep, error) {
		memory, err := samples(ctx, "memory")
		if err != nil || len(memory.Items) == 0 {
			return v1.SampleStep{}, fmt.Errorf("memory on %s: %d steps: %w", memory.Host, len(memory.Items), err)
		}
		x := memory.Items[len(memory.Items)-1]
		if x.At.Before(since) || x.Balloon == nil || x.Mean <= 0 || x.Mean >= *x.Balloon {
			return x, fmt.Errorf("memory on %s: %+v", memory.Host, x)
		}
		return x, nil
	}
	var m v1.SampleStep
	eventually(t, time.Minute, "the guest reports its memory", func(ctx context.Context) (err error) {
		m, err = reported(ctx, time.Time{})
		return err
	})
	at := time.Now()
	must(t, s, func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
		return c.Drain(ctx, from.Name, v1.DrainRequest{}, client.IdempotencyKey(fmt.Sprint("remembered", at.UnixNano())))
	})
	if d := s.drained(t, from, 3*time.Minute); d.State != "drained" {
		t.Fatalf("the drain ended as %s: %s", d.State, d.Text)
	}
	gone := time.Now()
	var after v1.Samples
	eventually(t, time.Minute, "the target knows what was measured before", func(ctx context.Context) (err error) {
		after, err = samples(ctx, "cpu")
		switch {
		case err != nil:
			return err
		case after.Host == from.Name || len(after.Items) == 0 || !after.Items[0].At.Equal(before.Items[0].At):
			return fmt.Errorf("on %s: %+v", after.Host, after.Items)
		case after.Items[len(after.Items)-1].At.Before(gone):
			return fmt.Errorf("nothing since it came: %+v", after.Items[len(after.Items)-1])
		}
		return nil
	})
	eventually(t, time.Minute, "the guest reports its memory to the host that it came to", func(ctx context.Context) error {
		_, err := reported(ctx, gone)
		return err
	})
	f := must(t, s, func(ctx context.Context, c *client.Client) (v1.Forecast, error) {
		return c.Forecast(ctx, "remembered-g-0", "cpu", 5)
	})
	if f.Host != after.Host || f.Trusted || f.Need != f.Declared {
		t.Errorf("the forecast after a minute: %+v", f)
	}
	last := after.Items[len(after.Items)-1]
	tab.add("a history moved with its VM", "%d steps of 10 s at %s, %d at %s; the last: %.3f cores at a cap of %.3f; the guest uses %.0f of %.0f MiB", len(before.Items), from.Name, len(after.Items), after.Host,
		last.Mean, *last.Cap, m.Mean/(1<<20), *m.Balloon/(1<<20))
}
