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
	"time"

	"golang.org/x/sync/semaphore"

	"evenkeel/api/v1"
)

const (
	// bufferedBytes bounds the bodies that a server holds in memory at once.
	bufferedBytes = 64 << 20
	// bufferWait is how long a request waits for others to make room for its body.
	bufferWait = 5 * time.Second
	// largeAtOnce bounds the large bodies that a server holds in memory at once: saved states, of up to 1 GiB each.
	largeAtOnce = 1
)

// buffers bound the memory of bodies.
type buffers struct {
	small *semaphore.Weighted // in bytes
	large *semaphore.Weighted // in bodies
}

func newBuffers() buffers {
	return buffers{small: semaphore.NewWeighted(bufferedBytes), large: semaphore.NewWeighted(largeAtOnce)}
}

// large says whether a request may have a body that is larger than others': it holds a saved state. Such a body is read on
// the server that leads alone; another one passes it on as it comes.
func large(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == snapshotPath || r.URL.Path == tryPath)
}

// readBody reads the whole body, at most v1.MaxBytes of it and for at most bodyTimeout, before anything is done with the
// request or it is forwarded. The caller has authenticated.
func (s *Server) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || principalOf(r.Context()) == nil { // a stranger's body is not read here
			next.ServeHTTP(w, r)
			return
		}
		if large(r) {
			r.Body = &paced{ReadCloser: r.Body, conn: http.NewResponseController(w), each: bodyTimeout}
			next.ServeHTTP(w, r)
			return
		}
		most := int64(v1.MaxBytes)
		if r.ContentLength >= 0 {
			most = min(most, r.ContentLength)
		}
		if r.ContentLength > most {
			s.refuseBody(w, r, tooLarge(v1.MaxBytes))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), bufferWait)
		err := s.buffers.small.Acquire(ctx, most)
		cancel()
		if err != nil {
			s.refuseBody(w, r, crowded("too many requests with bodies are under way on this server"))
			return
		}
		defer s.buffers.small.Release(most)
		if s.takeBody(w, r, v1.MaxBytes, bodyTimeout) {
			next.ServeHTTP(w, r)
		}
	})
}

// readLarge reads the large bodies that readBody has left, on the server that answers.
func (s *Server) readLarge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !large(r) || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		if !s.buffers.large.TryAcquire(1) {
			s.refuseBody(w, r, crowded("this server is busy with another saved state"))
			return
		}
		defer s.buffers.large.Release(1)
		// The handler of a snapshot reads it itself, and says when it is too large.
		if r.URL.Path == snapshotPath || s.takeBody(w, r, MaxTryBytes, writeTimeout) {
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

// paced ends a body of which nothing comes for a while.
type paced struct {
	io.ReadCloser
	conn *http.ResponseController
	each time.Duration
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(p.each)) // a writer without deadlines is a test's
	return p.ReadCloser.Read(b)
}

func crowded(detail string) *problem {
	p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, detail+"; try again in a moment")
	p.retry = true
	return p
}

func tooLarge(most int64) *problem {
	p := newProblem(http.StatusRequestEntityTooLarge, v1.ProblemTooLarge, fmt.Sprintf("the body is larger than %d bytes", most))
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
