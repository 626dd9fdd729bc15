package control

import (
	"context"
	"sync"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
)

// desiredCache is what each host was last told. With many hosts nearly every change concerns few of
// them: the others' word stays as it is, its index included, and nobody is woken.
type desiredCache struct {
	mu   sync.Mutex
	term uint64
	by   map[string]cachedDesired
}

// cachedDesired to a host, good until changed is closed.
type cachedDesired struct {
	desired agent.Desired // not to be changed
	changed <-chan struct{}
}

// to a host, of a state that was known to be the newest in a term. One host's words come in the order of
// their indexes: an agent refuses a word that is older than one it knows of.
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
	changed := store.WatchHost(host) // before the snapshot, or a change in between would wake nobody
	now := cachedDesired{desired(store.Snapshot(), host, likely), changed}
	if w.term == term {
		w.by[host] = now
	}
	return now
}

// startTerm a term without words: others may have said newer ones since the last.
func (w *desiredCache) startTerm(term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term, w.by = term, map[string]cachedDesired{}
}

// desiredFor a host, after a check begun after the call that this server leads.
func (c *Control) desiredFor(ctx context.Context, host string) (cachedDesired, error) {
	term := c.termNow()
	if err := c.o.Log.Linearize(ctx); err != nil {
		return cachedDesired{}, err
	}
	return c.desired.to(c.o.State, host, term), nil
}

// termNow is the term in which this server last began to lead. What is remembered for a term must be of a state
// that was checked after the term was read.
func (c *Control) termNow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}
