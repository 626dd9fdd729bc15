package server

import (
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
	"path/filepath"
	"strings"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
)

// TokenHash is the SHA-256 of a token. Tokens are 32 random bytes, so that a slow
// hash would guard nothing.
type TokenHash [sha256.Size]byte

const (
	tokenPrefix = "ekt_"
	tokenBytes  = 32
)

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
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // crypto/rand never fails: it ends the program first
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	if err := writeNew(path, []byte(token+"\n")); err != nil {
		return TokenHash{}, fmt.Errorf("admin token: %w", err)
	}
	return readToken(path) // another process may have been first: what the file holds counts
}

func readToken(path string) (TokenHash, error) {
	info, err := os.Stat(path)
	if err != nil {
		return TokenHash{}, fmt.Errorf("admin token: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return TokenHash{}, fmt.Errorf("admin token: %s has mode %04o, so others may have read it: remove the file for a new token, or if nobody has, `chmod 600 %s`", path, mode, path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return TokenHash{}, fmt.Errorf("admin token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, tokenPrefix))
	if err != nil || len(raw) < tokenBytes || !strings.HasPrefix(token, tokenPrefix) {
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

// open are the paths that need no token; joining brings one of its own.
var open = map[string]bool{"/livez": true, "/readyz": true, joinPath: true}

func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, known := s.knows(r.Header.Get("Authorization"))
		if known {
			r = r.WithContext(audit.With(r.Context(), actor))
		}
		if known || open[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		detail := "the token is not one of this server"
		if r.Header.Get("Authorization") == "" {
			detail = "give the token in the header `Authorization: Bearer TOKEN`"
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="evenkeel"`)
		p := newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, detail)
		p.Errors = []v1.FieldError{{In: "header", Field: "Authorization", Message: detail}}
		s.refuseBody(w, r, p)
	})
}

// knows compares with every token, so that the time taken tells nothing, and says whose it is.
func (s *Server) knows(header string) (actor audit.Actor, known bool) {
	scheme, token, _ := strings.Cut(header, " ")
	given := HashToken(strings.TrimSpace(token))
	ok := 0
	for _, t := range s.opts.Tokens {
		if subtle.ConstantTimeCompare(given[:], t[:]) == 1 {
			ok, actor = 1, audit.Actor{ID: "token:admin", Name: "admin"}
		}
	}
	if s.opts.Members != nil {
		text := hex.EncodeToString(given[:])
		for _, t := range s.opts.Members.AdminTokens() {
			if subtle.ConstantTimeCompare([]byte(text), []byte(t.Hash)) == 1 {
				ok, actor = 1, audit.Actor{ID: "token:" + t.ID, Name: "admin"}
			}
		}
	}
	return actor, ok == 1 && strings.EqualFold(scheme, "Bearer")
}
