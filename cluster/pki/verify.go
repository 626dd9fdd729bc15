package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxChain is how many certificates a member may present.
const maxChain = 8

// Reason is one word for why a certificate is refused; fit for events and metrics.
type Reason string

// Why a certificate is refused.
const (
	NoCertificate Reason = "no-certificate"
	Malformed     Reason = "malformed" // not a certificate, or not one of a member
	WrongCA       Reason = "wrong-ca"
	Expired       Reason = "expired"
	NotYetValid   Reason = "not-yet-valid"
	Revoked       Reason = "revoked"
	WrongCluster  Reason = "wrong-cluster"
	WrongName     Reason = "wrong-name" // another member than the one asked for
	NoRole        Reason = "no-role"    // it does not have the role that this takes
)

// Refusal is an error that says why a certificate is refused, and whose it was as far as that can be known. Identity is to be
// believed only if the reason is Revoked, WrongName or NoRole: the checks before those in Verify had succeeded.
type Refusal struct {
	Reason   Reason
	Identity Identity // the identity in the certificate; zero if it has none
	Serial   string   // of the certificate, "" if there is none
	Detail   string
}

// Error implements error.
func (r *Refusal) Error() string {
	s := "certificate refused (" + string(r.Reason) + ")"
	if r.Identity.Name != "" {
		s += " of " + r.Identity.String()
	}
	if r.Serial != "" {
		s += ", serial " + r.Serial
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// Want is what the holder of a certificate must be.
type Want struct {
	Cluster string // id; "" = any, for a host that does not know it yet
	Name    string // "" = any
	Server  bool   // it must be a server
	Agent   bool   // it must be an agent
}

// Verify returns the identity of the member that presented a chain of certificates (DER, the member's first), or why it is
// refused: then the error is a *Refusal. A chain is accepted if it leads to one of the roots, all of it is valid now, the first
// is not in the list of revoked ones (nil: there is none) and its identity is the wanted one.
func Verify(chain [][]byte, roots *x509.CertPool, now time.Time, revoked func(serial string) bool, want Want) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, &Refusal{Reason: NoCertificate}
	}
	if len(chain) > maxChain {
		return Identity{}, &Refusal{Reason: Malformed, Detail: fmt.Sprintf("%d certificates, at most %d are read", len(chain), maxChain)}
	}
	certs := make([]*x509.Certificate, len(chain))
	for i, raw := range chain {
		cert, err := x509.ParseCertificate(raw)
		if err != nil {
			return Identity{}, &Refusal{Reason: Malformed, Detail: err.Error()}
		}
		certs[i] = cert
	}
	return verify(certs, roots, nil, now, revoked, want)
}

// byClock says by whose time it was judged: that clock may be the wrong one.
func byClock(now time.Time) string {
	return "by this server's clock, which says " + now.UTC().Format(time.RFC3339)
}

func verify(certs []*x509.Certificate, roots *x509.CertPool, known *chains, now time.Time, revoked func(serial string) bool, want Want) (Identity, error) {
	leaf := certs[0]
	id, identityErr := IdentityOf(leaf)
	refuse := func(reason Reason, format string, args ...any) (Identity, error) {
		return Identity{}, &Refusal{Reason: reason, Identity: id, Serial: SerialOf(leaf), Detail: fmt.Sprintf(format, args...)}
	}
	err := known.lead(certs, roots, now)
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return refuse(NotYetValid, "not before %s; %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339), byClock(now))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refuse(Expired, "at %s; %s", invalid.Cert.NotAfter.UTC().Format(time.RFC3339), byClock(now))
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return refuse(WrongCA, "issued by %q, which is no CA of this cluster", leaf.Issuer.CommonName)
	default:
		return refuse(Malformed, "%v", err)
	}
	switch {
	case leaf.IsCA:
		return refuse(Malformed, "the certificate of a CA is not that of a member")
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth):
		return refuse(Malformed, "it is not for both clients and servers")
	case identityErr != nil:
		return refuse(Malformed, "%v", identityErr)
	case want.Cluster != "" && id.Cluster != want.Cluster:
		return refuse(WrongCluster, "it is of cluster %s, this is %s", id.Cluster, want.Cluster)
	case revoked != nil && revoked(SerialOf(leaf)):
		return refuse(Revoked, "")
	case want.Name != "" && id.Name != want.Name:
		return refuse(WrongName, "%s was meant", want.Name)
	case want.Server && !id.Server:
		return refuse(NoRole, "it is not a server's")
	case want.Agent && !id.Agent:
		return refuse(NoRole, "it is not an agent's")
	}
	return id, nil
}
