package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	descriptors   = 256 // that the attacked servers may have
	idleStrangers = 500 // at each of them
	servedWithin  = 5 * time.Second
)

// crowd of strangers that connect, ask for /livez and then keep the connection, again when it is ended.
type crowd struct {
	group sync.WaitGroup
	stop  context.CancelFunc
	open  atomic.Int64 // connections that are open now
	had   atomic.Int64 // connections that were open
}

// besiege a server by n strangers from these addresses, one after the other.
func besiege(ctx context.Context, to string, n int, from []string) *crowd {
	ctx, stop := context.WithCancel(ctx)
	w := &crowd{stop: stop}
	for i := range n {
		w.group.Go(func() {
			for ctx.Err() == nil {
				w.one(ctx, from[i%len(from)], to)
				select {
				case <-time.After(2 * time.Second): // 500 handshakes a second of both sides would be an attack on this machine's CPUs
				case <-ctx.Done():
				}
			}
		})
	}
	return w
}

func (w *crowd) one(ctx context.Context, from, to string) {
	conn, err := dialALPN(ctx, from, to, "http/1.1")
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // nothing is kept in it
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return
	}
	w.open.Add(1)
	w.had.Add(1)
	defer w.open.Add(-1)
	_, _ = io.Copy(io.Discard, conn) // until it is ended
}

func (w *crowd) end() {
	w.stop()
	w.group.Wait()
}

// served asks a server for its status with a token, over a new connection each time, until it answers. More than servedWithin is
// an error. It returns how long that took, and how many connections were needed.
func (c *cluster) served(ctx context.Context, s *server) (took time.Duration, tries int, err error) {
	begun := time.Now()
	err = awaitFor(ctx, answerMax, s.name+" answers a caller with a token", func(ctx context.Context) error {
		tries++
		api, err := c.client(s)
		if err != nil {
			return err
		}
		defer api.Close()
		_, err = api.Status(ctx)
		return err
	})
	took = stalls.Ran(begun, time.Now())
	if err == nil && took > servedWithin {
		err = errors.New("it answered late")
	}
	return took, tries, err
}

// Strangers take up no descriptors that members and clients with a token need.
func TestIdleStrangers(t *testing.T) {
	t.Parallel()
	c := start(t, options{files: map[string]int{"s1": descriptors, "s2": descriptors}})
	leader, _ := c.roles(t)
	attacked := c.servers[:2]
	other := c.servers[2]
	for _, form := range []struct {
		name string
		from []string
	}{
		{"from one address", []string{place()}},
		{"from 20 addresses", func() []string {
			var out []string
			for range 20 {
				out = append(out, place())
			}
			return out
		}()},
	} {
		t.Run(form.name, func(t *testing.T) {
			var groups []*crowd
			for _, s := range attacked {
				w := besiege(context.Background(), s.address, idleStrangers, form.from)
				defer w.end()
				groups = append(groups, w)
			}
			c.eventually(t, "the strangers have tried", func(context.Context) error {
				for _, w := range groups {
					if w.had.Load() < 60 {
						return fmt.Errorf("%d connections", w.had.Load())
					}
				}
				return nil
			})
			// Servers accept new connections of members: s3 is started again during the attack, and its agent renews its lease.
			other.kill()
			if err := other.launch("run", "--config", other.config); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			limit := 4 * time.Second
			if long() {
				limit = 2 * time.Minute
			}
			over := time.After(limit)
			var slowest time.Duration
			served, again := 0, 0
			for done := false; !done; {
				for _, s := range attacked {
					took, tries, err := c.served(t.Context(), s)
					slowest = max(slowest, took)
					again += tries - 1
					if err != nil {
						t.Errorf("%s, amidst strangers: %v after %.1f s, at most %v are allowed", c.name(leader, s), err, took.Seconds(), servedWithin)
						done = true
					}
					served++
				}
				select {
				case <-over:
					done = true
				default:
				}
			}
			if err := awaitFor(t.Context(), 45*time.Second, "members are healthy amidst strangers, s3 among them", func(ctx context.Context) error {
				api, err := c.client(other)
				if err != nil {
					return err
				}
				defer api.Close()
				host, err := api.Host(ctx, other.name)
				if err != nil {
					return err
				}
				if since := time.Since(begun).Seconds(); host.Heard < 0 || host.Heard > since {
					return fmt.Errorf("host %s renewed its lease %.1f s ago, and its vcd was started %.1f s ago", other.name, host.Heard, since)
				}
				return c.healthyBy(ctx, api)
			}); err != nil {
				t.Error(err)
			}
			t.Logf("%d strangers at each of %d servers with %d descriptors: %d and %d connections open at the end; %d requests with a token served, the slowest in %.2f s, %d tried again; s3 back, with its lease renewed, %.1f s after it was started",
				idleStrangers, len(attacked), descriptors, groups[0].open.Load(), groups[1].open.Load(), served, slowest.Seconds(), again, time.Since(begun).Seconds())
		})
	}
	c.eventually(t, "the cluster is healthy after it", c.healthy)
}

// name of a server with its role, where it is known who leads.
func (c *cluster) name(leader, s *server) string {
	if s == leader {
		return "leader " + s.name
	}
	return "follower " + s.name
}

// Members' connections are also kept when idle connections that were used with a token take up descriptors.
func TestIdleClients(t *testing.T) {
	t.Parallel()
	c := start(t, options{files: map[string]int{"s2": descriptors}})
	h := []*http.Transport{}
	defer func() {
		for _, h := range h {
			h.CloseIdleConnections()
		}
	}()
	s := c.servers[1]
	answered := 0
	for asked := range 2 * descriptors {
		if asked-answered > 2*descriptors/20 {
			break
		}
		one := stranger(place())
		h = append(h, one)
		ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/v1/vms?consistency=stale", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
		resp, err := one.RoundTrip(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			answered++
		}
		cancel()
	}
	t.Logf("%d of %d clients with a token were answered by a server with %d descriptors, each on a connection that it keeps", answered, 2*descriptors, descriptors)
	if answered < 2*descriptors*95/100 {
		t.Errorf("%d of %d were answered", answered, 2*descriptors)
	}
	c.eventually(t, "the cluster is healthy amidst idle clients", c.healthy)
}
