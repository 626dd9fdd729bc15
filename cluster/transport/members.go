package transport

import (
	"crypto/tls"
	"maps"
	"net"
	"sync"
	"time"
)

// members are open connections to and from other members, with what is below TLS.
type members struct {
	mu     sync.Mutex
	open   map[*tls.Conn]net.Conn
	closed bool
	idle   chan struct{} // set by wait; closes when none is open
}

// keep keeps a connection in the table until it is closed; false if all are to be closed.
func (m *members) keep(conn *tls.Conn, below *watched) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if m.open == nil {
		m.open = map[*tls.Conn]net.Conn{}
	}
	m.open[conn] = below.Conn
	below.closed = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.open, conn)
		if m.idle != nil && len(m.open) == 0 {
			close(m.idle)
			m.idle = nil
		}
	}
	return true
}

// recheck ends the connections whose certificates are no longer good.
func (m *members) recheck(s Security) {
	m.mu.Lock()
	open := maps.Clone(m.open)
	m.mu.Unlock()
	for conn, below := range open {
		if err := s.still(conn.ConnectionState().PeerCertificates[0]); err != nil {
			s.refused(conn.RemoteAddr(), err)
			_ = below.Close() // not conn: its Close waits for writes
		}
	}
}

// closeAll closes all connections that are open, and those that open later.
func (m *members) closeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, below := range m.open {
		_ = below.Close()
	}
}

// wait waits until their users have closed them all, at most for max.
func (m *members) wait(max time.Duration) {
	m.mu.Lock()
	if len(m.open) == 0 {
		m.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	m.idle = idle
	m.mu.Unlock()
	timer := time.NewTimer(max)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}
