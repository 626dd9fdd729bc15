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

// elsewhere: the server asked does not lead, and says who does. To ask that one costs a connection; to have it relayed costs the server asked another
// one, and later a third.
type elsewhere struct {
	leader string
	error
}

// mayGo says whether the stream may go straight to a leader: not where it did a while ago. It may not have come through.
func (a *Agent) mayGo(leader string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, tried := a.tried[leader]
	return !tried || time.Since(at) >= straightAgain
}

// patience is how long a stream stays with a server that relays it: one that does not say that the leader is elsewhere, being of an earlier
// version, or was asked to relay as the leader did not answer itself. It is not tried again and again.
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
	i := slices.Index(a.servers, leader)
	if i < 0 {
		return false
	}
	a.tried[leader], a.at = time.Now(), i
	return true
}
