package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/internal/secretfile"
)

// TokenHash is the SHA-256 of a token's whole text. Its secret is 32 random bytes, so that a slow
// hash would guard nothing.
type TokenHash [sha256.Size]byte

// The text of a token is ekt_ID.SECRET: ID is 8 random bytes as hex digits and names its row, SECRET is 32 random bytes
// in base64url.
const (
	tokenPrefix  = "ekt_"
	tokenIDBytes = 8
	tokenBytes   = 32
)

var tokenForm = regexp.MustCompile(`^ekt_([0-9a-f]{16})\.[A-Za-z0-9_-]{43}$`)

// tokenID is the id in the text of a token; false if the text is no token's.
func tokenID(token string) (string, bool) {
	m := tokenForm.FindStringSubmatch(token)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// NewToken makes the text of a token and the row that knows it, with id and hash only.
func NewToken() (string, state.Token) {
	var id [tokenIDBytes]byte
	var secret [tokenBytes]byte
	_, _ = rand.Read(id[:]) // crypto/rand never fails: it ends the program first
	_, _ = rand.Read(secret[:])
	token := tokenPrefix + hex.EncodeToString(id[:]) + "." + base64.RawURLEncoding.EncodeToString(secret[:])
	row, _ := RowOf(token)
	return token, row
}

// RowOf the text of a token, with id and hash only.
func RowOf(token string) (state.Token, error) {
	id, ok := tokenID(token)
	if !ok {
		return state.Token{}, errors.New("it is no token of the API: ekt_ID.SECRET")
	}
	hash := HashToken(token)
	return state.Token{ID: id, Hash: hex.EncodeToString(hash[:])}, nil
}

// HashToken hashes a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// EnsureAdminToken reads the token in the file at path, or makes one and the
// file with it, and returns its hash. The file is never readable to others:
// one that is, is refused.
func EnsureAdminToken(path string) (TokenHash, error) {
	hash, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return hash, err
	}
	token, _ := NewToken()
	if err := writeNew(path, []byte(token+"\n")); err != nil {
		return TokenHash{}, fmt.Errorf("admin token: %w", err)
	}
	return readToken(path) // another process may have been first: what the file holds counts
}

func readToken(path string) (TokenHash, error) {
	b, err := secretfile.Read(path, secretfile.Rule{MaxBytes: 4 << 10})
	if errors.Is(err, secretfile.ErrExposed) {
		return TokenHash{}, fmt.Errorf("admin token: %w; or remove the file for a new token", err)
	}
	if err != nil {
		return TokenHash{}, fmt.Errorf("admin token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if !tokenForm.MatchString(token) {
		return TokenHash{}, fmt.Errorf("admin token: %s holds no token of Evenkeel: remove the file for a new one", path)
	}
	return HashToken(token), nil
}

// writeNew makes a file of mode 0600 with that content, whole or not at all. A
// file that is there already stays.
func writeNew(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600 from the start
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a leftover holds nothing that the file does not
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// How long a server that is not the leader waits for the row of a token that it does not know, and for how many requests at
// once: its state may lag a little behind the leader's. It sends the leader no request of a client that is not authenticated.
const (
	tokenLag     = 500 * time.Millisecond
	maxTokenWait = 256
)

// fileTokenID names the token of the file of `vcd dev`, which has no row.
const fileTokenID = "file"

// noHash is compared with where there is no row, so that the time taken shows nothing. No token has this hash.
var noHash = strings.Repeat("0", 2*sha256.Size)

type routeKey struct{}

// routeOf a request is the pattern of the mux that its path matches as it is written. All decisions about the request go by this
// pattern, not by the decoded path, which may match another one.
func routeOf(ctx context.Context) string {
	route, _ := ctx.Value(routeKey{}).(string)
	return route
}

// authenticate finds the principal of a request by its token. It refuses requests without a valid token, those that match no route,
// and those that the principal's role does not allow. A principal without any role counts as a stranger for the limits on connections.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := s.mux.Handler(r)
		if path.Clean(r.URL.Path) != r.URL.Path { // the mux would redirect it
			route = ""
		}
		r = r.WithContext(context.WithValue(r.Context(), routeKey{}, route))
		if rights[route].cluster == permitAnyone {
			next.ServeHTTP(w, r)
			return
		}
		principal, refusal := s.identifyToken(r)
		if refusal == nil {
			refusal = s.suspends(principal)
		}
		if refusal != nil {
			if refusal.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="evenkeel"`)
				refusal.Errors = []v1.FieldError{{In: "header", Field: "Authorization", Message: refusal.Detail}}
			}
			s.refuseBody(w, r, refusal)
			return
		}
		if observed, ok := r.Context().Value(seenKey{}).(*seen); ok && principal.Tenant != "" {
			observed.ofTenant, observed.wanted = true, 0
		}
		if principal.Role != "" {
			transport.MarkAuthenticated(r.Context())
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // before, it is that of strangers
		}
		ctx := context.WithValue(r.Context(), principalKey{}, principal)
		ctx = asks(ctx, audit.Actor{ID: principal.actor(), Name: principal.Name, Tenant: principal.Tenant, Client: r.RemoteAddr, Request: requestID(ctx)})
		r = r.WithContext(ctx)
		if p := s.tooFast(ctx, principal, time.Now()); p != nil && !principal.File {
			s.refuseBody(w, r, p)
			return
		}
		if route == "" {
			s.refuseBody(w, r, s.nothingAt(w, r))
			return
		}
		if !may(principal.Role, route) {
			s.refuseBody(w, r, forbidden(principal, route))
			return
		}
		if p := s.tooManyDryRuns(ctx, principal, route, r, time.Now()); p != nil {
			s.refuseBody(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// nothingAt says that no route matches a request: there is no such path, or not with this method.
func (s *Server) nothingAt(w http.ResponseWriter, r *http.Request) *problem {
	h, pattern := s.mux.Handler(r)
	probe := &answer{header: http.Header{}}
	if pattern == "" {
		h.ServeHTTP(probe, r)
	}
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		return newProblem(probe.status, v1.ProblemMethod, fmt.Sprintf("%s is not for %s; it takes %s", r.Method, r.URL.Path, allow))
	}
	if _, known := rights[r.Method+" "+r.URL.Path]; known && s.opts.Members == nil {
		return newProblem(http.StatusNotFound, v1.ProblemNotFound, "a server alone (vcd dev) has no members, and no commands for them; those of vcd run have")
	}
	return newProblem(http.StatusNotFound, v1.ProblemNotFound, fmt.Sprintf("there is nothing at %s; /openapi.json lists what there is", r.URL.Path))
}

// identifyToken finds the principal of a request by its token.
func (s *Server) identifyToken(r *http.Request) (*principal, *problem) {
	refuse := func(detail string) (*principal, *problem) {
		return nil, newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, detail)
	}
	header := r.Header.Get("Authorization")
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") {
		return refuse("give the token in the header `Authorization: Bearer TOKEN`")
	}
	given := HashToken(token)
	for _, t := range s.opts.Tokens {
		if subtle.ConstantTimeCompare(given[:], t[:]) == 1 {
			return &principal{ID: fileTokenID, Name: "admin.token", Role: state.RoleAdmin, roles: []assigned{{Role: state.RoleAdmin}}, File: true}, nil
		}
	}
	if oidc.Looks(token) {
		return s.identifyOpenID(r.Context(), token, r.URL.Query().Get("tenant"))
	}
	id, formed := tokenID(token)
	var row state.Token
	var found bool
	if formed {
		row, found = s.findToken(r.Context(), id)
	}
	want := noHash
	if found {
		want = row.Hash
	}
	same := subtle.ConstantTimeCompare([]byte(hex.EncodeToString(given[:])), []byte(want)) == 1
	now := time.Now()
	switch {
	case found && same && row.Ended(now):
		return refuse(fmt.Sprintf("the token %s (%s) expired at %s", row.Name, row.ID, row.Until.UTC().Format(time.RFC3339)))
	case found && same && !row.GoodFrom(r.RemoteAddr):
		s.recordNotFrom(r, row)
		return nil, notFrom(r.RemoteAddr)
	case found && same:
		s.cluster.UseToken(id, now)
		p := &principal{ID: row.ID, Name: row.Name, Home: row.Tenant, Until: row.Until, From: row.From, Client: r.RemoteAddr}
		p.act([]assigned{{Tenant: row.Tenant, Role: row.Role}}, s.cluster.BindingsOf(state.Subject{Kind: state.SubjectToken, Name: row.ID}), r.URL.Query().Get("tenant"))
		return p, nil
	case formed && !found && s.opts.Members != nil && (s.cluster.Ready() != nil || !s.opts.Members.CaughtUp()):
		return nil, noLeader("this server does not know the tokens of the cluster now; ask another one, or try again")
	}
	return refuse("the token is not one of this cluster: wrong, revoked, or of another cluster")
}

// notFrom refuses a token at an address that is not in its ranges. It names none of them: the caller may be a thief.
func notFrom(client string) *problem {
	return newProblem(http.StatusForbidden, v1.ProblemForbidden, "the token is good from other addresses, not from "+cmp.Or(audit.HostOf(client), "one that this server does not know"))
}

// recordNotFrom lets the audit log name the token that is used from an address where it is not good. The caller stays a stranger.
func (s *Server) recordNotFrom(r *http.Request, t state.Token) {
	ctx := asks(r.Context(), audit.Actor{ID: tokenActor + t.ID, Name: t.Name, Tenant: t.Tenant, Client: r.RemoteAddr, Request: requestID(r.Context())})
	pendingOf(ctx).record.Detail = "the address is in none of the token's ranges"
	if observed, _ := ctx.Value(seenKey{}).(*seen); observed != nil {
		observed.authenticated = false
	}
}

// findToken of that id. A server that does not lead waits for it a little.
func (s *Server) findToken(ctx context.Context, id string) (state.Token, bool) {
	row, found := s.cluster.Token(id)
	if found || s.opts.Members == nil {
		return row, found
	}
	if leads, _ := s.opts.Members.Leader(); leads {
		return row, false
	}
	select {
	case s.tokenWaits <- struct{}{}:
		defer func() { <-s.tokenWaits }()
	default: // too many wait already
		return row, false
	}
	ctx, cancel := context.WithTimeout(ctx, tokenLag)
	defer cancel()
	return s.cluster.AwaitToken(ctx, id)
}
