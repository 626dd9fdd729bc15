package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"evenkeel/api/oidc/issuer"
)

// When the issuer is asked for the groups that people have now, and how many tokens that is for.
const (
	// currentEvery is how old an answer is before the issuer is asked again, while a request or what it opened runs with the token.
	currentEvery = 2 * time.Second
	// currentServes is how long an answer serves after its last use. Then the token's next request waits for a new one.
	currentServes = time.Minute
	maxCurrent    = 4096 // tokens
	maxAsking     = 8    // requests to the issuer at a time
)

// errNotTaken says that the issuer takes a token no longer.
var errNotTaken = errors.New("the issuer does not take it any more: the log-in was ended there")

// standing is what the issuer last said of the subject of one token.
type standing struct {
	groups []string
	err    error     // errNotTaken
	at     time.Time // of the answer; zero: there is none yet
	asked  time.Time
	used   time.Time
	asking bool
	next   chan struct{} // closed at the answer to the request that is under way
}

// standings are those of the tokens in use, by the hash of the token.
type standings struct {
	ctx context.Context //nolint:containedctx // of all requests to the issuer: it ends with Close

	mu     sync.Mutex
	of     map[[sha256.Size]byte]*standing
	asking int
}

// Current is an identity that Verify returned, with the groups and roles that its subject has now by the issuer's userinfo endpoint
// (OpenID Connect Core 1.0, section 5.3), where the configuration asks for that (userInfo). The error is ErrRefused. Current never
// waits: where the issuer has not answered yet, or not lately, what was known last counts.
func (v *Verifier) Current(token string, id Identity) (Identity, error) {
	if !v.config.UserInfo {
		return id, nil
	}
	s, _ := v.standing(token, id.Subject, time.Now())
	return v.config.as(id, s)
}

// CurrentSoon is Current, and waits a little where the issuer has not been asked yet.
func (v *Verifier) CurrentSoon(ctx context.Context, token string, id Identity) (Identity, error) {
	if !v.config.UserInfo {
		return id, nil
	}
	s, next := v.standing(token, id.Subject, time.Now())
	if s.at.IsZero() && next != nil {
		timer := time.NewTimer(keyWait)
		defer timer.Stop()
		select {
		case <-next:
			s, _ = v.standing(token, id.Subject, time.Now())
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return v.config.as(id, s)
}

// as is an identity with what the issuer said last.
func (c Config) as(id Identity, s standing) (Identity, error) {
	switch {
	case s.err != nil:
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, s.err)
	case s.at.IsZero():
		return id, nil
	}
	id.Groups, id.Role, id.Bindings = s.groups, c.RoleOf(s.groups), c.BindingsOf(s.groups)
	return id, nil
}

// standing returns what is known of a token, and a channel that closes with the answer to the request under way; nil if there is
// none. It asks the issuer where that is due.
func (v *Verifier) standing(token, subject string, now time.Time) (standing, <-chan struct{}) {
	l := &v.current
	l.mu.Lock()
	defer l.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	s := l.of[key]
	if s == nil {
		if l.forget(now); len(l.of) >= maxCurrent {
			return standing{}, nil
		}
		if l.of == nil {
			l.of = map[[sha256.Size]byte]*standing{}
		}
		s = &standing{}
		l.of[key] = s
	}
	s.used = now
	if !s.asking && now.Sub(s.asked) >= currentEvery && l.asking < maxAsking {
		s.asking, s.asked, s.next = true, now, make(chan struct{})
		l.asking++
		v.done.Go(func() { v.ask(s, token, subject) })
	}
	if !s.asking {
		return *s, nil
	}
	return *s, s.next
}

// forget those that were not used of late.
func (l *standings) forget(now time.Time) {
	for key, s := range l.of {
		if !s.asking && now.Sub(s.used) >= currentServes {
			delete(l.of, key)
		}
	}
}

// ask the issuer for the standing of one token, and keep its answer. Where it gives none, what was known stays.
func (v *Verifier) ask(s *standing, token, subject string) {
	groups, err := v.userInfo(token, subject)
	l := &v.current
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking--
	s.asking = false
	switch {
	case err == nil:
		s.groups, s.err, s.at = groups, nil, time.Now()
	case errors.Is(err, errNotTaken):
		s.err, s.at = errNotTaken, time.Now()
	case v.current.ctx.Err() == nil:
		v.fetchErrors.Add(1)
		v.log.Warn("the OpenID Connect issuer does not say which groups a person has now: those that are known serve on", "issuer", v.config.Issuer, "error", err)
	}
	close(s.next)
}

// userInfo is the groups of the subject of an access token now.
func (v *Verifier) userInfo(token, subject string) ([]string, error) {
	known := v.endpoints.Load()
	if known == nil || known.UserInfo == "" {
		return nil, errors.New("its discovery document has no userinfo_endpoint, or was not read yet")
	}
	at := known.UserInfo
	body, status, err := issuer.UserInfo(v.current.ctx, v.client, at, token)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return nil, errNotTaken
	case status != http.StatusOK:
		return nil, fmt.Errorf("GET %s: status %d", at, status)
	}
	var all map[string]json.RawMessage
	var of string
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("GET %s: %w", at, err)
	}
	if json.Unmarshal(all["sub"], &of) != nil || of != subject { // section 5.3.2
		return nil, fmt.Errorf("GET %s: the answer is about another subject", at)
	}
	groups, err := groupsOf(all[v.config.GroupsClaim])
	if err != nil {
		return nil, fmt.Errorf("GET %s: claim %s %w", at, v.config.GroupsClaim, err)
	}
	return groups, nil
}
