package node

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// GossipNetwork carries gossip within a process, What is sent to a member that is not there, or does
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

func (n *GossipNetwork) attach(address string) (memberlist.Transport, error) {
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
