package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/state"
)

// keyring is a cluster of which only the tokens are there.
type keyring struct {
	Cluster
	mu    sync.Mutex
	rows  map[string]state.Token
	used  map[string]time.Time
	ready error
}

func (k *keyring) Ready() error { return k.ready }

func (k *keyring) Index() uint64 { return 0 }

func (k *keyring) Token(id string) (state.Token, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.rows[id]
	return t, ok
}

func (k *keyring) AwaitToken(ctx context.Context, id string) (state.Token, bool) {
	for {
		if t, ok := k.Token(id); ok {
			return t, true
		}
		select {
		case <-ctx.Done():
			return state.Token{}, false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (k *keyring) BindingsOf(...state.Subject) []state.RoleBinding { return nil }

func (k *keyring) Suspended(tenant string) bool { return tenant == "closed" }

func (k *keyring) UseToken(id string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used == nil {
		k.used = map[string]time.Time{}
	}
	k.used[id] = at
}

// add a token of that role and return its text.
func (k *keyring) add(name string, role state.Role, until time.Time) string {
	text, row := NewToken()
	row.Name, row.Role, row.Until = name, role, until
	k.put(row)
	return text
}

func (k *keyring) put(row state.Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows == nil {
		k.rows = map[string]state.Token{}
	}
	k.rows[row.ID] = row
}

func (k *keyring) drop(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id, _ := tokenID(token)
	delete(k.rows, id)
}

// seat is a server's place among others: leading or following.
type seat struct {
	Members
	leads  bool
	behind bool
}

func (s seat) Leader() (bool, string) { return s.leads, "leader:7480" }

func (s seat) CaughtUp() bool { return !s.behind }

// withKeys is the API of a server of many that knows some tokens.
func withKeys(k *keyring, leads bool) *Server {
	return New(k, Options{Members: seat{leads: leads}, Logger: slog.New(slog.DiscardHandler)})
}

// asked sends a request through authentication alone, and says whether it came through, and as whom.
func asked(s *Server, method, path, authorization string) (through bool, principal *principal, by audit.Actor, w *httptest.ResponseRecorder) {
	r := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w = httptest.NewRecorder()
	s.authenticate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		through, principal, by = true, principalOf(r.Context()), audit.Of(r.Context())
	})).ServeHTTP(w, r)
	return through, principal, by, w
}

// allowed says what the documentation says of roles, apart from the table.
func allowed(role state.Role, method, path string) bool {
	under := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if path == p || strings.HasPrefix(path, p+"/") {
				return true
			}
		}
		return false
	}
	if under("/livez", "/readyz", "/v1/cluster/join") || path == "/v1/auth" {
		return true
	}
	switch role {
	case state.RoleAdmin:
		return true
	case state.RoleOperator:
		return !under("/v1/tokens", "/v1/role-bindings", "/v1/auth/revocations", "/v1/cluster/join-tokens", "/v1/cluster/snapshot", "/v1/audit")
	case state.RoleAuditor:
		return method == "GET" && !strings.HasSuffix(path, "/console") && !under("/v1/cluster/snapshot")
	case state.RoleMetrics:
		return path == "/metrics" || under("/v1/auth/self", "/v1/auth/permissions", "/v1/auth/can-i")
	case state.RoleOwner, state.RoleEditor, state.RoleViewer: // aborting a migration is a POST, for roles of the cluster
		switch {
		case under("/v1/tokens", "/v1/role-bindings"):
			return role == state.RoleOwner
		case under("/v1/virtual-clusters", "/v1/periodic"):
			return method == "GET" || role != state.RoleViewer
		case strings.HasSuffix(path, "/console"):
			return role != state.RoleViewer
		case method == "POST" && under("/v1/vms"):
			return role != state.RoleViewer && !strings.HasSuffix(path, "/migrate")
		}
		return method == "GET" && under("/openapi.json", "/v1/tenants", "/v1/quotas", "/v1/events", "/v1/operations", "/v1/images", "/v1/vms", "/v1/migrations", "/v1/cluster/status", "/v1/cluster/settings", "/v1/auth/self", "/v1/auth/permissions", "/v1/auth/can-i")
	}
	return false
}

// Every route for every role, and without a token.
func TestRolesOfRoutes(t *testing.T) {
	k := &keyring{}
	tokens := map[state.Role]string{"": ""}
	for _, role := range state.Roles() {
		tokens[role] = "Bearer " + k.add("a", role, time.Time{})
	}
	for _, role := range state.TenantRoles() {
		text, row := NewToken()
		row.Name, row.Role, row.Tenant = "a", role, "film"
		k.put(row)
		tokens[role] = "Bearer " + text
	}
	s := withKeys(k, true)
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	patterns := append(s.mux.patterns, "GET /v1/audit")
	if len(patterns) < 60 {
		t.Fatalf("only %d routes: %q", len(patterns), patterns)
	}
	for _, pattern := range patterns {
		method, path, _ := strings.Cut(pattern, " ")
		path = parameter.ReplaceAllString(path, "x")
		methods := []string{method}
		if method == "GET" {
			methods = append(methods, "HEAD")
		}
		for _, m := range methods {
			for role, header := range tokens {
				if pattern == "GET /v1/audit" && !strings.Contains(strings.Join(s.mux.patterns, "\n"), pattern) {
					if may(role, pattern) != allowed(role, method, path) {
						t.Errorf("%s as %q: %v", pattern, role, may(role, pattern))
					}
					continue
				}
				want := allowed(role, method, path)
				through, _, _, w := asked(s, m, path, header)
				if through != want {
					t.Errorf("%s %s as %q: through %v, want %v", m, path, role, through, want)
				}
				switch {
				case through:
				case role == "" && w.Code != 401, role != "" && w.Code != 403:
					t.Errorf("%s %s as %q: %d %s", m, path, role, w.Code, w.Body)
				case role != "" && (!strings.Contains(w.Body.String(), v1.ProblemForbidden) || !strings.Contains(w.Body.String(), string(role)) || !strings.Contains(w.Body.String(), "needs ")):
					t.Errorf("%s %s as %q: %s", m, path, role, w.Body)
				}
			}
		}
	}
}

// A route that is not in the table is for admins only. The table has every route that exists and no other.
func TestRoutesAreInTheTable(t *testing.T) {
	s := withKeys(&keyring{}, true)
	registered := map[string]bool{"GET /v1/audit": true}
	for _, pattern := range s.mux.patterns {
		registered[pattern] = true
		if _, ok := rights[pattern]; !ok {
			t.Errorf("%s is not in the table of rights", pattern)
		}
	}
	for pattern := range rights {
		if !registered[pattern] {
			t.Errorf("%s is in the table of rights, and is no route", pattern)
		}
	}
	k := &keyring{}
	operator, admin := k.add("o", state.RoleOperator, time.Time{}), k.add("a", state.RoleAdmin, time.Time{})
	s = withKeys(k, true)
	s.mux.HandleFunc("GET /v1/new", func(http.ResponseWriter, *http.Request) {})
	if through, _, _, _ := asked(s, "GET", "/v1/new", "Bearer "+operator); through {
		t.Error("a route that is not in the table is an operator's")
	}
	if through, _, _, _ := asked(s, "GET", "/v1/new", "Bearer "+admin); !through {
		t.Error("a route that is not in the table is not an admin's")
	}
	if may("root", "GET /metrics") || may("", "GET /v1/vms") {
		t.Error("a role that is not known has rights")
	}
	for _, role := range state.Roles() {
		if !covers(state.RoleAdmin, role) || role != state.RoleAdmin && covers(role, state.RoleAdmin) || covers(state.RoleOperator, state.RoleAuditor) {
			t.Errorf("what %s covers", role)
		}
	}
}

func TestOpenAPINamesRoles(t *testing.T) {
	s := withKeys(&keyring{}, true)
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	for _, want := range []string{"Roles: admin, operator, auditor.", "Roles: admin, auditor.", "Roles: admin.", `"token":["admin","operator"]`, `"403"`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	k := &keyring{}
	good := k.add("good", state.RoleOperator, time.Now().Add(time.Hour))
	old := k.add("old", state.RoleAdmin, time.Now().Add(-time.Minute))
	id, _ := tokenID(good)
	oldID, _ := tokenID(old)
	stranger, _ := NewToken()
	s := withKeys(k, true)
	for _, c := range []struct {
		what, header, says string
	}{
		{"nothing", "", "give the token"},
		{"another scheme", "Basic " + good, "give the token"},
		{"no scheme", good, "give the token"},
		{"the wrong secret with the right id", "Bearer ekt_" + id + stranger[len("ekt_")+16:], "not one of this cluster"},
		{"the wrong secret of one that expired", "Bearer ekt_" + oldID + stranger[len("ekt_")+16:], "not one of this cluster"},
		{"one that expired", "Bearer " + old, "expired at "},
		{"an id that is not known", "Bearer " + stranger, "not one of this cluster"},
		{"cut", "Bearer " + good[:len(good)-1], "not one of this cluster"},
		{"longer", "Bearer " + good + "A", "not one of this cluster"},
		{"upper case", "Bearer " + strings.ToUpper(good), "not one of this cluster"},
		{"its hash", "Bearer " + k.rows[id].Hash, "not one of this cluster"},
		{"without an id", "Bearer ekt_" + good[len("ekt_")+17:], "not one of this cluster"},
		{"two", "Bearer " + good + " " + good, "not one of this cluster"},
	} {
		through, _, _, w := asked(s, "GET", "/v1/vms", c.header)
		if through || w.Code != 401 || !strings.Contains(w.Body.String(), c.says) || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: through %v, %d %s", c.what, through, w.Code, w.Body)
		}
	}
	through, principal, by, w := asked(s, "GET", "/v1/vms", "bearer  "+good+" ")
	if !through || principal.ID != id || principal.Name != "good" || principal.Role != state.RoleOperator {
		t.Errorf("the good one: %v, %+v, %s", through, principal, w.Body)
	}
	if by.ID != "token:"+id || by.Name != "good" || by.Client == "" {
		t.Errorf("actor %+v", by)
	}
	if k.used[id].IsZero() || !k.used[oldID].IsZero() {
		t.Errorf("uses %v", k.used)
	}
	k.drop(good)
	if through, _, _, w := asked(s, "GET", "/v1/vms", "Bearer "+good); through || w.Code != 401 {
		t.Errorf("revoked: %d", w.Code)
	}
	row := state.Token{ID: id, Hash: k.rows[oldID].Hash}
	k.put(row)
	if through, _, _, _ := asked(s, "GET", "/v1/vms", "Bearer "+good); through {
		t.Error("the hash of another token")
	}
	hash, err := RowOf(good)
	if err != nil {
		t.Fatal(err)
	}
	k.put(hash)
	if through, principal, _, w := asked(s, "DELETE", "/v1/tokens/x", "Bearer "+good); through || w.Code != 403 {
		t.Errorf("a row without a role: through %v, %+v, %d", through, principal, w.Code)
	}
}

// A server that follows waits a little for a token that the leader has just made, and does not say that it is wrong while
// it knows of no leader.
func TestTokensOnAFollowerThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keyring{}
		token, row := NewToken()
		row.Name, row.Role = "new", state.RoleOperator
		time.AfterFunc(300*time.Millisecond, func() { k.put(row) })
		begun := time.Now()
		if through, _, _, w := asked(withKeys(k, true), "GET", "/v1/vms", "Bearer "+token); through || time.Since(begun) > 0 || w.Code != 401 {
			t.Errorf("the leader waited %s: %d", time.Since(begun), w.Code)
		}
		if through, _, _, w := asked(withKeys(k, false), "GET", "/v1/vms", "Bearer "+token); !through {
			t.Errorf("one that comes soon: %d %s", w.Code, w.Body)
		}
		never, _ := NewToken()
		begun = time.Now()
		if through, _, _, w := asked(withKeys(k, false), "GET", "/v1/vms", "Bearer "+never); through || w.Code != 401 || time.Since(begun) != tokenLag {
			t.Errorf("one that never comes: %d after %s", w.Code, time.Since(begun))
		}
		behind := New(k, Options{Members: seat{behind: true}, Logger: slog.New(slog.DiscardHandler)})
		if through, _, _, w := asked(behind, "GET", "/v1/vms", "Bearer "+never); through || w.Code != 503 || !strings.Contains(w.Body.String(), v1.ProblemNoLeader) {
			t.Errorf("on a server that was started and has not caught up: %d %s", w.Code, w.Body)
		}
		k.ready = errors.New("the log of the cluster has not come yet")
		if through, _, _, w := asked(withKeys(k, false), "GET", "/v1/vms", "Bearer "+never); through || w.Code != 503 || !strings.Contains(w.Body.String(), v1.ProblemNoLeader) || w.Header().Get("Retry-After") == "" {
			t.Errorf("on a server that is not ready: %d %s", w.Code, w.Body)
		}
		if through, _, _, w := asked(withKeys(k, false), "GET", "/v1/vms", "Bearer nonsense"); through || w.Code != 401 {
			t.Errorf("no token at all, on a server that is not ready: %d", w.Code)
		}
		if through, _, _, _ := asked(withKeys(k, false), "GET", "/v1/vms", "Bearer "+token); !through {
			t.Error("a good one, on a server that is not ready")
		}
		s := withKeys(k, false)
		for range maxTokenWait {
			s.tokenWaits <- struct{}{}
		}
		begun = time.Now()
		if asked(s, "GET", "/v1/vms", "Bearer "+never); time.Since(begun) != 0 {
			t.Error("it waits beside too many others")
		}
	})
}

// Requests end within 3 s of the end of their token here, for which the documented bound leaves 2 s more for the state to come.
func TestEndOfATokenCutsItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keyring{}
		forEver := k.add("for ever", state.RoleOperator, time.Time{})
		revoked := k.add("revoked", state.RoleOperator, time.Time{})
		expires := k.add("expires", state.RoleOperator, time.Now().Add(10*time.Second))
		s := New(k, Options{Tokens: []TokenHash{HashToken("file")}, Logger: slog.New(slog.DiscardHandler)})
		begun := time.Now()
		type end struct {
			after time.Duration
			why   string
		}
		ends := map[string]chan end{}
		stop := make(chan struct{})
		s.mux.HandleFunc("GET /v1/forever", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-stop:
			}
			ends[r.Header.Get("X-Name")] <- end{time.Since(begun), cutReason(r.Context())}
		})
		rights["GET /v1/forever"] = right{"get", "cluster", permitRead, ""}
		defer delete(rights, "GET /v1/forever")
		var wg sync.WaitGroup
		for name, token := range map[string]string{"for ever": forEver, "revoked": revoked, "expires": expires, "file": "file"} {
			ends[name] = make(chan end, 1)
			wg.Go(func() {
				r := httptest.NewRequest("GET", "/v1/forever", nil)
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("X-Name", name)
				s.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		await := func(name string) end {
			select {
			case e := <-ends[name]:
				return e
			case <-time.After(2 * time.Hour):
				t.Fatalf("%s is not cut", name)
				return end{}
			}
		}
		time.AfterFunc(4500*time.Millisecond, func() { k.drop(revoked) })
		if e := await("revoked"); e.after < 5500*time.Millisecond || e.after > 7500*time.Millisecond || !strings.Contains(e.why, "was revoked") {
			t.Errorf("revoked after 4.5 s, cut after %s: %q", e.after, e.why)
		}
		if e := await("expires"); e.after < 11*time.Second || e.after > 13*time.Second || !strings.Contains(e.why, "expired") {
			t.Errorf("expired after 10 s, cut after %s: %q", e.after, e.why)
		}
		time.Sleep(time.Hour) // sleep: in the bubble, to see that the others go on
		close(stop)
		for _, name := range []string{"for ever", "file"} {
			if e := await(name); e.after < time.Hour || e.why != "" {
				t.Errorf("%s: ended after %s: %q", name, e.after, e.why)
			}
		}
		wg.Wait()
		time.Sleep(2 * sweepEvery) // sleep: in the bubble, for the sweeper to see that nothing runs
		s.live.mu.Lock()
		defer s.live.mu.Unlock()
		if len(s.live.of) != 0 || s.live.sweeping {
			t.Errorf("left: %v, sweeping %v", s.live.of, s.live.sweeping)
		}
	})
}

// The bound is per token, streams have one of their own, and what ended counts no more.
func TestBoundOfATokensRequests(t *testing.T) {
	l := &liveRequests{ended: func(*principal, time.Time) error { return nil }}
	enter := func(id string) (context.Context, func()) {
		p := &principal{ID: id, Name: id, File: true} // no sweeper
		return l.enter(context.WithValue(t.Context(), principalKey{}, p), p)
	}
	var leave []func()
	freeze := func(id string, kind liveKind) error {
		ctx, end := enter(id)
		leave = append(leave, end)
		return l.acquire(ctx, kind)
	}
	for i := range maxStreams {
		if err := freeze("a", liveStream); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	var p *problem
	if err := freeze("a", liveStream); !errors.As(err, &p) || p.Status != 429 || p.GetHeaders().Get("Retry-After") == "" || !strings.Contains(p.Detail, "100 event streams") {
		t.Errorf("one stream more: %v", err)
	}
	for i := range maxLive - maxStreams {
		if err := freeze("a", []liveKind{liveConsole, livePoll}[i%2]); err != nil {
			t.Fatalf("console or poll %d: %v", i, err)
		}
	}
	for _, kind := range []liveKind{liveConsole, livePoll} {
		if err := freeze("a", kind); !errors.As(err, &p) || p.Status != 429 {
			t.Errorf("one more of kind %d: %v", kind, err)
		}
	}
	if err := freeze("b", liveStream); err != nil {
		t.Errorf("another token: %v", err)
	}
	if n := l.running("a"); n[liveStream] != maxStreams || n[liveStream]+n[liveConsole]+n[livePoll] != maxLive {
		t.Errorf("running %v", n)
	}
	leave[0]()
	if err := freeze("a", liveStream); err != nil {
		t.Errorf("after one stream ended: %v", err)
	}
	for _, f := range leave[1:] {
		f()
	}
	if len(l.of) != 0 {
		t.Errorf("left: %v", l.of)
	}
	if err := l.acquire(t.Context(), liveStream); err != nil {
		t.Errorf("without a principal: %v", err)
	}
}
