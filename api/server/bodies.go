package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"evenkeel/api/v1"
)

const (
	// bufferedBytes bounds the bodies that a server holds in memory at once, and bufferedOfToken those of one token: a client
	// that sends bodies slowly keeps no other client out.
	bufferedBytes   = 64 << 20
	bufferedOfToken = 8 << 20
	// bufferWait is how long a request waits for others to make room for its body.
	bufferWait = 5 * time.Second
	// largeAtOnce bounds the large bodies that a server holds in memory at once: saved states, of up to 1 GiB each.
	largeAtOnce = 1
	// largeTimeout bounds how long a large body may take.
	largeTimeout = 90 * time.Second
)

// buffers bound the memory of bodies.
type buffers struct {
	all   *semaphore.Weighted // bytes
	large *semaphore.Weighted // bodies

	mu sync.Mutex
	of map[string]*share // by the id of a token, while it has any
}

// share of one token.
type share struct {
	bytes *semaphore.Weighted
	users int
}

func newBuffers() *buffers {
	return &buffers{all: semaphore.NewWeighted(bufferedBytes), large: semaphore.NewWeighted(largeAtOnce), of: map[string]*share{}}
}

// loan is room for a body.
type loan struct {
	b     *buffers
	token string
	own   *share
	bytes int64
}

// take room for a body of at most so many bytes of a token.
func (b *buffers) take(ctx context.Context, token string, n int64) (*loan, error) {
	b.mu.Lock()
	own := b.of[token]
	if own == nil {
		own = &share{bytes: semaphore.NewWeighted(bufferedOfToken)}
		b.of[token] = own
	}
	own.users++
	b.mu.Unlock()
	l := &loan{b: b, token: token, own: own}
	if err := own.bytes.Acquire(ctx, n); err != nil {
		l.end()
		return nil, err
	}
	if err := b.all.Acquire(ctx, n); err != nil {
		own.bytes.Release(n)
		l.end()
		return nil, err
	}
	l.bytes = n
	return l, nil
}

// shrink to the bytes that the body has.
func (l *loan) shrink(n int64) {
	if free := l.bytes - n; free > 0 {
		l.b.all.Release(free)
		l.own.bytes.Release(free)
		l.bytes = n
	}
}

// end gives all of it back, once.
func (l *loan) end() {
	l.shrink(0)
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.own.users--; l.own.users == 0 {
		delete(l.b.of, l.token)
	}
}

// large says whether requests of a route may have a larger body than others: one with a saved state. Only the server that leads
// reads such a body; another one passes it on as it comes.
func large(route string) bool { return route == "POST "+snapshotPath || route == "POST "+simulatePath }

// readBody reads the whole body, at most v1.MaxBytes of it and for at most bodyTimeout, before anything is done with the
// request or it is forwarded. The caller has authenticated, and its role allows the request.
func (s *Server) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal := principalOf(r.Context())
		if r.Body == nil || r.Body == http.NoBody || principal == nil { // a stranger's body is not read here
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // means nothing: neither read nor forwarded
			r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
			next.ServeHTTP(w, r)
			return
		}
		if large(routeOf(r.Context())) {
			body := &paced{ReadCloser: r.Body, conn: http.NewResponseController(w), each: bodyTimeout, until: time.Now().Add(largeTimeout)}
			defer body.end()
			r.Body = body
			next.ServeHTTP(w, r)
			return
		}
		limit := int64(v1.MaxBytes)
		if r.ContentLength > limit {
			s.refuseBody(w, r, tooLarge(limit))
			return
		}
		if r.ContentLength >= 0 {
			limit = r.ContentLength
		}
		ctx, cancel := context.WithTimeout(r.Context(), bufferWait)
		room, err := s.buffers.take(ctx, principal.ID, limit)
		cancel()
		if err != nil {
			s.refuseBody(w, r, crowded("too many requests with bodies are under way on this server"))
			return
		}
		defer room.end()
		if s.takeBody(w, r, v1.MaxBytes, bodyTimeout) && s.stillGood(w, r, principal) {
			room.shrink(r.ContentLength)
			next.ServeHTTP(w, r)
		}
	})
}

// stillGood says whether the right of a request is good, now that its body was read: that may have taken long. It answers
// if it is not.
func (s *Server) stillGood(w http.ResponseWriter, r *http.Request, principal *principal) bool {
	var p *problem
	if errors.As(s.endOf(principal, time.Now()), &p) {
		writeProblem(w, r, p)
		return false
	}
	return true
}

// readLarge reads the large bodies that readBody has left, on the server that answers.
func (s *Server) readLarge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, principal := routeOf(r.Context()), principalOf(r.Context())
		if !large(route) || r.Body == nil || r.Body == http.NoBody || principal == nil {
			next.ServeHTTP(w, r)
			return
		}
		if !s.buffers.large.TryAcquire(1) {
			s.refuseBody(w, r, crowded("this server is busy with another saved state"))
			return
		}
		defer s.buffers.large.Release(1)
		limit := int64(MaxSimulateBytes)
		if route == "POST "+snapshotPath {
			limit = MaxSnapshotBytes
		}
		if s.takeBody(w, r, limit, largeTimeout) && s.stillGood(w, r, principal) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // the body has taken its time
			next.ServeHTTP(w, r)
		}
	})
}

// takeBody reads a body into memory. It answers, and returns false, if that fails.
func (s *Server) takeBody(w http.ResponseWriter, r *http.Request, maxBytes int64, within time.Duration) bool {
	body, p := readWithin(w, r, maxBytes, within)
	if p != nil {
		s.refuseRead(w, r, p)
		return false
	}
	setBody(r, body)
	return true
}

// setBody replaces the body of a request by what was read of it.
func setBody(r *http.Request, body []byte) {
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body = io.NopCloser(bytes.NewReader(body))
}

// readWithin reads the whole body of a request, at most so many bytes and for at most so long.
func readWithin(w http.ResponseWriter, r *http.Request, maxBytes int64, within time.Duration) ([]byte, *problem) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > maxBytes {
		return nil, tooLarge(maxBytes)
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(within)) // a writer without deadlines is a test's
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	var over *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &over):
		return nil, tooLarge(maxBytes)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return nil, newProblem(http.StatusRequestTimeout, v1.ProblemSlow, fmt.Sprintf("the body did not come within %s", within))
	case err != nil:
		return nil, newProblem(http.StatusBadRequest, v1.ProblemMalformed, "the body ended before its time")
	}
	_ = conn.SetReadDeadline(time.Time{})
	return body, nil
}

// refuseRead answers that a body was not read to its end.
func (s *Server) refuseRead(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.Status == http.StatusRequestEntityTooLarge {
		s.refuseBody(w, r, p)
		return
	}
	w.Header().Set("Connection", "close") // the rest of the body is not waited for
	writeProblem(w, r, p)
}

// paced ends a body of which nothing comes for a while. A forwarder may read from the body after the handler has returned, when
// net/http's writer for HTTP/2 must not be used any more.
type paced struct {
	io.ReadCloser
	each  time.Duration // for one read
	until time.Time     // for all

	mu   sync.Mutex
	conn *http.ResponseController // nil once the handler has returned
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	if !p.extend() {
		return 0, http.ErrBodyReadAfterClose
	}
	return p.ReadCloser.Read(b)
}

func (p *paced) extend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return false
	}
	by := time.Now().Add(p.each)
	if by.After(p.until) {
		by = p.until
	}
	_ = p.conn.SetReadDeadline(by) // a writer without deadlines is a test's
	return true
}

// end says that the handler returns.
func (p *paced) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = nil
}

func crowded(detail string) *problem {
	p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, detail+"; try again in a moment")
	p.retry = true
	return p
}

func tooLarge(limit int64) *problem {
	p := newProblem(http.StatusRequestEntityTooLarge, v1.ProblemTooLarge, fmt.Sprintf("the body is larger than %d bytes", limit))
	p.Errors = []v1.FieldError{{In: "body", Field: "body", Message: p.Detail}}
	return p
}

// refuseBody answers before the body is read. Then it throws some of the body
// away, for a moment: a client that is still writing when the connection is
// closed under it would never see the answer.
func (s *Server) refuseBody(w http.ResponseWriter, r *http.Request, p *problem) {
	if r.Body == nil || r.Body == http.NoBody {
		writeProblem(w, r, p)
		return
	}
	conn := http.NewResponseController(w)
	_ = conn.EnableFullDuplex() // HTTP/2 is anyway
	w.Header().Set("Connection", "close")
	writeProblem(w, r, p)
	_ = conn.Flush()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 256<<20)) // best effort by its nature
}
