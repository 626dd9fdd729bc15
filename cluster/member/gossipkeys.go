package member

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/node"
	"evenkeel/cluster/transport"
)

// GossipRotation says how the leader replaces the key of gossip after a member was removed.
type GossipRotation struct {
	Spread time.Duration // members have that long to learn the new key before anything is sealed with it
	Keep   time.Duration // and the old key opens messages for that long afterwards
}

// DefaultGossipRotation gives members a minute to learn a key, and ten to stop using the old one.
var DefaultGossipRotation = GossipRotation{Spread: time.Minute, Keep: 10 * time.Minute}

// nextKeys returns the keys that follow k, which has been in force for since; false: k stays. revoked are the serials of revoked
// certificates: if k does not cover one, there must be a new key. fresh makes a key.
func nextKeys(k transport.GossipKeys, revoked []string, since time.Duration, rotation GossipRotation, fresh func() []byte) (transport.GossipKeys, bool) {
	covered := func(serial string) bool { _, found := slices.BinarySearch(k.Covers, serial); return found }
	switch {
	case slices.ContainsFunc(revoked, func(s string) bool { return !covered(s) }):
		// A removed member knows all keys. The pending one, with which nothing is sealed yet, is dropped. Keys[0] stays in use until
		// the fresh key takes its place. The key before it stays, too: members may still use it.
		used := k.Keys
		if k.Pending {
			used = slices.Delete(slices.Clone(k.Keys), 1, 2)
		}
		keys := [][]byte{used[0], fresh()}
		keys = append(keys, used[1:min(len(used), node.MaxGossipKeys-1)]...)
		return versioned(transport.GossipKeys{Keys: keys, Pending: true, Covers: slices.Sorted(slices.Values(revoked))}), true
	case k.Pending && since >= rotation.Spread:
		keys := append([][]byte{k.Keys[1], k.Keys[0]}, k.Keys[2:]...)
		return versioned(transport.GossipKeys{Keys: keys, Covers: k.Covers}), true
	case !k.Pending && len(k.Keys) > 1 && since >= rotation.Keep:
		return versioned(transport.GossipKeys{Keys: k.Keys[:1], Covers: k.Covers}), true
	}
	return k, false
}

// versioned names keys by a fingerprint.
func versioned(k transport.GossipKeys) transport.GossipKeys {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "evenkeel gossip\x00%t\x00%q\x00", k.Pending, k.Covers) // a hash takes everything
	for _, key := range k.Keys {
		_, _ = sum.Write(key)
	}
	k.Version = hex.EncodeToString(sum.Sum(nil)[:8])
	return k
}

// checkGossipKeys says what is wrong with keys from a file or another member.
func checkGossipKeys(k transport.GossipKeys) error {
	if n := len(k.Keys); n == 0 || n > node.MaxGossipKeys || k.Pending && n < 2 {
		return fmt.Errorf("%d keys of gossip, pending %t", n, k.Pending)
	}
	for _, key := range k.Keys {
		if len(key) != node.GossipKeyBytes {
			return fmt.Errorf("a key of gossip of %d bytes", len(key))
		}
	}
	if versioned(k).Version != k.Version || !slices.IsSorted(k.Covers) {
		return errors.New("keys of gossip that are not whole")
	}
	return nil
}

// gossipKeys are the gossip keys of this member, in memory, on disk and in use. It is safe for concurrent use.
type gossipKeys struct {
	mu    sync.Mutex
	path  string
	log   *slog.Logger
	keys  transport.GossipKeys
	talk  *node.Gossip // nil: this member does not gossip, or not yet
	heard string       // the version that the leader last reported
	news  chan struct{}
}

// load reads the keys from a member's directory: those of the file, or else the one that was made with the cluster.
func (g *gossipKeys) load(dir string, log *slog.Logger) {
	g.path, g.log, g.news = filepath.Join(dir, gossipKeysFile), log, make(chan struct{}, 1)
	b, err := os.ReadFile(g.path)
	if err == nil {
		if err = json.Unmarshal(b, &g.keys); err == nil {
			err = checkGossipKeys(g.keys)
		}
		if err == nil {
			return
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		log.Error("read the keys of gossip; the leader will send them again", "file", g.path, "error", err)
	}
	founding, err := readSecret(dir, gossipKeyFile)
	if err != nil {
		log.Error("key of the gossip", "error", err)
	}
	g.keys = versioned(transport.GossipKeys{Keys: [][]byte{founding}})
}

// now returns the keys that this member has.
func (g *gossipKeys) now() transport.GossipKeys {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys
}

// use makes this member's gossip use the keys, and those that follow.
func (g *gossipKeys) use(talk *node.Gossip) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.talk = talk
	if err := talk.SetKeys(g.keys.Keys); err != nil {
		g.log.Error("keys of gossip", "error", err)
	}
}

// set stores other keys, on disk first.
func (g *gossipKeys) set(k transport.GossipKeys) error {
	if err := checkGossipKeys(k); err != nil {
		return err
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := writeSecret(g.path, append(b, '\n')); err != nil {
		return fmt.Errorf("keep the keys of gossip: %w", err)
	}
	g.keys = k
	if g.talk != nil {
		return g.talk.SetKeys(k.Keys)
	}
	return nil
}

// hear notes which version the leader has.
func (g *gossipKeys) hear(version string) {
	g.mu.Lock()
	g.heard = version
	news := version != g.keys.Version
	g.mu.Unlock()
	if news {
		select {
		case g.news <- struct{}{}:
		default:
		}
	}
}

// outdated says whether the leader is known to have other keys.
func (g *gossipKeys) outdated() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heard != "" && g.heard != g.keys.Version
}

func (m *Member) gossipRotation() GossipRotation {
	return cmp.Or(m.o.GossipRotation, DefaultGossipRotation)
}

// rotateGossipKeys replaces the gossip keys for as long as this server leads, after certificates were revoked: the holder of
// one may know the keys. It goes on with what the leader before it had begun, or begins again with a key of its own.
func (m *Member) rotateGossipKeys(ctx context.Context) {
	rotation, since := m.gossipRotation(), time.Now()
	for {
		s := m.State.Snapshot()
		var revoked []string
		for _, r := range s.RevokedCertificates() {
			revoked = append(revoked, r.Number)
		}
		now := m.gossipKeys.now()
		if next, changed := nextKeys(now, revoked, time.Since(since), rotation, newGossipKey); changed {
			if err := m.gossipKeys.set(next); err != nil {
				m.log.Error("replace the keys of gossip", "error", err)
			} else {
				since = time.Now()
				m.log.Info("keys of gossip", "keys", len(next.Keys), "pending", next.Pending, "version", next.Version)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(rotation.Spread/4, time.Second)):
		}
	}
}

// fetchGossipKeys keeps this member's gossip keys equal to the leader's, until ctx ends. An agent learns with its desired state
// that there are others; a server asks now and then.
func (m *Member) fetchGossipKeys(ctx context.Context) {
	every, failures := m.gossipRotation().Spread/6, 0
	for {
		pause := every
		if m.State == nil && !m.gossipKeys.outdated() {
			pause = time.Hour // the stream brings them
		} else if failures > 0 {
			pause = max(every, askAgainAfter(failures, nil))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.gossipKeys.news:
		case <-time.After(pause):
		}
		if m.State != nil && m.lead().Here {
			continue
		}
		if err := m.fetchGossipKeysOnce(ctx); err != nil {
			failures++
			m.log.Debug("ask for the keys of gossip", "error", err)
			continue
		}
		failures = 0
	}
}

func (m *Member) fetchGossipKeysOnce(ctx context.Context) error {
	return m.atServer(func(address string) error {
		bounded, cancel := context.WithTimeout(ctx, reportEvery)
		defer cancel()
		k, err := m.client.GossipKeys(bounded, address)
		if err != nil || k.Version == m.gossipKeys.now().Version {
			return err
		}
		return m.gossipKeys.set(k)
	})
}
