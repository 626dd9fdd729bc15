package transport

import (
	"errors"
	"slices"
	"time"
)

// directAgain is how long after a leader did not answer directly the stream goes to it directly again.
const directAgain = 5 * time.Minute

// errRedirect says that the stream comes through a server that relays the leader's answers, and that the leader can be asked
// directly.
var errRedirect = errors.New("the leader can be asked itself")

// elsewhere says that the server that was asked does not lead, and which one does. A direct stream to the leader costs one
// connection; a relayed one costs the relaying server another, and later a third.
type elsewhere struct {
	leader string
	error
}

// mayGo says whether the stream may go directly to a leader: the leader is known, and did not fail to answer a while ago.
func (a *Agent) mayGo(leader string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mayGoLocked(leader)
}

func (a *Agent) mayGoLocked(leader string) bool {
	at, tried := a.tried[leader]
	return slices.Contains(a.servers, leader) && (!tried || time.Since(at) >= directAgain)
}

// reached notes that the server answered, whatever it answered. The stream may go to it directly the next time that it leads.
func (a *Agent) reached(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tried, server)
}

// patience is how long a stream stays with a server that relays it because the leader did not answer directly. It keeps the agent from
// trying the leader again and again.
func (a *Agent) patience(leader string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := a.o.LastBackoff + time.Duration(a.o.Rand.Int64N(3*int64(a.o.LastBackoff)))
	if at, ok := a.tried[leader]; ok {
		wait += max(0, directAgain-time.Since(at))
	}
	return wait
}

// goDirect makes the stream, and calls, go to the leader directly from now on, if they may.
func (a *Agent) goDirect(leader string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mayGoLocked(leader) {
		return false
	}
	a.tried[leader], a.at = time.Now(), slices.Index(a.servers, leader)
	return true
}
