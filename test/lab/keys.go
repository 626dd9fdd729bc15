package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Where a host of a lab with Options.TLS finds keys and certificates. libvirtd, as a server and as a client of others, has one
// authority, QEMU another. A guest that breaks out of a QEMU reads QEMU's key, and libvirt obeys every certificate of its own
// authority.
const (
	keysPath     = "/etc/libvirt/pki"
	qemuKeysPath = keysPath + "/qemu"
)

// keyFiles are the names by which libvirt or QEMU looks for an authority and for its own certificates and keys.
type keyFiles struct {
	path        string
	ca          string
	certs, keys []string
}

var keySets = []keyFiles{
	{keysPath, "cacert.pem", []string{"servercert.pem", "clientcert.pem"}, []string{"serverkey.pem", "clientkey.pem"}},
	{qemuKeysPath, "ca-cert.pem", []string{"server-cert.pem", "client-cert.pem"}, []string{"server-key.pem", "client-key.pem"}},
}

// makeKeys gives every host certificates of new authorities. It keeps no key of these authorities.
func (l *Lab) makeKeys() error {
	for _, set := range keySets {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		now := time.Now()
		authority := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab " + l.state.ID + " " + filepath.Base(set.path)},
			NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		ca, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
		if err != nil {
			return err
		}
		for _, h := range l.hosts {
			if err := h.makeKeys(set, ca, authority, key); err != nil {
				return fmt.Errorf("keys of host %s: %w", h.Name, err)
			}
		}
	}
	return nil
}

func (h *Host) makeKeys(set keyFiles, ca []byte, authority *x509.Certificate, signer *ecdsa.PrivateKey) error {
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
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return h.writeKeys(set, block("CERTIFICATE", ca), block("CERTIFICATE", cert), block("PRIVATE KEY", secret))
}

// writeKeys under the names of a set.
func (h *Host) writeKeys(set keyFiles, ca, cert, key []byte) error {
	below, err := filepath.Rel("/etc/libvirt", set.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, "etc", below)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(dir, set.ca), ca, 0o644)}
	for _, name := range set.certs {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), cert, 0o644))
	}
	for _, name := range set.keys {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), key, 0o600))
	}
	return errors.Join(errs...)
}
