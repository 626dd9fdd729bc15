package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// scheme is the scheme of the URIs that carry identities.
const scheme = "evenkeel"

// Roles in the form in which a URI has them.
const (
	roleServer = "server"
	roleAgent  = "agent"
)

// ErrIdentity says that a certificate does not name a member exactly.
var ErrIdentity = errors.New("no identity of a member")

// Identity names a member: the cluster's id, the member's name (its host's, a DNS label) and its roles.
type Identity struct {
	Cluster string
	Name    string
	Server  bool // may act as a server of the control plane
	Agent   bool // may speak for the host of this name
}

// String is for people: "server and agent h1".
func (id Identity) String() string {
	switch {
	case id.Server && id.Agent:
		return "server and agent " + id.Name
	case id.Server:
		return "server " + id.Name
	case id.Agent:
		return "agent " + id.Name
	}
	return "member " + id.Name + " without a role"
}

// Validate says what is wrong with an identity, if anything.
func (id Identity) Validate() error {
	switch {
	case !validCluster(id.Cluster):
		return fmt.Errorf("%w: cluster id %q is not 1 to 63 letters, digits and hyphens", ErrIdentity, id.Cluster)
	case !ValidName(id.Name):
		return fmt.Errorf("%w: name %q is not a DNS label in lower case", ErrIdentity, id.Name)
	case !id.Server && !id.Agent:
		return fmt.Errorf("%w: %s has no role", ErrIdentity, id.Name)
	}
	return nil
}

// URIs returns the URIs of a valid identity, one per role.
func (id Identity) URIs() []string {
	var out []string
	for _, u := range id.uris() {
		out = append(out, u.String())
	}
	return out
}

func (id Identity) uris() []*url.URL {
	var out []*url.URL
	if id.Server {
		out = append(out, &url.URL{Scheme: scheme, Host: id.Cluster, Path: "/" + roleServer + "/" + id.Name})
	}
	if id.Agent {
		out = append(out, &url.URL{Scheme: scheme, Host: id.Cluster, Path: "/" + roleAgent + "/" + id.Name})
	}
	return out
}

// IdentityOf returns the identity that a certificate carries: exactly one cluster, one name, and each role once at most. It
// ignores URIs of other schemes: a PKI of the operator's own may put some there. Errors wrap ErrIdentity. IdentityOf does not
// say whether the certificate is to be believed: see Verify.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	uris := make([]string, len(cert.URIs))
	for i, u := range cert.URIs {
		uris[i] = u.String()
	}
	return ParseIdentity(uris)
}

// ParseIdentity reads what URIs and IdentityOf say, by the same rules.
func ParseIdentity(uris []string) (Identity, error) {
	var id Identity
	for _, uri := range uris {
		rest, ours := strings.CutPrefix(uri, scheme+":")
		if !ours {
			continue
		}
		parts := strings.Split(strings.TrimPrefix(rest, "//"), "/")
		if !strings.HasPrefix(rest, "//") || len(parts) != 3 || !validCluster(parts[0]) || !ValidName(parts[2]) {
			return Identity{}, fmt.Errorf("%w: URI %q is not %s://CLUSTER/ROLE/NAME", ErrIdentity, uri, scheme)
		}
		if (id.Cluster != "" && id.Cluster != parts[0]) || (id.Name != "" && id.Name != parts[2]) {
			return Identity{}, fmt.Errorf("%w: URI %q is of another member than the one before it", ErrIdentity, uri)
		}
		id.Cluster, id.Name = parts[0], parts[2]
		var role *bool
		switch parts[1] {
		case roleServer:
			role = &id.Server
		case roleAgent:
			role = &id.Agent
		default:
			return Identity{}, fmt.Errorf("%w: URI %q has a role that is none", ErrIdentity, uri)
		}
		if *role {
			return Identity{}, fmt.Errorf("%w: URI %q is there twice", ErrIdentity, uri)
		}
		*role = true
	}
	if !id.Server && !id.Agent {
		return Identity{}, fmt.Errorf("%w: no URI %s://CLUSTER/ROLE/NAME", ErrIdentity, scheme)
	}
	return id, nil
}

// ValidName says whether a member may have that name: a DNS label in lower case.
func ValidName(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func validCluster(s string) bool { return len(s) <= 63 && ValidName(strings.ToLower(s)) && isASCII(s) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
