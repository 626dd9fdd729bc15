package attack

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// drip is a body that comes byte by byte and never ends.
type drip struct{}

func (drip) Read(p []byte) (int, error) {
	p[0] = '{'
	return 1, nil
}

// Requests with large bodies that their clients cancel all the time end no server, whoever they are sent to: one that does not
// lead passes such bodies on as they come.
func TestCancelledLargeBodies(t *testing.T) {
	t.Parallel()
	c := start(t, options{})
	_, followers := c.roles(t)
	from := place()
	const workers = 60
	var cancelled atomic.Int64
	for _, at := range followers {
		h := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
			DialContext: func(ctx context.Context, _, to string) (net.Conn, error) { return connect(ctx, from, to) }}
		var group sync.WaitGroup
		for i := range workers {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			path := []string{"/v1/plans/try", "/v1/cluster/snapshot", "/v1/plans%2Ftry"}[i%3]
			group.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(20))*time.Millisecond)
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+at.address+path, drip{})
					if err != nil {
						t.Error(err)
					}
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Authorization", "Bearer "+c.token)
					if resp, err := h.RoundTrip(r); err == nil {
						_, _ = io.CopyN(io.Discard, resp.Body, 1<<16)
						_ = resp.Body.Close()
					} else {
						cancelled.Add(1)
					}
					cancel()
				}
			})
		}
		group.Wait()
		h.CloseIdleConnections()
	}
	t.Logf("%d requests were cancelled", cancelled.Load())
	if cancelled.Load() == 0 {
		t.Error("no request was cancelled")
	}
	c.eventually(t, "the cluster is healthy after it", c.healthy)
	if p := c.panics(); len(p) > 0 {
		t.Errorf("panics: %q", p)
	}
}
