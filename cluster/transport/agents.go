package transport

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// How long an Agent waits.
const (
	sampleEvery  = 2 * time.Second
	silence      = 5 * time.Second // without a frame, after which there is no leader: two heartbeats, and time for the second to come late
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	hungFor      = 30 * time.Second // a server that took the connection and did not answer is asked last
	reportTime   = 10 * time.Second // for one try at one server
	askTime      = 3 * time.Second

	samplesEarly = 100 * time.Millisecond // may a report be: the agent's clock ticks once a second, not to the millisecond
)

// AgentOptions are what an Agent needs. The zero durations stand for the defaults.
type AgentOptions struct {
	Host    string // this member's name
	Dialer  *Dialer
	Servers []string // addresses ("host:port") of servers of the cluster, at least one
	// Learned is called with another list of servers, to be kept for the next start. nil: it is not called.
	Learned func(servers []string)
	// Revoked is called with the certificates that are revoked, at the beginning of each stream and when there are others. nil:
	// it is not called.
	Revoked func([]pki.Revocation)
	// Gossip is called like that with the version of the leader's gossip keys. nil: it is not called.
	Gossip func(version string)
	// Shut is called when a server refused this member in TLS. nil: it is not called.
	Shut func()
	// Rand spreads reconnects. The Agent uses it alone.
	Rand *rand.Rand
	Log  *slog.Logger

	SampleEvery  time.Duration // interval at which samples are sent; of those between only the last counts; default 2 s
	Silence      time.Duration // without a frame from the leader, after which there is none; default 5 s
	FirstBackoff time.Duration // between tries to connect; default 100 ms, doubled
	LastBackoff  time.Duration // up to 5 s; each drawn from its upper half
}

// Agent is agent.Leader for one host, over the network: one stream of desired state, and calls
// through any server that finds the leader. It is safe for concurrent use.
type Agent struct {
	o    AgentOptions
	http *http.Transport
	// oneAtATime are one call of a kind at a time: the leader answers them in order.
	oneAtATime map[string]chan struct{}
	reports    reportEncoder // under oneAtATime[callReport]
	sampled    time.Time     // when the last report with samples was sent; under oneAtATime[callReport]

	mu        sync.Mutex
	servers   []string
	at        int                     // index into servers: the one that answered last
	alive     bool                    // there is a stream
	fresh     bool                    // the stream is another than at the last report
	why       error                   // why there is no stream
	desired   agent.Desired           // the latest
	changed   chan struct{}           // closes when desired or alive changes
	session   uint64                  // of calls, 0 = none
	perServer map[string]*serverStats // by server
	tried     map[string]time.Time    // by server: when the stream last went directly to it as the leader; none once it answered
	calls     uint64                  // numbers of calls so far

	opening chan struct{} // holds one while a session is opened
	wake    chan struct{} // holds one after a hint
}

// NewAgent makes an Agent. It knows of no leader until Run has found one.
func NewAgent(o AgentOptions) *Agent {
	if o.SampleEvery == 0 {
		o.SampleEvery = sampleEvery
	}
	if o.Silence == 0 {
		o.Silence = silence
	}
	if o.FirstBackoff == 0 {
		o.FirstBackoff = firstBackoff
	}
	if o.LastBackoff == 0 {
		o.LastBackoff = lastBackoff
	}
	a := &Agent{o: o, http: newTransport(o.Dialer, ProtocolPeer, pki.Want{Server: true}), servers: slices.Clone(o.Servers), perServer: map[string]*serverStats{}, tried: map[string]time.Time{},
		why: errors.New("not connected yet"), changed: make(chan struct{}), opening: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		oneAtATime: map[string]chan struct{}{callReport: make(chan struct{}, 1), callRenew: make(chan struct{}, 1), callPermit: make(chan struct{}, 1), callPeers: make(chan struct{}, 1)}}
	if len(a.servers) > 0 {
		a.at = o.Rand.IntN(len(a.servers)) // so that not all agents choose the same
	}
	return a
}

// Run keeps the stream of desired state open until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	defer a.http.CloseIdleConnections()
	backoff := a.o.FirstBackoff
	hinted := false // the last try was made on a hint
	elsewhereAt, relayed := "", false
	for ctx.Err() == nil {
		select { // what was hinted before this try is no news after it
		case <-a.wake:
		default:
		}
		address := cmp.Or(elsewhereAt, a.address())
		begun, err := a.follow(ctx, address, relayed)
		asked := relayed
		elsewhereAt, relayed = "", false
		if ctx.Err() != nil {
			a.ended(ctx.Err())
			return
		}
		if errors.Is(err, errHangs) {
			a.hangs(address)
		}
		// A server names another leader. The stream goes there, or is relayed. Meanwhile the last desired state stands, unless this
		// server was asked to relay and had nothing to send.
		if other := (*elsewhere)(nil); errors.As(err, &other) && (begun || !asked) {
			if relayed = !a.goDirect(other.leader); !relayed {
				elsewhereAt = other.leader
			}
			continue
		}
		if p := (*Problem)(nil); begun || errors.As(err, &p) {
			a.reached(address)
		}
		a.ended(fmt.Errorf("desired state from %s: %w", address, err))
		if begun {
			backoff = a.o.FirstBackoff
		}
		wait := a.next(address, backoff)
		level := slog.LevelInfo
		if errors.Is(err, ErrRemoved) { // it was reported once
			level = slog.LevelDebug
		}
		a.o.Log.Log(ctx, level, "no leader is heard", "server", address, "error", err, "retry", wait)
		backoff = min(2*backoff, a.o.LastBackoff)
		over := time.After(wait)
		// One hint for each wait: where servers cannot keep up with all agents that try, hints must not make all of them try
		// again and again.
		wake := a.wake
		if hinted && !begun {
			wake = nil
		}
		hinted = false
		select {
		case <-ctx.Done():
		case <-over:
		case <-wake:
			hinted = true
			select { // not all agents at once
			case <-ctx.Done():
			case <-over:
			case <-time.After(a.soon()):
			}
		}
	}
	a.ended(ctx.Err())
}

// Hint says that a leader may be reachable again: an Agent that waits before it tries then tries soon.
func (a *Agent) Hint() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// soon is a time drawn from the first tenth of the longest backoff.
func (a *Agent) soon() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Duration(a.o.Rand.Int64N(int64(a.o.LastBackoff/10) + 1))
}

func (a *Agent) address() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.servers) == 0 {
		return ""
	}
	return a.servers[a.at%len(a.servers)]
}

// next goes on to the server after one that did not answer, and draws a time to wait.
func (a *Agent) next(after string, backoff time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.servers, after); i >= 0 && i == a.at {
		a.at = slices.Index(a.servers, a.order((i + 1) % len(a.servers))[0])
	}
	return backoff/2 + time.Duration(a.o.Rand.Int64N(int64(backoff/2)+1))
}

// ended notes that there is no stream any more.
func (a *Agent) ended(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = why
	if a.alive {
		a.alive = false
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// follow follows the stream of desired state of one server to its end. relayed: the server is to relay the stream if another server
// leads; otherwise the error is then *elsewhere. begun: a desired state was received.
func (a *Agent) follow(ctx context.Context, address string, relayed bool) (begun bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(handshakeTimeout+a.o.Silence, func() { cancel(fmt.Errorf("no word for %s: %w", a.o.Silence, errHangs)) })
	defer quiet.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, urlOf(address, "hosts", a.o.Host, "desired").String(), nil)
	if err != nil {
		return false, err
	}
	if !relayed {
		req.Header.Set(headerDirect, "yes")
	}
	resp, err := a.http.RoundTrip(req)
	if err != nil {
		if Shut(err) && a.o.Shut != nil {
			a.o.Shut()
		}
		return false, because(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	leader := resp.Header.Get(headerLeader)
	switch {
	case resp.StatusCode == http.StatusMisdirectedRequest && leader != "":
		return false, &elsewhere{leader, problemOf(resp)}
	case resp.StatusCode != http.StatusOK:
		return false, problemOf(resp)
	}
	if leader != "" && leader != address {
		shorten := time.AfterFunc(a.patience(leader), func() {
			if a.mayGo(leader) {
				cancel(&elsewhere{leader, errRedirect})
			}
		})
		defer shorten.Stop()
	}
	lines := bufio.NewReaderSize(resp.Body, 16<<10)
	var decoder desiredDecoder
	for {
		text, err := readLine(lines, maxFrame)
		if err != nil {
			return decoder.n > 0, because(ctx, err)
		}
		if !quiet.Reset(a.o.Silence) {
			return decoder.n > 0, because(ctx, io.ErrUnexpectedEOF) // it came too late
		}
		var f Frame
		if err := decodeOne(text, &f); err != nil {
			return decoder.n > 0, err
		}
		first := decoder.n == 0
		changed, err := decoder.take(f)
		if err != nil {
			return decoder.n > 0, err
		}
		if changed {
			a.have(decoder.now, first)
		}
		if len(f.Servers) > 0 {
			a.learn(f.Servers)
		}
		if len(f.Revoked) > 0 && a.o.Revoked != nil {
			a.o.Revoked(f.Revoked)
		}
		if f.Gossip != "" && a.o.Gossip != nil {
			a.o.Gossip(f.Gossip)
		}
	}
}

// because returns the cause for which a context ended, if that is why a call failed.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// readLine reads up to a line feed, at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("a frame of more than %d bytes: %w", limit, ErrTooLarge)
		}
		if err == nil && line == nil {
			return part, nil // good until the next read
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// have takes in the latest desired state, the first of its stream or a later one.
func (a *Agent) have(want agent.Desired, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh = a.fresh || first
	a.alive, a.why, a.desired = true, nil, want
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *Agent) learn(servers []string) {
	a.mu.Lock()
	if slices.Equal(slices.Sorted(slices.Values(servers)), slices.Sorted(slices.Values(a.servers))) {
		a.mu.Unlock()
		return
	}
	at := ""
	if len(a.servers) > 0 {
		at = a.servers[a.at]
	}
	a.servers = slices.Clone(servers)
	a.at = max(0, slices.Index(a.servers, at))
	a.mu.Unlock()
	if a.o.Learned != nil {
		a.o.Learned(slices.Clone(servers))
	}
}

// Desired implements agent.Leader. It returns the latest desired state as long as the leader is heard, else an error that is
// ErrNoLeader. The channel closes at the next change, when the leader is not heard any more, and when it is heard again. The
// caller must not change the state. While the cluster is known to have removed this member Desired waits, as Report does: no
// server has a desired state for it, and none takes its report. Calls about leases and permits fail at once.
func (a *Agent) Desired(ctx context.Context, host string) (agent.Desired, <-chan struct{}, error) {
	if host != a.o.Host {
		return agent.Desired{}, nil, fmt.Errorf("desired state of host %s: this is %s", host, a.o.Host)
	}
	if err := a.letIn(ctx); err != nil {
		return agent.Desired{}, nil, fmt.Errorf("desired state of host %s: %w", host, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.alive {
		return agent.Desired{}, a.changed, fmt.Errorf("%w is heard: %w", ErrNoLeader, a.why)
	}
	return a.desired, a.changed, nil
}

// letIn waits while this member is known to be removed.
func (a *Agent) letIn(ctx context.Context) error {
	for {
		back, err := a.o.Dialer.Removed()
		if err == nil {
			return nil
		}
		select {
		case <-back:
		case <-ctx.Done():
			return err
		}
	}
}

// Report implements agent.Leader. A report that has nothing new is not sent. Samples go along, or alone at the interval
// AgentOptions.SampleEvery.
func (a *Agent) Report(ctx context.Context, r agent.Report) error {
	if err := a.letIn(ctx); err != nil {
		return fmt.Errorf("report of host %s: %w", a.o.Host, err)
	}
	if err := a.turn(ctx, callReport); err != nil {
		return fmt.Errorf("report of host %s: %w", a.o.Host, err)
	}
	defer a.leave(callReport)
	if a.isFresh() { // perhaps of another leader
		a.reports, a.sampled = reportEncoder{}, time.Time{}
	}
	for again := false; ; again = true {
		now := time.Now()
		c, news, err := a.reports.change(r, now.Sub(a.sampled) >= a.o.SampleEvery-samplesEarly)
		if err != nil {
			return err
		}
		if !news && c.Samples == nil && a.heard() {
			return nil
		}
		n, err := a.call(ctx, callReport, reportTime, c, nil)
		if err == nil {
			a.reports.taken(n)
			if c.Samples != nil {
				a.sampled = now
			}
			return nil
		}
		a.reports = reportEncoder{} // whether it arrived is not known
		if again || !errors.Is(err, errWhole) {
			return fmt.Errorf("report of host %s: %w", a.o.Host, err)
		}
	}
}

// Renew implements agent.Leader. The renewal counts from before the call.
func (a *Agent) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	var out agent.Grant
	err := a.ask(ctx, callRenew, r, &out)
	if err == nil && len(out.Servers) > 0 {
		a.learn(out.Servers)
	}
	return out, err
}

// Permit implements agent.Leader.
func (a *Agent) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	var out agent.Permit
	err := a.ask(ctx, callPermit, q, &out)
	return out, err
}

// Peers returns the hosts to which the leader wants the route tested.
func (a *Agent) Peers(ctx context.Context, q agent.PeersWanted) (agent.Peers, error) {
	var out agent.Peers
	err := a.ask(ctx, callPeers, q, &out)
	return out, err
}

func (a *Agent) ask(ctx context.Context, kind string, in, out any) error {
	err := a.turn(ctx, kind)
	if err == nil {
		defer a.leave(kind)
		_, err = a.call(ctx, kind, askTime, in, out)
	}
	if err != nil {
		return fmt.Errorf("%s of host %s: %w", kind, a.o.Host, err)
	}
	return nil
}

// isFresh says whether the stream is another one than when isFresh was last called.
func (a *Agent) isFresh() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := a.fresh
	a.fresh = false
	return fresh
}

// heard says whether the stream is alive.
func (a *Agent) heard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.alive
}

func (a *Agent) turn(ctx context.Context, kind string) error {
	select {
	case a.oneAtATime[kind] <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *Agent) leave(kind string) { <-a.oneAtATime[kind] }

// call calls the leader through the server that answered last, and else through the others, each once. n is the number under
// which it was answered.
func (a *Agent) call(ctx context.Context, kind string, perTry time.Duration, in, out any) (n uint64, err error) {
	a.mu.Lock()
	order := a.order(a.at)
	a.mu.Unlock()
	var errs []error
	for _, address := range order {
		bounded, done := a.waiting(ctx, address, perTry)
		n, err = a.callAt(bounded, address, kind, in, out)
		done()
		if err == nil {
			a.answered(address)
			return n, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
		if ctx.Err() != nil || spoken(err) {
			break
		}
	}
	if len(errs) == 0 {
		return 0, fmt.Errorf("%w: no server is known", ErrNoLeader)
	}
	return 0, errors.Join(errs...)
}

// spoken says whether the leader has answered, though with an error, or this member is not let in. Another server would not
// answer otherwise.
func spoken(err error) bool {
	var p *Problem
	if !errors.As(err, &p) {
		return false
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusInternalServerError:
		return true
	}
	return false
}

// answered notes that that server finds the leader. A stream that is alive stays where it is.
func (a *Agent) answered(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.servers, address); i >= 0 {
		a.at = i
	}
	a.serverTo(address).hung = time.Time{}
	if !a.alive {
		a.Hint()
	}
}

// callAt calls the leader through one server, in a new session if the leader does not know the old.
func (a *Agent) callAt(ctx context.Context, address, kind string, in, out any) (uint64, error) {
	for try := 0; ; try++ {
		session, err := a.openSession(ctx, address)
		if err != nil {
			return 0, err
		}
		a.mu.Lock()
		a.calls++
		n := a.calls
		a.mu.Unlock()
		header := http.Header{headerSession: {strconv.FormatUint(session, 10)}, headerCall: {strconv.FormatUint(n, 10)}}
		err = post(ctx, a.http, urlOf(address, "hosts", a.o.Host, kind).String(), header, in, out)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, errSession) || try == 2 {
			return 0, err
		}
		a.mu.Lock()
		if a.session == session {
			a.session = 0
		}
		a.mu.Unlock()
	}
}

// openSession has the leader open a session, if there is none. Only one is opened at a time.
func (a *Agent) openSession(ctx context.Context, address string) (uint64, error) {
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	a.mu.Lock()
	session := a.session
	a.mu.Unlock()
	if session != 0 {
		return session, nil
	}
	var opened sessionAnswer
	if err := post(ctx, a.http, urlOf(address, "hosts", a.o.Host, "session").String(), nil, struct{}{}, &opened); err != nil {
		return 0, fmt.Errorf("open a session: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = opened.Session
	return opened.Session, nil
}
