package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"evenkeel/cluster/lease"
)

// GossipKeyBytes is the length of a key that all members of a cluster share.
const GossipKeyBytes = 32

// MaxGossipKeys is how many keys a member has at a time.
const MaxGossipKeys = 3

// GossipMeta is what a member reports to all others of itself. As JSON it has room for 512 bytes.
type GossipMeta struct {
	Roles   []string `json:"roles"`
	Address string   `json:"address"` // of its port for everything else
	Version string   `json:"version"`
	Term    uint64   `json:"term,omitempty"` // in which it leads; 0 = it does not
}

// GossipOptions are the options of a member's gossip.
type GossipOptions struct {
	Name      string   // of the member, for ever
	Bind      string   // host:port for UDP and TCP
	Advertise string   // host:port under which others reach it; "" = where it listens
	Keys      [][]byte // 1 to MaxGossipKeys, each GossipKeyBytes long: it seals with the first and opens with all
	Meta      GossipMeta
	Log       *slog.Logger
	// network carries it instead of UDP and TCP, for tests; Advertise is the address in it.
	network interface {
		attach(address string) (memberlist.Transport, error)
	}
	// Interval between two probes of others, and what follows from it; 0 = 1 s.
	Interval time.Duration
	Wall     func() time.Time     // the time of day that others receive; default time.Now
	Steady   func() time.Duration // never set, and goes on while the machine sleeps; default CLOCK_BOOTTIME
}

// gossipMeta is what is sent. memberlist does not say whether a member left or failed, so a member that leaves says so before.
type gossipMeta struct {
	GossipMeta
	Leaving bool `json:"leaving,omitempty"`
}

// Peer is a member as gossip sees it.
type Peer struct {
	Name   string
	Gossip string // its address for gossip
	Meta   GossipMeta
}

// HintKind says what seems to have happened to a member.
type HintKind string

// Kinds of hints that gossip gives.
const (
	HintJoined  HintKind = "joined"
	HintChanged HintKind = "changed" // its meta
	HintLeft    HintKind = "left"    // it announced that itself
	HintFailed  HintKind = "failed"  // it does not answer
)

// Hint is a change that gossip reports. It is never proof.
type Hint struct {
	Kind HintKind
	Peer
}

// Gossip is a member's part in gossip: which members seem to be there. Its messages are encrypted, and strangers get no answer.
type Gossip struct {
	ml    *memberlist.Memberlist
	ring  *memberlist.Keyring
	o     GossipOptions
	hints chan Hint
	lost  chan struct{} // a member does not answer any more

	mu      sync.Mutex
	meta    GossipMeta
	leaving bool
	clocks  map[string]heardClock // of others, by name
	// peers by name. memberlist gives its own rows to read only while it reports a change.
	peers map[string]Peer

	closing sync.Once
	failure error
}

// OpenGossip starts it. It knows no member until Join.
func OpenGossip(o GossipOptions) (*Gossip, error) {
	fail := func(err error) (*Gossip, error) { return nil, fmt.Errorf("open gossip of %s: %w", o.Name, err) }
	if o.Name == "" {
		return fail(errors.New("it needs a name"))
	}
	if err := checkKeys(o.Keys); err != nil {
		return fail(err)
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Steady == nil {
		o.Steady = lease.Boottime
	}
	ring, err := memberlist.NewKeyring(o.Keys, o.Keys[0])
	if err != nil {
		return fail(err)
	}
	g := &Gossip{o: o, ring: ring, hints: make(chan Hint, 256), lost: make(chan struct{}, 1), peers: map[string]Peer{}, clocks: map[string]heardClock{}}
	if err := g.setMeta(o.Meta); err != nil {
		return fail(err)
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.Keyring = o.Name, ring
	conf.Delegate, conf.Events, conf.Ping = gossipDelegate{g}, gossipDelegate{g}, gossipDelegate{g}
	conf.LogOutput, conf.Logger = nil, log.New(gossipLog{o.Log.With("part", "gossip")}, "", 0)
	conf.DeadNodeReclaimTime = 30 * time.Second // a member that comes back with another address
	conf.DNSConfigPath = ""
	if o.Interval > 0 {
		scale := func(d *time.Duration) { *d = time.Duration(float64(*d) * float64(o.Interval) / float64(time.Second)) }
		for _, d := range []*time.Duration{&conf.ProbeTimeout, &conf.ProbeInterval, &conf.GossipInterval, &conf.PushPullInterval, &conf.GossipToTheDeadTime} {
			scale(d)
		}
	}
	if err := g.transport(conf); err != nil {
		return fail(err)
	}
	if g.ml, err = memberlist.Create(conf); err != nil {
		return fail(errors.Join(err, conf.Transport.Shutdown()))
	}
	return g, nil
}

func checkKeys(keys [][]byte) error {
	if len(keys) == 0 || len(keys) > MaxGossipKeys {
		return fmt.Errorf("it needs 1 to %d keys, and has %d", MaxGossipKeys, len(keys))
	}
	for _, k := range keys {
		if len(k) != GossipKeyBytes {
			return fmt.Errorf("a key has %d bytes, and this one has %d", GossipKeyBytes, len(k))
		}
	}
	return nil
}

// SetKeys replaces the keys: from now on gossip seals with the first, opens with all of them, and with no other.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("keys of gossip: %w", err)
	}
	for _, k := range keys {
		if err := g.ring.AddKey(k); err != nil {
			return fmt.Errorf("keys of gossip: %w", err)
		}
	}
	if err := g.ring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("keys of gossip: %w", err)
	}
	for _, old := range slices.Backward(slices.Clone(g.ring.GetKeys())) {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, old) }) {
			if err := g.ring.RemoveKey(old); err != nil {
				return fmt.Errorf("keys of gossip: %w", err)
			}
		}
	}
	return nil
}

func (g *Gossip) transport(conf *memberlist.Config) error {
	if g.o.network != nil {
		t, err := g.o.network.attach(g.o.Advertise)
		conf.Transport = t
		return err
	}
	host, port, err := splitAddress(g.o.Bind)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: conf.Logger})
	if err != nil {
		return err
	}
	conf.BindAddr, conf.BindPort = host, t.GetAutoBindPort()
	conf.AdvertisePort = conf.BindPort
	conf.Transport = newVetting(t, g.ring.GetKeys)
	if g.o.Advertise == "" {
		return nil
	}
	host, port, err = splitAddress(g.o.Advertise)
	var ips []net.IP
	if err == nil {
		ips, err = net.LookupIP(host)
	}
	if err != nil || len(ips) == 0 {
		return errors.Join(fmt.Errorf("advertised address %s", g.o.Advertise), err, conf.Transport.Shutdown())
	}
	conf.AdvertiseAddr, conf.AdvertisePort = ips[0].String(), port
	return nil
}

func splitAddress(a string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(a)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	return host, port, err
}

// Address returns the address on which this member listens.
func (g *Gossip) Address() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peers[g.o.Name].Gossip
}

// Hints returns hints of changes. If the caller does not take them, the oldest are dropped: Peers has the whole picture.
func (g *Gossip) Hints() <-chan Hint { return g.hints }

// Peers returns the members that seem to be there, this one among them, by name.
func (g *Gossip) Peers() []Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.peers), func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
}

func readPeer(n *memberlist.Node) (p Peer, leaving bool) {
	var m gossipMeta
	if err := json.Unmarshal(n.Meta, &m); err != nil {
		m = gossipMeta{} // of a newer version, perhaps; a hint can do without
	}
	return Peer{Name: n.Name, Gossip: n.Address(), Meta: m.GossipMeta}, m.Leaving
}

// SetMeta reports to all others what has changed. It waits up to a second until the report is sent. On a machine too busy for that the report
// stays queued, and the next rounds of gossip bring it: no error.
func (g *Gossip) SetMeta(m GossipMeta) error {
	if err := g.setMeta(m); err != nil {
		return err
	}
	_ = g.ml.UpdateNode(time.Second) // its only error is that it waited in vain
	return nil
}

func (g *Gossip) setMeta(m GossipMeta) error {
	b, err := json.Marshal(gossipMeta{m, true}) // the longest it gets
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	if len(b) > memberlist.MetaMaxSize {
		return fmt.Errorf("gossip: roles, address and version take %d bytes, and there is room for %d", len(b), memberlist.MetaMaxSize)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meta = m
	return nil
}

// Join keeps this member in touch with the others until ctx is done. It asks each of seeds (addresses for gossip) again that
// does not seem to be there, with growing pauses while none answers. So two halves of a cluster find each other again, which
// gossip by itself does not do.
func (g *Gossip) Join(ctx context.Context, seeds func() []string) {
	shortest := time.Second
	if g.o.Interval > 0 {
		shortest = g.o.Interval
	}
	limit := 60 * shortest
	wait := shortest
	for {
		missing := g.missing(seeds())
		if len(missing) > 0 {
			if n, err := g.ml.Join(missing); err != nil {
				g.o.Log.Debug("gossip: join", "answered", n, "of", len(missing), "err", err)
			}
		}
		if wait = min(2*wait, limit); len(g.Peers()) > 1 && len(g.missing(seeds())) == 0 {
			wait = limit
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2)) // not all members at once
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-g.lost:
			timer.Stop()
			wait = shortest / 2
		case <-timer.C:
		}
	}
}

// missing are those addresses at which no member seems to be there.
func (g *Gossip) missing(seeds []string) []string {
	there := map[string]bool{}
	for _, p := range g.Peers() {
		there[p.Gossip] = true
	}
	var out []string
	for _, s := range seeds {
		if !there[s] {
			out = append(out, s)
		}
	}
	return out
}

// Close reports to the others that this member leaves, and ends.
func (g *Gossip) Close() error {
	g.closing.Do(func() {
		g.mu.Lock()
		g.leaving = true
		g.mu.Unlock()
		if err := g.ml.UpdateNode(time.Second); err != nil {
			g.o.Log.Debug("gossip: announce that this member leaves", "err", err)
		}
		if err := g.ml.Leave(2 * time.Second); err != nil {
			g.failure = fmt.Errorf("gossip: leave: %w", err)
		}
		if err := g.ml.Shutdown(); err != nil {
			g.failure = errors.Join(g.failure, fmt.Errorf("gossip: %w", err))
		}
	})
	return g.failure
}

// gossipDelegate implements what memberlist asks and reports.
type gossipDelegate struct{ *Gossip }

// NodeMeta implements memberlist.Delegate.
func (d gossipDelegate) NodeMeta(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := json.Marshal(gossipMeta{d.meta, d.leaving})
	if err != nil {
		panic("node: gossip meta: " + err.Error()) // setMeta has marshalled it
	}
	return b
}

// The rest of memberlist.Delegate: members exchange nothing else.
func (gossipDelegate) NotifyMsg([]byte)                {}
func (gossipDelegate) GetBroadcasts(int, int) [][]byte { return nil }
func (gossipDelegate) LocalState(bool) []byte          { return nil }
func (gossipDelegate) MergeRemoteState([]byte, bool)   {}

// NotifyJoin implements memberlist.EventDelegate.
func (d gossipDelegate) NotifyJoin(n *memberlist.Node) {
	p, _ := readPeer(n)
	d.keep(p, true)
	d.notify(HintJoined, p)
}

// NotifyUpdate implements memberlist.EventDelegate.
func (d gossipDelegate) NotifyUpdate(n *memberlist.Node) {
	p, leaving := readPeer(n)
	d.keep(p, true)
	if !leaving { // else NotifyLeave reports it once it has left
		d.notify(HintChanged, p)
	}
}

// NotifyLeave implements memberlist.EventDelegate.
func (d gossipDelegate) NotifyLeave(n *memberlist.Node) {
	p, leaving := readPeer(n)
	d.keep(p, false)
	if leaving {
		d.notify(HintLeft, p)
		return
	}
	d.notify(HintFailed, p)
	select {
	case d.lost <- struct{}{}:
	default:
	}
}

func (d gossipDelegate) keep(p Peer, there bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if there || p.Name == d.o.Name {
		d.peers[p.Name] = p
	} else {
		delete(d.peers, p.Name)
	}
}

func (d gossipDelegate) notify(k HintKind, p Peer) {
	if p.Name == d.o.Name {
		return
	}
	for {
		select {
		case d.hints <- Hint{Kind: k, Peer: p}:
			return
		default:
		}
		select {
		case <-d.hints: // the oldest one
		default:
		}
	}
}

// gossipLog hands memberlist's lines on. They are for debugging: what they complain of as errors is what strangers send.
// Members that do not answer are reported as hints.
type gossipLog struct{ log *slog.Logger }

// Write implements io.Writer.
func (g gossipLog) Write(b []byte) (int, error) {
	g.log.Debug(string(b))
	return len(b), nil
}

var _ io.Writer = gossipLog{}
