package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v2"

	"evenkeel/api/oidc"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/cluster/watchdog"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/libvirt"
	"evenkeel/hypervisor/simulated"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run a member of a cluster: server, agent or both, as the configuration says",
		Description: `A member that belongs to no cluster yet answers root on its local socket only. Make a new cluster there,
or enter one:

  vcctl cluster init
  vcctl cluster join --join-token-file FILE ADDRESS...

Prints "ready" and the address of its port on one line once it is a member and serves. Stopping it leaves the VMs
running; those that are to be restarted elsewhere if their host is lost are, once their lease is over.`,
		Flags:  []cli.Flag{&cli.StringFlag{Name: "config", Usage: "read `FILE`, vcd.yaml(5)", Value: "/etc/evenkeel/vcd.yaml"}},
		Action: runMember,
	}
}

// runMember runs until its context ends.
func runMember(c *cli.Context) error {
	if c.Args().Present() {
		return cli.Exit(fmt.Sprintf("run takes no arguments, but there is %q", c.Args().First()), 2)
	}
	conf, err := readConfig(c.String("config"))
	if err != nil {
		return cli.Exit(err, 2)
	}
	log, err := formatted(conf.LogLevel, conf.LogFormat)
	if err != nil {
		return cli.Exit(err, 2)
	}
	if err := os.MkdirAll(conf.DataDir, 0o711); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	metricsToPrometheus(log)
	trail, err := openAudit(conf.DataDir, conf.Name, log)
	if err != nil {
		return err
	}
	defer trail.Close() //nolint:errcheck // what was added is written
	if conf.Agent {
		alone, err := conf.driveAlone()
		if err != nil {
			return err
		}
		defer alone.Close() //nolint:errcheck // nothing depends on it: the process ends
	}
	d := &memberDaemon{conf: conf, log: log, audit: trail, entered: make(chan struct{}), up: make(chan struct{})}
	if conf.OIDC != nil {
		v, err := oidc.Start(*conf.OIDC, oidc.Options{Log: log})
		if err != nil {
			return cli.Exit(err, 2)
		}
		defer v.Close()
		d.openID = v
	}
	if member.Orphan(conf.DataDir, conf.ownPKI()) {
		return cli.Exit(fmt.Sprintf("%s is that of a member whose certificate was of a PKI of your own, and the configuration names none: put pki back, or, if this host is a member no more: %s", conf.DataDir, conf.requireEmpty()), 2)
	}
	if d.isMember() {
		close(d.entered)
	}
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	noSocket := make(chan error, 1)
	wg.Go(func() {
		if err := server.ServeSetup(ctx, conf.Socket, d, trail, log); err != nil { // another vcd has it, as a rule
			noSocket <- err
			cancel()
		}
	})
	wg.Go(func() { notifySystemd(ctx, log) })
	select {
	case <-d.entered:
	default:
		log.Info("this host is a member of no cluster yet: vcctl cluster init, or vcctl cluster join", "socket", conf.Socket)
		notify(log, daemon.SdNotifyReady) // there is nothing to wait for but a person
	}
	select {
	case <-ctx.Done():
	case <-d.entered:
		err = d.serve(ctx)
	}
	err = conf.withWayOut(err)
	select {
	case e := <-noSocket:
		return errors.Join(err, e)
	default:
		return err
	}
}

// memberDaemon is one member's process, from before it has an identity.
type memberDaemon struct {
	conf  config
	log   *slog.Logger
	audit *audit.Log
	// openID is nil where the configuration has no oidc.
	openID server.OpenID

	entering sync.Mutex
	entered  chan struct{} // closed once there is an identity
	settings state.Settings
	is       pki.Identity // of the member, once it serves

	mu       sync.Mutex
	member   *member.Member
	up       chan struct{} // closed once member is set
	announce sync.Once
}

// serve runs the member until ctx ends. A server whose disk is full runs its agent alone, so that
// the host keeps its lease, and becomes a server again once there is room.
func (d *memberDaemon) serve(ctx context.Context) error {
	id, err := member.IdentityIn(d.conf.DataDir, d.conf.pkiFiles())
	if err != nil {
		return err
	}
	if id.Server != d.conf.Server || id.Agent != d.conf.Agent {
		d.log.Warn("the roles of its certificate count, not those of the configuration", "certificate", id.String())
	}
	d.is = id
	for agentOnly := false; ; agentOnly = !agentOnly {
		err := d.once(ctx, agentOnly)
		switch {
		case !agentOnly && errors.Is(err, syscall.ENOSPC) && d.is.Agent:
			d.log.Error("no room for the log: this host's agent runs on without the server", "dir", d.conf.DataDir, "error", err)
		case agentOnly && err == nil && ctx.Err() == nil:
			d.log.Info("there is room again", "dir", d.conf.DataDir)
		default:
			return err
		}
	}
}

// once runs the member until ctx ends or a part of it fails; the agent alone also until there is room on the disk.
func (d *memberDaemon) once(ctx context.Context, agentOnly bool) error {
	l, err := net.Listen("tcp", d.conf.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	o, done, err := d.options(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer done()
	if d.conf.APIListen != "" && d.is.Server && !agentOnly {
		if o.APIListener, err = net.Listen("tcp", d.conf.APIListen); err != nil {
			return errors.Join(fmt.Errorf("listen for the API: %w", err), l.Close())
		}
	}
	o.AgentOnly = agentOnly
	m, err := member.Start(ctx, o)
	if err != nil {
		_ = l.Close() // the member may have closed it
		if o.APIListener != nil {
			_ = o.APIListener.Close()
		}
		return err
	}
	defer m.PaceGC(os.Getenv("GOGC"))()
	d.mu.Lock()
	d.member = m
	d.mu.Unlock()
	d.announce.Do(func() { close(d.up) })
	defer func() {
		if err := m.Close(); err != nil {
			d.log.Error("close", "error", err)
		}
	}()
	fmt.Printf("ready https://%s\n", d.conf.apiAddress())
	notify(d.log, daemon.SdNotifyReady)
	var room <-chan struct{}
	if agentOnly {
		room = d.room(ctx)
	}
	select {
	case err = <-m.Failed():
	case <-room:
		return nil
	case <-ctx.Done():
	}
	d.log.Info("stopping; VMs run on")
	notify(d.log, daemon.SdNotifyStopping)
	return err
}

// enoughRoom is what must be free before a server is tried again, bytes.
const enoughRoom = 16 << 20

// room closes once there is enough of it.
func (d *memberDaemon) room(ctx context.Context) <-chan struct{} {
	there := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			var fs syscall.Statfs_t
			if err := syscall.Statfs(d.conf.DataDir, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) >= enoughRoom {
				close(there)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}()
	return there
}

// options of the member by the configuration. done lets go of what was opened for it.
func (d *memberDaemon) options(l net.Listener) (o member.Options, done func(), err error) {
	c := d.conf
	host, done, err := d.openHost()
	if err != nil {
		return o, func() {}, err
	}
	boot, err := c.bootID()
	if err != nil {
		return o, done, err
	}
	allow, err := allowanceOf(c.Allowance.CPU, c.Allowance.Memory)
	if err != nil {
		return o, done, err
	}
	set := d.settings
	if set.MaxVMs == 0 {
		set = state.DefaultSettings()
	}
	set.SharedPools = c.SharedPools
	o = member.Options{Dir: c.DataDir, Listener: l, Advertise: c.Advertise, Gossip: c.Gossip, GossipAdvertise: gossipAdvertise(c), Settings: set,
		Lease: time.Duration(c.Lease), Version: version, Log: d.log, Audit: d.audit, PKI: c.pkiFiles(), IfRemoved: c.ifRemoved(),
		Autopilot: node.Autopilot{DeadAfter: time.Duration(c.RemoveDead)},
		Backups:   member.Backups{Dir: c.Snapshots.Dir, Every: time.Duration(c.Snapshots.Every), Latest: c.Snapshots.Keep, Days: c.Snapshots.Days},
		API:       d.api,
		Inspect:   inspector(c.Hypervisor == "simulated"),
		Agent:     agent.Options{Hypervisor: host, Allowance: allow, Overhead: overhead, Boot: boot, Booted: c.bootedAt(), Machine: machineID(), MigrateURI: c.migrateURI(), SampleEvery: 10 * time.Second}}
	if c.Snapshots.Every == 0 {
		o.Backups.Dir = ""
	}
	if len(c.Fence) > 0 {
		o.Fence = c.devices(d.log)
	}
	if c.Watchdog.Device != "" {
		w, err := watchdog.NewGuard(c.Watchdog.Device, time.Duration(c.Watchdog.Timeout))
		if err != nil {
			return o, done, err
		}
		o.Agent.Watchdog, o.Agent.WatchdogAs = w, w.String()
	}
	o.Agent.Earlier = func(as string) (agent.Watchdog, error) { return watchdog.ParseGuard(as) }
	return o, done, nil
}

// gossipAdvertise is where others find this member's gossip: the host of advertise, the port of gossip.
func gossipAdvertise(c config) string {
	host, _, err := net.SplitHostPort(c.Advertise)
	_, port, err2 := net.SplitHostPort(c.Gossip)
	if err != nil || err2 != nil {
		return ""
	}
	return net.JoinHostPort(host, port)
}

func (d *memberDaemon) openHost() (hypervisor.Host, func(), error) {
	if !d.is.Agent {
		return nil, func() {}, nil
	}
	if d.conf.Hypervisor == "simulated" {
		w, err := simulated.New(simulated.Options{Hosts: 1, StateFile: filepath.Join(d.conf.DataDir, "simulated.journal")})
		if err != nil {
			return nil, func() {}, err
		}
		return w.Host("h1"), func() { _ = w.Close() }, nil
	}
	lv := filepath.Join(d.conf.DataDir, "libvirt")
	if err := os.MkdirAll(lv, 0o711); err != nil {
		return nil, func() {}, fmt.Errorf("directory for disks and consoles: %w", err)
	}
	h := &lazyHost{log: d.log, open: func(ctx context.Context) (hypervisor.Host, error) {
		return libvirt.Open(ctx, libvirt.Options{URI: d.conf.Hypervisor, Logger: d.log, ForceEmulation: d.conf.Emulation, StateDir: lv, ConsoleLogs: d.conf.Consoles})
	}}
	return h, func() {
		if err := h.Close(); err != nil {
			d.log.Error("close hypervisor", "error", err)
		}
	}, nil
}

func (d *memberDaemon) api(m *member.Member) transport.Handler {
	return server.New(m, server.Options{Members: m, Version: version, Logger: d.log, Audit: m.Trail(), Gatherer: prometheus.DefaultGatherer, OpenID: d.openID, Rate: d.conf.RequestRate})
}

// openAudit opens the audit log in a data directory.
func openAudit(dir, server string, log *slog.Logger) (*audit.Log, error) {
	return audit.Open(audit.Options{Path: filepath.Join(dir, "audit.log"), Server: server, Log: log})
}

func (d *memberDaemon) isMember() bool { return member.Entered(d.conf.DataDir, d.conf.ownPKI()) }

// State implements server.Setup.
func (d *memberDaemon) State() v1.SetupState {
	out := v1.SetupState{Name: d.conf.Name, Address: d.conf.Advertise, Version: version, Member: d.isMember()}
	if d.conf.APIListen != "" {
		out.API = d.conf.apiAddress()
	}
	d.mu.Lock()
	m := d.member
	d.mu.Unlock()
	if m == nil {
		out.Reason = "it is a member of no cluster yet"
		if out.Member {
			out.Reason = "it is starting"
		}
		return out
	}
	id := m.Identity()
	out.Name, out.Cluster, out.Roles = id.Name, id.Cluster, id.String()
	if err := m.Ready(); err != nil {
		out.Reason = err.Error()
	} else {
		out.Ready = true
	}
	return out
}

// Init implements server.Setup.
func (d *memberDaemon) Init(ctx context.Context, q v1.SetupInit) (v1.SetupAnswer, error) {
	d.entering.Lock()
	defer d.entering.Unlock()
	if !d.conf.Server {
		return v1.SetupAnswer{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "server", Text: "is false in the configuration of this host: the first member must be a server"}}}
	}
	set := state.DefaultSettings()
	if y := q.MinYield; y != nil {
		if !(*y >= 0 && *y <= 1) {
			return v1.SetupAnswer{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "minYield", Text: "must be from 0 to 1"}}}
		}
		set.MinYield = *y
	}
	if d.conf.ownPKI() {
		if err := d.certified(); err != nil {
			return v1.SetupAnswer{}, err
		}
		if _, err := member.InitAs(d.conf.DataDir, d.conf.pkiFiles(), d.conf.Advertise); err != nil {
			return v1.SetupAnswer{}, d.entryError(err)
		}
	} else if _, err := member.Init(d.conf.DataDir, d.conf.Name, d.conf.Advertise, d.conf.Agent); err != nil {
		return v1.SetupAnswer{}, d.entryError(err)
	}
	d.settings = set
	close(d.entered)
	m, err := d.await(ctx, func(m *member.Member) bool { here, _ := m.Leader(); return here })
	if err != nil {
		return v1.SetupAnswer{}, err
	}
	token, row := server.NewToken()
	row.Name, row.Role, row.MadeBy = "cluster init", state.RoleAdmin, "vcctl cluster init"
	if err := m.Propose(ctx, state.KindAdminToken, row); err != nil {
		return v1.SetupAnswer{}, fmt.Errorf("admin token: %w", err)
	}
	ca, err := os.ReadFile(d.caFile())
	if err != nil {
		return v1.SetupAnswer{}, err
	}
	return v1.SetupAnswer{SetupState: d.State(), AdminToken: token, CA: string(ca), Host: d.missing(ctx)}, nil
}

// caFile has the CA's certificate of the cluster.
func (d *memberDaemon) caFile() string {
	if d.conf.ownPKI() {
		return d.conf.PKI.CA
	}
	return filepath.Join(d.conf.DataDir, "pki", "ca.pem")
}

// Join implements server.Setup.
func (d *memberDaemon) Join(ctx context.Context, q v1.SetupJoin) (v1.SetupAnswer, error) {
	d.entering.Lock()
	defer d.entering.Unlock()
	if len(q.Addresses) == 0 {
		return v1.SetupAnswer{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "addresses", Text: "name at least one server, host:port"}}}
	}
	boot, err := d.conf.bootID()
	if err != nil {
		return v1.SetupAnswer{}, err
	}
	on := state.Machine{ID: machineID(), Boot: boot}
	if d.conf.ownPKI() {
		if err := d.certified(); err != nil {
			return v1.SetupAnswer{}, err
		}
		_, err = member.JoinAs(ctx, d.conf.DataDir, d.conf.pkiFiles(), d.conf.Advertise, member.JoinOptions{Token: q.Token, Addresses: q.Addresses, Machine: on})
	} else {
		_, err = member.Join(ctx, d.conf.DataDir, d.conf.Name, d.conf.Advertise, member.JoinOptions{Token: q.Token, Addresses: q.Addresses, Machine: on})
	}
	if err != nil {
		return v1.SetupAnswer{}, d.entryError(err)
	}
	close(d.entered)
	if _, err := d.await(ctx, func(m *member.Member) bool { return m.Ready() == nil }); err != nil {
		return v1.SetupAnswer{}, err
	}
	ca, err := os.ReadFile(d.caFile())
	if err != nil {
		return v1.SetupAnswer{}, err
	}
	return v1.SetupAnswer{SetupState: d.State(), CA: string(ca), Host: d.missing(ctx)}, nil
}

// certified says what is wrong with a certificate of the operator's own PKI that names another member than this host.
func (d *memberDaemon) certified() error {
	id, err := member.IdentityIn(d.conf.DataDir, d.conf.pkiFiles())
	if err == nil && id.Name != d.conf.Name {
		err = fmt.Errorf("the certificate is of %s, and this host is %s", id, d.conf.Name)
	}
	if err != nil {
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "pki", Text: err.Error()}}}
	}
	return nil
}

// entryError is an error of entering a cluster in the words of the API.
func (d *memberDaemon) entryError(err error) error {
	switch said, detail := transport.AnswerOf(err); said {
	case transport.Forbidden:
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "token", Text: detail}}}
	case transport.Conflict:
		return fmt.Errorf("the cluster does not let this host in: %s: %w", detail, leader.ErrConflict)
	case transport.Malformed:
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "request", Text: detail}}}
	case transport.Leaderless:
		return fmt.Errorf("the cluster lets no member in now: %s: %w", detail, leader.ErrNoLeader)
	}
	if errors.Is(err, member.ErrMember) {
		return &leader.Exists{Field: "member", Text: err.Error() + "; to enter another, move its VMs away, stop vcd and run: " + d.conf.requireEmpty()}
	}
	if errors.Is(err, member.ErrCertificate) {
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "pki", Text: err.Error()}}}
	}
	if errors.Is(err, pki.ErrToken) {
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "token", Text: err.Error()}}}
	}
	return err
}

// await the member to be up and ready.
func (d *memberDaemon) await(ctx context.Context, ready func(*member.Member) bool) (*member.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-d.up:
	case <-ctx.Done():
		return nil, fmt.Errorf("the member did not start: %w", ctx.Err())
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ready(d.member) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the member is not ready yet: %w", errors.Join(d.member.Ready(), ctx.Err()))
		case <-tick.C:
		}
	}
	return d.member, nil
}

// notifySystemd reports to systemd that the process is alive, three times in each interval of the unit's watchdog.
func notifySystemd(ctx context.Context, log *slog.Logger) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	for ctx.Err() == nil {
		notify(log, daemon.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
		case <-time.After(every / 3):
		}
	}
}

func notify(log *slog.Logger, what string) {
	if _, err := daemon.SdNotify(false, what); err != nil {
		log.Warn("notify systemd", "what", what, "error", err)
	}
}
