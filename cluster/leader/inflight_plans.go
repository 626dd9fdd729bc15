package leader

import (
	"context"
	"fmt"
	"sync"

	"evenkeel/cluster/state"
)

// inflightPlans are the scoped plans that are on their way into the log. They are made one after the other, each on hosts that
// those before it do not affect, and committed together. Each is checked again when it is applied. A plan that may affect all
// hosts is made when none is in flight.
type inflightPlans struct {
	mu    sync.Mutex
	n     int
	hosts map[string]int
	empty chan struct{} // closed once n is 0; nil while no goroutine waits
}

// off notes that a plan is in flight; the caller must call down once it is in the state or never will be.
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

// busy says whether a plan in flight affects a host.
func (f *inflightPlans) busy(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts[host] > 0
}

// drained waits until no plan is in flight. The caller must see to it that no new one is proposed.
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
