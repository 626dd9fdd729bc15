package node

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// vetting checks streams before memberlist, over UDP and TCP, sees them: memberlist answers a stream that it cannot decrypt
// with an error, and strangers must get no answer. So the first message is decrypted here, too. memberlist itself drops packets
// that it cannot decrypt.
type vetting struct {
	*memberlist.NetTransport
	keys    func() [][]byte // that members know now; their lengths were checked
	streams chan net.Conn
	stop    chan struct{}
	group   sync.WaitGroup
	closing sync.Once
}

const (
	gossipEncrypted = 10              // type of an encrypted message, first byte of a stream
	maxGossipStream = 4 << 20         // bytes; thousands of members fit
	vetTime         = 5 * time.Second // for a connection to show that it knows the key
	maxVetted       = 64              // connections at a time that have not shown it yet
	sealOverhead    = 1 + 12 + 16     // version, nonce and tag of an encrypted message
	streamHeader    = 1 + 4           // type and length
)

func newVetting(t *memberlist.NetTransport, keys func() [][]byte) *vetting {
	v := &vetting{NetTransport: t, keys: keys, streams: make(chan net.Conn), stop: make(chan struct{})}
	v.group.Go(v.run)
	return v
}

// opens says whether a message was sealed with one of the keys.
func (v *vetting) opens(head, body []byte) bool {
	for _, key := range v.keys() {
		block, err := aes.NewCipher(key)
		if err != nil {
			continue
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			continue
		}
		if _, err := aead.Open(nil, body[1:13], body[13:], head); err == nil {
			return true
		}
	}
	return false
}

// StreamCh implements memberlist.Transport.
func (v *vetting) StreamCh() <-chan net.Conn { return v.streams }

// Shutdown implements memberlist.Transport.
func (v *vetting) Shutdown() error {
	err := v.NetTransport.Shutdown() // it waits until what it accepted is taken
	v.closing.Do(func() { close(v.stop) })
	v.group.Wait()
	return err
}

func (v *vetting) run() {
	slots := make(chan struct{}, maxVetted)
	for {
		select {
		case <-v.stop:
			return
		case c := <-v.NetTransport.StreamCh():
			select {
			case slots <- struct{}{}:
				v.group.Go(func() {
					defer func() { <-slots }()
					v.vet(c)
				})
			default:
				_ = c.Close() // too many strangers: members talk by packets meanwhile
			}
		}
	}
}

// vet hands on a connection whose first message was sealed with the key, and closes any other.
func (v *vetting) vet(c net.Conn) {
	ended := make(chan struct{})
	defer close(ended)
	go func() { // a closed transport waits for no peer
		select {
		case <-v.stop:
			_ = c.SetDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	message, err := v.first(c)
	if err != nil {
		_ = c.Close()
		return
	}
	select {
	case v.streams <- &again{Conn: c, rest: bytes.NewReader(message)}:
	case <-v.stop:
		_ = c.Close()
	}
}

func (v *vetting) first(c net.Conn) ([]byte, error) {
	if err := c.SetDeadline(time.Now().Add(vetTime)); err != nil {
		return nil, err
	}
	head := make([]byte, streamHeader)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if head[0] != gossipEncrypted || size < sealOverhead || size > maxGossipStream {
		return nil, errors.New("not a message of a member")
	}
	var body bytes.Buffer // it grows with what comes, not with what was announced
	if _, err := io.CopyN(&body, c, size); err != nil {
		return nil, err
	}
	b := body.Bytes()
	if !v.opens(head, b) {
		return nil, errors.New("not sealed with a key of the members")
	}
	return append(head, b...), c.SetDeadline(time.Time{})
}

// again is a connection whose first bytes are read a second time.
type again struct {
	net.Conn
	rest *bytes.Reader
}

// Read implements net.Conn.
func (a *again) Read(b []byte) (int, error) {
	if a.rest.Len() > 0 {
		return a.rest.Read(b)
	}
	return a.Conn.Read(b)
}

// GossipNetwork carries gossip within a process, for tests and simulations. What is sent to a member that is not there, or does
// not keep up, is lost.
type GossipNetwork struct {
	mu    sync.Mutex
	nodes map[string]*gossipNode
	drop  func(from, to string) bool
}

// NewGossipNetwork returns a network that loses nothing.
func NewGossipNetwork() *GossipNetwork {
	return &GossipNetwork{nodes: map[string]*gossipNode{}}
}

// Drop sets what is lost: packets and new streams for which f says so. f must not wait; nil loses nothing.
func (n *GossipNetwork) Drop(f func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop = f
}

func (n *GossipNetwork) attach(address string) (*gossipNode, error) {
	host, port, err := splitAddress(address)
	ip := net.ParseIP(host)
	if err != nil || ip == nil {
		return nil, fmt.Errorf("address %q in a network in memory: IP:PORT is needed", address)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[address] != nil {
		return nil, fmt.Errorf("address %s is in use", address)
	}
	t := &gossipNode{of: n, address: address, ip: ip, port: port, packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn, 64)}
	n.nodes[address] = t
	return t, nil
}

// to returns the node at an address, nil if what is sent there is lost.
func (n *GossipNetwork) to(from, address string) *gossipNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[from] == nil || n.drop != nil && n.drop(from, address) {
		return nil
	}
	return n.nodes[address]
}

// gossipNode implements memberlist.Transport.
type gossipNode struct {
	of      *GossipNetwork
	address string
	ip      net.IP
	port    int
	packets chan *memberlist.Packet
	streams chan net.Conn
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *gossipNode) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return t.ip, t.port, nil }

// WriteTo implements memberlist.Transport.
func (t *gossipNode) WriteTo(b []byte, to string) (time.Time, error) {
	now := time.Now()
	if peer := t.of.to(t.address, to); peer != nil {
		select {
		case peer.packets <- &memberlist.Packet{Buf: bytes.Clone(b), From: address(t.address), Timestamp: now}:
		default:
		}
	}
	return now, nil
}

// PacketCh implements memberlist.Transport.
func (t *gossipNode) PacketCh() <-chan *memberlist.Packet { return t.packets }

// DialTimeout implements memberlist.Transport.
func (t *gossipNode) DialTimeout(to string, _ time.Duration) (net.Conn, error) {
	if peer := t.of.to(t.address, to); peer != nil {
		near, far := net.Pipe()
		select {
		case peer.streams <- far:
			return near, nil
		default:
		}
	}
	return nil, fmt.Errorf("dial %s: no answer", to)
}

// StreamCh implements memberlist.Transport.
func (t *gossipNode) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements memberlist.Transport.
func (t *gossipNode) Shutdown() error {
	t.of.mu.Lock()
	delete(t.of.nodes, t.address)
	t.of.mu.Unlock()
	for {
		select {
		case c := <-t.streams: // no caller takes them any more
			_ = c.Close()
		default:
			return nil
		}
	}
}
