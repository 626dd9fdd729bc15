package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"evenkeel/cluster/pki"
)

// Headers between members. They are refused from any other sender than a server.
const (
	headerCaller  = "Evenkeel-Caller"  // the member for which a server relays: the URIs of the identity, and the serial of the certificate
	headerClient  = "Evenkeel-Client"  // address of the client of a forwarded request
	headerSession = "Evenkeel-Session" // of an agent's calls
	headerCall    = "Evenkeel-Call"    // number of the call in its session
	headerLeader  = "Evenkeel-Leader"  // address of the leader, from a server that relays a stream or names the leader

	headerDirect = "Evenkeel-Straight" // of an agent that asks for a stream: a server that does not lead must not relay it, but name the leader
)

// Caller is the member that calls.
type Caller struct {
	pki.Identity
	Serial string // of its certificate
	Relay  string // name of the server through which it asks, "" = directly
}

// Trespass is the error of a member that asked for something to which it has no right. It goes to Security.Refused.
type Trespass struct {
	Caller Caller
	What   string // "speak for host h2", ...
}

// Error implements error.
func (t *Trespass) Error() string {
	s := fmt.Sprintf("%s may not %s (certificate %s", t.Caller.Identity, t.What, t.Caller.Serial)
	if t.Caller.Relay != "" {
		s += ", through " + t.Caller.Relay
	}
	return s + ")"
}

type callerKey struct{}

// peerOf puts into the context the member at the other end of a connection that is past its handshake.
func peerOf(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(peerConn)
	if !ok {
		return ctx
	}
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return ctx
	}
	id, err := pki.IdentityOf(certs[0])
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, peer{Caller{Identity: id, Serial: pki.SerialOf(certs[0])}, conn.Conn})
}

type peer struct {
	Caller
	conn *tls.Conn
}

// identify finds out which member calls, and ends the calls of one that was removed meanwhile.
func (s Security) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, ok := r.Context().Value(callerKey{}).(peer)
		if !ok {
			refuse(w, http.StatusForbidden, kindMember, "no certificate of a member")
			return
		}
		if err := s.still(from.conn.ConnectionState().PeerCertificates[0]); err != nil {
			s.refused(from.conn.RemoteAddr(), err)
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusForbidden, kindMember, "%v", err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, from.Caller)))
	})
}

// onBehalf makes the member the caller for which a server relays a call.
func (p *Peers) onBehalf(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, relayed := r.Header[headerCaller]; relayed {
			behind, err := p.behind(callerOf(r.Context()), r.Header.Get(headerCaller))
			if err != nil {
				p.trespass(w, r, err)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, behind))
		}
		next.ServeHTTP(w, r)
	})
}

// behind returns the member on whose behalf a server calls.
func (p *Peers) behind(relay Caller, text string) (Caller, error) {
	fields := strings.Fields(text)
	if !relay.Server {
		return Caller{}, &Trespass{Caller: relay, What: "speak for other members"}
	}
	if len(fields) < 2 {
		return Caller{}, &Trespass{Caller: relay, What: "speak for no caller"}
	}
	id, err := pki.ParseIdentity(fields[:len(fields)-1])
	if err != nil || id.Cluster != relay.Cluster {
		return Caller{}, &Trespass{Caller: relay, What: "speak for a stranger"}
	}
	out := Caller{Identity: id, Serial: fields[len(fields)-1], Relay: relay.Name}
	if p.o.Revoked != nil && p.o.Revoked(out.Serial) { // the leader may know what the relay does not yet
		return Caller{}, &pki.Refusal{Reason: pki.Revoked, Identity: id, Serial: out.Serial}
	}
	return out, nil
}

func (c Caller) header() string { return strings.Join(c.URIs(), " ") + " " + c.Serial }

// callerOf returns the caller of a request that went through identify.
func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// trespass reports the call of a member that has no right to it, and refuses it.
func (p *Peers) trespass(w http.ResponseWriter, r *http.Request, err error) {
	var remote net.Addr = named{"tcp", r.RemoteAddr}
	if at, e := netip.ParseAddrPort(r.RemoteAddr); e == nil {
		remote = net.TCPAddrFromAddrPort(at)
	}
	p.o.refused(remote, err)
	refuse(w, http.StatusForbidden, kindForbidden, "%v", err)
}

// serversOnly answers only calls of servers.
func (p *Peers) serversOnly(what string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if c := callerOf(r.Context()); !c.Server || c.Relay != "" {
			p.trespass(w, r, &Trespass{Caller: c, What: what})
			return
		}
		next(w, r)
	}
}

// itsAgent answers only calls of the agent of the host in the path.
func (p *Peers) itsAgent(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := callerOf(r.Context())
		if host := r.PathValue("host"); !c.Agent || c.Name != host {
			p.trespass(w, r, &Trespass{Caller: c, What: fmt.Sprintf("speak for host %.64q", host)})
			return
		}
		next(w, r)
	}
}
