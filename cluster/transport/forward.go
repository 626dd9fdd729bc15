package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"evenkeel/cluster/pki"
)

// headerRequest carries the id of a request from end to end.
const headerRequest = "X-Request-Id"

type forwardedKey struct{}

// ForwardedBy returns the server that forwarded this request, "" if it came directly. A handler of a forwarded request must
// answer itself, or refuse.
func ForwardedBy(ctx context.Context) string {
	name, _ := ctx.Value(forwardedKey{}).(string)
	return name
}

// Forwarder forwards requests of the public API to the server that leads.
type Forwarder struct{ relay *relay }

// Forward sends a request on to the server at an address: token, idempotency key and body, event streams and WebSockets. The
// caller must have authenticated the request and bounded its body. The request's id goes with it, also if only the answer's
// header has it. A request that was forwarded before is refused, so that two servers that take each other for the leader do not
// pass it back and forth.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, address string) {
	if by := ForwardedBy(r.Context()); by != "" {
		refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this server does not lead, and %s, which handed the request on, thought it did", by)
		return
	}
	if address == "" {
		refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this server does not lead, and knows no server that does")
		return
	}
	to := destination{address: address, client: r.RemoteAddr, request: r.Header.Get(headerRequest)}
	if id := w.Header().Get(headerRequest); id != "" {
		to.request = id
	}
	out := r.Clone(r.Context())
	for _, name := range []string{headerCaller, headerSession, headerCall, headerDirect, headerClient} { // of calls between members
		out.Header.Del(name)
	}
	f.relay.send(w, out, to)
}

// ForwardedOptions are what Forwarded needs.
type ForwardedOptions struct {
	Security
	// API answers the requests.
	API http.Handler
	Log *slog.Logger
}

// Forwarded answers requests of the public API that other servers forward, over ek-forward/1. It has the API and none of the
// calls between members.
type Forwarded struct {
	o       ForwardedOptions
	handler http.Handler
	drain   sync.Once
}

// NewForwarded makes the server of forwarded requests.
func NewForwarded(o ForwardedOptions) *Forwarded {
	f := &Forwarded{o: o}
	f.handler = pathsOnly(o.identify(http.HandlerFunc(f.answer)))
	return f
}

// Serve answers on the listener (Port.Forwarded) until ctx ends.
func (f *Forwarded) Serve(ctx context.Context, listener net.Listener) error {
	if err := serveMembers(ctx, f.handler, listener, f.o.Log, func() {
		if d, ok := f.o.API.(interface{ Drain() }); ok {
			f.drain.Do(d.Drain)
		}
	}); err != nil {
		return fmt.Errorf("serve forwarded requests on %s: %w", listener.Addr(), err)
	}
	return nil
}

func (f *Forwarded) answer(w http.ResponseWriter, r *http.Request) {
	from := callerOf(r.Context())
	if !from.Server {
		refuse(w, http.StatusForbidden, kindMember, "only servers forward requests")
		return
	}
	in := r.Clone(context.WithValue(r.Context(), forwardedKey{}, from.Name))
	// The client's address, never the other server's: without one the request has none.
	in.RemoteAddr = ""
	if client := r.Header.Get(headerClient); len(r.Header[headerClient]) == 1 {
		if _, err := netip.ParseAddrPort(client); err == nil {
			in.RemoteAddr = client
		}
	}
	in.Header.Del(headerClient)
	in.TLS = nil // it is that of the other server
	f.o.API.ServeHTTP(w, in)
}

// Client calls other members.
type Client struct {
	dialer *Dialer
	http   *http.Transport // to servers
	Forwarder
}

// NewClient makes a client of other members.
func NewClient(d *Dialer, o ClientOptions) *Client {
	return &Client{dialer: d, http: newTransport(d, ProtocolPeer, pki.Want{Server: true}), Forwarder: Forwarder{newRelay(d, ProtocolForward, o.Log)}}
}

// Close ends connections that are not in use.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.relay.close()
}
