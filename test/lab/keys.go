package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// keysPath is where a host of a lab with Options.TLS finds keys and certificates, for its libvirtd, for
// libvirtd as a client of others, and for its QEMUs.
const keysPath = "/etc/libvirt/pki"

// makeKeys gives every host a certificate of an authority that nobody has once they are made.
func (l *Lab) makeKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab " + l.state.ID},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	if err != nil {
		return err
	}
	for _, h := range l.hosts {
		if err := h.makeKeys(ca, authority, key); err != nil {
			return fmt.Errorf("keys of host %s: %w", h.Name, err)
		}
	}
	return nil
}

func (h *Host) makeKeys(ca []byte, authority *x509.Certificate, signer *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(int64(h.number) + 1), Subject: pkix.Name{CommonName: h.Name},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		DNSNames: []string{h.Name}, IPAddresses: []net.IP{net.ParseIP(h.Address())},
		// libvirt refuses certificates without keyEncipherment, whatever the kind of key.
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, "etc", filepath.Base(keysPath))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	// The same three under the names that libvirt looks for, and under those that QEMU does.
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{
		{"cacert.pem", block("CERTIFICATE", ca), 0o644}, {"ca-cert.pem", block("CERTIFICATE", ca), 0o644},
		{"servercert.pem", block("CERTIFICATE", cert), 0o644}, {"server-cert.pem", block("CERTIFICATE", cert), 0o644},
		{"clientcert.pem", block("CERTIFICATE", cert), 0o644}, {"client-cert.pem", block("CERTIFICATE", cert), 0o644},
		{"serverkey.pem", block("PRIVATE KEY", secret), 0o600}, {"server-key.pem", block("PRIVATE KEY", secret), 0o600},
		{"clientkey.pem", block("PRIVATE KEY", secret), 0o600}, {"client-key.pem", block("PRIVATE KEY", secret), 0o600},
	} {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}
