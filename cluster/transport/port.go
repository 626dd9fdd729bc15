package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/cluster/pki"
)

// recheckEvery is how often the certificates of open connections are checked, and the files of the operator's PKI.
const recheckEvery = 30 * time.Second

// PortOptions are what a Port needs.
type PortOptions struct {
	Security
	// Listener takes connections below TLS. The Port closes it.
	Listener net.Listener
	// Advertise is the address at which other members find this one, "host:port".
	Advertise string
	// Dialer is for the streams that Raft opens.
	Dialer *Dialer
	Log    *slog.Logger
	// Public, if it is set, makes this a port for clients of the public API alone, with that configuration: the port of
	// a process that is no member, or a second one for the API. Security, Advertise and Dialer are not used then.
	Public *tls.Config
	// Connections that are not members' are counted there, with those of other ports; nil: a table of its own.
	Connections *Connections

	HandshakeTimeout time.Duration // default 5 s
}

// Port is the one port of a member. Call NewPort, give Raft, API and Peers to their servers, then call Serve.
type Port struct {
	o    PortOptions
	raft *Streams
	api  *queue
	peer *queue
	// forward has connections over which other servers forward requests of the public API.
	forward *queue
	conf    *tls.Config
	conns   *Connections

	mu      sync.Mutex
	pending map[net.Conn]struct{} // handshakes under way
	closed  bool
	members members // that speak ek-peer/1 or ek-forward/1
	wg      sync.WaitGroup
}

// NewPort sorts the connections of a listener.
func NewPort(o PortOptions) *Port {
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = handshakeTimeout
	}
	if o.Connections == nil {
		o.Connections = NewConnections(Limits{})
	}
	p := &Port{o: o, pending: map[net.Conn]struct{}{}, conns: o.Connections}
	addr := o.Listener.Addr()
	p.api, p.peer, p.forward = newQueue(addr), newQueue(addr), newQueue(addr)
	p.api.table = p.conns
	if o.Public != nil {
		p.conf = o.Public.Clone()
		p.conf.NextProtos = []string{"h2", "http/1.1"}
	} else {
		p.conf = p.config()
	}
	p.raft = &Streams{queue: newQueue(named{addr.Network(), o.Advertise}), dialer: o.Dialer}
	return p
}

// Raft is where servers' streams of Raft arrive and begin.
func (p *Port) Raft() *Streams { return p.raft }

// API has the connections of clients of the public API: each a *tls.Conn that is past its
// handshake, so that http.Server speaks HTTP/2 where that was agreed on. Serve it without a TLS
// configuration.
func (p *Port) API() net.Listener { return p.api }

// Peers has the connections of members that speak ek-peer/1, for Peers.Serve.
func (p *Port) Peers() net.Listener { return p.peer }

// Forwarded has the connections of servers that forward requests of the public API, for Forwarded.Serve.
func (p *Port) Forwarded() net.Listener { return p.forward }

// Serve takes connections until ctx ends; then it closes the port, all connections that wait in it, and the streams of Raft.
// Calls of members under way have a moment to finish, if Peers.Serve ends at the same time. The API's server closes the
// connections of the API.
func (p *Port) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.o.Public == nil {
		p.wg.Go(func() { p.recheck(ctx) })
	}
	p.wg.Go(func() { p.conns.run(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = p.o.Listener.Close() })
	defer stop()
	var failed error
	backoff := time.Duration(0)
	for {
		conn, err := p.o.Listener.Accept()
		if err == nil {
			backoff = 0
			p.begin(conn)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, net.ErrClosed) {
			failed = fmt.Errorf("listen on %s: %w", p.o.Listener.Addr(), err)
			break
		}
		// Out of file descriptors, or a connection that ended while it waited.
		backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
		p.o.Log.Warn("accept a connection", "error", err, "retry", backoff)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
	}
	cancel()
	p.end()
	return failed
}

// end closes what is open and waits for what is under way.
func (p *Port) end() {
	_ = p.o.Listener.Close()
	_ = p.raft.Close()
	_ = p.api.Close()
	_ = p.peer.Close()
	_ = p.forward.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.pending {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.members.wait(drainTime + time.Second) // calls under way are Peers' to finish
	p.members.closeAll()
	p.wg.Wait()
}

// begin begins a handshake, if there is room for one more connection.
func (p *Port) begin(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetKeepAliveConfig(keepAlive) // without it a dead peer is found out later
	}
	entry := p.conns.add(conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.conns.done(entry)
		_ = conn.Close()
		return
	}
	p.pending[conn] = struct{}{}
	p.wg.Go(func() {
		p.handshake(conn, entry)
		p.mu.Lock()
		delete(p.pending, conn)
		p.mu.Unlock()
	})
}

func (p *Port) handshake(raw net.Conn, entry *connection) {
	below := &watched{Conn: raw}
	conn := tls.Server(below, p.conf)
	ctx, cancel := context.WithTimeout(context.Background(), p.o.HandshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		p.conns.done(entry)
		_ = raw.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("no handshake within %s: %w", p.o.HandshakeTimeout, err)
		}
		p.o.refused(raw.RemoteAddr(), fmt.Errorf("handshake: %w", err))
		return
	}
	if p.o.Public == nil && conn.ConnectionState().NegotiatedProtocol == ProtocolStanding {
		p.answerStanding(conn)
		p.conns.done(entry)
		return
	}
	to, keep := p.api, &p.members
	switch protocol := conn.ConnectionState().NegotiatedProtocol; {
	case p.o.Public != nil:
	case protocol == ProtocolRaft:
		to, keep = p.raft.queue, &p.raft.members
	case protocol == ProtocolPeer:
		to = p.peer
	case protocol == ProtocolForward:
		to = p.forward
	}
	var out net.Conn = conn
	if to == p.api {
		below.closed = func() { p.conns.done(entry) }
		if !p.conns.enter(entry, conn) {
			_ = conn.Close()
			return
		}
	} else {
		p.conns.done(entry)
		if !keep.keep(conn, below) {
			_ = conn.Close()
			return
		}
		if to != p.raft.queue {
			out = peerConn{conn}
		}
	}
	if !to.put(out) {
		_ = conn.Close()
	}
}

// peerConn is a connection of ek-peer/1 or ek-forward/1. http.Server would refuse a *tls.Conn whose protocol it does not know.
type peerConn struct{ *tls.Conn }

// config is the configuration of a handshake: members' protocols are for members only, the others for all clients. A member
// that is no server has no API and no Raft.
func (p *Port) config() *tls.Config {
	server, members := p.o.Certificates.Identity().Server, p.memberConfig()
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: p.o.Certificates.GetCertificate,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.ContainsFunc(hello.SupportedProtos, func(s string) bool { return strings.HasPrefix(s, "ek-") }) {
				if !server {
					return nil, errors.New("no client of members, and this one has no API")
				}
				return nil, nil
			}
			return members, nil
		},
	}
}

func (p *Port) memberConfig() *tls.Config {
	protocols := []string{ProtocolPeer}
	if p.o.Certificates.Identity().Server {
		protocols = append(protocols, ProtocolRaft, ProtocolForward, ProtocolStanding)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             protocols,
		GetCertificate:         p.o.Certificates.GetCertificate,
		ClientAuth:             tls.RequestClientCert, // VerifyConnection wants one, and says better why
		SessionTicketsDisabled: true,                  // every connection shows its certificate
		VerifyConnection: func(cs tls.ConnectionState) error {
			server := cs.NegotiatedProtocol == ProtocolRaft || cs.NegotiatedProtocol == ProtocolForward
			_, err := p.o.verify(cs.PeerCertificates, pki.Want{Server: server})
			if err != nil && !(cs.NegotiatedProtocol == ProtocolStanding && onlyRevoked(err)) {
				return err
			}
			return p.o.sameFounding(cs.PeerCertificates, cs.ServerName)
		},
	}
}

// recheck calls Recheck now and then.
func (p *Port) recheck(ctx context.Context) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if changed, err := p.o.Certificates.Refresh(p.o.now()); err != nil {
				p.o.Log.Error("the member's certificate changed on disk, the old one stays in use", "error", err)
			} else if changed {
				p.o.Log.Info("the member's certificate was read again", "serial", pki.SerialOf(p.o.Certificates.Leaf()))
			}
			p.Recheck()
		}
	}
}

// Recheck ends the connections of members whose certificate was revoked or has expired
// meanwhile. It is called twice a minute; call it when a member was removed.
func (p *Port) Recheck() {
	p.members.recheck(p.o.Security)
	p.raft.members.recheck(p.o.Security)
	if p.o.Dialer != nil {
		p.o.Dialer.members.recheck(p.o.Security)
	}
}
