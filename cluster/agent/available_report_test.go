package agent_test

import (
	"context"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// left is a host whose kernel says how much memory it could give.
type left struct {
	hypervisor.Host
	bytes int64
}

func (h left) Pressure(ctx context.Context) (hypervisor.Pressure, error) {
	p, err := h.Host.Pressure(ctx)
	p.Available = h.bytes
	return p, err
}

// The agent reports with its samples the availability of its host.
func TestAvailabilityIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		for _, bytes := range []int64{hypervisor.Unknown, gib} {
			l := newLeader(wanted("a"), wanted("b"))
			stop := runOn(t, left{w.Host("h1"), bytes}, l)
			after(5 * time.Second)
			if a := l.last().Available; a != nil {
				t.Errorf("in the first step: %+v", *a)
			}
			after(3 * time.Minute)
			r := l.last()
			a := r.Available
			if a == nil || len(a.VMs) != 2 || a.VMs["a"] != 1 || len(r.Samples) != 2 {
				t.Fatalf("%+v", a)
			}
			if limit := (agent.Limits{CPU: r.Allowance.CPU, Memory: r.Allowance.Memory}); a.Available.CPU > limit.CPU-a.Used.CPU || a.Available.Memory > limit.Memory-a.Used.Memory ||
				a.Used.Memory < 2*64*mib || a.Estimated.Memory < a.Used.Memory {
				t.Errorf("%+v of %+v", *a, limit)
			}
			if bytes > 0 && a.Available.Memory != bytes {
				t.Errorf("the kernel could give %d bytes, the word is %+v", bytes, *a)
			}
			stop()
		}
	})
}
