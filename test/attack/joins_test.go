package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/cluster/pki"
)

// joinBody is a request to join, as a vcd sends it.
type joinBody struct {
	ID      string `json:"id"`
	Secret  string `json:"secret"`
	Name    string `json:"name"`
	Address string `json:"address"`
	Request string `json:"request"`
	Chain   string `json:"chain,omitempty"`
}

// growth of the log of all servers.
type growth struct {
	index uint64
	files []int64 // bytes, by server
}

func (c *cluster) measure(t *testing.T) growth {
	t.Helper()
	var g growth
	for _, s := range c.servers {
		st, err := c.must(t, s).Status(t.Context(), client.Stale())
		if err != nil {
			t.Fatal(err)
		}
		g.index = max(g.index, st.Index)
		n, err := s.logFile()
		if err != nil {
			t.Fatal(err)
		}
		g.files = append(g.files, n)
	}
	return g
}

// No request without a token becomes an entry of the log.
func TestJoinsWithoutAToken(t *testing.T) {
	t.Parallel()
	c := start(t, options{})
	leader, followers := c.roles(t)
	api := c.must(t, leader)
	real, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
	if err != nil {
		t.Fatal(err)
	}
	request := signingRequest(t)
	wrong := strings.Repeat("x", 43)
	valid := joinBody{ID: real.ID, Secret: wrong, Name: "s9", Address: "127.0.0.1:9", Request: request}
	with := func(change func(*joinBody)) joinBody { b := valid; change(&b); return b }
	bodies := map[string]any{
		"an unknown token":      with(func(b *joinBody) { b.ID = "0123456789abcdef" }),
		"a wrong secret":        valid,
		"no secret":             with(func(b *joinBody) { b.Secret = "" }),
		"a server's name":       with(func(b *joinBody) { b.Name = "s2" }),
		"a long id":             with(func(b *joinBody) { b.ID = strings.Repeat("a", 12<<10) }),
		"a long secret":         with(func(b *joinBody) { b.Secret = strings.Repeat("a", 12<<10) }),
		"a long name":           with(func(b *joinBody) { b.Name = strings.Repeat("a", 12<<10) }),
		"a long address":        with(func(b *joinBody) { b.Address = strings.Repeat("a", 12<<10) + ":1" }),
		"an address of 900 kB":  with(func(b *joinBody) { b.Address = strings.Repeat("a", 900_000) + ":1" }),
		"a request of 900 kB":   with(func(b *joinBody) { b.Request = request + strings.Repeat("\n", 900_000) }),
		"a chain":               with(func(b *joinBody) { b.Chain = strings.Replace(request, "CERTIFICATE REQUEST", "CERTIFICATE", 2) }),
		"a chain of 900 kB":     with(func(b *joinBody) { b.Chain = strings.Repeat("-----BEGIN CERTIFICATE-----\n", 32_000) }),
		"nothing":               struct{}{},
		"a list":                []int{1},
		"the text of the token": with(func(b *joinBody) { b.ID = strings.Split(real.Token, ".")[1] }),
	}

	before, begun := c.measure(t), time.Now()
	pause := 4 * time.Second
	time.Sleep(pause) // sleep: how fast the log of an idle cluster grows is measured
	idle := c.measure(t)
	perSecond := float64(idle.index-before.index) / time.Since(begun).Seconds()

	const workers, each = 20, 50                   // 1,000 in all
	const noLeader = http.StatusServiceUnavailable // on a busy machine the leader may change meanwhile
	var group sync.WaitGroup
	var mu sync.Mutex
	statuses, cut := map[int]int{}, 0
	y := &tally{}
	begun = time.Now()
	names := make([]string, 0, len(bodies))
	for name := range bodies {
		names = append(names, name)
	}
	for w := range workers {
		at := []*server{leader, followers[0], leader, followers[1]}[w%4]
		h := stranger(place())
		group.Go(func() {
			defer h.CloseIdleConnections()
			for i := range each {
				what := names[(w*each+i)%len(names)]
				b, _ := json.Marshal(bodies[what]) // strings only
				status, said, err := post(t.Context(), h, "https://"+at.address+"/v1/cluster/join", b)
				mu.Lock()
				if err != nil && len(b) > 16<<10 { // the server may cut off who sends too much
					cut++
				} else {
					statuses[status]++
				}
				mu.Unlock()
				y.add(err == nil && status < 400 || strings.Contains(said, "BEGIN") || status >= 500 && status != noLeader, err != nil && len(b) > 16<<10 || status >= 400 && status < 500 || status == noLeader, "join with %s at %s: %d %.200s %v", what, at.name, status, said, err)
			}
		})
	}
	group.Wait()
	took := time.Since(begun)
	after := c.measure(t)
	y.report(t, "joins without a token")
	t.Logf("%v, %d cut off, in %s; the log's index rose by %d (an idle cluster's by %.2f a second); files before %v, after %v bytes", statuses, cut, took.Round(time.Millisecond), after.index-idle.index, perSecond, idle.files, after.files)
	// Ten events of refusals a minute, in two minutes that the attack may touch, and what the cluster writes by itself.
	if limit := 30 + uint64(2*perSecond*took.Seconds()); after.index-idle.index > limit {
		t.Errorf("the log's index rose by %d, at most %d are an idle cluster's", after.index-idle.index, limit)
	}
	for i := range after.files {
		if by := after.files[i] - idle.files[i]; by > 64<<10 {
			t.Errorf("raft.db of %s grew by %d bytes", c.servers[i].name, by)
		}
	}
	// The real token was not used up, and still lets its owner in.
	tokens, err := api.JoinTokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range tokens {
		if k.UsedBy != "" && k.ID == real.ID {
			t.Errorf("the token was used by %s", k.UsedBy)
		}
	}
	token, err := pki.ParseJoinToken(real.Token)
	if err != nil {
		t.Fatal(err)
	}
	good := valid
	good.Name, good.Secret = "s8", token.Secret
	b, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	h := stranger(place())
	defer h.CloseIdleConnections()
	c.eventually(t, "who has the token is let in", func(ctx context.Context) error {
		status, said, err := post(ctx, h, "https://"+leader.address+"/v1/cluster/join", b)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %.200s", status, said)
		}
		return err
	})
}

// stranger is an HTTP client without a token that connects from an address.
func stranger(from string) *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true,
		DialContext: func(ctx context.Context, _, to string) (net.Conn, error) { return connect(ctx, from, to) }}
}

func post(ctx context.Context, h http.RoundTripper, url string, body []byte) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitMax)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := h.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, string(said), nil
}
