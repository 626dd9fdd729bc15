package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// maxRequest is more than any request for a certificate takes, bytes.
const maxRequest = 8 << 10

// NewRequest makes a request for a certificate (PKCS #10, PEM). It proves that its sender has the key, and says nothing else:
// names and roles come from elsewhere.
func NewRequest(key crypto.Signer) ([]byte, error) { return newRequest(key, pkix.Name{}) }

// NewProof makes a request that proves that its sender has the key, for one purpose and no other: a thief of the proof can use
// it for nothing else. See CheckProof.
func NewProof(key crypto.Signer, purpose string) ([]byte, error) {
	return newRequest(key, pkix.Name{CommonName: purposeName(purpose)})
}

func purposeName(purpose string) string {
	sum := sha256.Sum256([]byte(purpose))
	return hex.EncodeToString(sum[:])
}

func newRequest(key crypto.Signer, subject pkix.Name) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		return nil, fmt.Errorf("make a request for a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der}), nil
}

// KeyOfRequest returns the public key (P-256) with which a request was made. It ignores everything else in the request.
func KeyOfRequest(text []byte) (crypto.PublicKey, error) {
	request, err := parseRequest(text)
	if err != nil {
		return nil, err
	}
	key, ok := request.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("request for a certificate: its key is not of P-256")
	}
	return key, nil
}

// CheckProof says what is wrong with a proof, for a purpose, that its maker has the key of a certificate, of whatever kind the
// key is.
func CheckProof(text []byte, cert *x509.Certificate, purpose string) error {
	request, err := parseRequest(text)
	if err != nil {
		return err
	}
	if key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !key.Equal(cert.PublicKey) {
		return errors.New("request for a certificate: its key is not that of the certificate that came with it")
	}
	if request.Subject.CommonName != purposeName(purpose) {
		return errors.New("request for a certificate: it was made for another purpose")
	}
	return nil
}

// parseRequest reads a request that was signed with the key that it has.
func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("request for a certificate: more than %d bytes", maxRequest)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemRequest || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("request for a certificate: not one in PEM form")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("request for a certificate: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("request for a certificate: its sender does not have the key: %w", err)
	}
	return request, nil
}
