package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// cutWithin is how long a client's request may go on after its token was revoked.
const cutWithin = 5 * time.Second

// image adds the kernel image that the tests' VMs boot, if it is not there.
func (c *cluster) image(t *testing.T) {
	t.Helper()
	leader, _ := c.roles(t)
	c.eventually(t, "the image is there", func(ctx context.Context) error {
		_, err := c.must(t, leader).AddImage(ctx, v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/boot/tiny"})
		if client.IsProblem(err, v1.ProblemExists) {
			return nil
		}
		return err
	})
}

// queued makes a VC that runs and one that waits for room, and returns the VMs that run and the operation that waits.
func (c *cluster) queued(t *testing.T) (vms []v1.VM, operation string) {
	t.Helper()
	c.image(t)
	leader, _ := c.roles(t)
	api := c.must(t, leader)
	hosts, err := api.Hosts(t.Context())
	if err != nil || len(hosts) == 0 {
		t.Fatalf("%d hosts, %v", len(hosts), err)
	}
	spec := func(name string) v1.VirtualClusterSpec {
		return v1.VirtualClusterSpec{Name: name, OnFull: "queue", Groups: []v1.GroupSpec{{Name: "g", Count: len(hosts), CPU: 0.1, Memory: v1.Size(int64(hosts[0].Allowance.Memory) * 6 / 10), Boot: &v1.Boot{Kernel: "tiny"}}}}
	}
	first, err := api.Create(t.Context(), spec("runs"))
	if err != nil {
		t.Fatal(err)
	}
	if op, err := api.Wait(t.Context(), *first.Operation, nil); err != nil || op.State != v1.OperationDone {
		t.Fatalf("%+v, %v", op, err)
	}
	second, err := api.Create(t.Context(), spec("waits"))
	if err != nil || second.Operation == nil || second.Operation.Ended() {
		t.Fatalf("%+v, %v", second, err)
	}
	vms, err = api.VMs(t.Context(), "runs", "")
	if err != nil || len(vms) < 3 {
		t.Fatalf("%d VMs, %v", len(vms), err)
	}
	return vms, second.Operation.ID
}

// running is something that a client does with a token.
type running struct {
	what  string
	began chan struct{} // closed once the server answers it
	ended chan time.Time
	err   error // before ended: it did not begin
}

func begin(what string, run func(began func()) error) *running {
	r := &running{what: what, began: make(chan struct{}), ended: make(chan time.Time, 1)}
	var once sync.Once
	go func() {
		err := run(func() { once.Do(func() { close(r.began) }) })
		r.err = err
		r.ended <- time.Now()
		once.Do(func() { close(r.began) })
	}()
	return r
}

// stream reads an answer that has no end of its own, until the server ends it.
func stream(ctx context.Context, s *server, path, token string) func(func()) error {
	return func(began func()) error {
		conn, err := dialALPN(ctx, "", s.address, "http/1.1")
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it is the server that ends it
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if _, err := conn.Write(plain("GET", path, "Authorization: Bearer "+token+"\r\n", "")); err != nil {
			return err
		}
		in := bufio.NewReader(conn)
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			return fmt.Errorf("%s: %q %w", path, line, err)
		}
		began()
		for err == nil {
			if line, err = in.ReadString('\n'); line == "0\r\n" { // the last chunk
				return nil
			}
		}
		return ctx.Err()
	}
}

// poll asks for an operation that does not end. It begins when the server had time to accept the request.
func poll(ctx context.Context, s *server, operation, token string) func(func()) error {
	return func(began func()) error {
		timer := time.AfterFunc(500*time.Millisecond, began)
		defer timer.Stop()
		conn, err := dialALPN(ctx, "", s.address, "http/1.1")
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it is the server that ends it
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if _, err := conn.Write(plain("GET", "/v1/operations/"+operation+"?wait=55s", "Authorization: Bearer "+token+"\r\nConnection: close\r\n", "")); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, conn) // however it ends, that is its end
		return ctx.Err()
	}
}

// console reads a VM's console until the server ends it.
func console(ctx context.Context, c *cluster, s *server, vm, token string) func(func()) error {
	return func(began func()) error {
		api, err := client.New(client.Config{Address: s.address, Token: token, CAFile: c.ca})
		if err != nil {
			return err
		}
		defer api.Close()
		tty, err := api.Console(ctx, vm)
		if err != nil {
			return err
		}
		defer tty.Close() //nolint:errcheck // it is the server that ends it
		began()
		b := make([]byte, 1024)
		for err == nil {
			_, err = tty.Read(b)
		}
		return ctx.Err()
	}
}

// TestRevokedToken: requests and streams with a token end soon after the token is revoked, on every server.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	probe := reuse(t)
	if said, status := vcctl(t, probe, nil, "token", "create", "--help"); status != 0 || !strings.Contains(said, "--role") {
		t.Skip("vcctl has no verb token create, so no token can be revoked")
	}
	c := start(t, options{})
	vms, operation := c.queued(t)
	leader, followers := c.roles(t)
	said, status := vcctl(t, c, c.admin(leader), "token", "create", "thief", "--role", "admin", "-o", "json")
	var made struct{ ID, Token string }
	if err := json.NewDecoder(strings.NewReader(said[max(0, strings.Index(said, "{")):])).Decode(&made); err != nil || status != 0 || made.Token == "" || made.ID == "" {
		t.Fatalf("a token: %d %v", status, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaitMax)
	defer cancel()
	for _, s := range c.servers { // followers may be behind for a moment
		c.eventually(t, s.name+" knows the token", func(context.Context) error {
			if a := c.ask(t, s, "GET", "/v1/vms?consistency=stale", made.Token, ""); a.status != 200 {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	var all []*running
	for i, s := range []*server{leader, followers[0]} {
		at := c.name(leader, s)
		all = append(all, begin("event stream on "+at, stream(ctx, s, "/v1/events", made.Token)),
			begin("stale event stream on "+at, stream(ctx, s, "/v1/events?consistency=stale", made.Token)),
			begin("long poll on "+at, poll(ctx, s, operation, made.Token)),
			begin("console on "+at, console(ctx, c, s, vms[i].Name, made.Token)))
	}
	for _, r := range all {
		select {
		case <-r.began:
		case <-ctx.Done():
			t.Fatalf("%s did not begin", r.what)
		}
		select {
		case <-r.ended:
			t.Fatalf("%s ended before the token was revoked: %v", r.what, r.err)
		default:
		}
	}
	if said, status := vcctl(t, c, c.admin(leader), "token", "revoke", made.ID); status != 0 {
		t.Fatalf("revoke: %d %s", status, said)
	}
	revoked := time.Now()
	over, giveUp := context.WithTimeout(t.Context(), patience.Within(patience.Stall))
	defer giveUp()
	for _, r := range all {
		select {
		case at := <-r.ended:
			took := stalls.Ran(revoked, at)
			if r.err != nil || took > cutWithin {
				t.Errorf("%s ended after %.1f s, %v; at most %v are allowed", r.what, took.Seconds(), r.err, cutWithin)
			} else {
				t.Logf("%s: cut after %.2f s", r.what, max(0, took.Seconds()))
			}
		case <-over.Done():
			t.Errorf("%s goes on after %.1f s", r.what, stalls.Ran(revoked, time.Now()).Seconds())
		}
	}
	for _, s := range c.servers {
		for _, path := range []string{"/v1/vms", "/v1/vms?consistency=stale", "/metrics", "/openapi.json"} {
			if a := c.ask(t, s, "GET", path, made.Token, ""); a.status != 401 {
				t.Errorf("%s %s with a revoked token: %s", s.name, path, a)
			}
		}
	}
	// No other connection was cut off, and no log has the token.
	if _, err := c.must(t, leader).VMs(t.Context(), "", ""); err != nil {
		t.Error(err)
	}
	for _, s := range c.servers {
		b, err := os.ReadFile(s.log)
		if err != nil || strings.Contains(string(b), made.Token) {
			t.Errorf("%s: the token stands in the log (%v)", s.name, err)
		}
	}
}
