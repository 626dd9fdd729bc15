package transport

import (
	"errors"
	"slices"
	"time"
)

// directAgain after the stream went straight to a leader, and it did not answer, it does so again.
const directAgain = 5 * time.Minute

// errRedirect: the stream comes by a server that relays what the leader says, which can be asked itself.
var errRedirect = errors.New("the leader can be asked itself")

// elsewhere: the server asked does not lead, and says who does. To ask that one costs a connection; to have it relayed costs the server asked another
// one, and later a third.
type elsewhere struct {
	leader string
	error
}

// mayGo says whether the stream may go straight to a leader: it is known, and was not tried in vain a while ago.
func (a *Agent) mayGo(leader string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mayGoLocked(leader)
}

func (a *Agent) mayGoLocked(leader string) bool {
	at, tried := a.tried[leader]
	return slices.Contains(a.servers, leader) && (!tried || time.Since(at) >= directAgain)
}

// reached: the server answered, whatever it said. The stream may go straight to it the next time that it leads.
func (a *Agent) reached(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tried, server)
}

// patience is how long a stream stays with a server that relays it, being asked to as the leader did not answer itself. The leader is not
// tried again and again.
func (a *Agent) patience(leader string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := a.o.LastBackoff + time.Duration(a.o.Rand.Int64N(3*int64(a.o.LastBackoff)))
	if at, ok := a.tried[leader]; ok {
		wait += max(0, directAgain-time.Since(at))
	}
	return wait
}

// goDirect has the stream, and what is asked, go to the leader itself from now on, if it may.
func (a *Agent) goDirect(leader string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mayGoLocked(leader) {
		return false
	}
	a.tried[leader], a.at = time.Now(), slices.Index(a.servers, leader)
	return true
}
