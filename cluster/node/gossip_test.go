package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"evenkeel/test/patience"
)

var gossipKey = bytes.Repeat([]byte{7}, GossipKeyBytes)

func gossip(t *testing.T, o GossipOptions) *Gossip {
	t.Helper()
	if o.Keys == nil {
		o.Keys = [][]byte{gossipKey}
	}
	o.Log, o.Interval = quiet(), 50*time.Millisecond
	g, err := OpenGossip(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// join until the test ends.
func (g *Gossip) joinIn(t *testing.T, seeds ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Join(ctx, func() []string { return seeds })
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func names(g *Gossip) []string {
	var out []string
	for _, p := range g.Peers() {
		out = append(out, p.Name)
	}
	return out
}

func sees(t *testing.T, g *Gossip, want ...string) {
	t.Helper()
	until(t, fmt.Sprintf("%s sees %v", g.o.Name, want), func() any { return names(g) }, func() bool { return slices.Equal(names(g), want) })
}

// hint waits for one of the kinds about the member.
func hint(t *testing.T, g *Gossip, of string, kinds ...HintKind) Hint {
	t.Helper()
	for { // the members of a test give a few hints each, and then none
		if h := patience.Receive(t, patience.Stall, fmt.Sprintf("a hint that %s has %v, at %s, which sees %v", of, kinds, g.o.Name, names(g)), g.Hints()); slices.Contains(kinds, h.Kind) && h.Name == of {
			return h
		}
	}
}

func TestGossip(t *testing.T) {
	a := gossip(t, GossipOptions{Name: "a", Bind: "127.0.0.1:0", Meta: GossipMeta{Roles: []string{"server"}, Address: "10.0.0.1:7480", Version: "1"}})
	b := gossip(t, GossipOptions{Name: "b", Bind: "127.0.0.1:0", Meta: GossipMeta{Roles: []string{"agent"}, Address: "10.0.0.2:7480", Version: "1"}})
	c := gossip(t, GossipOptions{Name: "c", Bind: "127.0.0.1:0"})
	b.joinIn(t, a.Address())
	c.joinIn(t, a.Address(), b.Address())
	for _, g := range []*Gossip{a, b, c} {
		sees(t, g, "a", "b", "c")
	}
	if h := hint(t, a, "b", HintJoined); !slices.Equal(h.Meta.Roles, []string{"agent"}) || h.Meta.Address != "10.0.0.2:7480" {
		t.Errorf("joined: %+v", h)
	}
	if err := b.SetMeta(GossipMeta{Roles: []string{"agent", "server"}, Version: "2"}); err != nil {
		t.Fatal(err)
	}
	// A member that a busy machine keeps from answering seems to fail. Then it joins again, with what has changed, or has no leave to
	// announce any more.
	for {
		if h := hint(t, a, "b", HintChanged, HintJoined); h.Meta.Version == "2" {
			break
		}
	}
	if err := b.SetMeta(GossipMeta{Version: strings.Repeat("v", 600)}); err == nil {
		t.Error("meta that is too long was taken")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	hint(t, a, "c", HintLeft, HintFailed)
	sees(t, b, "a", "b")
}

func TestGossipOptions(t *testing.T) {
	for name, o := range map[string]GossipOptions{
		"no name":         {Keys: [][]byte{gossipKey}, Bind: "127.0.0.1:0"},
		"a short key":     {Name: "a", Keys: [][]byte{gossipKey[:16]}, Bind: "127.0.0.1:0"},
		"no key":          {Name: "a", Bind: "127.0.0.1:0"},
		"four keys":       {Name: "a", Keys: [][]byte{gossipKey, gossipKey, gossipKey, gossipKey}, Bind: "127.0.0.1:0"},
		"no port":         {Name: "a", Keys: [][]byte{gossipKey}, Bind: "127.0.0.1"},
		"a long meta":     {Name: "a", Keys: [][]byte{gossipKey}, Bind: "127.0.0.1:0", Meta: GossipMeta{Address: strings.Repeat("x", 512)}},
		"no such address": {Name: "a", Keys: [][]byte{gossipKey}, Bind: "127.0.0.1:0", Advertise: "nowhere.invalid:1"},
	} {
		o.Log = quiet()
		if g, err := OpenGossip(o); err == nil {
			t.Errorf("%s: opened", name)
			_ = g.Close()
		}
	}
}

// Two halves that were cut off from each other report that, and find each other again.
func TestGossipHealsAfterPartition(t *testing.T) {
	network := NewGossipNetwork()
	var cut atomic.Bool
	half := func(address string) bool { return address < "10.0.0.3" }
	network.Drop(func(from, to string) bool { return cut.Load() && half(from) != half(to) })
	var all []*Gossip
	var addresses []string
	for n := 1; n <= 4; n++ {
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d:7481", n))
		all = append(all, gossip(t, GossipOptions{Name: fmt.Sprintf("m%d", n), Advertise: addresses[n-1], network: network}))
	}
	for _, g := range all {
		g.joinIn(t, addresses...)
	}
	for _, g := range all {
		sees(t, g, "m1", "m2", "m3", "m4")
	}
	cut.Store(true)
	sees(t, all[0], "m1", "m2")
	sees(t, all[3], "m3", "m4")
	hint(t, all[0], "m4", HintFailed)
	cut.Store(false)
	for _, g := range all {
		sees(t, g, "m1", "m2", "m3", "m4")
	}
}

// A member that stops without announcing it is found out; the network does not wait for it.
func TestGossipCrash(t *testing.T) {
	network := NewGossipNetwork()
	a := gossip(t, GossipOptions{Name: "a", Advertise: "10.0.0.1:1", network: network})
	b := gossip(t, GossipOptions{Name: "b", Advertise: "10.0.0.2:1", network: network})
	b.joinIn(t, a.Address())
	sees(t, a, "a", "b")
	if err := b.ml.Shutdown(); err != nil { // without leaving
		t.Fatal(err)
	}
	b.closing.Do(func() {})
	hint(t, a, "b", HintFailed)
	again := gossip(t, GossipOptions{Name: "b", Advertise: "10.0.0.2:1", network: network})
	again.joinIn(t, a.Address())
	sees(t, a, "a", "b")
	if _, err := network.attach("10.0.0.2:1"); err == nil {
		t.Error("two at one address")
	}
	if _, err := network.attach("host:1"); err == nil {
		t.Error("a name for an address")
	}
}

// A stranger without the key gets nothing: no answer to a packet, none on a stream, and is no member.
func TestGossipSaysNothingToStrangers(t *testing.T) {
	a := gossip(t, GossipOptions{Name: "a", Bind: "127.0.0.1:0"})
	stranger, err := net.Dial("udp", a.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	// A ping as an unencrypted member sends it (message type 0, then msgpack), noise, and a plain compound message.
	ping := append([]byte{0}, "\x82\xa5SeqNo\x01\xa4Node\xa1a"...)
	for _, packet := range [][]byte{ping, []byte("hello"), append([]byte{7, 1, 0, byte(len(ping))}, ping...)} {
		if _, err := stranger.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	sealed := make([]byte, 60)
	sealed[0] = gossipEncrypted
	binary.BigEndian.PutUint32(sealed[1:], 55)
	for name, message := range map[string][]byte{
		"plain push/pull":    append([]byte{6}, "\x83\xa5Nodes\x00\xaaUserStateLen\x00\xa4Join\xc3"...),
		"plain ping":         ping,
		"with another's key": sealed,
		"an endless one":     {gossipEncrypted, 255, 255, 255, 255, 1},
		"an empty one":       {gossipEncrypted, 0, 0, 0, 0},
	} {
		c, err := net.Dial("tcp", a.Address())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(patience.Within(patience.Stall))); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered %q, %v", name, got, err)
		}
		_ = c.Close()
	}
	// Other keys, or none, make no member.
	other := gossip(t, GossipOptions{Name: "other", Bind: "127.0.0.1:0", Keys: [][]byte{bytes.Repeat([]byte{8}, GossipKeyBytes)}})
	if n, err := other.ml.Join([]string{a.Address()}); err == nil || n != 0 {
		t.Errorf("joined with another key: %d, %v", n, err)
	}
	plain := memberlist.DefaultLANConfig()
	plain.Name, plain.BindAddr, plain.BindPort, plain.AdvertisePort, plain.LogOutput = "plain", "127.0.0.1", 0, 0, io.Discard
	m, err := memberlist.Create(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Shutdown()
	if n, err := m.Join([]string{a.Address()}); err == nil || n != 0 {
		t.Errorf("joined without a key: %d, %v", n, err)
	}
	// A member that came later got its answers: the stranger's packets, sent before, would have theirs by now.
	b := gossip(t, GossipOptions{Name: "b", Bind: "127.0.0.1:0"})
	b.joinIn(t, a.Address())
	sees(t, a, "a", "b")
	if err := stranger.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1500)
	if n, err := stranger.Read(buf); err == nil {
		t.Errorf("a stranger's packet was answered: %q", buf[:n])
	}
}

// Keys are replaced while members talk: no member loses another, and a member that has but the old key is a stranger in the
// end.
func TestGossipKeysAreReplaced(t *testing.T) {
	old, next := gossipKey, bytes.Repeat([]byte{9}, GossipKeyBytes)
	var members []*Gossip
	for _, name := range []string{"a", "b", "c"} {
		g := gossip(t, GossipOptions{Name: name, Bind: "127.0.0.1:0"})
		if len(members) > 0 {
			g.joinIn(t, members[0].Address())
		}
		members = append(members, g)
	}
	all := []string{"a", "b", "c"}
	for _, g := range members {
		sees(t, g, all...)
	}
	version := 0
	// talk: what one sends, by packets, reaches all; a push and pull over a stream works between any two.
	talk := func(what string) {
		t.Helper()
		version++
		if err := members[0].SetMeta(GossipMeta{Version: fmt.Sprint(version)}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, g := range members[1:] {
			until(t, what+": "+g.o.Name+" hears", func() any { return g.Peers() }, func() bool {
				return slices.ContainsFunc(g.Peers(), func(p Peer) bool { return p.Name == "a" && p.Meta.Version == fmt.Sprint(version) })
			})
			if n, err := g.ml.Join([]string{members[0].Address()}); n != 1 || err != nil {
				t.Errorf("%s: %s to a: %d, %v", what, g.o.Name, n, err)
			}
			if n, err := members[0].ml.Join([]string{g.Address()}); n != 1 || err != nil {
				t.Errorf("%s: a to %s: %d, %v", what, g.o.Name, n, err)
			}
		}
	}
	talk("before")
	for _, step := range [][][]byte{{old, next}, {next, old}, {next}} {
		for i, g := range members {
			if err := g.SetKeys(step); err != nil {
				t.Fatal(err)
			}
			if got := g.ring.GetKeys(); !slices.EqualFunc(got, step, bytes.Equal) {
				t.Fatalf("%s has %x, not %x", g.o.Name, got, step)
			}
			talk(fmt.Sprintf("%d keys, the first of %d, at %d members", len(step), step[0][0], i+1))
		}
	}
	// A member that was removed, and has the old key: no member accepts what it sends, and it can read nothing that it
	// receives.
	out := gossip(t, GossipOptions{Name: "out", Bind: "127.0.0.1:0"})
	for _, g := range members {
		if n, err := out.ml.Join([]string{g.Address()}); n != 0 || err == nil {
			t.Errorf("it joined %s with the old key", g.o.Name)
		}
		if n, err := g.ml.Join([]string{out.Address()}); n != 0 || err == nil {
			t.Errorf("%s joined it", g.o.Name)
		}
	}
	out.joinIn(t, members[0].Address(), members[1].Address())
	talk("after")
	sees(t, out, "out")
	for _, g := range members {
		sees(t, g, all...)
	}
	if err := members[0].SetKeys(nil); err == nil {
		t.Error("no keys at all")
	}
	if err := members[0].SetKeys([][]byte{next[:31]}); err == nil {
		t.Error("a short key")
	}
}
