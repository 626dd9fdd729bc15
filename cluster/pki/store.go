package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// CertificateStore has this member's certificate, its key and the CAs that it believes, and gives them to TLS. It is safe for
// concurrent use. What it gave out stays good when the certificate is replaced, so that no connection ends by that.
type CertificateStore struct {
	files   Files
	foreign bool

	writing sync.Mutex // one replacement at a time
	stamp   string     // under writing
	now     atomic.Pointer[generation]
}

// generation is one generation of a certificate store's content. It does not change, except for what it remembers.
type generation struct {
	pair  tls.Certificate // with the CA at its end: a joiner compares its fingerprint
	id    Identity
	roots *x509.CertPool
	cas   []*x509.Certificate
	known chains // that lead to the roots
}

// OpenStore reads a member's files. foreign: they are of a PKI of the operator's
// own, so the key may be readable for its group, and nothing is renewed or written. A certificate
// that has expired is taken, too: others will refuse it, and say so.
func OpenStore(files Files, foreign bool, now time.Time) (*CertificateStore, error) {
	k := &CertificateStore{files: files, foreign: foreign}
	k.writing.Lock()
	defer k.writing.Unlock()
	if err := k.load(now); err != nil {
		return nil, err
	}
	return k, nil
}

// load reads what is on disk. The caller holds the lock writing.
func (k *CertificateStore) load(now time.Time) error {
	var openTo fs.FileMode
	if k.foreign {
		openTo = 0o040
	}
	stamp, err := k.files.stamp()
	if errors.Is(err, fs.ErrNotExist) {
		stamp = "" // perhaps a crash left the key under its other name
	} else if err != nil {
		return err
	}
	m, waiting, err := k.files.read(openTo)
	if errors.Is(err, fs.ErrNotExist) && !k.foreign && len(m.Cert) > 0 {
		return k.files.damaged(m, err)
	}
	if err != nil {
		return err
	}
	h, err := newGeneration(m, now)
	if err != nil && waiting != nil && !k.foreign {
		second := m
		second.Key = waiting
		if hs, e := newGeneration(second, now); e == nil {
			if err := k.files.promote(); err != nil {
				return err
			}
			h, err = hs, nil
		}
	}
	if err != nil && !k.foreign {
		return k.files.damaged(m, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.files.Cert, err)
	}
	if old := k.now.Load(); old != nil && old.id != h.id {
		return fmt.Errorf("%s: it is of %s of cluster %s, this is %s of %s", k.files.Cert, h.id, h.id.Cluster, old.id, old.id.Cluster)
	}
	k.now.Store(h)
	k.stamp = stamp
	return nil
}

// newGeneration checks that a certificate, a key and CAs belong together.
func newGeneration(m Material, now time.Time) (*generation, error) {
	certs, err := ParseCertificates(m.Cert)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(m.Key)
	if err != nil {
		return nil, err
	}
	cas, err := ParseCertificates(m.CA)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	leaf := certs[0]
	if public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(leaf.PublicKey) {
		return nil, errors.New("the key is of another certificate")
	}
	h := &generation{roots: x509.NewCertPool(), cas: cas}
	for _, ca := range cas {
		h.roots.AddCert(ca)
	}
	at := now // an expired certificate is judged as of its last moment
	if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	if at.Before(leaf.NotBefore) {
		at = leaf.NotBefore
	}
	if h.id, err = verify(certs, h.roots, nil, at, nil, Want{}); err != nil {
		return nil, err
	}
	last := certs[len(certs)-1]
	for _, ca := range cas {
		if !last.Equal(ca) && last.CheckSignatureFrom(ca) == nil {
			certs = append(certs, ca)
			break
		}
	}
	h.pair = tls.Certificate{PrivateKey: key, Leaf: leaf}
	for _, c := range certs {
		h.pair.Certificate = append(h.pair.Certificate, c.Raw)
	}
	return h, nil
}

// Identity returns the identity of this member.
func (k *CertificateStore) Identity() Identity { return k.now.Load().id }

// Leaf returns this member's certificate. The caller must not change it.
func (k *CertificateStore) Leaf() *x509.Certificate { return k.now.Load().pair.Leaf }

// Chain returns this member's certificate and those that lead from it to a CA, PEM, with a proof that this member has its key,
// for a purpose: see NewProof.
func (k *CertificateStore) Chain(purpose string) (chain, proof []byte, err error) {
	h := k.now.Load()
	certs := make([]*x509.Certificate, len(h.pair.Certificate))
	for i, raw := range h.pair.Certificate {
		if certs[i], err = x509.ParseCertificate(raw); err != nil {
			return nil, nil, err
		}
	}
	key, ok := h.pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("the key of this member's certificate cannot sign")
	}
	proof, err = NewProof(key, purpose)
	return EncodeCertificates(certs...), proof, err
}

// Roots returns the CAs that are believed. The caller must not change the pool.
func (k *CertificateStore) Roots() *x509.CertPool { return k.now.Load().roots }

// Verify is the function of that name, against the CAs that the certificate store holds.
func (k *CertificateStore) Verify(certs []*x509.Certificate, now time.Time, revoked func(serial string) bool, want Want) (Identity, error) {
	switch n := len(certs); {
	case n == 0:
		return Identity{}, &Refusal{Reason: NoCertificate}
	case n > maxChain:
		return Identity{}, &Refusal{Reason: Malformed, Detail: fmt.Sprintf("%d certificates, at most %d are read", n, maxChain)}
	}
	gen := k.now.Load()
	return verify(certs, gen.roots, &gen.known, now, revoked, want)
}

// CAs are the certificates in Roots.
func (k *CertificateStore) CAs() []*x509.Certificate { return slices.Clone(k.now.Load().cas) }

// GetCertificate is for tls.Config.
func (k *CertificateStore) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &k.now.Load().pair, nil
}

// GetClientCertificate is for tls.Config. The certificate is shown to every server that asks for it: servers of other clusters
// refuse it, and say why.
func (k *CertificateStore) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return &k.now.Load().pair, nil
}

// RenewDue says whether two thirds of the certificate's life are over. It is never true for a certificate that the operator
// renews.
func (k *CertificateStore) RenewDue(now time.Time) bool {
	return !k.foreign && !now.Before(k.RenewAt())
}

// RenewAt is when two thirds of the certificate's life are over.
func (k *CertificateStore) RenewAt() time.Time {
	leaf := k.Leaf()
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// Foreign says whether the certificate is of a PKI of the operator's own.
func (k *CertificateStore) Foreign() bool { return k.foreign }

// Replace writes a renewed certificate, its key and the CAs to disk and gives them out from then on. They must be of the same
// member.
func (k *CertificateStore) Replace(m Material, now time.Time) error {
	if k.foreign {
		return errors.New("replace the member's certificate: it is of the operator's own PKI")
	}
	h, err := newGeneration(m, now)
	if err != nil {
		return fmt.Errorf("replace the member's certificate: %w", err)
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if old := k.now.Load().id; h.id != old {
		return fmt.Errorf("replace the member's certificate: the new one is of %s of cluster %s, this is %s of %s", h.id, h.id.Cluster, old, old.Cluster)
	}
	if err := k.files.Write(m); err != nil {
		return fmt.Errorf("replace the member's certificate: %w", err)
	}
	k.now.Store(h)
	if stamp, err := k.files.stamp(); err == nil { // else the next Refresh reads once more than it must
		k.stamp = stamp
	}
	return nil
}

// Refresh reads the files again if they changed on disk. If their content cannot be used, the store goes on with the old one,
// and the error says why.
func (k *CertificateStore) Refresh(now time.Time) (changed bool, err error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	stamp, err := k.files.stamp()
	if err != nil {
		return false, err
	}
	if stamp == k.stamp {
		return false, nil
	}
	if err := k.load(now); err != nil {
		return false, err
	}
	return true, nil
}
