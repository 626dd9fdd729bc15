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
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
)

// Times and sizes of calls between members.
const (
	headerTime = 10 * time.Second
	bodyTime   = 15 * time.Second
	answerTime = 2 * time.Minute // longer than the API takes for an answer
	idleTime   = 2 * time.Minute
	drainTime  = 5 * time.Second

	heartbeat = 2 * time.Second

	maxHeader = 32 << 10
	maxCall   = 1 << 20  // bytes of a renewal, permit, request for a certificate, or answer to one
	maxReport = 16 << 20 // bytes
	maxFrame  = 64 << 20 // bytes of a frame of desired state: a whole host with cloud-init data
)

// Issuer issues certificates. It is asked on the server that leads.
type Issuer interface {
	// Renew issues another certificate to a member whose present one has that identity and
	// serial, for the key of a request (pki.KeyOfRequest).
	Renew(ctx context.Context, id pki.Identity, serial string, request []byte) (Certificate, error)
	// Record which certificate of the operator's own PKI a member shows: of that serial, the first of the chain.
	Record(ctx context.Context, id pki.Identity, serial string, chain []byte) error
}

// Certificate is what an issuer gives, PEM.
type Certificate struct {
	Cert string `json:"certificate"`
	CA   string `json:"ca"` // all CAs that are believed
}

// Consoles opens consoles of VMs on this host; hypervisor.Host is one.
type Consoles interface {
	Console(ctx context.Context, id string) (io.ReadWriteCloser, error)
}

// Histories has what was measured of VMs on this host; *agent.Recorder is one.
type Histories interface {
	// History of a VM, as history.Encode makes it; hypervisor.ErrNotFound if there is none.
	History(vm string) ([]byte, error)
	// Forecast of what a VM will use; as History, and hypervisor.ErrInvalid for a resource or a number of steps that there is not.
	Forecast(vm, resource string, steps int) (agent.VMForecast, error)
}

// PeersOptions are what Peers needs. A field that the member has no use for is nil.
type PeersOptions struct {
	Security
	Dialer *Dialer
	// Lead says which server leads, as far as this server knows. It is called often.
	Lead func() Leading
	// Leader answers agents while this server leads.
	Leader agent.Leader
	// NoLeader says whether an error of Leader or Issuer means that this server does not lead after
	// all. nil: none does.
	NoLeader func(error) bool
	// Servers of the cluster ("host:port"), sent to agents; nil: nothing is sent.
	Servers func() []string
	// Revocations are the revoked certificates, sent to agents; nil: nothing is sent. The answer is not changed.
	Revocations func() []pki.Revocation
	// GossipKeys are the keys of the cluster's gossip, sent to members while this server leads; nil: nothing is sent.
	GossipKeys func() GossipKeys
	// Record takes down what an agent reports itself, while this server leads; nil: such calls are not answered.
	Record func(host string, events []Event)
	// Issuer renews certificates while this server leads.
	Issuer Issuer
	// RenewNow has this member renew its certificate now, for servers; nil: such calls are not answered.
	RenewNow func(context.Context) (Renewed, error)
	// About returns what other servers may know of this one: a value that JSON can hold.
	About func() any
	// Audit reads this server's own audit log for other servers; nil: such calls are not answered.
	Audit func(context.Context, audit.Filter) (audit.Answer, error)
	// HistoryFor gets, while this server leads, the history of a VM that has moved to a host from where it was before;
	// agent.ErrNoHistory if it came from nowhere. nil: such calls are not answered.
	HistoryFor func(ctx context.Context, host, vm string) ([]byte, error)
	// Consoles and Histories of this member's host.
	Consoles  Consoles
	Histories Histories
	Log       *slog.Logger

	Heartbeat time.Duration // of streams of desired state on which nothing else is sent; news that can wait is sent after half of it; default 2 s
}

// Leading says which server leads, as one server knows it.
type Leading struct {
	Here    bool   // this server does
	Term    uint64 // in which it leads; another one for another leader
	Address string // else: of the peer server of the one that does, "host:port"; "" = not known
}

// Peers answers other members over ek-peer/1.
type Peers struct {
	o        PeersOptions
	handler  http.Handler
	relay    *relay
	draining chan struct{}
	drain    sync.Once
	taken    sync.WaitGroup // connections that handlers took over

	mu    sync.Mutex
	lines map[string]*line // by host: what its agent last sent, while this server leads
}

// NewPeers makes the peer server of a member.
func NewPeers(o PeersOptions) *Peers {
	if o.Heartbeat == 0 {
		o.Heartbeat = heartbeat
	}
	p := &Peers{o: o, draining: make(chan struct{}), lines: map[string]*line{}}
	mux := http.NewServeMux()
	if o.Lead != nil {
		p.relay = newRelay(o.Dialer, ProtocolPeer, o.Log)
	}
	if o.Leader != nil && o.Lead != nil {
		mux.HandleFunc("GET /v1/hosts/{host}/desired", p.itsAgent(p.leaderOnly(p.desired)))
		mux.HandleFunc("POST /v1/hosts/{host}/session", p.itsAgent(p.leaderOnly(p.session)))
		mux.HandleFunc("POST /v1/hosts/{host}/report", p.itsAgent(p.leaderOnly(p.report)))
		mux.HandleFunc("POST /v1/hosts/{host}/renew", p.itsAgent(p.leaderOnly(p.renew)))
		mux.HandleFunc("POST /v1/hosts/{host}/permit", p.itsAgent(p.leaderOnly(p.permit)))
		if _, knows := o.Leader.(peerLister); knows {
			mux.HandleFunc("POST /v1/hosts/{host}/peers", p.itsAgent(p.leaderOnly(p.peersOf)))
		}
	}
	if o.Record != nil && o.Lead != nil {
		mux.HandleFunc("POST /v1/hosts/{host}/events", p.itsAgent(p.leaderOnly(p.events)))
	}
	if o.HistoryFor != nil && o.Lead != nil {
		mux.HandleFunc("POST /v1/hosts/{host}/history", p.itsAgent(p.leaderOnly(p.historyFor)))
	}
	if o.Issuer != nil && o.Lead != nil {
		mux.HandleFunc("POST /v1/certificate", p.leaderOnly(p.certificate))
	}
	if o.GossipKeys != nil && o.Lead != nil {
		mux.HandleFunc("POST /v1/gossip-keys", p.leaderOnly(p.gossipKeys))
	}
	if o.RenewNow != nil {
		mux.HandleFunc("POST /v1/certificate/renew", p.serversOnly("have certificates renewed", p.renewNow))
	}
	if o.About != nil {
		mux.HandleFunc("GET /v1/about", p.serversOnly("ask how this server is", p.about))
	}
	p.registerAudit(mux)
	if o.Consoles != nil {
		mux.HandleFunc("GET /v1/host/vms/{id}/console", p.serversOnly("open consoles", p.console))
	}
	if o.Histories != nil {
		mux.HandleFunc("GET /v1/host/vms/{id}/history", p.serversOnly("read histories", p.history))
		mux.HandleFunc("GET /v1/host/vms/{id}/forecast", p.serversOnly("read forecasts", p.forecast))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, kindNotFound, "this member has nothing at %s %s", r.Method, r.URL.Path)
	})
	p.handler = pathsOnly(o.identify(p.onBehalf(mux)))
	return p
}

// ServeHTTP implements http.Handler.
func (p *Peers) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// Serve answers on the listener (Port.Peers) until ctx ends; then streams end, and calls under way have a moment to finish.
func (p *Peers) Serve(ctx context.Context, listener net.Listener) error {
	err := serveMembers(ctx, p, listener, p.o.Log, func() { p.drain.Do(func() { close(p.draining) }) })
	p.taken.Wait()
	if p.relay != nil {
		p.relay.close()
	}
	if err != nil {
		return fmt.Errorf("serve members on %s: %w", listener.Addr(), err)
	}
	return nil
}

// serveMembers answers on connections of members until ctx ends; drain is called then, to end streams.
func serveMembers(ctx context.Context, h http.Handler, listener net.Listener, log *slog.Logger, drain func()) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	srv := &http.Server{
		Handler: h, Protocols: protocols, ConnContext: peerOf, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, WriteTimeout: answerTime, // streams move it
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	var err error
	select {
	case err = <-done:
		drain()
		_ = srv.Close() // nothing is kept in what is left
	case <-ctx.Done():
		drain()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		if srv.Shutdown(bounded) != nil {
			_ = srv.Close() // what is left is cut off
		}
		err = <-done
	}
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// leaderOnly answers only on the server that leads. Another server relays the call, once.
func (p *Peers) leaderOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lead := p.o.Lead()
		caller := callerOf(r.Context())
		switch {
		case lead.Here:
			next(w, r)
		case caller.Relay != "":
			refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this server does not lead, and %s thought it did", caller.Relay)
		case lead.Address == "":
			refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this server does not lead, and knows no server that does")
		case r.Method == http.MethodGet && r.Header.Get(headerDirect) != "":
			w.Header().Set(headerLeader, lead.Address)
			refuse(w, http.StatusMisdirectedRequest, kindElsewhere, "the leader is at %s", lead.Address)
		default:
			r.Header.Set(headerCaller, caller.header())
			if r.Method == http.MethodGet {
				w.Header().Set(headerLeader, lead.Address)
			} else if r.ContentLength != 0 { // a stream has no end, a call has
				conn := http.NewResponseController(w)
				_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // a writer without deadlines is a test's
				// Past the body the deadline would end the call itself.
				r.Body = &bounded{r.Body, sync.OnceFunc(func() { _ = conn.SetReadDeadline(time.Time{}) })}
			}
			p.relay.send(w, r, destination{address: lead.Address})
		}
	}
}

// bounded is a body that says when it was read to its end.
type bounded struct {
	io.ReadCloser
	ended func()
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

// readCall reads the body of a call as JSON into v. It answers if that fails.
func readCall(w http.ResponseWriter, r *http.Request, limit int64, v any) bool {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // a writer without deadlines is a test's
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			refuse(w, http.StatusRequestEntityTooLarge, kindTooLarge, "the body has more than %d bytes", large.Limit)
		} else {
			refuse(w, http.StatusBadRequest, kindMalformed, "the body ended before its time")
		}
		return false
	}
	if err := decodeOne(body, v); err != nil {
		refuse(w, http.StatusBadRequest, kindMalformed, "%v", err)
		return false
	}
	return true
}

// decodeOne decodes one JSON value, with nothing after it. Unknown fields are those of a later version.
func decodeOne(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// answer answers with JSON.
func (p *Peers) answer(w http.ResponseWriter, r *http.Request, v any) {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		p.o.Log.ErrorContext(r.Context(), "encode an answer", "path", r.URL.Path, "error", err)
		refuse(w, http.StatusInternalServerError, kindInternal, "the server's log has the details")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body.Bytes()) // the client is gone: an error has no receiver
}

// certificate renews the caller's certificate.
func (p *Peers) certificate(w http.ResponseWriter, r *http.Request) {
	var ask certificateRequest
	if !readCall(w, r, maxCall, &ask) {
		return
	}
	caller := callerOf(r.Context())
	if ask.Chain != "" {
		if err := p.o.Issuer.Record(r.Context(), caller.Identity, caller.Serial, []byte(ask.Chain)); err != nil {
			p.failCertificate(w, r, fmt.Errorf("record the certificate of %s: %w", caller.Identity, err))
			return
		}
		p.answer(w, r, struct{}{})
		return
	}
	cert, err := p.o.Issuer.Renew(r.Context(), caller.Identity, caller.Serial, []byte(ask.Request))
	if err != nil {
		p.failCertificate(w, r, fmt.Errorf("renew the certificate of %s: %w", caller.Identity, err))
		return
	}
	p.answer(w, r, cert)
}

// failCertificate is fail, and says with its status that the leader will not do it as things are.
func (p *Peers) failCertificate(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil && errors.Is(err, state.ErrConflict) {
		refuse(w, http.StatusConflict, kindConflict, "%v", err)
		return
	}
	p.fail(w, r, err)
}

// certificateRequest is the body of a renewal of a certificate.
type certificateRequest struct {
	Request string `json:"request"` // PKCS #10, PEM
	// Chain of a member that has a certificate of the operator's own PKI and shows it, PEM: it is to be taken down, and nothing issued.
	Chain string `json:"chain,omitempty"`
}

// givenUp answers a call that ended before its time, because its caller seems to be gone. Without an answer net/http would say
// 200, and the connection may still take that to the caller.
func givenUp(w http.ResponseWriter, err error) {
	refuse(w, http.StatusGatewayTimeout, kindTimeout, "the call was given up here, it may still happen: %v", err)
}

// fail answers for an error of the control plane. Whatever it is, the caller tries again, here or elsewhere: the answer says
// why, for the caller's log.
func (p *Peers) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		givenUp(w, err)
		return
	}
	p.o.Log.DebugContext(r.Context(), "a member's call failed", "path", r.URL.Path, "member", callerOf(r.Context()).Name, "error", err)
	if !p.o.Lead().Here || errors.Is(err, ErrNoLeader) || (p.o.NoLeader != nil && p.o.NoLeader(err)) {
		refuse(w, http.StatusServiceUnavailable, kindNoLeader, "%v", err)
		return
	}
	if errors.Is(err, ErrRefused) {
		p.trespass(w, r, err)
		return
	}
	if errors.Is(err, ErrThrottled) {
		refuse(w, http.StatusTooManyRequests, kindThrottled, "%v", err)
		return
	}
	refuse(w, http.StatusInternalServerError, kindInternal, "%v", err)
}
