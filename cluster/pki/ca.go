package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	backdate = time.Hour // for members whose clocks are behind

	// DefaultLife is how long a member's certificate holds, unless the caller wants another.
	DefaultLife = 30 * 24 * time.Hour

	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
	pemRequest     = "CERTIFICATE REQUEST"
)

// CA is the authority that issues the certificates of a cluster's members. It is
// safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// GenerateKey makes a P-256 key from 32 bytes of entropy (crypto/rand.Reader except in tests), or some more: it skips bytes
// that are no key, one time in 2^32.
func GenerateKey(entropy io.Reader) (*ecdsa.PrivateKey, error) {
	for range 128 { // bytes that never make a key are no entropy
		raw := make([]byte, 32)
		if _, err := io.ReadFull(entropy, raw); err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("make a key: the source of randomness is broken")
}

// NewCA makes the CA of a cluster. It holds for ten years.
func NewCA(cluster string, now time.Time, entropy io.Reader) (*CA, error) {
	if !validCluster(cluster) {
		return nil, fmt.Errorf("make the CA of cluster %q: an id is 1 to 63 letters, digits and hyphens", cluster)
	}
	key, err := GenerateKey(entropy)
	if err != nil {
		return nil, fmt.Errorf("make the CA of cluster %s: %w", cluster, err)
	}
	serial, err := newSerial(entropy)
	if err != nil {
		return nil, fmt.Errorf("make the CA of cluster %s: %w", cluster, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Clients distinguish authorities by this name, so that of two clusters it differs.
		Subject:   pkix.Name{Organization: []string{"Evenkeel"}, CommonName: "Evenkeel CA " + cluster},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(entropy, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the CA of cluster %s: %w", cluster, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the CA of cluster %s: %w", cluster, err)
	}
	return &CA{cert: cert, key: key}, nil
}

// ParseCA reads what CertPEM and KeyPEM wrote. Of several certificates it takes the one of the key.
func ParseCA(certPEM, keyPEM []byte) (*CA, error) {
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificate: %w", err)
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read the CA's key: %w", err)
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok || own.Curve != elliptic.P256() {
		return nil, errors.New("read the CA's key: it is not of P-256")
	}
	for _, cert := range certs {
		if cert.IsCA && own.PublicKey.Equal(cert.PublicKey) {
			return &CA{cert: cert, key: own}, nil
		}
	}
	return nil, errors.New("read the CA: there is no CA's certificate of that key")
}

// Certificate returns the CA's certificate. The caller must not change it.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// CertPEM is the CA's certificate.
func (ca *CA) CertPEM() []byte { return EncodeCertificates(ca.cert) }

// KeyPEM is the CA's key, PKCS #8. Its holder can pose as any member.
func (ca *CA) KeyPEM() ([]byte, error) { return EncodeKey(ca.key) }

// Names are the DNS names and addresses at which API clients find a server.
type Names struct {
	DNS []string
	IPs []net.IP
}

// NamesOf returns the host parts of addresses of the form "host:port".
func NamesOf(addresses ...string) (Names, error) {
	var out Names
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return Names{}, fmt.Errorf("address %q: %w", address, err)
		}
		if ip := net.ParseIP(host); ip != nil {
			out.IPs = append(out.IPs, ip)
		} else if host != "" {
			out.DNS = append(out.DNS, host)
		}
	}
	return out, nil
}

// Issue makes a certificate for a member's public key (P-256). It is valid from an hour ago for life from now, at most as long
// as the CA. Names are for servers: Issue leaves them out for an identity that is no server, so that a host cannot pose as the
// API.
func (ca *CA) Issue(public crypto.PublicKey, id Identity, names Names, now time.Time, life time.Duration, entropy io.Reader) (*x509.Certificate, error) {
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	if key, ok := public.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("issue a certificate to %s: its key is not of P-256", id)
	}
	if life <= 0 {
		return nil, fmt.Errorf("issue a certificate to %s: a life of %s", id, life)
	}
	if !now.Before(ca.cert.NotAfter) {
		return nil, fmt.Errorf("issue a certificate to %s: the CA expired at %s", id, ca.cert.NotAfter.Format(time.RFC3339))
	}
	if !id.Server {
		names = Names{}
	}
	serial, err := newSerial(entropy)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate to %s: %w", id, err)
	}
	until := now.Add(life)
	if until.After(ca.cert.NotAfter) {
		until = ca.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"Evenkeel"}, CommonName: id.Name},
		NotBefore:    now.Add(-backdate), NotAfter: until,
		URIs: id.uris(), DNSNames: names.DNS, IPAddresses: names.IPs,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(entropy, template, ca.cert, public, ca.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate to %s: %w", id, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate to %s: %w", id, err)
	}
	return cert, nil
}

// newSerial returns a positive number of 128 random bits.
func newSerial(entropy io.Reader) (*big.Int, error) {
	raw := make([]byte, 16)
	for range 8 {
		if _, err := io.ReadFull(entropy, raw); err != nil {
			return nil, fmt.Errorf("make a serial number: %w", err)
		}
		if n := new(big.Int).SetBytes(raw); n.Sign() > 0 {
			return n, nil
		}
	}
	return nil, errors.New("make a serial number: the source of randomness is broken")
}

// SerialOf is how a certificate is named in lists of revoked ones: its serial number in lower-case hexadecimal, at least 32
// digits. A PKI of the operator's own may count from 1, and again with another CA: a short number identifies no certificate, so
// the certificate's fingerprint takes its place.
func SerialOf(cert *x509.Certificate) string {
	raw := cert.SerialNumber.Bytes()
	if len(raw) <= 8 {
		sum := sha256.Sum256(cert.Raw)
		raw = sum[:16]
	}
	if len(raw) < 16 {
		raw = append(make([]byte, 16-len(raw)), raw...)
	}
	return hex.EncodeToString(raw)
}

// EncodeCertificates writes certificates as PEM, one after the other.
func EncodeCertificates(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: pemCertificate, Bytes: c.Raw}) // a buffer takes all
	}
	return out.Bytes()
}

// ParseCertificates reads one certificate or more.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("a PEM block of type %q where a certificate should be", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return out, nil
}

// EncodeKey writes a private key as PEM, PKCS #8.
func EncodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// ParseKey reads a private key, PKCS #8 or SEC 1.
func ParseKey(text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			return nil, errors.New("no private key in PEM form")
		}
		var key any
		var err error
		switch block.Type {
		case pemKey:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default: // parameters of the curve, as some tools write them
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("private key: %w", err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("private key: a %T cannot sign", key)
		}
		return signer, nil
	}
}
