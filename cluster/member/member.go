package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/internal/statefile"
)

// Options are the options of a member. Many fields: each is one part, address or time that vcd.yaml or a test sets.
type Options struct {
	Dir      string       // its identity, its log, what its agent must know again
	Listener net.Listener // below TLS; the member closes it
	// Connect to other members, below TLS; nil: TCP.
	Connect func(ctx context.Context, address string) (net.Conn, error)
	// APIListener, if it is set, is a second one for clients of the public API; new members still join at Listener, where
	// nothing else of the API is answered then. The member closes it.
	APIListener net.Listener
	Advertise   string // where others find the port, host:port
	// Gossip is where to listen for it, and GossipAdvertise the address under which others reach it, host:port; "" = none, and
	// the same.
	Gossip, GossipAdvertise string
	// PKI of the operator's own, with the member's files; zero: those in Dir.
	PKI pki.Files

	// API makes the public API of a server. It is called once, before Start returns.
	API func(*Member) transport.Handler
	// AgentOnly leaves the server out, whatever roles the identity has: its disk is full.
	AgentOnly bool
	// Agent is what the agent is made of; its Leader, Keep and Log are set here. Its Clock is the server's, too.
	Agent   agent.Options
	Inspect func(state.Image) (state.Image, error)

	Settings  state.Settings // of a cluster that is made
	Lease     time.Duration  // 0 = leader.DefaultLease
	Fence     leader.Fence   // nil: no devices
	Timers    node.Timers
	Autopilot node.Autopilot
	Backups   Backups
	Version   string
	Log       *slog.Logger
	// IfRemoved is what to do once the cluster has removed this member, for the log.
	IfRemoved string
	// GossipRotation says how the keys of gossip are replaced; zero: DefaultGossipRotation.
	GossipRotation GossipRotation
	// Audit is the audit log; nil: none is kept. The caller of Start closes it after the member.
	Audit *audit.Log
	// Now is the time of day by which certificates of others are judged, and which others receive; nil: time.Now.
	Now func() time.Time
	// SnapshotEvery and Trailing are those of node.Options.
	SnapshotEvery, Trailing uint64
}

// Backups are the automatic backups of a server: it saves the state to Dir at intervals, and keeps the latest files and the
// last one of each of a number of days. Dir "" = none.
type Backups struct {
	Dir          string
	Every        time.Duration
	Latest, Days int
}

// Member is a running member. Many fields: it wires all parts of a process together, and each part is a field.
type Member struct {
	o            Options
	log          *slog.Logger
	identity     pki.Identity
	certificates *pki.CertificateStore
	dialer       *transport.Dialer
	client       *transport.Client
	port         *transport.Port
	apiPort      *transport.Port // nil: the API is served at port

	// Of a server.
	*leader.Service
	State     *state.Store
	node      *node.Node
	ca        *pki.CA
	talk      atomic.Pointer[node.Gossip]
	orders    atomic.Pointer[transport.Agent] // of this host's agent
	recorder  *agent.Recorder                 // of this host's VMs; nil: no agent
	backups   *node.Backups
	servers   atomic.Pointer[addresses]
	caughtUp  atomic.Bool
	leads     atomic.Uint64 // term whose leader's service has begun here, 0 = none
	health    healths
	reporters struct {
		mu sync.Mutex
		of map[string]*taken // by host
	}
	revokedNow atomic.Pointer[revocations]
	shutAt     chan struct{} // holds one after a server refused this member

	announced chan struct{} // holds one after leads changed

	renewals   renewals   // while this server leads
	renewing   sync.Mutex // one renewal of this member's certificate at a time
	gossipKeys gossipKeys

	audits ring
	shut   *pki.RevokedFile // revoked certificates, as far as this member has received them

	failed chan error
	close  func() error
}

// openCertificates opens the operator's own files, or those in the directory.
func openCertificates(dir string, own pki.Files) (*pki.CertificateStore, error) {
	foreign := own != (pki.Files{})
	if !foreign {
		own = pki.FilesIn(pkiDir(dir))
	}
	certificates, err := pki.OpenStore(own, foreign, time.Now())
	if err != nil {
		return nil, fmt.Errorf("identity of this member: %w", err)
	}
	return certificates, nil
}

// IdentityIn returns the identity in a member's directory, or in files of the operator's own PKI that are not zero.
func IdentityIn(dir string, own pki.Files) (pki.Identity, error) {
	certificates, err := openCertificates(dir, own)
	if err != nil {
		return pki.Identity{}, err
	}
	return certificates.Identity(), nil
}

// Start starts a member on the content of its directory. It returns once the port is open; Ready says when the member can do
// its work.
func Start(ctx context.Context, o Options) (*Member, error) {
	certificates, err := openCertificates(o.Dir, o.PKI)
	if err != nil {
		return nil, err
	}
	founding, err := foundingOf(o.Dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &Member{o: o, identity: certificates.Identity(), certificates: certificates, announced: make(chan struct{}, 1), shutAt: make(chan struct{}, 1), failed: make(chan error, 8)}
	m.identity.Server = m.identity.Server && !o.AgentOnly
	if m.shut, err = pki.OpenRevoked(filepath.Join(o.Dir, revokedFile)); err != nil {
		cancel()
		return nil, err
	}
	m.log = o.Log.With("member", m.identity.Name)
	security := transport.Security{Certificates: certificates, Revoked: m.revoked, Refused: m.refused, Founding: founding, Now: o.Now}
	m.dialer = &transport.Dialer{Security: security, Connect: o.Connect}
	m.client = transport.NewClient(m.dialer, transport.ClientOptions{Log: m.log})
	limits := transport.Limits{Tables: 1}
	if o.APIListener != nil {
		limits.Tables = 2 // what clients do at their port costs members nothing at theirs
	}
	m.port = transport.NewPort(transport.PortOptions{Security: security, Listener: o.Listener, Advertise: o.Advertise, Dialer: m.dialer, Log: m.log,
		Connections: transport.NewConnections(limits)})
	if o.APIListener != nil {
		m.apiPort = transport.NewPort(transport.PortOptions{Security: security, Listener: o.APIListener, Log: m.log, Connections: transport.NewConnections(limits),
			Public: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificates.GetCertificate}})
	}
	var wg sync.WaitGroup
	m.close = sync.OnceValue(func() error {
		m.handOver()
		cancel()
		var err error
		if m.node != nil {
			err = errors.Join(err, m.node.Close())
		}
		wg.Wait()
		m.client.Close()
		m.dialer.Close()
		return err
	})
	if err := m.start(ctx, security, &wg); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *Member) start(ctx context.Context, security transport.Security, wg *sync.WaitGroup) error {
	run := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				select {
				case m.failed <- fmt.Errorf("%s: %w", what, err):
				default:
				}
			}
		})
	}
	m.gossipKeys.load(m.o.Dir, m.log)
	peers := transport.PeersOptions{Security: security, Dialer: m.dialer, Log: m.log, RenewNow: m.renewNow}
	api := transport.NoServer
	if m.identity.Server {
		if err := m.openServer(); err != nil {
			return err
		}
		api = m.o.API(m)
		peers.Lead, peers.Leader, peers.Servers, peers.Issuer = m.lead, known{m}, m.Servers, issuer{m}
		peers.Revocations, peers.Record = m.revocations, m.takeDown
		peers.GossipKeys = m.gossipKeys.now
		peers.HistoryFor, peers.Audit = m.HistoryFor, m.o.Audit.Query
		peers.About, peers.NoLeader = m.about, func(err error) bool { return errors.Is(err, leader.ErrNoLeader) }
	}
	if m.identity.Agent {
		peers.Consoles = m.o.Agent.Hypervisor
		m.recorder = agent.OpenRecorder(agent.RecorderOptions{Dir: filepath.Join(m.o.Dir, "agents", m.identity.Name+".histories"), Log: m.log,
			Fetch: func(ctx context.Context, vm string) ([]byte, error) {
				orders := m.orders.Load()
				if orders == nil {
					return nil, leader.ErrNoLeader
				}
				return orders.History(ctx, vm)
			}})
		peers.Histories = m.recorder
	}
	answer := transport.NewPeers(peers)
	run("members", func(ctx context.Context) error { return answer.Serve(ctx, m.port.Peers()) })
	atPort := api
	if m.apiPort != nil {
		atPort = transport.JoinAlone(api)
		run("API", func(ctx context.Context) error { return transport.ServeAPI(ctx, api, m.apiPort.API(), m.log) })
		run("API's port", m.apiPort.Serve)
	}
	run("API at the members' port", func(ctx context.Context) error { return transport.ServeAPI(ctx, atPort, m.port.API(), m.log) })
	if m.identity.Server {
		forwarded := transport.NewForwarded(transport.ForwardedOptions{Security: security, API: api, Log: m.log})
		run("forwarded requests", func(ctx context.Context) error { return forwarded.Serve(ctx, m.port.Forwarded()) })
	}
	run("port", m.port.Serve)
	run("certificate", m.keepCertificate)
	wg.Go(func() { m.gossiping(ctx) })
	wg.Go(func() { m.fetchGossipKeys(ctx) })
	wg.Go(func() { m.watchStanding(ctx) })
	if m.identity.Server {
		m.startServer(ctx, wg)
	}
	if m.identity.Agent {
		return m.startAgent(ctx, run)
	}
	return nil
}

// openServer opens the log and makes the leader's service, which waits for its term.
func (m *Member) openServer() error {
	m.State = state.New()
	used := filepath.Join(m.o.Dir, usedFile)
	caKey, err := readSecret(m.o.Dir, caKeyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the cluster's CA: %w", err)
	}
	if err == nil {
		m.ca, err = pki.ParseCA(pki.EncodeCertificates(m.certificates.CAs()...), caKey)
		switch {
		case err != nil && m.certificates.Foreign():
			m.ca = nil
			m.log.Info("the cluster's own CA issues no certificates here: it is not among those that are believed", "why", err)
		case err != nil:
			path := filepath.Join(m.o.Dir, caKeyFile)
			return fmt.Errorf("the cluster's CA: %w", &statefile.Damaged{Path: path, Err: err,
				Way: "all servers have the same one: copy it from another's data directory, and chmod 600 " + path})
		}
	}
	servers, current, err := readServers(m.o.Dir)
	if err != nil {
		return err
	}
	_, usedErr := os.Stat(used)
	first := current && len(servers) == 1 && servers[0] == m.o.Advertise // Init wrote this
	pilot := m.o.Autopilot
	pilot.Votes = func(id string) bool {
		row, known := m.State.Snapshot().Member(id)
		return known && !row.NoVote // one that is not known is on its way out
	}
	m.node, err = node.Open(node.Options{Dir: filepath.Join(m.o.Dir, "raft"), ID: m.identity.Name, Stream: m.port.Raft(), Advertise: m.o.Advertise,
		State: m.State, Log: m.log, Removed: m.removed, Bootstrap: first && usedErr != nil, Used: usedErr == nil, SnapshotEvery: m.o.SnapshotEvery, Trailing: m.o.Trailing,
		Timers: m.o.Timers, Health: m.askHealth, Autopilot: pilot, Version: m.o.Version})
	if err != nil {
		return err
	}
	if err := writeSecret(used, nil); err != nil {
		return err
	}
	inspect := m.o.Inspect
	if inspect == nil {
		inspect = func(img state.Image) (state.Image, error) { return img, nil }
	}
	m.Service = leader.New(leader.Options{State: m.State, Log: m.node, Settings: m.o.Settings, Inspect: inspect, Logger: m.log,
		Console: m.console, History: m.history, Forecast: m.forecast, Lease: m.o.Lease, Fence: m.o.Fence, Servers: m.Servers, Clock: m.o.Agent.Clock})
	return nil
}

func (m *Member) startServer(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { m.keepRevoked(ctx) })
	wg.Go(func() { m.watchCatchUp(ctx) })
	wg.Go(func() { m.node.WhileLeading(ctx, m.term) })
	if b := m.o.Backups; b.Dir != "" {
		m.backups = &node.Backups{Node: m.node, Dir: b.Dir, Every: b.Every, Latest: b.Latest, Days: b.Days}
		wg.Go(func() { m.backups.Run(ctx) })
	}
}

// term runs the leader's service for as long as this server leads in that term.
func (m *Member) term(ctx context.Context, term uint64) {
	if err := m.StartTerm(ctx, term, m.identity.Cluster); err != nil {
		m.log.Error("begin to lead", "term", term, "error", err)
		return
	}
	m.leads.Store(term)
	m.announce()
	m.hint()
	defer func() {
		m.leads.Store(0)
		m.announce()
	}()
	m.log.Info("leads", "term", term)
	var wg sync.WaitGroup
	wg.Go(func() { m.Service.Run(ctx) })
	wg.Go(func() { m.Guard(ctx) })
	wg.Go(func() { m.register(ctx) })
	wg.Go(func() { m.rotateGossipKeys(ctx) })
	wg.Wait()
	m.log.Info("leads no more", "term", term)
}

func (m *Member) startAgent(ctx context.Context, run func(string, func(context.Context) error)) error {
	servers, _, err := readServers(m.o.Dir)
	if err != nil {
		return err
	}
	leader := transport.NewAgent(transport.AgentOptions{Host: m.identity.Name, Dialer: m.dialer, Servers: servers, Log: m.log,
		Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Learned: func(servers []string) {
			if err := writeServers(m.o.Dir, servers); err != nil {
				m.log.Warn("keep where the servers are", "error", err)
			}
		},
		Revoked: m.shutOut, Gossip: m.gossipKeys.hear, Shut: m.isShut})
	if m.State == nil {
		run("events", func(ctx context.Context) error { m.reportRefusals(ctx); return nil })
	}
	m.orders.Store(leader)
	if m.State != nil {
		run("leadership", func(ctx context.Context) error { m.watchLeader(ctx); return nil })
	}
	run("stream of desired state", func(ctx context.Context) error { leader.Run(ctx); return nil })
	o := m.o.Agent
	o.Host, o.Leader, o.Log, o.Recorder = m.identity.Name, leader, m.log, m.recorder
	o.Peers = leader.Peers
	o.State = agentFile(m.o.Dir, m.identity.Name)
	run("agent", func(ctx context.Context) error { return agent.Run(ctx, o) })
	return nil
}

// handOver lets another server lead before this one stops, so that requests need not wait for an election. A server that is
// alone, or has no follower, stops all the same.
func (m *Member) handOver() {
	if m.node == nil || !m.node.Leads() || len(m.node.Servers()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := m.node.TransferLeadership(ctx, ""); err != nil {
		m.log.Info("leadership is not handed on", "error", err)
	}
}

// Identity returns the identity of this member.
func (m *Member) Identity() pki.Identity { return m.identity }

// Failed returns a channel of the error of a part that could not go on.
func (m *Member) Failed() <-chan error { return m.failed }

// Close stops the member. VMs run on; the hypervisor stays open.
func (m *Member) Close() error { return m.close() }

// lead says whether the leader's service runs here, and else where the leader's port is.
func (m *Member) lead() transport.Leading {
	if term := m.leads.Load(); term != 0 {
		return transport.Leading{Here: true, Term: term}
	}
	now, _ := m.node.Leadership()
	if now.Leads || now.Leader == m.identity.Name {
		return transport.Leading{} // it has yet to begin
	}
	return transport.Leading{Term: now.Term, Address: now.Address}
}

// serversEvery is how old the answer of Servers may be. Each agent's stream asks once a second, and it takes a
// look at every server's health.
const serversEvery = 500 * time.Millisecond

type addresses struct {
	at  time.Time
	all []string
}

// Servers returns the servers of the cluster, by the addresses of their ports. The caller must not change the answer.
func (m *Member) Servers() []string {
	if old := m.servers.Load(); old != nil && time.Since(old.at) < serversEvery {
		return old.all
	}
	now := addresses{at: time.Now()}
	for _, s := range m.node.Servers() {
		now.all = append(now.all, s.Address)
	}
	m.servers.Store(&now)
	return now.all
}

// Leader returns whether this server leads, and where the one that does can be asked; "" if no leader is known.
func (m *Member) Leader() (here bool, address string) {
	l := m.lead()
	return l.Here, l.Address
}

// Client calls other members, and forwards requests to the one that leads.
func (m *Member) Client() *transport.Client { return m.client }

func (m *Member) console(ctx context.Context, host, vm string) (io.ReadWriteCloser, error) {
	if host == m.identity.Name && m.identity.Agent {
		return m.o.Agent.Hypervisor.Console(ctx, vm)
	}
	row, ok := m.State.Snapshot().Member(host)
	if !ok {
		return nil, fmt.Errorf("member %s: %w", host, leader.ErrNotFound)
	}
	return m.client.Console(ctx, row.Address, host, vm)
}

// history reads the history of a VM from its host.
func (m *Member) history(ctx context.Context, host, vm string) ([]byte, error) {
	if host == m.identity.Name && m.recorder != nil {
		return m.recorder.History(vm)
	}
	row, ok := m.State.Snapshot().Member(host)
	if !ok {
		return nil, fmt.Errorf("member %s: %w", host, leader.ErrNotFound)
	}
	return m.client.History(ctx, row.Address, host, vm)
}

// forecast reads the forecast of a VM from its host.
func (m *Member) forecast(ctx context.Context, host, vm, resource string, steps int) (agent.VMForecast, error) {
	if host == m.identity.Name && m.recorder != nil {
		return m.recorder.Forecast(vm, resource, steps)
	}
	row, ok := m.State.Snapshot().Member(host)
	if !ok {
		return agent.VMForecast{}, fmt.Errorf("member %s: %w", host, leader.ErrNotFound)
	}
	return m.client.Forecast(ctx, row.Address, host, vm, resource, steps)
}

// Ready says why this member cannot do its work yet; nil if it can.
func (m *Member) Ready() error {
	if _, err := m.dialer.Removed(); err != nil {
		return err
	}
	if m.State == nil {
		return nil
	}
	if down := m.node.Down(); down != nil {
		return fmt.Errorf("the log cannot be written: %w", down)
	}
	if here, address := m.Leader(); !here && address == "" {
		return leader.ErrNoLeader
	}
	if _, ok := m.State.Snapshot().Meta(); !ok {
		return fmt.Errorf("the log of the cluster has not come yet")
	}
	return nil
}
