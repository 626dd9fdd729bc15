package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// behind runs a request through all that goes before the route, and says whether it came there, with what body.
func behind(s *Server, r *http.Request) (through bool, body string, w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	s.authenticate(s.admitJoin(s.readBody(s.readLarge(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		through = true
		b, _ := io.ReadAll(r.Body)
		body = string(b)
	}))))).ServeHTTP(w, r)
	return through, body, w
}

// unread fails a test when a body is read of which nothing may be.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// What matches no route as it is written is refused before its body is read, also where the decoded path is that of a route: the
// mux matches the one, and a role that may do little must not reach what is decided by the other.
func TestEncodedPaths(t *testing.T) {
	k := &keyring{}
	s := withKeys(k, true)
	token := k.add("scrape", state.RoleMetrics, time.Time{})
	admin := k.add("admin", state.RoleAdmin, time.Time{})
	for _, path := range []string{"/v1%2Fsimulate", "/v1%2fsimulate", "/v1/simulate/", "//v1/simulate", "/v1/cluster%2Fsnapshot", "/v1/cluster/../plans/try", "/v1/cluster%2Fjoin", "/nothing"} {
		for _, token := range []string{token, admin} {
			r := httptest.NewRequest(http.MethodPost, "http://x"+path, nil)
			r.Body, r.ContentLength = io.NopCloser(discarded{}), 1<<20
			r.Header.Set("Authorization", "Bearer "+token)
			r.RequestURI = path
			if through, _, w := behind(s, r); through || w.Code != http.StatusNotFound {
				t.Errorf("%s: through %t, status %d", path, through, w.Code)
			}
		}
	}
}

// discarded is a body that refuseBody may throw away: it ends at once.
type discarded struct{}

func (discarded) Read([]byte) (int, error) { return 0, io.EOF }

// slowBody gives its text once it is let go.
type slowBody struct {
	io.Reader
	begun chan struct{}
	once  sync.Once
	let   chan struct{}
}

func newSlowBody(text string) *slowBody {
	return &slowBody{Reader: strings.NewReader(text), begun: make(chan struct{}), let: make(chan struct{})}
}

func (b *slowBody) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.begun) })
	<-b.let
	return b.Reader.Read(p)
}

// A token that is revoked while the body of its request comes does nothing any more.
func TestTokenRevokedWhileTheBodyComes(t *testing.T) {
	for _, path := range []string{"/v1/tokens", simulatePath} {
		k := &keyring{}
		s := withKeys(k, true)
		token := k.add("thief", state.RoleAdmin, time.Time{})
		body := newSlowBody(`{"name": "backdoor", "role": "admin"}`)
		r := httptest.NewRequest(http.MethodPost, path, body)
		r.Header.Set("Authorization", "Bearer "+token)
		done := make(chan struct{})
		go func() {
			defer close(done)
			through, _, w := behind(s, r)
			if through || w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "revoked") {
				t.Errorf("%s: through %t, %d %s", path, through, w.Code, w.Body)
			}
		}()
		<-body.begun
		k.drop(token)
		close(body.let)
		<-done
	}
}

// However many bodies one token sends slowly, others' are taken.
func TestSlowBodiesOfOneToken(t *testing.T) {
	k := &keyring{}
	s := withKeys(k, true)
	slow, other := k.add("slow", state.RoleOperator, time.Time{}), k.add("other", state.RoleOperator, time.Time{})
	const many = 100 // of 1 MiB each, where 64 MiB are taken in all
	var group sync.WaitGroup
	var bodies []*slowBody
	for range many {
		body := newSlowBody("{}")
		bodies = append(bodies, body)
		r := httptest.NewRequest(http.MethodPost, "/v1/virtual-clusters", body)
		r.ContentLength = -1
		r.Header.Set("Authorization", "Bearer "+slow)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group.Go(func() { _, _, _ = behind(s, r.WithContext(ctx)) })
	}
	const share = bufferedOfToken / v1.MaxBytes
	begun := 0
	for begun < share {
		begun = 0
		for _, b := range bodies {
			select {
			case <-b.begun:
				begun++
			default:
			}
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/virtual-clusters", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer "+other)
	if through, body, w := behind(s, r); !through || body != "{}" {
		t.Errorf("another token's request: %d %s", w.Code, w.Body)
	}
	for _, b := range bodies {
		close(b.let)
	}
	group.Wait()
	if n := len(s.buffers.of); n != 0 {
		t.Errorf("%d shares are left", n)
	}
	if !s.buffers.all.TryAcquire(bufferedBytes) {
		t.Error("not all room was given back")
	}
}

// A stream gives back the room of its body at once, and a body of a read is not read at all.
func TestBodiesOfStreams(t *testing.T) {
	k := &keyring{}
	s := withKeys(k, true)
	token := k.add("reader", state.RoleAuditor, time.Time{})
	r := httptest.NewRequest(http.MethodGet, "/v1/events", unread{t})
	r.ContentLength = -1
	r.Header.Set("Authorization", "Bearer "+token)
	if through, body, _ := behind(s, r); !through || body != "" {
		t.Errorf("through %t with %q", through, body)
	}
	l, err := s.buffers.take(t.Context(), "a", bufferedOfToken)
	if err != nil {
		t.Fatal(err)
	}
	l.shrink(1)
	if !s.buffers.all.TryAcquire(bufferedBytes - 1) {
		t.Error("a body holds more room than it has bytes")
	}
	s.buffers.all.Release(bufferedBytes - 1)
	l.end()
}

// A body that is read after its handler has returned leaves the writer alone, which net/http has taken apart by then.
func TestBodyReadAfterItsHandler(t *testing.T) {
	p := &paced{ReadCloser: io.NopCloser(strings.NewReader("late")), conn: http.NewResponseController(httptest.NewRecorder()), each: time.Second, until: time.Now().Add(time.Second)}
	b := make([]byte, 2)
	if n, err := p.Read(b); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	p.end()
	if n, err := p.Read(b); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after the handler: %d, %v", n, err)
	}
}
