package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/cluster/member"
	"evenkeel/cluster/pki"
	"evenkeel/test/memnet"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

// device is a fence device that answers as the test sets it.
type device struct {
	mu  sync.Mutex
	err error
	off []string
}

func (d *device) Has(host string) bool { return host == "h2" }

func (d *device) Test(context.Context, string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "the power is on", d.err
}

func (d *device) Off(_ context.Context, host string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.off = append(d.off, host)
	}
	return "the power is off", d.err
}

func (d *device) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// several is a cluster of servers that are agents too.
type several struct {
	*site.Site
	t       *testing.T
	network *memnet.Network
	device  *device
	log     *lines
	http    *http.Client
}

func startSeveral(t *testing.T, servers, hosts int, o site.Options) *several {
	t.Helper()
	s := &several{t: t, device: &device{}, log: &lines{}}
	s.network = &memnet.Network{}
	o.Network = s.network
	o.Dir, o.Hosts, o.Fence, o.Log = scratch.Dir(t), hosts, s.device, slog.New(slog.NewJSONHandler(s.log, nil))
	var err error
	s.Site, err = site.New(o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Servers(t.Context(), servers))
	pem, err := os.ReadFile(s.CAFile())
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: s.Dial}
	t.Cleanup(tr.CloseIdleConnections)
	s.http = &http.Client{Transport: tr}
	return s
}

// ask a member by hand.
func (s *several) ask(name, method, path, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+s.Address(name)+path, strings.NewReader(body))
	must(s.t, err)
	r.Header.Set("Authorization", "Bearer "+site.Token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Do(r)
	must(s.t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return resp, string(b)
}

// client of members, by name.
func (s *several) client(names ...string) *client.Client {
	s.t.Helper()
	var addresses []string
	for _, n := range names {
		addresses = append(addresses, s.Address(n))
	}
	c, err := client.New(client.Config{Address: strings.Join(addresses, ","), Token: site.Token, CAFile: s.CAFile(), Dial: s.Dial})
	must(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// leads awaits a leader that all servers know, and returns it and a follower.
func (s *several) leads() (leader, follower string) {
	s.t.Helper()
	must(s.t, s.Await(s.t.Context(), "a leader that all know", func() bool {
		leader, follower = s.Leader(), s.Follower()
		if leader == "" || follower == "" {
			return false
		}
		for _, n := range s.Up() {
			if m := s.Member(n); m.Identity().Server {
				if here, address := m.Leader(); !here && address != s.Address(leader) {
					return false
				}
			}
		}
		return true
	}))
	return leader, follower
}

// event awaits one of that kind whose text holds words, and returns it.
func (s *several) event(kind, texts string) (found v1.Event) {
	s.t.Helper()
	var all []v1.Event
	if err := s.Await(s.t.Context(), "an event "+kind, func() bool {
		answer, err := s.client(s.Up()...).ListEvents(s.t.Context(), client.EventQuery{After: new(uint64), Limit: 1000})
		if err != nil {
			return false
		}
		all = answer.Items
		for _, e := range all {
			if e.Kind == kind && strings.Contains(e.Text, texts) {
				found = e
				return true
			}
		}
		return false
	}); err != nil {
		s.t.Fatalf("%v with %q among %+v", err, texts, all)
	}
	return found
}

// What cannot be meant is refused with the field, and changes nothing.
func TestMemberRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 4, site.Options{})
		leader, follower := s.leads()
		const cluster = "/v1/cluster/"
		for _, q := range []struct {
			method, path, body string
			status             int
			kind, field        string
		}{
			{"POST", cluster + "join-tokens", `{}`, 422, v1.ProblemInvalid, "agent"},
			{"POST", cluster + "join-tokens", ``, 400, v1.ProblemMalformed, "body"},
			{"POST", cluster + "join-tokens", `{"agent":true,"seconds":59}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", cluster + "join-tokens", `{"agent":true,"seconds":604801}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", cluster + "join-tokens", `{"agent":true,"seconds":-1}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", cluster + "join-tokens", `{"agent":true,"seconds":1e300}`, 422, v1.ProblemInvalid, "seconds"},
			{"POST", cluster + "join-tokens", `{"agent":true,"for":"Not A Name"}`, 422, v1.ProblemInvalid, "for"},
			{"POST", cluster + "join-tokens", `{"agent":true,"noVote":true}`, 422, v1.ProblemInvalid, "noVote"},
			{"POST", cluster + "join-tokens", `{"agent":true,"comment":"` + strings.Repeat("x", 201) + `"}`, 422, v1.ProblemInvalid, "comment"},
			{"POST", cluster + "join-tokens", `{"agent":true,"role":"x"}`, 422, v1.ProblemInvalid, "role"},
			{"POST", cluster + "join-tokens", `{"agent":"yes"}`, 422, v1.ProblemInvalid, "agent"},
			{"POST", cluster + "join-tokens", `{"agent":true} {}`, 400, v1.ProblemMalformed, "body"},
			{"POST", cluster + "join-tokens", `[`, 400, v1.ProblemMalformed, "body"},
			{"POST", cluster + "leader", `{"to":7}`, 422, v1.ProblemInvalid, "to"},
			{"POST", cluster + "leader", `{"to":"nowhere"}`, 404, v1.ProblemNotFound, ""},
			{"POST", cluster + "fencing/disable", `{"reason":"` + strings.Repeat("x", 501) + `"}`, 422, v1.ProblemInvalid, "reason"},
			{"POST", cluster + "fencing/enable", `nonsense`, 400, v1.ProblemMalformed, "body"},
			{"DELETE", cluster + "members/nowhere", ``, 404, v1.ProblemNotFound, ""},
			{"DELETE", cluster + "members/h2?force=perhaps", ``, 422, v1.ProblemInvalid, "force"},
			{"DELETE", cluster + "members/h2?forse=true", ``, 422, v1.ProblemInvalid, "forse"},
			{"POST", "/v1/hosts/nowhere/confirm-dead", `{}`, 404, v1.ProblemNotFound, ""},
			{"POST", "/v1/hosts/h1/confirm-dead", `{}`, 409, v1.ProblemConflict, ""},
			{"POST", "/v1/hosts/h1/confirm-dead?dryRun=true", `{}`, 409, v1.ProblemConflict, ""},
			{"POST", "/v1/hosts/h1/confirm-dead", `{"reason":"` + strings.Repeat("x", 501) + `"}`, 422, v1.ProblemInvalid, "reason"},
			{"POST", "/v1/hosts/nowhere/fence", `{"test":true}`, 404, v1.ProblemNotFound, ""},
			{"POST", "/v1/hosts/h1/fence", `{"test":true}`, 404, v1.ProblemNotFound, ""},
			{"POST", "/v1/hosts/h2/fence", `{"test":1}`, 422, v1.ProblemInvalid, "test"},
			{"GET", cluster + "members?index=x", ``, 422, v1.ProblemInvalid, "index"},
			{"POST", cluster + "snapshot", `no snapshot`, 422, v1.ProblemInvalid, ""},
			{"POST", cluster + "join", `no json`, 400, v1.ProblemMalformed, ""},
			{"PUT", cluster + "members", ``, 405, v1.ProblemMethod, ""},
		} {
			for _, on := range []string{leader, follower} {
				t.Logf("%s %s %.40s on %s", q.method, q.path, q.body, map[bool]string{true: "leader", false: "follower"}[on == leader])
				header := []string{}
				if strings.HasSuffix(q.path, "/snapshot") {
					header = []string{"Content-Type", "application/octet-stream"}
				}
				resp, body := s.ask(on, q.method, q.path, q.body, header...)
				p := problemIn(t, resp, body)
				if p.Status != q.status || p.Type != q.kind {
					t.Errorf("%s", body)
				}
				if q.field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != q.field) {
					t.Errorf("field %q is not named: %s", q.field, body)
				}
			}
		}
		c := s.client(leader)
		status, err := c.Status(t.Context())
		must(t, err)
		tokens, err := c.JoinTokens(t.Context())
		must(t, err)
		if status.FencingDisabled || len(status.Members) != 3 || status.Leader != leader {
			t.Errorf("something was changed: %+v", status)
		}
		for _, k := range tokens {
			if k.UsedBy == "" || k.Token != "" {
				t.Errorf("a token was made, or shows its secret: %+v", k)
			}
		}
		if resp, body := s.ask(follower, "GET", "/v1/cluster/members", "", "Authorization", "Bearer no"); resp.StatusCode != 401 {
			t.Errorf("a stranger sees the members: %s", body)
		}
	})
}

// A join token lets one member in, once, until it expires. A member with another token is refused, and an event says so.
func TestJoinTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 4, site.Options{})
		c := s.client("h1")
		k, err := c.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Agent: true, Seconds: ptr(60.0), Comment: "for h2"})
		must(t, err)
		for _, seconds := range []float64{0, -1, 30, 3.6e6} {
			_, err := c.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Agent: true, Seconds: &seconds})
			if p := new(client.Error); !errors.As(err, &p) || p.Problem.Type != v1.ProblemInvalid || p.Problem.Errors[0].Field != "seconds" {
				t.Errorf("%g seconds: %v", seconds, err)
			}
		}
		if left := time.Until(k.Until); k.Token == "" || !k.Agent || k.Server || k.Comment != "for h2" || left > time.Minute || left < 30*time.Second {
			t.Errorf("%+v", k)
		}
		if d, err := c.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true}); err != nil || time.Until(d.Until) < 59*time.Minute || time.Until(d.Until) > time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
		join := func(name, token string) error {
			_, err := member.Join(t.Context(), t.TempDir(), name, "127.0.0.1:1", member.JoinOptions{Token: token, Addresses: []string{s.Address("h1")}, Connect: s.Connect})
			return err
		}
		must(t, join("h2", k.Token))
		tokens, err := c.JoinTokens(t.Context())
		must(t, err)
		used := false
		for _, x := range tokens {
			used = used || x.ID == k.ID && x.UsedBy == "h2" && x.Token == ""
		}
		if !used {
			t.Errorf("the list does not say that the token was used: %+v", tokens)
		}
		again := join("h3", k.Token)
		parsed, err := pki.ParseJoinToken(k.Token)
		must(t, err)
		parsed.Secret = strings.Repeat("A", len(parsed.Secret))
		wrong := join("h3", parsed.Text())
		parsed.ID = "0000000000000000"
		unknown := join("h3", parsed.Text())
		for what, err := range map[string]error{"used": again, "wrong": wrong, "unknown": unknown} {
			if err == nil || !strings.Contains(err.Error(), "not known, used, or over") {
				t.Errorf("%s token: %v", what, err)
			}
		}
		if wrong != nil && again != nil && wrong.Error() != again.Error() {
			t.Errorf("the answer reveals what is wrong with a token:\n%v\n%v", wrong, again)
		}
		s.event("join-refused", "")
		raw, err := json.Marshal(map[string]string{"id": "x", "secret": "y", "name": "Not A Name", "address": "127.0.0.1:1", "request": "z"})
		must(t, err)
		if resp, body := s.ask("h1", "POST", "/v1/cluster/join", string(raw), "Authorization", ""); resp.StatusCode != 422 {
			t.Errorf("%s: %s", resp.Status, body)
		}
	})
}

// A join token that has expired lets no member in.
func TestExpiredToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 2, site.Options{})
		token, _, err := s.Member("h1").NewJoinToken(t.Context(), false, true, false, time.Millisecond, "")
		must(t, err)
		time.Sleep(time.Second) // sleep: simulated time
		_, err = member.Join(t.Context(), t.TempDir(), "h2", "127.0.0.1:1", member.JoinOptions{Token: token, Addresses: []string{s.Address("h1")}, Connect: s.Connect})
		if err == nil || !strings.Contains(err.Error(), "403") && !strings.Contains(err.Error(), "not known, used, or over") {
			t.Errorf("%v", err)
		}
		s.event("join-refused", "")
	})
}

// What one server is asked, the leader answers: reads, changes, errors, events, consoles.
func TestForwarding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{})
		leader, follower := s.leads()
		here, there := s.client(leader), s.client(follower)

		following, stop := context.WithCancel(t.Context())
		seen := make(chan v1.Event, 1000)
		ended := make(chan error, 1)
		zero := uint64(0)
		go func() {
			ended <- there.Follow(following, client.EventQuery{After: &zero}, func(m client.Message) error { seen <- m.Event; return nil })
		}()

		r, err := there.Create(t.Context(), small("a", 2), client.IdempotencyKey("one"))
		must(t, err)
		op, err := there.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		if op.State != v1.OperationDone {
			t.Fatalf("%+v", op)
		}
		for _, path := range []string{"/v1/virtual-clusters", "/v1/virtual-clusters/a", "/v1/virtual-clusters/b", "/v1/images", "/v1/operations", "/v1/cluster/join-tokens", "/nothing"} {
			resp1, body1 := s.ask(leader, "GET", path, "", "X-Request-Id", "same")
			resp2, body2 := s.ask(follower, "GET", path, "", "X-Request-Id", "same")
			if resp1.StatusCode != resp2.StatusCode || body1 != body2 || resp1.Header.Get("Content-Type") != resp2.Header.Get("Content-Type") || resp1.Header.Get("ETag") != resp2.Header.Get("ETag") {
				t.Errorf("%s: the leader says\n%s %v %s\nand through a follower it is\n%s %v %s", path, resp1.Status, resp1.Header, body1, resp2.Status, resp2.Header, body2)
			}
			for _, h := range []string{"X-Request-Id", "Evenkeel-Index"} {
				if got := resp2.Header.Values(h); len(got) != 1 {
					t.Errorf("%s: %s stands there %q", path, h, got)
				}
			}
		}
		if resp, body := s.ask(follower, "POST", "/v1/virtual-clusters", `{"name":"a","groups":[{"name":"w","count":1,"cpu":1,"memory":"64MiB"}]}`); problemIn(t, resp, body).Type != v1.ProblemExists {
			t.Errorf("%s", body)
		}
		// The leader's log and the follower's name the request by one id.
		s.ask(follower, "POST", "/v1/cluster/join-tokens", `{}`, "X-Request-Id", "find-me-7")
		must(t, s.Await(t.Context(), "the request is in the logs of both", func() bool { // it is written after the answer
			servers := map[string]bool{}
			for line := range strings.Lines(s.log.String()) {
				var entry struct{ Msg, Request, On string }
				if json.Unmarshal([]byte(line), &entry) == nil && entry.Request == "find-me-7" {
					servers[entry.On] = true
				}
			}
			return servers[leader] && servers[follower]
		}))

		vms, err := here.VMs(t.Context(), "a", "")
		must(t, err)
		for _, vm := range vms { // on whichever host it is
			tty, err := there.Console(t.Context(), vm.Name)
			must(t, err)
			b := make([]byte, 32)
			if _, err := io.ReadFull(tty, b); err != nil {
				t.Errorf("console of %s on %s: %v", vm.Name, vm.Host, err)
			}
			must(t, tty.Close())
		}

		_, err = there.Delete(t.Context(), "a")
		must(t, err)
		deleted := false
		must(t, s.Await(t.Context(), "the stream through a follower shows the deletion", func() bool {
			for {
				select {
				case e := <-seen:
					deleted = deleted || strings.Contains(e.Kind, "delet")
				case err := <-ended:
					t.Fatalf("the stream through a follower ended: %v", err)
				default:
					return deleted
				}
			}
		}))
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// An idempotency key holds on every server, and over a change of the leader. A stale read with the index of a change sees it.
func TestKeysAndIndexes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{})
		leader, follower := s.leads()
		first, err := s.client(leader).Create(t.Context(), small("a", 1), client.IdempotencyKey("k1"))
		must(t, err)
		_, err = s.client(follower).TransferLeadership(t.Context(), follower)
		must(t, err)
		must(t, s.Await(t.Context(), follower+" leads", func() bool { return s.Leader() == follower }))
		leader, follower = s.leads()
		for _, on := range s.Up() {
			again, err := s.client(on).Create(t.Context(), small("a", 1), client.IdempotencyKey("k1"))
			must(t, err)
			if again.Operation == nil || again.Operation.ID != first.Operation.ID {
				t.Errorf("on %s: %+v, the first answer was %+v", on, again.Operation, first.Operation)
			}
		}
		if _, err := s.client(follower).Create(t.Context(), small("b", 1), client.IdempotencyKey("k1")); !client.IsProblem(err, v1.ProblemInvalid) {
			t.Errorf("a key was used for two requests: %v", err)
		}

		for i := range 5 {
			name := fmt.Sprintf("i%d", i)
			resp, body := s.ask(leader, "POST", "/v1/virtual-clusters", fmt.Sprintf(`{"name":%q,"groups":[{"name":"w","count":1,"cpu":0.1,"memory":"64MiB"}]}`, name))
			index := resp.Header.Get("Evenkeel-Index")
			if resp.StatusCode != http.StatusAccepted || index == "" {
				t.Fatalf("%s, index %q: %s", resp.Status, index, body)
			}
			resp, body = s.ask(follower, "GET", "/v1/virtual-clusters/"+name+"?consistency=stale&index="+index, "")
			at, _ := strconv.ParseUint(resp.Header.Get("Evenkeel-Index"), 10, 64)
			want, _ := strconv.ParseUint(index, 10, 64)
			if resp.StatusCode != http.StatusOK || at < want {
				t.Errorf("one's own change is not there at index %s: %s at %d: %s", index, resp.Status, at, body)
			}
		}
		// An index that is far off: the wait ends, with the caller.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, "GET", "https://"+s.Address(follower)+"/v1/hosts?consistency=stale&index=99999999", nil)
		must(t, err)
		q.Header.Set("Authorization", "Bearer "+site.Token)
		if resp, err := s.http.Do(q); err == nil {
			_ = resp.Body.Close()
			t.Errorf("answered at once: %s", resp.Status)
		}

		// Without a majority nothing is decided; what a server knows can be read.
		var left string
		for _, name := range s.Up() {
			if left == "" {
				left = name
				continue
			}
			must(t, s.Stop(name))
		}
		must(t, s.Await(t.Context(), "no leader is known", func() bool {
			here, address := s.Member(left).Leader()
			return !here && address == ""
		}))
		resp, body := s.ask(left, "GET", "/v1/virtual-clusters", "")
		if p := problemIn(t, resp, body); p.Type != v1.ProblemNoLeader || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %v", body, resp.Header)
		}
		resp, body = s.ask(left, "GET", "/v1/virtual-clusters/a?consistency=stale", "")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("a stale read: %s %s", resp.Status, body)
		}
		if resp, body := s.ask(left, "GET", "/readyz", ""); problemIn(t, resp, body).Type != v1.ProblemNoLeader {
			t.Errorf("ready without a leader: %s", body)
		}
		if resp, _ := s.ask(left, "GET", "/livez", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("livez: %s", resp.Status)
		}
	})
}

// A client that knows several servers asks those that are there.
func TestSeveralAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{})
		leader, _ := s.leads()
		names := []string{leader}
		for _, n := range s.Up() {
			if n != leader {
				names = append(names, n)
			}
		}
		c := s.client(names...)
		r, err := c.Create(t.Context(), small("a", 1))
		must(t, err)
		_, err = c.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		must(t, s.Stop(leader)) // the one that is asked first
		s.leads()
		if _, err := c.Create(t.Context(), small("b", 1)); err != nil {
			t.Errorf("a change while one server is down: %v", err)
		}
		if _, err := c.Members(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A member that lost its disk comes back under its name with a token made for it; no other member may use that token.
// A server comes back without the vote that it had. It is given one once it has caught up.
func TestRejoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 4, site.Options{})
		leader, lost := s.leads()
		c := s.client(leader)
		must(t, s.Stop(lost))
		must(t, os.RemoveAll(s.Dir(lost)))
		join := func(name, dir string, q v1.JoinTokenRequest) error {
			q.Server, q.Agent, q.Seconds = true, true, ptr(60.0)
			k, err := c.MakeJoinToken(t.Context(), q)
			if err == nil {
				_, err = member.Join(t.Context(), dir, name, s.Address(lost), member.JoinOptions{Token: k.Token, Addresses: []string{s.Address(leader)}, Connect: s.Connect})
			}
			return err
		}
		// On a busy machine the leader may change meanwhile, or take the other server for unhealthy: then the test asks again.
		var err error
		must(t, s.Await(t.Context(), "a token for any host is refused", func() bool {
			err = join(lost, t.TempDir(), v1.JoinTokenRequest{})
			return err == nil || strings.Contains(err.Error(), "--for "+lost)
		}))
		if err == nil {
			t.Error("any token lets a member in again")
		}
		if err := join("h4", t.TempDir(), v1.JoinTokenRequest{For: lost}); err == nil {
			t.Error("a token for one member let another in")
		}
		must(t, s.Await(t.Context(), "it is let in again", func() bool {
			err := join(lost, s.Dir(lost), v1.JoinTokenRequest{For: lost})
			return err == nil || errors.Is(err, member.ErrMember)
		}))
		var members []v1.Member
		must(t, s.Await(t.Context(), "a list of members", func() bool { members, err = c.Members(t.Context()); return err == nil }))
		for _, m := range members {
			if m.Name == lost && m.Voter {
				t.Errorf("it votes without its log: %+v", m)
			}
		}
		must(t, s.Start(lost))
		must(t, s.Await(t.Context(), "it votes again, and its host is ready", func() bool {
			members, err := c.Members(t.Context())
			h, err2 := c.Host(t.Context(), lost)
			if err != nil || err2 != nil || h.State != "ready" || h.Lease != "held" {
				return false
			}
			for _, m := range members {
				if m.Name == lost {
					return m.Voter && m.Healthy
				}
			}
			return false
		}))
		s.event("member-rejoined", "")
	})
}
