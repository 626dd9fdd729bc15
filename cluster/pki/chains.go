package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"sync"
	"time"
)

// chains remembers which chains of certificates lead to one set of roots, and between which instants: when 1,000 agents come to
// a new leader, checking again the signatures of certificates that were seen a minute ago takes a quarter of their handshakes.
// What can change meanwhile (revocations, the wanted identity, the time) is checked each time. nil remembers nothing.
type chains struct {
	mu    sync.Mutex
	until map[[sha256.Size]byte]validity
}

type validity struct{ from, to time.Time }

// maxChains is how many chains are remembered; with more all are forgotten.
const maxChains = 4096

// lead says why a chain does not lead to one of the roots with all of it valid now. The roots are the same at each call.
func (c *chains) lead(certs []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	var key [sha256.Size]byte
	if c != nil {
		hash := sha256.New()
		for _, cert := range certs {
			fmt.Fprintln(hash, len(cert.Raw)) // so that no two chains are one row of bytes
			hash.Write(cert.Raw)
		}
		hash.Sum(key[:0])
		c.mu.Lock()
		v, known := c.until[key]
		c.mu.Unlock()
		if known && !now.Before(v.from) && !now.After(v.to) {
			return nil
		}
	}
	between := x509.NewCertPool()
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	// Which of the two usages matters depends on which side called; members do both.
	chains, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	if err != nil || c == nil {
		return err
	}
	v := validity{certs[0].NotBefore, certs[0].NotAfter}
	for _, cert := range chains[0] {
		if cert.NotBefore.After(v.from) {
			v.from = cert.NotBefore
		}
		if cert.NotAfter.Before(v.to) {
			v.to = cert.NotAfter
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxChains {
		c.until = map[[sha256.Size]byte]validity{}
	}
	c.until[key] = v
	return nil
}
