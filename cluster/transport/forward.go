package transport

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"evenkeel/cluster/pki"
)

// forwardPrefix is where a peer server takes requests of the public API.
const forwardPrefix = "/forwarded"

// maxReplay is the largest body that is kept for another try, bytes.
const maxReplay = 16 << 20

// headerRequest carries the id of a request from end to end.
const headerRequest = "X-Request-Id"

type forwardedKey struct{}

// ForwardedBy is the server that handed this request on, "" if it came directly. A handler that
// finds one must answer itself, or refuse.
func ForwardedBy(ctx context.Context) string {
	name, _ := ctx.Value(forwardedKey{}).(string)
	return name
}

// Forwarder hands requests of the public API on to the server that leads.
type Forwarder struct{ relay *relay }

// Forward hands a request on to the peer server at an address, as it came: token, idempotency key
// and body, event streams and WebSockets. The request's id goes with it, also one that stands in
// the answer's header only. A request that was handed on before is refused, so that two servers
// that take each other for the leader do not play ball.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, address string) {
	if by := ForwardedBy(r.Context()); by != "" {
		refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this server does not lead, and %s, which handed the request on, thought it did", by)
		return
	}
	if address == "" {
		refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this server does not lead, and knows of nobody who does")
		return
	}
	out := r.Clone(r.Context())
	for _, name := range []string{headerCaller, headerSession, headerCall} { // words between members
		out.Header.Del(name)
	}
	if r.Body != nil && r.ContentLength > 0 && r.ContentLength <= maxReplay {
		// A connection that the leader closed while it was idle is found out by using it: have the
		// body for another.
		body, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength))
		if err != nil {
			refuse(w, http.StatusBadRequest, kindMalformed, "the body ended before its time")
			return
		}
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	out.Header.Set(headerClient, r.RemoteAddr)
	if id := w.Header().Get(headerRequest); id != "" {
		out.Header.Set(headerRequest, id)
	}
	f.relay.send(w, out, address, forwardPrefix)
}

// forwarded hands a request from another server to the API.
func (p *Peers) forwarded(w http.ResponseWriter, r *http.Request) {
	in := r.Clone(context.WithValue(r.Context(), forwardedKey{}, callerOf(r.Context()).Name))
	in.URL.Path = strings.TrimPrefix(r.URL.Path, forwardPrefix)
	in.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, forwardPrefix)
	in.RequestURI = in.URL.RequestURI()
	if client := r.Header.Get(headerClient); client != "" {
		if _, err := netip.ParseAddrPort(client); err == nil {
			in.RemoteAddr = client
		}
	}
	in.Header.Del(headerClient)
	in.TLS = nil // it is that of the other server
	p.o.API.ServeHTTP(w, in)
}

// Client asks other members.
type Client struct {
	dialer *Dialer
	http   *http.Transport // to servers
	Forwarder
}

// NewClient makes a client of other members.
func NewClient(d *Dialer, o ClientOptions) *Client {
	return &Client{dialer: d, http: newTransport(d, pki.Want{Server: true}), Forwarder: Forwarder{newRelay(d, o.Log)}}
}

// Close ends connections that are not in use.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.relay.close()
}
