package server_test

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/server"
	"evenkeel/cluster/member"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/test/site"
)

// strangers are HTTP clients without any credentials, each of another address.
func (s *several) strangers(n int) []*http.Client {
	var out []*http.Client
	for i := range n {
		t := s.http.Transport.(*http.Transport).Clone()
		t.DialContext = s.network.From(netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}))
		s.t.Cleanup(t.CloseIdleConnections)
		out = append(out, &http.Client{Transport: t})
	}
	return out
}

// logBytes of all servers.
func (s *several) logBytes() (n int64) {
	for _, name := range s.Up() {
		must(s.t, filepath.Walk(filepath.Join(s.Dir(name), "raft"), func(_ string, f os.FileInfo, err error) error {
			if err == nil && !f.IsDir() {
				n += f.Size()
			}
			return err
		}))
	}
	return n
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A caller without a join token leaves nothing in the log of any server, whatever it asks of which server.
func TestJoinsOfStrangers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 4, site.Options{})
		leader, follower := s.leads()
		text, row, err := s.Member(leader).NewToken(t.Context(), time.Hour, state.JoinToken{Agent: true})
		must(t, err)
		random := func(n int) string {
			b := make([]byte, n)
			_, _ = rand.Read(b)
			return hex.EncodeToString(b)
		}
		good, err := pki.ParseJoinToken(text)
		must(t, err)
		key, err := pki.GenerateKey(rand.Reader)
		must(t, err)
		request, err := pki.NewRequest(key) // or the request would be refused for it
		must(t, err)
		join := func(id, secret, address string, more ...string) string {
			q := map[string]string{"id": id, "secret": secret, "name": "n" + random(4), "address": address, "request": string(request)}
			for i := 0; i < len(more); i += 2 {
				q[more[i]] = more[i+1]
			}
			b, err := json.Marshal(q)
			must(t, err)
			return string(b)
		}
		secret := func() string { return random(22)[:43] }
		forms := []struct {
			what, method string
			body         func() string
			want         string // statuses, beside 429
		}{
			{"an unknown token", "POST", func() string { return join(random(8), secret(), "127.0.0.1:1") }, "403"},
			{"a wrong secret", "POST", func() string { return join(row.ID, secret(), "127.0.0.1:1") }, "403"},
			{"a large address", "POST", func() string { return join(random(8), secret(), strings.Repeat("a", 900_000)+":1") }, "413"},
			{"a long address", "POST", func() string { return join(row.ID, good.Secret, strings.Repeat("a", 15_000)+":1") }, "422"},
			{"a long request", "POST", func() string { return join(row.ID, good.Secret, "h:1", "request", strings.Repeat("a", 9000)) }, "422"},
			{"no port", "POST", func() string { return join(row.ID, good.Secret, "host") }, "422"},
			{"control characters", "POST", func() string { return join(row.ID, good.Secret, "ho\x1b[2Jst:1") }, "422"},
			{"an unknown field", "POST", func() string { return join(random(8), secret(), "127.0.0.1:1", "role", "server") }, "400"},
			{"no JSON", "POST", func() string { return "join" }, "400"},
			{"another method", "PUT", func() string { return join(random(8), secret(), "127.0.0.1:1") }, "401"},
		}
		var mu sync.Mutex
		counts := map[string]int{}
		clients := s.strangers(10)
		index, bytes, heap := s.Member(leader).Index(), s.logBytes(), heapBytes()
		var group sync.WaitGroup
		for c, client := range clients {
			group.Go(func() {
				for i := range 100 {
					f := forms[(i+c)%len(forms)]
					at := []string{leader, follower}[i/len(forms)%2]
					r, err := http.NewRequestWithContext(t.Context(), f.method, "https://"+s.Address(at)+"/v1/cluster/join", strings.NewReader(f.body()))
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := client.Do(r)
					if err != nil {
						t.Errorf("%s: %v", f.what, err)
						continue
					}
					b, _ := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusTooManyRequests && fmt.Sprint(resp.StatusCode) != f.want {
						t.Errorf("%s at %s: %s: %s", f.what, at, resp.Status, b)
					}
					if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
						t.Error("429 without Retry-After")
					}
					mu.Lock()
					counts[fmt.Sprint(resp.StatusCode)]++
					mu.Unlock()
				}
			})
		}
		group.Wait()
		t.Logf("answers: %v", counts)
		if counts["403"] < 20 { // how many are throttled depends on how fast they come: TestJoinLimit
			t.Errorf("too few reached the token: %v", counts)
		}
		// What the servers record of themselves meanwhile, refusals among it, takes some entries.
		if grown := s.Member(leader).Index() - index; grown > 100 {
			t.Errorf("1,000 requests without a token: the log has %d entries more", grown)
		}
		if grown := s.logBytes() - bytes; grown > 1<<20 {
			t.Errorf("the servers' logs have %d bytes more", grown)
		}
		if grown := heapBytes() - heap; grown > 64<<20 {
			t.Errorf("memory: %d bytes more", grown)
		}
		// The real one is let in all the same, through a follower.
		if _, err := member.Join(t.Context(), t.TempDir(), "h4", "127.0.0.1:1", member.JoinOptions{Token: text, Addresses: []string{s.Address(follower)}, Connect: s.Connect}); err != nil {
			t.Errorf("the token is refused: %v", err)
		}
		if server.MaxJoinBytes != 16<<10 {
			t.Errorf("requests to join of %d bytes", server.MaxJoinBytes)
		}
	})
}
