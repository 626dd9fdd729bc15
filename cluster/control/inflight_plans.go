package control

import (
	"context"
	"fmt"
	"sync"

	"evenkeel/cluster/state"
)

// inflightPlans is the narrow plans that are on their way into the log: made one after the other, each on the
// hosts that those before it leave alone, and committed together. Applying looks at each again. A plan
// that may concern everybody is made when none is on its way.
type inflightPlans struct {
	mu    sync.Mutex
	n     int
	hosts map[string]int
	empty chan struct{} // closed once n is 0; nil while nobody waits
}

// off it goes; down must be called once it is in the state or never will be.
func (f *inflightPlans) off(p *state.Plan) (down func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hosts == nil {
		f.hosts = map[string]int{}
	}
	f.n++
	for _, h := range p.AffectedHosts {
		f.hosts[h]++
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.n--
		for _, h := range p.AffectedHosts {
			if f.hosts[h]--; f.hosts[h] == 0 {
				delete(f.hosts, h)
			}
		}
		if f.n == 0 && f.empty != nil {
			close(f.empty)
			f.empty = nil
		}
	}
}

// busy says whether a plan on its way touches a host.
func (f *inflightPlans) busy(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts[host] > 0
}

// drained waits until none is on its way. The caller sees to it that no new one goes off.
func (f *inflightPlans) drained(ctx context.Context) error {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.empty == nil {
		f.empty = make(chan struct{})
	}
	empty := f.empty
	f.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for plans on their way: %w", ctx.Err())
	}
}
