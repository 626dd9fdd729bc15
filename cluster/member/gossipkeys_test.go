package member

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/node"
	"evenkeel/cluster/transport"
)

// makeKeys are keys of gossip that differ: k0, k1, ...
func makeKeys() func() []byte {
	n := byte(0)
	return func() []byte { n++; return bytes.Repeat([]byte{n}, node.GossipKeyBytes) }
}

func TestNextGossipKeys(t *testing.T) {
	fresh := makeKeys()
	key := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, node.GossipKeyBytes) }
	k := versioned(transport.GossipKeys{Keys: [][]byte{fresh()}})
	for _, c := range []struct {
		what    string
		since   time.Duration
		revoked []string
		changed bool
		keys    []int
		pending bool
	}{
		{"at first", time.Hour, nil, false, []int{1}, false},
		{"a member was removed", 0, []string{"b"}, true, []int{1, 2}, true},
		{"not all know it", 59 * time.Second, []string{"b"}, false, []int{1, 2}, true},
		{"another was removed, which may know the pending key", 59 * time.Second, []string{"b", "a"}, true, []int{1, 3}, true},
		{"all know it", time.Minute, []string{"b", "a"}, true, []int{3, 1}, false},
		{"some may use the old one still", 9 * time.Minute, []string{"a", "b"}, false, []int{3, 1}, false},
		{"a third was removed", 9 * time.Minute, []string{"a", "b", "c"}, true, []int{3, 4, 1}, true},
		{"all know it, again", time.Minute, []string{"a", "b", "c"}, true, []int{4, 3, 1}, false},
		{"no member uses an old one", 10 * time.Minute, []string{"a", "b", "c"}, true, []int{4}, false},
		{"one is forgotten, as its certificate has ended", time.Hour, []string{"c"}, false, []int{4}, false},
	} {
		next, changed := nextKeys(k, c.revoked, c.since, DefaultGossipRotation, fresh)
		var want [][]byte
		for _, n := range c.keys {
			want = append(want, key(n))
		}
		if changed != c.changed || next.Pending != c.pending || !slices.EqualFunc(next.Keys, want, bytes.Equal) || changed == (next.Version == k.Version) {
			t.Fatalf("%s: %v %t, pending %t: %x", c.what, next, changed, next.Pending, next.Keys)
		}
		if err := checkGossipKeys(next); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		k = next
	}
}

// In any order of events: what one step seals, a member that is one step behind can open, and the other way around. Once all is
// done, no removed member knows the key.
func TestGossipKeysLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fresh, known := makeKeys(), map[string]bool{}
		k := versioned(transport.GossipKeys{Keys: [][]byte{fresh()}})
		var revoked []string
		step := func(since time.Duration) bool {
			next, changed := nextKeys(k, revoked, since, DefaultGossipRotation, fresh)
			opens := func(by, sealed transport.GossipKeys) bool {
				return slices.ContainsFunc(by.Keys, func(key []byte) bool { return bytes.Equal(key, sealed.Keys[0]) })
			}
			if !opens(k, next) || !opens(next, k) && (k.Pending || len(k.Keys) == 1 || since < DefaultGossipRotation.Keep) {
				t.Fatalf("members that are a step apart do not understand each other: %x, %x", k.Keys, next.Keys)
			}
			if err := checkGossipKeys(next); err != nil {
				t.Fatal(err)
			}
			k = next
			return changed
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "removed") {
				for _, key := range k.Keys { // it knows what there is at that moment
					known[string(key)] = true
				}
				revoked = append(revoked, fmt.Sprintf("%02d", len(revoked)))
			}
			step(time.Duration(rapid.IntRange(0, 700).Draw(t, "seconds")) * time.Second)
		}
		for range 10 {
			if !step(time.Hour) {
				break
			}
		}
		if len(k.Keys) != 1 || len(revoked) > 0 && known[string(k.Keys[0])] {
			t.Fatalf("in the end there are %d keys, known to who was removed: %t", len(k.Keys), known[string(k.Keys[0])])
		}
	})
}

// Keys outlive a restart, in a file that only its owner may read. A file that is damaged is as none.
func TestGossipKeysFile(t *testing.T) {
	dir, fresh, log := t.TempDir(), makeKeys(), slog.New(slog.DiscardHandler)
	founding := fresh()
	if err := writeSecret(filepath.Join(dir, gossipKeyFile), founding); err != nil {
		t.Fatal(err)
	}
	var g gossipKeys
	g.load(dir, log)
	if k := g.now(); len(k.Keys) != 1 || !bytes.Equal(k.Keys[0], founding) {
		t.Fatalf("at first: %x", k.Keys)
	}
	next, _ := nextKeys(g.now(), []string{"a"}, 0, DefaultGossipRotation, fresh)
	if err := g.set(next); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []transport.GossipKeys{{}, versioned(transport.GossipKeys{Keys: [][]byte{{1}}}), {Keys: next.Keys, Version: "0"}} {
		if err := g.set(bad); err == nil {
			t.Errorf("taken: %x", bad.Keys)
		}
	}
	path := filepath.Join(dir, gossipKeysFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var again gossipKeys
	again.load(dir, log)
	if again.now().Version != next.Version || !again.now().Pending {
		t.Errorf("after a restart: %v", again.now())
	}
	if again.hear("other"); !again.outdated() || len(again.news) != 1 {
		t.Error("other keys are no news")
	}
	if again.hear(next.Version); again.outdated() {
		t.Error("the same keys are lacking")
	}
	if s := fmt.Sprintf("%v %+v %#v", next, next, next); strings.Contains(s, "[") {
		t.Errorf("they are shown: %s", s)
	}
	for _, text := range []string{"", "{", "{}", `{"keys":[""]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var damaged gossipKeys
		if damaged.load(dir, log); !bytes.Equal(damaged.now().Keys[0], founding) || damaged.now().Pending {
			t.Errorf("from %q: %v", text, damaged.now())
		}
	}
}
