package leader

import (
	"sync"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/state"
)

// desiredCache has the desired state that each host was sent last. With many hosts nearly every change concerns few of them:
// the desired state of the others stays as it is, its index included, and no stream is woken.
type desiredCache struct {
	mu sync.Mutex // protects by, and keeps the desired states of one host in the order of their indexes
	by map[string]cachedDesired
}

func newDesiredCache() desiredCache { return desiredCache{by: map[string]cachedDesired{}} }

// cachedDesired is the desired state of one host, valid until changed is closed.
type cachedDesired struct {
	desired agent.Desired // not to be changed
	changed <-chan struct{}
}

// to returns the desired state of a host. The caller has read the term, and then made sure that the store has the newest state. The
// desired states of one host come in the order of their indexes: an agent refuses one that is older than the newest it has.
func (w *desiredCache) to(store *state.Store, host string) cachedDesired {
	w.mu.Lock()
	defer w.mu.Unlock()
	likely := 0
	if old, ok := w.by[host]; ok {
		likely = len(old.desired.VMs) + 2
		select {
		case <-old.changed:
		default:
			return old
		}
	}
	changed := store.WatchHost(host) // before the snapshot, or a change in between would wake no stream
	now := cachedDesired{desired(store.Snapshot(), host, likely), changed}
	w.by[host] = now
	return now
}
