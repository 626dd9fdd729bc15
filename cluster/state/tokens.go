package state

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Role is what the holder of an API token may do. Package api/server says which routes each role may use.
type Role string

// The roles.
const (
	RoleAdmin    Role = "admin"
	RoleOperator Role = "operator"
	RoleAuditor  Role = "auditor"
	RoleMetrics  Role = "metrics"

	// Of one tenant.
	RoleOwner  Role = "owner"
	RoleEditor Role = "editor"
	RoleViewer Role = "viewer"
)

// Roles returns all roles of the cluster, the one with the most rights first.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleAuditor, RoleMetrics} }

// TenantRoles is Roles for those of a tenant.
func TenantRoles() []Role { return []Role{RoleOwner, RoleEditor, RoleViewer} }

// Token is a bearer token of the API. The state has only the SHA-256 of its secret.
type Token struct {
	ID     string `json:"id"`   // 16 hex digits; stands in the token's text
	Hash   string `json:"hash"` // SHA-256 of the token's whole text, hexadecimal
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Tenant string `json:"tenant,omitempty"` // that it belongs to, with a role of a tenant; "": the cluster, with one of the cluster
	// MadeAt is the time of the log entry; MadeBy is the caller that asked for it, as audit.Actor writes it.
	MadeAt time.Time `json:"madeAt"`
	MadeBy string    `json:"madeBy,omitempty"`
	// Until is when it ends; zero: never.
	Until time.Time `json:"until,omitzero"`
	// From are the ranges of addresses that it may be used from, in the form of TokenRanges; none: from everywhere.
	From []string `json:"from,omitempty"`
	// LastUsed is behind by up to some minutes: see TokensUsed.
	LastUsed time.Time `json:"lastUsed,omitzero"`
}

// TokenDrop revokes a token of the API.
type TokenDrop struct {
	ID string `json:"id"`
	By string `json:"by,omitempty"` // the caller, as audit.Actor writes it
	// AdminElsewhere: there is an admin token that does not expire and that is not in the state (it is in the file of `vcd
	// dev`), so that the last one of the state may go.
	AdminElsewhere bool `json:"adminElsewhere,omitempty"`
}

// TokensUsed records when tokens were last used. Unknown ids and earlier times change nothing.
type TokensUsed struct {
	Used []TokenUse `json:"used"`
}

// TokenUse is the last use of one token.
type TokenUse struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// Limits of tokens.
const (
	MaxTokens = 1000 // rows of the cluster's own
	// maxTenantTokens is how many tokens a tenant may have, whatever its quota. They do not count against MaxTokens: no tenant keeps
	// operators, or another tenant, from making tokens, and none finds out how many others have.
	maxTenantTokens = 100
	maxTokenName    = 63  // bytes
	maxMadeBy       = 200 // bytes

	// keepEndedTokens is how long the row of a token stays after its end.
	keepEndedTokens = 7 * 24 * time.Hour
)

// TokenNameRule says what names of tokens are valid.
const TokenNameRule = "must be 1 to 63 printable ASCII characters, without a space at either end"

// ValidTokenName says whether a name keeps TokenNameRule. The rule says ASCII, because Unicode's set of printable characters
// changes with the version of the program, and every server must judge an entry of the log alike.
func ValidTokenName(name string) bool {
	return name != "" && len(name) <= maxTokenName && isPrintable(name) && strings.TrimSpace(name) == name
}

func isPrintable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

var (
	tokenIDForm   = regexp.MustCompile(`^[0-9a-f]{16}$`)
	tokenHashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Ended says whether the token has expired.
func (t Token) Ended(now time.Time) bool { return !t.Until.IsZero() && !now.Before(t.Until) }

func (t *Token) valid() error {
	refuse := func(field, text string) error {
		return fmt.Errorf("token %q: %s %s: %w", t.Name, field, text, ErrInvalid)
	}
	switch {
	case !tokenIDForm.MatchString(t.ID):
		return refuse("id", "must be 16 hex digits")
	case !tokenHashForm.MatchString(t.Hash):
		return refuse("hash", "must be 64 hex digits")
	case !ValidTokenName(t.Name):
		return refuse("name", TokenNameRule)
	case t.Tenant == "" && !slices.Contains(Roles(), t.Role):
		return refuse("role", fmt.Sprintf("%q is not known to the cluster", t.Role))
	case t.Tenant != "" && !slices.Contains(TenantRoles(), t.Role):
		return refuse("role", fmt.Sprintf("%q is not known to tenants", t.Role))
	case len(t.MadeBy) > maxMadeBy || !isPrintable(t.MadeBy):
		return refuse("madeBy", "must be at most 200 printable ASCII characters")
	}
	if ranges, err := TokenRanges(t.From); err != nil || !slices.Equal(ranges, t.From) {
		return refuse("from", TokenRangeRule)
	}
	return nil
}

func (d *TokenDrop) valid() error {
	if len(d.By) > maxMadeBy || !isPrintable(d.By) {
		return fmt.Errorf("token %q: by must be at most 200 printable ASCII characters: %w", d.ID, ErrInvalid)
	}
	return check("token", d.ID, "id", d.ID)
}

func (u *TokensUsed) valid() error {
	if len(u.Used) > MaxTokens {
		return fmt.Errorf("uses of %d tokens, more than %d: %w", len(u.Used), MaxTokens, ErrInvalid)
	}
	for _, use := range u.Used {
		if err := check("token", use.ID, "id", use.ID); err != nil {
			return err
		}
	}
	return nil
}

// Tokens returns the API tokens in order of their ids.
func (s *Snapshot) Tokens() []Token { return all[Token](s, tAdmins, "id") }

// Token returns the API token of that id.
func (s *Snapshot) Token(id string) (Token, bool) { return first[Token](s, tAdmins, "id", id) }

// tokensOf is how many tokens a tenant has; "": the cluster.
func (s *Snapshot) tokensOf(tenant string) (n int) {
	each(s, func(t *Token) bool {
		if t.Tenant == tenant {
			n++
		}
		return true
	}, tAdmins, "id")
	return n
}

// CheckTokenPut says why a token cannot be added; nil if it can.
func (s *Snapshot) CheckTokenPut(t Token) error {
	if err := t.valid(); err != nil {
		return err
	}
	if _, taken := s.Token(t.ID); taken {
		return fmt.Errorf("token %s exists already: %w", t.ID, ErrConflict)
	}
	if t.Tenant != "" {
		if of, ok := s.Tenant(t.Tenant); !ok || !s.HasTenants() {
			return fmt.Errorf("token %s: tenant %s: %w", t.Name, t.Tenant, ErrNotFound)
		} else if of.Suspended {
			return fmt.Errorf("token %s: tenant %s is %w", t.Name, t.Tenant, ErrSuspended)
		}
		used := s.tokensOf(t.Tenant)
		if err := s.checkUse(t.Tenant, Use{QuotaTokens: float64(used)}, Use{QuotaTokens: 1}); err != nil {
			return fmt.Errorf("token %s: %w", t.Name, err)
		}
		if used >= maxTenantTokens {
			return fmt.Errorf("token %s: %w", t.Name, &QuotaError{Tenant: t.Tenant, Key: QuotaTokens, Limit: maxTenantTokens, Used: float64(used), Asked: 1})
		}
		return nil
	}
	if n := s.tokensOf(""); n >= MaxTokens {
		return fmt.Errorf("there are %d tokens already, and no more than %d are kept; revoke some first: %w", n, MaxTokens, ErrConflict)
	}
	return nil
}

// CheckTokenDrop returns the token that would be revoked, or why it cannot be: it does not exist, or it is the last admin token
// that does not expire. A cluster that no token can administer must not come about.
func (s *Snapshot) CheckTokenDrop(d TokenDrop) (Token, error) {
	t, ok := s.Token(d.ID)
	if !ok {
		return t, fmt.Errorf("token %s: %w", d.ID, ErrNotFound)
	}
	if !t.lastingAdmin() || d.AdminElsewhere {
		return t, nil
	}
	another := false
	each(s, func(o *Token) bool {
		another = o.ID != t.ID && o.lastingAdmin()
		return !another
	}, tAdmins, "id")
	if !another {
		return t, fmt.Errorf("token %s (%s) is the last admin token that does not expire; make another one first (vcctl token create NAME --role admin): %w", t.ID, t.Name, ErrInUse)
	}
	return t, nil
}

func (t Token) lastingAdmin() bool { return t.Role == RoleAdmin && t.Until.IsZero() }

func (w *writer) apiTokenPut(b *Token) error {
	t := *b
	t.MadeAt, t.LastUsed = w.at, time.Time{}
	if t.Tenant != "" && w.version < tenantsSince {
		return fmt.Errorf("token %q: tenant is not known to version %d: %w", t.Name, w.version, ErrInvalid)
	}
	if err := w.read().CheckTokenPut(t); err != nil {
		return err
	}
	w.put(tAdmins, &t)
	until := "without an end"
	if !t.Until.IsZero() {
		until = "until " + t.Until.UTC().Format(time.RFC3339)
	}
	if len(t.From) > 0 {
		until += ", from " + strings.Join(t.From, ", ")
	}
	w.event("token-made", "token", t.ID, "token %s (%s), %s, %s%s", t.ID, t.Name, t.roleText(), until, askedBy(t.MadeBy))
	return nil
}

func (w *writer) apiTokenDrop(b *TokenDrop) error {
	t, err := w.read().CheckTokenDrop(*b)
	if err != nil {
		return err
	}
	w.drop(tAdmins, &t)
	w.dropBindings(w.read().BindingsOf(Subject{Kind: SubjectToken, Name: t.ID}))
	w.event("token-revoked", "token", t.ID, "token %s (%s), %s%s", t.ID, t.Name, t.roleText(), askedBy(b.By))
	return nil
}

func (t Token) roleText() string {
	if t.Tenant != "" {
		return fmt.Sprintf("role %s of tenant %s", t.Role, t.Tenant)
	}
	return "role " + string(t.Role)
}

func askedBy(principal string) string {
	if principal == "" {
		return ""
	}
	return ", asked by " + principal
}

func (w *writer) tokensUsed(b *TokensUsed) error {
	for _, use := range b.Used {
		if t, ok := w.read().Token(use.ID); ok && use.At.After(t.LastUsed) {
			t.LastUsed = use.At
			w.put(tAdmins, &t)
		}
	}
	return nil
}

// forgetEndedTokens drops the rows of tokens that expired some time ago.
func (w *writer) forgetEndedTokens() {
	forgetRows(w, tAdmins, func(t *Token) bool { return !t.Until.IsZero() && w.at.Sub(t.Until) > keepEndedTokens })
	forgetRows(w, tRoleBindings, func(b *RoleBinding) bool {
		_, there := w.read().Token(b.Subject.Name)
		return b.Subject.Kind == SubjectToken && !there
	})
}
