// Package oidc judges bearer tokens of one OpenID Connect issuer: whether a JSON Web Token was signed by the issuer for this
// cluster and is good now, and which role its groups give. What decides is pure; a loop of its own fetches the issuer's keys.
// A request with a token waits for the issuer for at most keyWait for its keys, and as long for the groups of a token that is new here
// (CurrentSoon). Only the log-in of a browser may wait longer (FinishLogin).
package oidc

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"evenkeel/api/oidc/issuer"
	"evenkeel/cluster/state"
)

// Config is the key oidc of vcd.yaml.
type Config struct {
	// Issuer is the issuer's identifier: the URL as its discovery document has it.
	Issuer string `yaml:"issuer"`
	// Audience is what tokens must be for; "": ClientID, so that tokens are ID tokens.
	Audience string `yaml:"audience"`
	// ClientID is the public client with which vcctl and browsers log in.
	ClientID string `yaml:"clientID"`
	// Scopes that vcctl asks for; none: issuer.DefaultScopes.
	Scopes []string `yaml:"scopes"`
	// RedirectURIs of the dashboard, as the issuer has them: one for each address under which browsers reach a server. None: browsers
	// cannot log in by the issuer.
	RedirectURIs []string `yaml:"redirectURIs"`
	// GroupsClaim and NameClaim are the claims that have the groups and the name of the token's subject.
	GroupsClaim string `yaml:"groupsClaim"`
	NameClaim   string `yaml:"nameClaim"`
	// CAFile has the CA certificates that the issuer's is checked against, as PEM; "": those of the system.
	CAFile string `yaml:"caFile"`
	// Algorithms that tokens may be signed with.
	Algorithms []string `yaml:"algorithms"`
	// UserInfo: the issuer is asked which groups a person has now, beside what the token says. It needs access tokens: Audience is
	// not ClientID.
	UserInfo bool `yaml:"userInfo"`
	// MaxAge is how long after it was issued a token is good at most, whatever it says.
	MaxAge time.Duration `yaml:"maxAge"`
	// Roles that groups have, beside those that are bound to users and groups in the cluster.
	Roles []Mapping `yaml:"roles"`
}

// Mapping gives the members of a group a role: in the cluster, or in a tenant if Tenant is not "".
type Mapping struct {
	Group  string `yaml:"group"`
	Role   string `yaml:"role"`
	Tenant string `yaml:"tenant"`
}

// Bounds of the configuration.
const (
	minMaxAge   = time.Minute
	maxMaxAge   = state.MaxTokenLife
	maxMappings = 1000
	maxText     = 255 // bytes of a name
	maxRedirect = 100 // redirect URIs
)

// algorithms that tokens can be signed with. All are asymmetric: with a symmetric one every server could make tokens.
var algorithms = []string{"RS256", "ES256", "EdDSA"}

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	c.Audience = cmp.Or(c.Audience, c.ClientID)
	c.GroupsClaim = cmp.Or(c.GroupsClaim, "groups")
	c.NameClaim = cmp.Or(c.NameClaim, "preferred_username")
	c.MaxAge = cmp.Or(c.MaxAge, 24*time.Hour)
	if len(c.Algorithms) == 0 {
		c.Algorithms = algorithms
	}
	return c
}

// Fault is what is wrong with the value of one key.
type Fault struct {
	Key string // below oidc, such as roles[1].role; "": of the whole
	Err error
}

// Check says what is wrong with a configuration that is given.
func (c Config) Check() (faults []Fault) {
	require := func(ok bool, key, format string, args ...any) {
		if !ok {
			faults = append(faults, Fault{key, fmt.Errorf(format, args...)})
		}
	}
	if c.Issuer == "" {
		require(false, "issuer", "is not set: the URL of the issuer, such as https://id.example.org")
	} else if err := issuer.CheckIssuer(c.Issuer); err != nil {
		require(false, "issuer", "%w", err)
	}
	require(c.Audience != "" || c.ClientID != "", "audience", "neither audience nor clientID is set: what tokens must be for")
	for key, text := range map[string]string{"audience": c.Audience, "clientID": c.ClientID, "groupsClaim": c.GroupsClaim, "nameClaim": c.NameClaim} {
		require(plain(text), key, "must be at most %d printable ASCII characters", maxText)
	}
	for _, s := range c.Scopes {
		require(s != "" && plain(s) && !strings.ContainsAny(s, ` "\`), "scopes", "%q is no scope", s)
	}
	require(len(c.RedirectURIs) == 0 || c.ClientID != "", "redirectURIs", "need clientID: the public client that browsers log in with")
	require(len(c.RedirectURIs) <= maxRedirect, "redirectURIs", "are %d, more than %d", len(c.RedirectURIs), maxRedirect)
	for _, at := range c.RedirectURIs {
		if err := issuer.CheckRedirect(at); err != nil {
			require(false, "redirectURIs", "%w", err)
		}
	}
	require(c.CAFile == "" || filepath.IsAbs(c.CAFile), "caFile", "%q must be a full path", c.CAFile)
	for _, a := range c.Algorithms {
		require(slices.Contains(algorithms, a), "algorithms", "%q must be one of %s", a, strings.Join(algorithms, ", "))
	}
	require(!c.UserInfo || c.Audience != "" && c.Audience != c.ClientID, "userInfo", "needs access tokens, which the issuer takes at its userinfo endpoint: set audience to that of this API")
	require(c.MaxAge == 0 || c.MaxAge >= minMaxAge && c.MaxAge <= maxMaxAge, "maxAge", "%s must be from %s to %s", c.MaxAge, minMaxAge, maxMaxAge)
	require(len(c.Roles) <= maxMappings, "roles", "are %d, more than %d", len(c.Roles), maxMappings)
	for i, m := range c.Roles {
		if err := m.check(); err != nil {
			faults = append(faults, Fault{fmt.Sprintf("roles[%d]", i), err})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Key, b.Key) })
	return faults
}

func (m Mapping) check() error {
	inTenant := slices.Contains(state.TenantRoles(), state.Role(m.Role))
	switch {
	case m.Group == "" || len(m.Group) > maxText:
		return fmt.Errorf("group must have 1 to %d bytes", maxText)
	case m.Tenant != "" && !state.ValidTenantName(m.Tenant):
		return fmt.Errorf("tenant %q must be a DNS label in lower case", m.Tenant)
	case m.Tenant != "" && !inTenant:
		return fmt.Errorf("%q is no role in a tenant: it must be one of %v", m.Role, state.TenantRoles())
	case m.Tenant != "":
		return nil
	case inTenant:
		return fmt.Errorf("role %s is one in a tenant: name the tenant", m.Role)
	case !slices.Contains(state.Roles(), state.Role(m.Role)):
		return fmt.Errorf("role %q must be one of %v", m.Role, state.Roles())
	}
	return nil
}

// plain text of a name: it may be empty.
func plain(text string) bool { return len(text) <= maxText && issuer.Printable(text) }

// Binding is a role in a tenant.
type Binding struct {
	Tenant string
	Role   state.Role
}

// BindingsOf groups are their roles in tenants, one for each tenant: that with the most rights. The tenants are in the order of the
// entries.
func (c Config) BindingsOf(groups []string) (out []Binding) {
	for _, m := range c.Roles {
		if m.Tenant == "" || !slices.Contains(groups, m.Group) {
			continue
		}
		role := state.Role(m.Role)
		at := slices.IndexFunc(out, func(b Binding) bool { return b.Tenant == m.Tenant })
		rank := func(r state.Role) int { return slices.Index(state.TenantRoles(), r) }
		switch {
		case at < 0:
			out = append(out, Binding{m.Tenant, role})
		case rank(role) < rank(out[at].Role):
			out[at].Role = role
		}
	}
	return out
}

// RoleOf groups is the one with the most rights that any of them has; "": none has one.
func (c Config) RoleOf(groups []string) state.Role {
	for _, role := range state.Roles() {
		for _, m := range c.Roles {
			if m.Tenant == "" && state.Role(m.Role) == role && slices.Contains(groups, m.Group) {
				return role
			}
		}
	}
	return ""
}

// client for requests to the issuer.
func (c Config) client() (*http.Client, error) {
	client, err := issuer.NewClient(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("oidc.caFile: %w", err)
	}
	return client, nil
}

// errOf faults, as one error.
func errOf(faults []Fault) error {
	var errs []error
	for _, f := range faults {
		errs = append(errs, fmt.Errorf("oidc.%s: %w", f.Key, f.Err))
	}
	return errors.Join(errs...)
}
