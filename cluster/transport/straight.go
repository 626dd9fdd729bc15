package transport

import (
	"errors"
	"slices"
	"time"
)

// straightAgain after the stream went straight to a leader, it does so again.
const straightAgain = 5 * time.Minute

// errDetour: the stream comes by a server that relays what the leader says, which can be asked itself.
var errDetour = errors.New("the leader can be asked itself")

// patience is how long a stream stays with a server that relays it. Agents that were cut off at the same moment do not all come
// to the leader at once, and one that the leader does not answer itself is not tried again and again.
func (a *Agent) patience(leader string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := a.o.LastBackoff + time.Duration(a.o.Rand.Int64N(3*int64(a.o.LastBackoff)))
	if at, ok := a.tried[leader]; ok {
		wait += max(0, straightAgain-time.Since(at))
	}
	return wait
}

// straight has the stream, and what is asked, go to the leader itself from now on. false: it is no server that is known.
func (a *Agent) straight(leader string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried[leader] = time.Now()
	i := slices.Index(a.servers, leader)
	if i >= 0 {
		a.at = i
	}
	return i >= 0
}
