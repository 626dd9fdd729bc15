package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"evenkeel/cluster/pki"
)

// newTransport speaks HTTP over ek-peer/1 or ek-forward/1 to members of that kind.
func newTransport(d *Dialer, protocol string, want pki.Want) *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := d.Dial(ctx, address, protocol, want)
			if err != nil {
				return nil, &unreachable{err}
			}
			return conn, nil
		},
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        idleTime / 2, // before the other side ends it
		MaxResponseHeaderBytes: maxHeader,
		ExpectContinueTimeout:  time.Second,
	}
}

// unreachable says that a request was not even sent.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

// neverArrived says whether, by an error, the other side cannot have had the whole request: there was no connection, or it
// would not take all of it.
func neverArrived(err error) bool {
	var failed *net.OpError
	return errors.As(err, new(*unreachable)) || (errors.As(err, &failed) && failed.Op == "write")
}

// again tries once more on another connection if the one at hand turns out to be dead.
// http.Transport does so only if the connection had been used before.
type again struct{ *http.Transport }

func (t again) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err == nil || errors.As(err, new(*unreachable)) || !neverArrived(err) || r.Context().Err() != nil {
		return resp, err
	}
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return nil, err
		}
		body, e := r.GetBody()
		if e != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = body
	}
	return t.Transport.RoundTrip(r)
}

type target struct{}

// relay copies requests to another server, and answers back, as they come.
type relay struct {
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

// relayed is how many relayed calls may be under way at the same time without a handshake for the next ones: a server relays
// the calls of a third of 1,000 agents, or of all of them where the other followers are down.
const relayed = 1024

func newRelay(d *Dialer, protocol string, log *slog.Logger) *relay {
	t := newTransport(d, protocol, pki.Want{Server: true})
	t.MaxIdleConnsPerHost = relayed
	return &relay{transport: t, proxy: &httputil.ReverseProxy{
		Transport:     again{t},
		FlushInterval: -1, // streams have to arrive as they are sent
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := r.In.Context().Value(target{}).(destination)
			// The target is built again from the path and the query: whatever else a client wrote into it goes nowhere.
			r.Out.URL = &url.URL{Scheme: "https", Host: to.address, Path: r.In.URL.Path, RawPath: r.In.URL.RawPath, RawQuery: r.In.URL.RawQuery}
			// After the headers that the client named in Connection were struck out.
			for name, value := range map[string]string{headerClient: to.client, headerRequest: to.request} {
				if value != "" {
					r.Out.Header.Set(name, value)
				}
			}
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			// The other server's answer repeats the headers that this server has set already.
			to, _ := resp.Request.Context().Value(target{}).(destination)
			if resp.StatusCode == http.StatusForbidden {
				if err := refusedMember(resp); err != nil {
					return err
				}
			}
			for name := range resp.Header {
				to.said.Del(name)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			to, _ := r.Context().Value(target{}).(destination)
			log.DebugContext(r.Context(), "relay a request", "to", to.address, "path", r.URL.Path, "error", err)
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				refuse(w, http.StatusRequestEntityTooLarge, kindTooLarge, "the body has more than %d bytes", large.Limit)
				return
			}
			if neverArrived(err) || r.Method == http.MethodGet || r.Method == http.MethodHead {
				refuse(w, http.StatusServiceUnavailable, kindNoLeader, "the leader at %s cannot be reached: %v", to.address, err)
				return
			}
			refuse(w, http.StatusGatewayTimeout, kindTimeout, "the leader at %s did not say what became of it, it may still happen: %v", to.address, err)
		},
	}}
}

// refusedMember returns an error if the other server refused this one, not the request that it relays: the request's sender may
// ask elsewhere.
func refusedMember(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("read why it was refused: %w", err)
	}
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), rest}
	var p Problem
	if json.Unmarshal(text, &p) != nil || p.Type != kindMember {
		return nil
	}
	return &unreachable{fmt.Errorf("it refuses this server: %s", p.Detail)}
}

// destination is where a request is relayed to.
type destination struct {
	address string
	client  string      // address of the sender, for forwarded requests
	request string      // id of the request
	said    http.Header // of the answer, by this server
}

// send relays a request to the server at an address, and the answer back.
func (y *relay) send(w http.ResponseWriter, r *http.Request, to destination) {
	to.said = w.Header()
	y.proxy.ServeHTTP(patient{w}, r.WithContext(context.WithValue(r.Context(), target{}, to)))
}

// patient gives each write of an answer its own time: a stream that is relayed has no end of its own.
type patient struct{ http.ResponseWriter }

func (w patient) Write(b []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTime)) // a writer without deadlines is a test's
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w patient) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (y *relay) close() { y.transport.CloseIdleConnections() }

// urlOf returns the URL of a path of a member's peer server.
func urlOf(address string, segments ...string) *url.URL {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	u := &url.URL{Scheme: "https", Host: address}
	return u.JoinPath(append([]string{"/v1"}, segments...)...)
}

// upgrades says whether a request asks for that protocol.
func upgrades(h http.Header, protocol string) bool {
	return strings.EqualFold(h.Get("Upgrade"), protocol)
}
