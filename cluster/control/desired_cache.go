package control

import (
	"context"
	"sync"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
)

// desiredCache has the desired state that each host was sent last. With many hosts nearly every change concerns few of them:
// the desired state of the others stays as it is, its index included, and no stream is woken.
type desiredCache struct {
	mu   sync.Mutex
	term uint64
	by   map[string]cachedDesired
}

// cachedDesired is the desired state of one host, valid until changed is closed.
type cachedDesired struct {
	desired agent.Desired // not to be changed
	changed <-chan struct{}
}

// to returns the desired state of a host from a state that was known to be the newest in a term. The desired states of one host
// come in the order of their indexes: an agent refuses one that is older than the newest it has.
func (w *desiredCache) to(store *state.Store, host string, term uint64) cachedDesired {
	w.mu.Lock()
	defer w.mu.Unlock()
	likely := 0
	if old, ok := w.by[host]; ok && w.term == term {
		likely = len(old.desired.VMs) + 2
		select {
		case <-old.changed:
		default:
			return old
		}
	}
	changed := store.WatchHost(host) // before the snapshot, or a change in between would wake no stream
	now := cachedDesired{desired(store.Snapshot(), host, likely), changed}
	if w.term == term {
		w.by[host] = now
	}
	return now
}

// startTerm begins a term with an empty cache: other leaders may have sent newer desired states since the last.
func (w *desiredCache) startTerm(term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term, w.by = term, map[string]cachedDesired{}
}

// desiredFor returns the desired state of a host, after a check of this server's leadership that began after the call.
func (c *Control) desiredFor(ctx context.Context, host string) (cachedDesired, error) {
	term := c.termNow()
	if err := c.o.Log.Linearize(ctx); err != nil {
		return cachedDesired{}, err
	}
	return c.desired.to(c.o.State, host, term), nil
}

// termNow is the term in which this server last began to lead. What is cached for a term must be of a state that was checked
// after the term was read.
func (c *Control) termNow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}
