package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
	"evenkeel/hypervisor"
	"evenkeel/test/patience"
)

func vm(id string, generation uint64) agent.VM {
	return agent.VM{Spec: hypervisor.Spec{Identity: hypervisor.Identity{Cluster: clusterID, VM: id, Generation: generation}, Name: "ek-" + id, VCPUs: 1}, Want: agent.WantRun}
}

// await a desired state that is wanted.
func await(t *testing.T, a *Agent, what string, satisfied func(agent.Desired) bool) (got agent.Desired) {
	t.Helper()
	var err error
	patience.Eventually(t, patience.Stall, what, func() any { return fmt.Sprintf("index %d, %d VMs, %v", got.Index, len(got.VMs), err) }, func() bool {
		if got, _, err = a.Desired(context.Background(), a.o.Host); err != nil && !errors.Is(err, ErrNoLeader) {
			t.Fatal(err)
		}
		return err == nil && satisfied(got)
	})
	return got
}

func index(n uint64) func(agent.Desired) bool {
	return func(d agent.Desired) bool { return d.Index == n }
}

func TestAgentAndLeader(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	b.set("h1", agent.Desired{Cluster: clusterID, Index: 5, CPU: 2, VMs: []agent.VM{vm("a", 1), vm("b", 1)}})
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask, Heartbeat: 20 * time.Millisecond})
	a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), m.at)
	if got := await(t, a, "the first state", index(5)); len(got.VMs) != 2 || got.VMs[0].Spec.Identity.VM != "a" {
		t.Fatalf("%+v", got)
	}
	b.set("h1", agent.Desired{Cluster: clusterID, Index: 6, CPU: 2, VMs: []agent.VM{vm("b", 1), vm("c", 2)}})
	if got := await(t, a, "the second state", index(6)); len(got.VMs) != 2 || got.VMs[1].Spec.Generation != 2 {
		t.Fatalf("%+v", got)
	}
	ctx := context.Background()
	report := agent.Report{Host: "h1", Reach: true, Running: []agent.Instance{}, Index: 6, Statuses: []agent.Status{{VM: "b", Generation: 1, Phase: agent.PhaseRunning}}}
	for range 3 {
		if err := a.Report(ctx, report); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range b.taken() {
		if r.Index != 6 || r.Running == nil || r.Unmanaged != nil || len(r.Statuses) != 1 {
			t.Fatalf("%+v", r)
		}
	}
	if g, err := a.Renew(ctx, agent.Renewal{Host: "h1", Enforcing: true, Boot: "x"}); err != nil || !g.Enforce || g.Lease != 20*time.Second {
		t.Fatal(g, err)
	}
	if p, err := a.Permit(ctx, agent.PermitRequest{Host: "h1", Starts: []agent.Instance{{VM: "b", Generation: 1}}}); err != nil || len(p.Granted) != 1 {
		t.Fatal(p, err)
	}
	l.set(false, "")
	_, changed, _ := a.Desired(ctx, "h1")
	if changed != nil {
		<-changed
	}
	if _, _, err := a.Desired(ctx, "h1"); !errors.Is(err, ErrNoLeader) {
		t.Fatalf("no server leads: %v", err)
	}
	report.Error = "news"
	if err := a.Report(ctx, report); !errors.Is(err, ErrNoLeader) {
		t.Fatalf("no server leads: %v", err)
	}
}

// raw asks as a member with that keeper, with headers and a body of one's own.
func raw(t *testing.T, d *Dialer, method, url string, header http.Header, body string) (int, string) {
	t.Helper()
	tr := newTransport(d, ProtocolPeer, pki.Want{Server: true})
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p Problem
	if resp.StatusCode != http.StatusOK {
		_ = json.NewDecoder(resp.Body).Decode(&p)
	}
	return resp.StatusCode, p.Type
}

func trespass(err error) bool { return errors.As(err, new(*Trespass)) }

// A certificate gives rights for its own host and in its own roles, whatever the request says beside it.
func TestTrespass(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask, Consoles: &tty{}})
	now := time.Now()
	h1 := s.dialer(s.certificates(nil, "h1", false, true, now, time.Hour))
	s2 := s.dialer(s.certificates(nil, "s2", true, false, now, time.Hour))
	victim := s.certificates(nil, "h2", false, true, now, time.Hour)
	behind := func(k *pki.CertificateStore) http.Header {
		return http.Header{headerCaller: {Caller{Identity: k.Identity(), Serial: pki.SerialOf(k.Leaf())}.header()}}
	}
	at := "https://" + m.at
	ordered := http.Header{headerSession: {"1"}, headerCall: {"1"}}
	for _, c := range []struct {
		what     string
		dialer   *Dialer
		method   string
		path     string
		header   http.Header
		body     string
		status   int
		reported bool
	}{
		{"itself", h1, "POST", "/v1/hosts/h1/session", nil, "{}", 200, false},
		{"another host's desired state", h1, "GET", "/v1/hosts/h2/desired", nil, "", 403, true},
		{"another host's lease", h1, "POST", "/v1/hosts/h2/renew", ordered, `{"Host":"h2"}`, 403, true},
		{"another host in the body of a renewal", h1, "POST", "/v1/hosts/h1/renew", ordered, `{"Host":"h2"}`, 403, true},
		{"another host in the body of a permit", h1, "POST", "/v1/hosts/h1/permit", ordered, `{"Host":"h2"}`, 403, true},
		{"an agent as relay", h1, "GET", "/v1/hosts/h2/desired", behind(victim), "", 403, true},
		{"an agent forwards", h1, "GET", "/forwarded/v1/vms", nil, "", 404, false},
		{"an agent opens a console", h1, "GET", "/v1/host/vms/x/console", http.Header{"Connection": {"Upgrade"}, "Upgrade": {consoleProtocol}}, "", 403, true},
		{"a server that is no agent", s2, "POST", "/v1/hosts/s2/session", nil, "{}", 403, true},
		{"a server as relay", s2, "POST", "/v1/hosts/h2/session", behind(victim), "{}", 200, false},
		{"a relay for the wrong host", s2, "POST", "/v1/hosts/h3/session", behind(victim), "{}", 403, true},
		{"a relay for a stranger", s2, "POST", "/v1/hosts/h2/session", http.Header{headerCaller: {"evenkeel://other/agent/h2 00"}}, "{}", 403, true},
		{"a relay for no caller", s2, "POST", "/v1/hosts/h2/session", http.Header{headerCaller: {""}}, "{}", 403, true},
		{"a relay for a server opens a console", s2, "GET", "/v1/host/vms/x/console", http.Header{headerCaller: {"evenkeel://" + clusterID + "/server/s3 00"}}, "", 403, true},
		{"a server forwards over the protocol of calls", s2, "GET", "/forwarded/v1/vms", nil, "", 404, false},
		{"nothing there", s2, "GET", "/v1/secrets", nil, "", 404, false},
		{"no session", h1, "POST", "/v1/hosts/h1/renew", nil, `{"Host":"h1"}`, 400, false},
		{"no JSON", h1, "POST", "/v1/hosts/h1/renew", ordered, `{"Host`, 400, false},
		{"two values", h1, "POST", "/v1/hosts/h1/renew", ordered, `{"Host":"h1"}{}`, 400, false},
		{"too large", h1, "POST", "/v1/hosts/h1/renew", ordered, strings.Repeat(" ", maxCall+1), 413, false},
		{"unknown session", h1, "POST", "/v1/hosts/h1/renew", ordered, `{"Host":"h1"}`, 409, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			s.mu.Lock()
			s.refused = nil
			s.mu.Unlock()
			if status, kind := raw(t, c.dialer, c.method, at+c.path, c.header, c.body); status != c.status {
				t.Errorf("status %d (%s), want %d", status, kind, c.status)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if reported := slices.ContainsFunc(s.refused, trespass); reported != c.reported {
				t.Errorf("reported: %v, want %v; %v", reported, c.reported, s.refused)
			}
		})
	}
	// The leader knows of a revocation before the relay does.
	s.revoke(pki.SerialOf(victim.Leaf()))
	if status, _ := raw(t, s2, "POST", at+"/v1/hosts/h2/session", behind(victim), "{}"); status != 403 {
		t.Errorf("a revoked agent behind a relay: %d", status)
	}
	s.heard("the revocation", refusal(pki.Revoked))
}

// A removed member's open connection is of no use from the next request on.
func TestRevokedMeanwhile(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
	k := s.certificates(nil, "h1", false, true, time.Now(), time.Hour)
	a := s.agent(k, m.at)
	ctx := context.Background()
	if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err != nil {
		t.Fatal(err)
	}
	s.revoke(pki.SerialOf(k.Leaf()))
	if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err == nil {
		t.Error("a removed agent renewed its lease")
	}
	m.port.Recheck()
	s.eventually("the end of the stream", func() bool {
		_, _, err := a.Desired(ctx, "h1")
		return err != nil
	})
	s.heard("the revocation", refusal(pki.Revoked))
}

// Three servers, one leads: agents reach it through any, find it again when another leads, and
// the relays that do not know yet are not believed.
func TestRelay(t *testing.T) {
	s := newSite(t)
	var leads [3]*lead
	var brains [3]*brain
	var members [3]*member
	for i := range members {
		leads[i], brains[i] = &lead{}, newBrain()
		members[i] = s.member("s"+string(rune('1'+i)), true, false, PeersOptions{Leader: brains[i], Lead: leads[i].ask, Heartbeat: 20 * time.Millisecond,
			Servers: func() []string { return []string{members[0].at, members[1].at, members[2].at} }})
	}
	lead := func(n int) {
		for i := range leads {
			leads[i].set(i == n, members[n].at)
		}
	}
	lead(0)
	brains[0].set("h1", agent.Desired{Cluster: clusterID, Index: 1, VMs: []agent.VM{vm("a", 1)}})
	a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), members[2].at) // knows one that does not lead
	await(t, a, "the state through a relay", index(1))
	s.eventually("the list of servers", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.servers) == 3
	})
	ctx := context.Background()
	report := agent.Report{Host: "h1", Reach: true}
	if err := a.Report(ctx, report); err != nil {
		t.Fatal(err)
	}
	if got := brains[0].taken(); len(got) != 1 || got[0].Host != "h1" {
		t.Fatalf("%+v", got)
	}
	// Another one leads.
	brains[1].set("h1", agent.Desired{Cluster: clusterID, Index: 2, VMs: []agent.VM{vm("b", 1)}})
	lead(1)
	if got := await(t, a, "the state of the new leader", index(2)); len(got.VMs) != 1 || got.VMs[0].Spec.Identity.VM != "b" {
		t.Fatalf("%+v", got)
	}
	if err := a.Report(ctx, report); err != nil { // the new leader has it whole
		t.Fatal(err)
	}
	if got := brains[1].taken(); len(got) != 1 || !got[0].Reach {
		t.Fatalf("%+v", got)
	}
	// Two servers take each other for the leader: no request goes around.
	leads[0].set(false, members[1].at)
	leads[1].set(false, members[0].at)
	leads[2].set(false, members[0].at)
	if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); !errors.Is(err, ErrNoLeader) {
		t.Fatalf("no server leads: %v", err)
	}
	// The relay goes away, too.
	members[2].stop()
	lead(0)
	brains[0].set("h1", agent.Desired{Cluster: clusterID, Index: 3})
	await(t, a, "the state past a server that is gone", index(3))
	if _, err := a.Renew(ctx, agent.Renewal{Host: "h1"}); err != nil {
		t.Fatal(err)
	}
}

// A call that was on its way while a later one was answered is refused, and so is one of an
// earlier session or an earlier term.
func TestLateCalls(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
	d := s.dialer(s.certificates(nil, "h1", false, true, time.Now(), time.Hour))
	tr := newTransport(d, ProtocolPeer, pki.Want{Server: true})
	defer tr.CloseIdleConnections()
	open := func() string {
		t.Helper()
		var opened sessionAnswer
		if err := post(context.Background(), tr, urlOf(m.at, "hosts", "h1", "session").String(), nil, struct{}{}, &opened); err != nil {
			t.Fatal(err)
		}
		return strconv.FormatUint(opened.Session, 10)
	}
	renew := func(session, n string) error {
		return post(context.Background(), tr, urlOf(m.at, "hosts", "h1", "renew").String(), http.Header{headerSession: {session}, headerCall: {n}}, agent.Renewal{Host: "h1", Boot: n}, nil)
	}
	one := open()
	for _, c := range []struct {
		n    string
		good bool
	}{{"3", true}, {"2", false}, {"3", false}, {"7", true}} {
		if err := renew(one, c.n); c.good != (err == nil) {
			t.Errorf("call %s: %v", c.n, err)
		}
	}
	two := open()
	if err := renew(one, "8"); !errors.Is(err, errSession) {
		t.Errorf("a call of an earlier session: %v", err)
	}
	if err := renew(two, "1"); err != nil {
		t.Error(err)
	}
	l.set(false, "")
	l.set(true, "")
	if err := renew(two, "2"); !errors.Is(err, errSession) {
		t.Errorf("a call of an earlier term: %v", err)
	}
	var boots []string
	for _, r := range b.renewals() {
		boots = append(boots, r.Boot)
	}
	if !slices.Equal(boots, []string{"3", "7", "1"}) {
		t.Errorf("renewals %v", boots)
	}
}

// A leader that sends nothing any more is none.
func TestSilence(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask, Heartbeat: time.Hour})
	a := s.agentWith(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), func(o *AgentOptions) { o.Silence = time.Second }, m.at)
	await(t, a, "the first state", index(0))
	_, changed, err := a.Desired(context.Background(), "h1")
	if err != nil {
		t.Fatal(err)
	}
	<-changed // after a.o.Silence
	if _, _, err := a.Desired(context.Background(), "h1"); err == nil {
		t.Log("the next stream began meanwhile")
	} else if !errors.Is(err, ErrNoLeader) {
		t.Error(err)
	}
	await(t, a, "the state again", index(0))
}

// An error of the leader ends the stream and fails the report; the next try is whole.
func TestLeaderFails(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask, NoLeader: func(err error) bool { return err.Error() == "quorum lost" }})
	a := s.agent(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), m.at)
	await(t, a, "the first state", index(0))
	ctx := context.Background()
	report := agent.Report{Host: "h1", Reach: true, Capacity: hypervisor.Capacity{CPU: 4}}
	if err := a.Report(ctx, report); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.fail = errors.New("disk full")
	b.mu.Unlock()
	report.Error = "news"
	var p *Problem
	if err := a.Report(ctx, report); !errors.As(err, &p) || p.Status != 500 || !strings.Contains(p.Detail, "disk full") {
		t.Errorf("%v", err)
	}
	b.mu.Lock()
	b.fail = errors.New("quorum lost")
	b.mu.Unlock()
	if err := a.Report(ctx, report); !errors.Is(err, ErrNoLeader) {
		t.Errorf("%v", err)
	}
	b.set("h1", agent.Desired{Index: 9}) // wakes the stream, which then ends
	s.eventually("the end of the stream", func() bool {
		_, _, err := a.Desired(ctx, "h1")
		return errors.Is(err, ErrNoLeader)
	})
	b.mu.Lock()
	b.fail = nil
	b.mu.Unlock()
	await(t, a, "the state after the trouble", index(9))
	if err := a.Report(ctx, report); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.taken() {
		if r.Capacity.CPU != 4 {
			t.Errorf("%+v", r)
		}
	}
	if err := a.Report(ctx, agent.Report{Host: "h2"}); !errors.Is(err, ErrRefused) {
		t.Errorf("a report for another host: %v", err)
	}
	if _, _, err := a.Desired(ctx, "h2"); err == nil {
		t.Error("another host's state")
	}
}

// A server that takes connections and does not answer is asked last, and a caller that waits for its answer goes on to the
// next.
func TestHungServer(t *testing.T) {
	s, b, l := newSite(t), newBrain(), &lead{}
	l.set(true, "")
	m := s.member("s1", true, false, PeersOptions{Leader: b, Lead: l.ask})
	hung, err := net.Listen("tcp", "127.0.0.1:0") // connections stay in its backlog
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close() //nolint:errcheck // at the end
	// On a busy machine the server that answers would seem to hang as well.
	slow := func(o *AgentOptions) { o.Silence = time.Minute }
	a := s.agentWith(s.certificates(nil, "h1", false, true, time.Now(), time.Hour), slow, m.at)
	await(t, a, "the first state", index(0))
	a.mu.Lock()
	a.servers, a.at = []string{hung.Addr().String(), m.at}, 0
	a.mu.Unlock()
	waits := make(chan error, 1)
	go func() {
		_, err := a.Renew(context.Background(), agent.Renewal{Host: "h1", Boot: "1"})
		waits <- err
	}()
	s.eventually("the call waits", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.perServer[hung.Addr().String()] != nil
	})
	begun := time.Now()
	a.hangs(hung.Addr().String())
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > askTime {
		t.Errorf("the call went on to the next server after %s", took)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if got := a.order(0); got[0] != m.at || got[1] != hung.Addr().String() {
		t.Errorf("asked in the order %v", got)
	}
	if got := a.order(1); got[0] != m.at {
		t.Errorf("asked in the order %v", got)
	}
	a.perServer[hung.Addr().String()].hung = time.Now().Add(-hungFor)
	if got := a.order(0); got[0] != hung.Addr().String() {
		t.Errorf("after %s asked in the order %v", hungFor, got)
	}
}
