package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"evenkeel/internal/secretfile"
)

const (
	caLife        = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour
	renewCABefore = 365 * 24 * time.Hour // a CA with less left is made again at the start
	leafLeft      = leafLife / 3         // a leaf with less left is made again at once
	backdate      = time.Hour            // for clients whose clocks are behind

	maxPEM = 1 << 20 // bytes of a key's file
)

// Certificates are a server's own CA and the certificate it serves with.
type Certificates struct {
	// CAFile is the CA's certificate, for clients.
	CAFile string

	dir   string
	names []string
	ips   []net.IP
	now   func() time.Time

	mu   sync.Mutex
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *tls.Certificate
}

// EnsureCertificates reads the CA (ca.pem, ca.key) and the server's certificate
// (server.pem, server.key) in dir, or makes what is missing, spoilt or close to its end.
// The certificate is for localhost, the loopback addresses and the host of the listen
// address. Keys have mode 0600; a key that others may read is refused.
func EnsureCertificates(dir, listen string) (*Certificates, error) {
	return ensureCertificates(dir, listen, time.Now)
}

func ensureCertificates(dir, listen string, now func() time.Time) (*Certificates, error) {
	c := &Certificates{dir: dir, CAFile: filepath.Join(dir, "ca.pem"), names: []string{"localhost"},
		ips: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, now: now}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("certificates: listen address %q: %w", listen, err)
	}
	switch ip := net.ParseIP(host); {
	case ip != nil && !ip.IsUnspecified() && !ip.IsLoopback():
		c.ips = append(c.ips, ip)
	case ip == nil && host != "" && host != "localhost":
		c.names = append(c.names, host)
	}
	if name, err := os.Hostname(); err == nil && !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	if err := c.loadCA(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLeaf(); err != nil {
		return nil, err
	}
	return c, nil
}

// TLS is how to serve with them. The certificate is renewed while the server runs.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.leaf.Leaf.NotAfter.Sub(c.now()) < leafLeft {
				if err := c.issueLeaf(); err != nil && !c.now().Before(c.leaf.Leaf.NotAfter) {
					return nil, err // until then the old one serves
				}
			}
			return c.leaf, nil
		},
	}
}

func (c *Certificates) loadCA() error {
	cert, key, err := readPair(filepath.Join(c.dir, "ca.pem"), filepath.Join(c.dir, "ca.key"))
	if err != nil {
		return err
	}
	if cert != nil && cert.IsCA && cert.NotAfter.Sub(c.now()) > renewCABefore {
		c.ca, c.key = cert, key
		return nil
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the CA's key: %w", err)
	}
	template := c.template("Evenkeel internal CA", caLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("make the CA's certificate: %w", err)
	}
	if err := writePair(filepath.Join(c.dir, "ca.pem"), filepath.Join(c.dir, "ca.key"), der, key); err != nil {
		return err
	}
	c.key = key
	c.ca, err = x509.ParseCertificate(der)
	return err
}

// loadLeaf takes the certificate in the directory if it still serves.
func (c *Certificates) loadLeaf() error {
	cert, key, err := readPair(filepath.Join(c.dir, "server.pem"), filepath.Join(c.dir, "server.key"))
	if err != nil {
		return err
	}
	if cert == nil || cert.CheckSignatureFrom(c.ca) != nil || cert.NotAfter.Sub(c.now()) < leafLeft || !c.covers(cert) {
		return c.issueLeaf()
	}
	c.leaf = &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	return nil
}

func (c *Certificates) covers(cert *x509.Certificate) bool {
	for _, n := range c.names {
		if cert.VerifyHostname(n) != nil {
			return false
		}
	}
	for _, ip := range c.ips {
		if cert.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	return true
}

func (c *Certificates) issueLeaf() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the server's key: %w", err)
	}
	template := c.template("Evenkeel server", leafLife)
	template.DNSNames, template.IPAddresses = c.names, c.ips
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca, &key.PublicKey, c.key)
	if err != nil {
		return fmt.Errorf("make the server's certificate: %w", err)
	}
	if err := writePair(filepath.Join(c.dir, "server.pem"), filepath.Join(c.dir, "server.key"), der, key); err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("read the server's new certificate: %w", err)
	}
	c.leaf = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}
	return nil
}

func (c *Certificates) template(name string, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // crypto/rand never fails
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"Evenkeel"}},
		NotBefore: c.now().Add(-backdate), NotAfter: c.now().Add(life)}
}

// readPair reads a certificate and its key. nil where there is none, or where
// the two do not belong together (a crash between the two writes).
func readPair(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	keyPEM, err := secretfile.Read(keyFile, secretfile.Rule{MaxBytes: maxPEM})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if errors.Is(err, secretfile.ErrExposed) {
		return nil, nil, fmt.Errorf("certificates: %w; or remove the key for a new one", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("certificates: %w", err)
	}
	certPEM, err := os.ReadFile(certFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("certificates: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, nil // spoilt or not a pair: a new one replaces it
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, nil
	}
	return pair.Leaf, key, nil
}

func writePair(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := secretfile.Write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		return err
	}
	return secretfile.Write(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
