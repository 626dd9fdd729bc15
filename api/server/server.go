package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/history"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// Cluster is what the API asks of the cluster. *leader.Service is one.
// Errors are those of package leader, wrapped.
type Cluster interface {
	Create(ctx context.Context, spec state.VC, call leader.Call) (leader.Result, error)
	Scale(ctx context.Context, name string, s leader.Scale, call leader.Call) (leader.Result, error)
	Apply(ctx context.Context, spec state.VC, how leader.Apply, call leader.Call) (leader.Result, error)
	Rollback(ctx context.Context, name string, version int, how leader.Apply, call leader.Call) (leader.Result, error)
	StartVM(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	StopVM(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	RestartVM(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	ResetVM(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	Start(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	Stop(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	Delete(ctx context.Context, name string, call leader.Call) (leader.Result, error)
	Cordon(ctx context.Context, host string, on bool, reason string, dryRun bool) error
	AddImage(ctx context.Context, img state.Image, call leader.Call) (added state.Image, replayed bool, err error)
	DeleteImage(ctx context.Context, name string, call leader.Call) error
	// View is a look at the cluster; stale: as this server knows it, without asking the others.
	View(ctx context.Context, stale bool) (*leader.View, error)
	// Console attaches to the serial console of a VM, by name or id.
	Console(ctx context.Context, vm string) (io.ReadWriteCloser, error)
	// History of a VM, by name or id, from its host.
	History(ctx context.Context, vm string) (*history.History, history.Notes, state.VM, error)
	// Forecast of what a VM, by name or id, will use of a resource in so many minutes, from its host.
	Forecast(ctx context.Context, vm, resource string, steps int) (agent.VMForecast, leader.Need, state.VM, error)
	// Ready is nil once requests can be served in full.
	Ready() error
	// Index of the log that this server's state has come to; Await one.
	Index() uint64
	Await(ctx context.Context, index uint64) error
	Mover
	Rightsizer
	Tokens
	Tenants
	Roles
	Periodic
}

// Options of a Server.
type Options struct {
	Tokens  []TokenHash  // admin tokens besides those that the cluster keeps: that of the file of `vcd dev`
	Members Members      // nil: a cluster of this server only
	Version string       // of the program, for /v1/cluster/status and OpenAPI
	Logger  *slog.Logger // nil: slog.Default()
	Audit   Audit        // nil: nothing is recorded
	OpenID  OpenID       // nil: tokens of OpenID Connect are refused
	// Rate is how many requests in a second are taken of one principal; 0: without a limit, else at least 1.
	Rate float64
	// Gatherer adds metrics of others to /metrics; nil: none.
	Gatherer prometheus.Gatherer
}

// How long things may take.
const (
	headerTimeout  = 10 * time.Second // of the local socket
	bodyTimeout    = 15 * time.Second
	requestTimeout = 30 * time.Second // of one call to the cluster
	writeTimeout   = 90 * time.Second // of an answer to a caller that has authenticated; longer than maxWait
	maxWait        = time.Minute      // of a long poll
)

// Server is the API as an http.Handler.
type Server struct {
	cluster Cluster
	opts    Options
	log     *slog.Logger
	mux     *recordingMux
	handler http.Handler
	pages   http.Handler // the dashboard, which asks handler
	metrics *metrics
	buffers *buffers
	live    liveRequests
	rates   rates
	probes  rates           // of tenants: see probeRate
	dryRuns map[string]bool // the routes that have one
	verbs   verbs
	reads   repeated // that are audited
	denied  repeated // requests that failed, by token
	// tokenWaits holds one for each request that waits for the row of its token.
	tokenWaits chan struct{}
	draining   chan struct{} // closed when the server is to end: ends streams and long polls
	drain      sync.Once
}

// hookErrors makes huma write our problem documents. It is a variable of
// huma's, so once for the whole program.
var hookErrors = sync.OnceFunc(func() { huma.NewError = newError })

// New makes the API of a cluster.
func New(c Cluster, o Options) *Server {
	hookErrors()
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Audit == nil {
		o.Audit = (*audit.Log)(nil)
	}
	s := &Server{cluster: c, opts: o, log: o.Logger, mux: &recordingMux{}, buffers: newBuffers(), draining: make(chan struct{}), tokenWaits: make(chan struct{}, maxTokenWait)}
	s.live.ended = s.endOf
	s.rates.perSecond, s.probes.perSecond = o.Rate, probeRate
	if o.Rate > 0 {
		s.probes.perSecond = min(o.Rate, probeRate)
	}
	s.metrics = newMetrics(s)

	config := huma.DefaultConfig("Evenkeel", o.Version)
	config.Info.Description = apiDescription
	config.Servers = []*huma.Server{{URL: "/", Description: "Any server of the cluster: those that do not lead forward."}}
	config.CreateHooks = nil // no $schema in bodies
	config.DocsPath = ""     // its page loads scripts from elsewhere
	config.SchemasPath = ""
	config.OpenAPIPath = "" // served below: huma's own handler makes it again in a race
	config.RejectUnknownQueryParameters = true
	config.Transformers = []huma.Transformer{stampProblem}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token of the API, as `vcctl token create` makes it. The first admin token is in a file admin.token: in the data directory of `vcd dev`, or in the configuration of who ran `vcctl cluster init`. Or, where oidc in vcd.yaml names an issuer of OpenID Connect, one of its JSON Web Tokens, as `vcctl login` gets it. Scopes are the roles that may use an operation."},
	}
	config.Security = []map[string][]string{{"token": {}}}
	api := humago.New(s.mux, config)
	s.registerVirtualClusters(api)
	s.registerApply(api)
	s.registerVMs(api)
	s.registerVMVerbs(api)
	s.registerSamples(api)
	s.registerForecasts(api)
	s.registerHosts(api)
	s.registerOperations(api)
	s.registerEvents(api)
	s.registerImages(api)
	s.registerCluster(api)
	s.registerSettings(api)
	s.registerRightsizing(api)
	s.registerMoves(api)
	s.registerRebalance(api)
	s.registerDrains(api)
	s.registerSimulate(api)
	s.registerTokens(api)
	s.registerTenants(api)
	s.registerPeriodic(api)
	s.registerRoles(api)
	s.registerPermissions(api)
	s.registerOpenID(api)
	s.registerAudit(api)
	if o.Members != nil {
		s.registerMembers(api)
	}
	s.verbs, s.dryRuns = verbsOf(api.OpenAPI()), dryRunsOf(api.OpenAPI())
	describeSizes(api.OpenAPI())
	describeRoles(api.OpenAPI())
	description := sync.OnceValues(func() ([]byte, error) { return json.Marshal(api.OpenAPI()) })
	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		doc, err := description()
		if err != nil {
			s.log.ErrorContext(r.Context(), "describe the API", "error", err)
			writeProblem(w, r, newProblem(http.StatusInternalServerError, v1.ProblemInternal, "the server's log has the details"))
			return
		}
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(doc) // an error here means that the client is gone: there is no one to report it to
	})

	// What a stranger sends is neither read nor forwarded: the caller is authenticated first, by a token or, to join, a join token.
	s.handler = s.identify(s.observe(s.audited(s.authenticate(s.admitJoin(s.readBody(s.lead(s.readLarge(http.HandlerFunc(s.route)))))))))
	var at ui.Issuer
	if o.OpenID != nil {
		at = o.OpenID
	}
	pages := ui.New(s.handler, at, s.log)
	pages.Defaults = settings(state.DefaultSettings())
	s.pages = pages
	return s
}

const apiDescription = `Admits virtual clusters, places their VMs, and keeps CPU shares and memory fair among them.

Every request needs a bearer token, but for /livez, /readyz, /v1/auth and a join, which has a join token. Errors are problem documents (RFC 9457); their
` + "`type`" + ` is stable. Changes answer 202 with an operation to wait on (` + "`GET /v1/operations/{id}?wait=30s`" + `), or 200
where nothing was left to do: a dry run, an idempotency key used before. Reads are linearizable unless
` + "`consistency=stale`" + ` is asked for. CPU is in cores, memory in bytes.`

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, ui.Root) {
		s.pages.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") { // a browser
		http.Redirect(w, r, ui.Root, http.StatusSeeOther)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// Drain ends event streams, consoles and long polls, for good.
func (s *Server) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Serve answers requests on the listener until ctx ends; then it drains, lets
// requests under way finish for a while, and returns nil. conf nil: no TLS.
func (s *Server) Serve(ctx context.Context, listener net.Listener, conf *tls.Config) error {
	if conf == nil {
		return s.serve(ctx, listener)
	}
	port := transport.NewPort(transport.PortOptions{Listener: listener, Public: conf, Log: s.log})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- port.Serve(ctx)
	}()
	err := s.serve(ctx, port.API())
	cancel()
	return errors.Join(err, <-served)
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	if err := transport.ServeAPI(ctx, s, listener, s.log); err != nil {
		return fmt.Errorf("serve the API on %s: %w", listener.Addr(), err)
	}
	return nil
}

// view of the cluster for one request of a role of the cluster. What a tenant may see goes through scoped.
func (s *Server) view(ctx context.Context, consistency string) (*leader.View, error) {
	if principal := principalOf(ctx); principal.of() != "" {
		return nil, newProblem(http.StatusForbidden, v1.ProblemForbidden, "this is for roles of the cluster")
	}
	return s.viewOfAny(ctx, consistency)
}

// knowsRights reports whether this server's state has the rights of now, or of some seconds ago.
func (s *Server) knowsRights() bool {
	if s.opts.Members == nil {
		return true
	}
	here, address := s.opts.Members.Leader()
	return here || address != "" && s.opts.Members.CaughtUp()
}

// viewOfAny is view for principals of tenants, too. A server that does not hear from the leader does not know which rights ended: it
// answers tenants nothing, stale or not.
func (s *Server) viewOfAny(ctx context.Context, consistency string) (*leader.View, error) {
	if principalOf(ctx).of() != "" && !s.knowsRights() {
		return nil, noLeader("this server has not heard from the leader: ask another one, or try again")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seen, _ := ctx.Value(seenKey{}).(*seen)
	if seen != nil && seen.wanted > 0 {
		if err := s.cluster.Await(ctx, seen.wanted); err != nil {
			return nil, s.fail(ctx, err)
		}
	}
	v, err := s.cluster.View(ctx, consistency == "stale")
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if seen != nil {
		seen.index = v.Index()
	}
	return v, nil
}
