package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"evenkeel/cluster/state"
)

// Identity is the subject of a token that is good.
type Identity struct {
	// ID is stable for issuer and subject, and short: "oidc:" and 16 hex digits.
	ID      string
	Subject string // 1 to 255 printable ASCII characters
	Name    string // as the issuer has it, made printable ASCII; the subject if there is none
	Groups  []string
	Role    state.Role // in the cluster; "": no group has one
	// Bindings are the roles in tenants.
	Bindings []Binding
	Issued   time.Time // by the issuer's clock
	Until    time.Time // the end of the token, or of its maximal age
}

// IDPrefix is what the ids of identities begin with.
const IDPrefix = "oidc:"

// Bounds of tokens.
const (
	MaxToken  = 16 << 10         // bytes
	Leeway    = 30 * time.Second // by which the issuer's clock may be ahead of this server's
	maxGroups = 1000
	maxName   = 63  // bytes
	maxReason = 300 // bytes
)

// form of a token: three parts in base64url (RFC 7515, section 3.1), the first a JSON object.
const begins = "eyJ" // `{"` in base64

// Looks says whether a bearer token may be a JSON Web Token.
func Looks(token string) bool {
	return strings.HasPrefix(token, begins) && strings.Count(token, ".") == 2
}

// types of tokens that are taken: ID tokens, and access tokens (RFC 9068, section 4). Others, such as logout tokens and
// proofs of possession, are for other purposes, whatever their claims.
var types = []string{"", "jwt", "application/jwt", "at+jwt", "application/at+jwt"}

func checkType(typ any) error {
	text, isText := typ.(string)
	if typ != nil && !isText || !slices.Contains(types, strings.ToLower(text)) {
		return errors.New("it is a token of another type than ID tokens and access tokens")
	}
	return nil
}

// claims are what is read of a token beside what the library of OpenID Connect reads.
type claims struct {
	Party        string          `json:"azp"`
	NotBefore    json.Number     `json:"nbf"`
	Confirmation json.RawMessage `json:"cnf"`
	Events       json.RawMessage `json:"events"`
}

// verified is the payload of a token whose signature was verified before.
type verified []byte

// VerifySignature implements oidc.KeySet.
func (v verified) VerifySignature(context.Context, string) ([]byte, error) { return v, nil }

// identify the subject of a token whose signature is the issuer's. The issuer's clock may be ahead by Leeway: iat and nbf may be that
// much later than now. exp has no leeway: what runs with the token is cut then.
func (c Config) identify(token string, payload []byte, now time.Time) (Identity, error) {
	rules := &oidc.Config{ClientID: c.Audience, SupportedSigningAlgs: c.Algorithms, Now: func() time.Time { return now }}
	t, err := oidc.NewVerifier(c.Issuer, verified(payload), rules).Verify(context.Background(), token) // issuer, audience, exp
	if err != nil {
		return Identity{}, reason(err)
	}
	var q claims
	var all map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(payload, &q), json.Unmarshal(payload, &all)); err != nil {
		return Identity{}, errors.New("its claims cannot be read")
	}
	if err := c.checkParties(t.Audience, q); err != nil {
		return Identity{}, err
	}
	until, err := c.endOf(t, q, now)
	if err != nil {
		return Identity{}, err
	}
	if t.Subject == "" || !plain(t.Subject) {
		return Identity{}, fmt.Errorf("its subject (sub) must be 1 to %d printable ASCII characters", maxText)
	}
	groups, err := groupsOf(all[c.GroupsClaim])
	if err != nil {
		return Identity{}, fmt.Errorf("its claim %s %w", c.GroupsClaim, err)
	}
	return Identity{ID: IDOf(c.Issuer, t.Subject), Subject: t.Subject, Name: nameOf(all[c.NameClaim], t.Subject), Groups: groups,
		Role: c.RoleOf(groups), Bindings: c.BindingsOf(groups), Issued: t.IssuedAt, Until: until}, nil
}

// reason why the library refuses a token, in one line of bounded length: it may quote the token.
func reason(err error) error {
	var expired *oidc.TokenExpiredError
	if errors.As(err, &expired) {
		return fmt.Errorf("it expired at %s by this server's clock", stamp(expired.Expiry))
	}
	text := strings.TrimPrefix(err.Error(), "oidc: ")
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	return errors.New(strings.Map(printable, text))
}

// checkParties: to which client a token was issued, and for which use.
func (c Config) checkParties(audience []string, q claims) error {
	switch {
	case c.Audience == c.ClientID && len(audience) > 1 && q.Party == "": // OpenID Connect Core 1.0, section 3.1.3.7
		return errors.New("it is for several audiences and does not say to which client it was issued (azp)")
	case c.Audience == c.ClientID && q.Party != "" && q.Party != c.ClientID:
		return fmt.Errorf("it was issued to another client (azp) than %s", c.ClientID)
	case len(q.Confirmation) > 0: // RFC 9449, section 7.2: such a token must not be taken as a bearer token
		return errors.New("it is bound to a key (cnf), and is no bearer token")
	case len(q.Events) > 0: // OpenID Connect Back-Channel Logout 1.0, section 2.4
		return errors.New("it is a message about events, not a log-in")
	}
	return nil
}

// endOf a token that has not expired: its own, or that of its maximal age.
func (c Config) endOf(t *oidc.IDToken, q claims, now time.Time) (time.Time, error) {
	if t.IssuedAt.IsZero() || t.Expiry.IsZero() {
		return time.Time{}, errors.New("it does not say when it was issued (iat) and when it expires (exp)")
	}
	aged := t.IssuedAt.Add(c.MaxAge)
	switch {
	case !now.Before(t.Expiry):
		return time.Time{}, reason(&oidc.TokenExpiredError{Expiry: t.Expiry})
	case t.IssuedAt.After(now.Add(Leeway)):
		return time.Time{}, fmt.Errorf("it was issued at %s, and it is %s now by this server's clock: is a clock wrong?", stamp(t.IssuedAt), stamp(now))
	case !now.Before(aged):
		return time.Time{}, fmt.Errorf("it was issued at %s, and tokens older than %s are not taken (oidc.maxAge)", stamp(t.IssuedAt), c.MaxAge)
	}
	if q.NotBefore != "" {
		seconds, err := q.NotBefore.Float64() // a NumericDate (RFC 7519, section 2): seconds since 1970
		if err != nil || seconds > float64(now.Add(Leeway).Unix()) {
			return time.Time{}, errors.New("it is not valid yet (nbf)")
		}
	}
	if aged.Before(t.Expiry) {
		return aged, nil
	}
	return t.Expiry, nil
}

// textsOf a JSON value that is one string or a list of strings.
func textsOf(b []byte) ([]string, error) {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte{'"'}) {
		var one string
		err := json.Unmarshal(b, &one)
		return []string{one}, err
	}
	var list []string
	err := json.Unmarshal(b, &list)
	return list, err
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func groupsOf(claim json.RawMessage) ([]string, error) {
	if len(claim) == 0 {
		return nil, nil
	}
	groups, err := textsOf(claim)
	switch {
	case err != nil:
		return nil, errors.New("must be a list of names of groups")
	case len(groups) > maxGroups:
		return nil, fmt.Errorf("has more than %d groups", maxGroups)
	}
	return groups, nil
}

// nameOf a subject in printable ASCII, as names of tokens are.
func nameOf(claim json.RawMessage, subject string) string {
	var name string
	if json.Unmarshal(claim, &name) != nil || strings.TrimSpace(name) == "" {
		name = subject
	}
	name = strings.TrimSpace(strings.Map(printable, name))
	if len(name) > maxName {
		name = name[:maxName-3] + "..."
	}
	return name
}

// printable is a character of ASCII that a terminal shows.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}

// IDOf a subject of an issuer, as Identity has it.
func IDOf(issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return IDPrefix + hex.EncodeToString(sum[:8])
}
