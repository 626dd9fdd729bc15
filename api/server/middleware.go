package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
)

type requestKey struct{}

// requestID of a request, as it stands in the log and in the header X-Request-Id.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// identify gives every request an id: the client's own if it is a plain one.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !plainID(id) {
			b := make([]byte, 8)
			_, _ = rand.Read(b) // never fails
			id = hex.EncodeToString(b)
		}
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r.Header.Set("X-Request-Id", id) // for the server that this one may hand it on to
		ctx := context.WithValue(r.Context(), requestKey{}, id)
		observed := &seen{}
		observed.wanted, _ = strconv.ParseUint(r.URL.Query().Get("index"), 10, 64) // what is wrong with it is said later
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, seenKey{}, observed)))
	})
}

func plainID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// seen is the index of the log that an answer is made from, and the one it had to wait for.
type seen struct {
	index, wanted uint64
	authenticated bool // the caller is
	ofTenant      bool // the caller is of a tenant, and sees no index of the log
}

type seenKey struct{}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	index  func() uint64 // of the state that the answer was made from
	status int
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) { // others are not the answer
		w.status = status
		w.named()
	}
	w.ResponseWriter.WriteHeader(status)
}

// named puts the index of the state that the answer was made from into its header, unless the leader did.
func (w *recorder) named() {
	if i := w.index(); i > 0 && w.Header().Get("Evenkeel-Index") == "" {
		w.Header().Set("Evenkeel-Index", strconv.FormatUint(i, 10))
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
		w.named()
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Bounds of what a line of the program's log has of a request, bytes.
const (
	maxLoggedMethod = 32
	maxLoggedPath   = 256
)

// observe logs and counts every request, and keeps a panic from taking the server down. What is refused to callers that are not
// authenticated is logged at DEBUG only: the audit log counts it.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		observed, _ := r.Context().Value(seenKey{}).(*seen)
		rec := &recorder{ResponseWriter: w, index: func() uint64 {
			if observed == nil || !observed.authenticated || observed.ofTenant {
				return 0
			}
			if observed != nil && observed.index > 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
				return observed.index
			}
			return s.cluster.Index()
		}}
		defer func() {
			switch p := recover(); {
			case p == nil:
			case p == any(http.ErrAbortHandler): // an answer of another server that broke off: it must not look whole here
				defer panic(p)
			case r.Context().Err() != nil: // huma panics so when the client has left before the answer
				s.log.DebugContext(r.Context(), "the client left", "request", requestID(r.Context()), "error", fmt.Sprint(p))
				if rec.status == 0 { // or net/http says 200, and the connection may still take that to the client
					writeProblem(rec, r, newProblem(http.StatusGatewayTimeout, v1.ProblemTimeout, "the request was given up before its answer, it may still be carried out"))
				}
			default:
				s.log.ErrorContext(r.Context(), "panic in a request", "request", requestID(r.Context()), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if rec.status == 0 {
					writeProblem(rec, r, newProblem(http.StatusInternalServerError, v1.ProblemInternal, "the server's log has the details"))
				}
			}
			took := time.Since(begin)
			_, pattern := s.mux.Handler(r)
			s.metrics.request(r.Method, pattern, rec.status, took)
			level := slog.LevelInfo
			switch stranger := observed == nil || !observed.authenticated; {
			case rec.status < 400 && (r.Method == http.MethodGet || r.Method == http.MethodHead):
				level = slog.LevelDebug // requests that a client repeats every second are not worth a line
			case rec.status >= 400 && stranger:
				level = slog.LevelDebug
			}
			s.log.Log(r.Context(), level, "request", "request", requestID(r.Context()),
				"method", audit.Printable(r.Method, maxLoggedMethod), "path", audit.Printable(r.URL.Path, maxLoggedPath),
				"status", rec.status, "bytes", rec.bytes, "took", took.Round(time.Microsecond), "client", r.RemoteAddr)
		}()
		next.ServeHTTP(rec, r)
	})
}

// query refuses what code that reads single parameters would overlook: pairs
// that cannot be decoded, a name without a value, a name given twice. A
// deletion must not be carried out because its dryRun was not understood.
func query(r *http.Request) *problem {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalidParameter("query", "query", r.URL.RawQuery, "cannot be decoded: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch all := values[name]; {
		case len(all) > 1:
			return invalidParameter("query", name, strings.Join(all, ", "), "is given more than once")
		case all[0] == "":
			return invalidParameter("query", name, "", "has no value: write name=value, or leave it out")
		}
	}
	return nil
}

// route hands the request to its handler.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if principal := principalOf(r.Context()); principal != nil {
		ctx, leave := s.live.enter(r.Context(), principal)
		defer leave()
		r = r.WithContext(ctx)
	}
	if p := query(r); p != nil {
		writeProblem(w, r, p)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// answer catches what the mux would say.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }
