package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// joinTimeout is how long the body of a request to join may take.
const joinTimeout = 10 * time.Second

// How many requests to join a server takes, each second and at once.
const (
	joinsPerAddress = 5
	joinsAtOnce     = 20
	joinsInAll      = 50
	joinsInAllOnce  = 100
	maxJoinSources  = 4096 // addresses that are counted; beyond, those that asked longest ago are forgotten
)

// joinLimit bounds the requests to join, which need no token of the API. It is safe for concurrent use.
type joinLimit struct {
	mu  sync.Mutex
	all *rate.Limiter
	by  *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newJoinLimit() *joinLimit {
	by, err := lru.New[netip.Prefix, *rate.Limiter](maxJoinSources)
	if err != nil {
		panic("server: limit of joins: " + err.Error()) // the size is a constant
	}
	return &joinLimit{all: rate.NewLimiter(joinsInAll, joinsInAllOnce), by: by}
}

// take takes a place for a request from an address at that time, or returns how long to wait before the next try. A
// request that its own address has no place for takes none of all addresses' places.
func (l *joinLimit) take(from netip.Addr, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	source := transport.SourceOf(from)
	own, ok := l.by.Get(source)
	if !ok {
		own = rate.NewLimiter(joinsPerAddress, joinsAtOnce)
		l.by.Add(source, own)
	}
	for _, limit := range []*rate.Limiter{own, l.all} {
		if !limit.AllowN(now, 1) {
			missing := 1 - limit.TokensAt(now)
			return time.Duration(missing / float64(limit.Limit()) * float64(time.Second))
		}
	}
	return 0
}

// admitJoin lets a request to join pass only if its join token is good by the state of this server. It bounds how many such
// requests are read, how large they are and how long they take. It goes before whatever hands requests on.
func (s *Server) admitJoin(next http.Handler) http.Handler {
	if s.opts.Members == nil {
		return next
	}
	limit := newJoinLimit()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r.Context()) != "POST "+joinPath {
			next.ServeHTTP(w, r)
			return
		}
		if transport.ForwardedBy(r.Context()) == "" { // the server that handed it on has counted it
			at, _ := netip.ParseAddrPort(r.RemoteAddr)
			if wait := limit.take(at.Addr(), time.Now()); wait > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
				s.refuseBody(w, r, newProblem(http.StatusTooManyRequests, v1.ProblemTooMany, "too many requests to join; ask again later"))
				return
			}
		}
		body, p := readWithin(w, r, MaxJoinBytes, joinTimeout)
		if p != nil {
			s.refuseRead(w, r, p)
			return
		}
		q, err := transport.ParseJoin(body)
		if err != nil {
			writeProblem(w, r, malformedJoin(err))
			return
		}
		ctx := audit.With(r.Context(), audit.Actor{Client: r.RemoteAddr, Request: requestID(r.Context())})
		err = q.Check()
		if err == nil {
			err = s.opts.Members.MayJoin(ctx, q)
		}
		if err != nil {
			s.refuseJoin(w, r, err)
			return
		}
		transport.MarkAuthenticated(ctx)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // before, it is that of strangers
		r = r.WithContext(asks(ctx, audit.Of(ctx)))
		setBody(r, body)
		next.ServeHTTP(w, r)
	})
}

// joinMember lets a member in. Why a token is refused is said in the events only.
func (s *Server) joinMember(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxJoinBytes)) // admitJoin has read it
	if err != nil {
		writeProblem(w, r, malformedJoin(err))
		return
	}
	q, err := transport.ParseJoin(body)
	if err != nil {
		writeProblem(w, r, malformedJoin(err))
		return
	}
	named(r.Context(), q.Name)
	a, err := s.opts.Members.Admit(r.Context(), q)
	if err != nil {
		s.refuseJoin(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(a) // a client that is gone must join again, with another token
}

func malformedJoin(err error) *problem {
	p := newProblem(http.StatusBadRequest, v1.ProblemMalformed, fmt.Sprintf("the body is no request to join: %v", err))
	p.Errors = []v1.FieldError{{In: "body", Field: "body", Message: p.Detail}}
	return p
}

// refuseJoin gives the same answer to every token that is refused.
func (s *Server) refuseJoin(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, state.ErrToken) || errors.Is(err, pki.ErrToken) {
		err = newProblem(http.StatusForbidden, v1.ProblemUnauthorized, "the join token is not known, used, or over; make a new one with `vcctl cluster join-token`")
	}
	var p *problem
	if errors.As(s.fail(r.Context(), err), &p) {
		writeProblem(w, r, p)
	}
}
