package transport

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

const (
	consoleProtocol = "ek-console/1"
	openTime        = 20 * time.Second // to find the console of a VM
)

// console joins the connection of a server to the console of a VM on this host,
// until either ends.
func (p *Peers) console(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !upgrades(r.Header, consoleProtocol) {
		w.Header().Set("Upgrade", consoleProtocol)
		refuse(w, http.StatusUpgradeRequired, kindUpgrade, "a console is a stream of bytes: upgrade to %s", consoleProtocol)
		return
	}
	tty, err := p.o.Consoles.Console(r.Context(), id)
	if err != nil {
		switch {
		case errors.Is(err, hypervisor.ErrNotFound):
			refuse(w, http.StatusNotFound, kindNotFound, "%v", err)
		default:
			refuse(w, http.StatusServiceUnavailable, kindOutOfReach, "%v", err)
		}
		return
	}
	defer tty.Close() //nolint:errcheck // nothing is kept in it
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, kindInternal, "take the connection over: %v", err)
		return
	}
	defer conn.Close() //nolint:errcheck // nothing is kept in it
	p.taken.Add(1)
	defer p.taken.Done()
	_ = conn.SetWriteDeadline(time.Now().Add(frameTime))
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+consoleProtocol+"\r\n\r\n"); err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Time{})
	ended := make(chan struct{}, 2)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(tty, buffered) // how it ended does not matter: the session is over
		ended <- struct{}{}
	})
	both.Go(func() {
		_, _ = io.Copy(conn, tty)
		ended <- struct{}{}
	})
	select {
	case <-ended:
	case <-p.draining:
	}
	_ = conn.Close()
	_ = tty.Close()
	both.Wait()
}
