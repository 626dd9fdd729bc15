package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

const (
	streams    = 100
	bodyBytes  = 16 << 20
	maxGrowth  = 64 << 20 // bytes of a server's own memory that strangers' bodies may cost
	maxBuffers = 64 << 20 // bytes of bodies that a server buffers at once for those who have a token
	// garbageFactor is what buffers cost at most over what they hold: a buffer that grows is copied, and Go collects garbage
	// when there is as much of it as there is data.
	garbageFactor = 3
)

// unfinished is a body of n bytes whose last one never comes.
type unfinished struct {
	n    int64
	over <-chan struct{}
}

func (u *unfinished) Read(p []byte) (int, error) {
	if u.n <= 1 {
		<-u.over
		return 0, io.ErrUnexpectedEOF
	}
	n := min(int64(len(p)), u.n-1)
	u.n -= n
	return int(n), nil
}

// flood a server with bodies over one HTTP/2 connection, as long as they are taken, and return by how much the memory of each
// server grew at most, and the answers.
func flood(t *testing.T, c *cluster, at *server, token string, paths ...string) (grown map[string]int64, answers map[string]int) {
	t.Helper()
	before := map[string]int64{}
	for _, s := range c.servers {
		n, err := s.memory()
		if err != nil {
			t.Fatal(err)
		}
		before[s.name] = n
	}
	from := place()
	h := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, to string) (net.Conn, error) { return connect(ctx, from, to) }}
	defer h.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	var mu sync.Mutex
	answers = map[string]int{}
	var group sync.WaitGroup
	for i := range streams {
		group.Go(func() {
			for { // who is cut off comes again
				what := "cut off"
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+at.address+paths[i%len(paths)], &unfinished{n: bodyBytes, over: over})
				if err != nil {
					t.Error(err)
					return
				}
				r.ContentLength = bodyBytes
				if i%2 == 1 {
					r.ContentLength = -1 // it is not said how long it is
				}
				r.Header.Set("Content-Type", "application/json")
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				resp, err := h.RoundTrip(r)
				if err == nil {
					what = resp.Status
					_ = resp.Body.Close()
				}
				mu.Lock()
				answers[what]++
				mu.Unlock()
				if err == nil {
					return
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	grown = map[string]int64{}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	release := time.After(6 * time.Second)
watch:
	for {
		for _, s := range c.servers {
			n, err := s.memory()
			if err != nil {
				t.Fatal(err)
			}
			grown[s.name] = max(grown[s.name], n-before[s.name])
		}
		select {
		case <-tick.C:
		case <-done:
			break watch
		case <-release:
			break watch
		}
	}
	close(over)
	cancel()
	<-done
	return grown, answers
}

// Without a token no client makes a server buffer a body.
func TestBodiesWithoutAToken(t *testing.T) {
	t.Parallel()
	c := start(t, options{})
	leader, followers := c.roles(t)
	for _, at := range []*server{followers[0], leader} {
		grown, answers := flood(t, c, at, "", "/v1/virtual-clusters", "/v1/simulate", "/v1/cluster/snapshot", "/v1/cluster/join", "/livez")
		t.Logf("%s: %d streams with bodies of %d MiB: memory grew by %s; answers %v", c.role(t, at), streams, bodyBytes>>20, mib(grown), answers)
		for name, n := range grown {
			if n >= maxGrowth {
				t.Errorf("strangers' bodies at %s: memory of %s grew by %d MiB, at most %d are allowed", at.name, name, n>>20, maxGrowth>>20)
			}
		}
	}
	c.eventually(t, "the cluster is healthy after it", c.healthy)
}

// Clients with a token make a server buffer a bounded number of bytes in all.
func TestBodiesWithAToken(t *testing.T) {
	t.Parallel()
	c := start(t, options{})
	leader, followers := c.roles(t)
	for _, at := range []*server{followers[0], leader} {
		grown, answers := flood(t, c, at, c.token, "/v1/simulate")
		t.Logf("%s: %d streams with bodies of %d MiB and a token: memory grew by %s; answers %v", c.role(t, at), streams, bodyBytes>>20, mib(grown), answers)
		for name, n := range grown {
			if n >= garbageFactor*maxBuffers {
				t.Errorf("bodies with a token at %s: memory of %s grew by %d MiB; %d MiB may be buffered, which cost at most %d", at.name, name, n>>20, maxBuffers>>20, garbageFactor*maxBuffers>>20)
			}
		}
		if n := answers["503 Service Unavailable"] + answers["429 Too Many Requests"]; n == 0 {
			t.Errorf("%s refused no caller: %v", at.name, answers)
		}
	}
	c.eventually(t, "the cluster is healthy after it", c.healthy)
}

func mib(n map[string]int64) string {
	out := ""
	for _, name := range []string{"s1", "s2", "s3"} {
		out += fmt.Sprintf("%s %d MiB ", name, n[name]>>20)
	}
	return out
}
