package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// tokenPrefix names the format; another one would have another number.
const tokenPrefix = "ekj1"

const (
	tokenIDBytes     = 8
	tokenSecretBytes = 32
)

// ErrToken says that a text is no join token.
var ErrToken = errors.New("not a join token")

// Pin is the SHA-256 of a CA's SubjectPublicKeyInfo. A joining host knows the cluster by it.
type Pin [sha256.Size]byte

// PinOf returns the pin of a CA's key.
func PinOf(ca *x509.Certificate) Pin { return sha256.Sum256(ca.RawSubjectPublicKeyInfo) }

// JoinToken lets one new member in, once. The replicated state has, under its ID, the roles that it gives, when it expires, and
// whether it was used. It has HashSecret(Secret), never the secret.
type JoinToken struct {
	ID     string // 16 hexadecimal digits
	Secret string // 43 characters of base64url
	Pin    Pin    // of the CA that the joiner must find
}

// NewJoinToken makes a token for the cluster of that CA.
func NewJoinToken(ca *x509.Certificate, entropy io.Reader) (JoinToken, error) {
	raw := make([]byte, tokenIDBytes+tokenSecretBytes)
	if _, err := io.ReadFull(entropy, raw); err != nil {
		return JoinToken{}, fmt.Errorf("make a join token: %w", err)
	}
	return JoinToken{ID: hex.EncodeToString(raw[:tokenIDBytes]), Secret: base64.RawURLEncoding.EncodeToString(raw[tokenIDBytes:]), Pin: PinOf(ca)}, nil
}

// Text is the token in the form that the joining host gets: ekj1.ID.SECRET.PIN.
func (t JoinToken) Text() string {
	return tokenPrefix + "." + t.ID + "." + t.Secret + "." + base64.RawURLEncoding.EncodeToString(t.Pin[:])
}

// String is for logs: it leaves the secret out.
func (t JoinToken) String() string { return "join token " + t.ID }

// GoString is String, so that %#v shows no more.
func (t JoinToken) GoString() string { return t.String() }

// ParseJoinToken reads the text of a token, strictly: there is one text for each
// token. Errors wrap ErrToken and do not repeat the text.
func ParseJoinToken(text string) (JoinToken, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != tokenPrefix {
		return JoinToken{}, fmt.Errorf("%w: it does not look like %s.ID.SECRET.PIN", ErrToken, tokenPrefix)
	}
	id, err := hex.DecodeString(parts[1])
	if err != nil || len(id) != tokenIDBytes || hex.EncodeToString(id) != parts[1] {
		return JoinToken{}, fmt.Errorf("%w: its id is not %d digits of lower-case hexadecimal", ErrToken, 2*tokenIDBytes)
	}
	secret, err := decode64(parts[2])
	if err != nil || len(secret) != tokenSecretBytes {
		return JoinToken{}, fmt.Errorf("%w: its secret is not whole", ErrToken)
	}
	pin, err := decode64(parts[3])
	if err != nil || len(pin) != len(Pin{}) {
		return JoinToken{}, fmt.Errorf("%w: the CA's fingerprint in it is not whole", ErrToken)
	}
	return JoinToken{ID: parts[1], Secret: parts[2], Pin: Pin(pin)}, nil
}

// decode64 takes only the one right form: the decoder itself skips line ends.
func decode64(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err == nil && base64.RawURLEncoding.EncodeToString(b) != s {
		err = errors.New("not in its canonical form")
	}
	return b, err
}

// HashSecret returns what the state has of a secret: its SHA-256 in hexadecimal. The secret has 256 random bits, so nothing
// slower is needed.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
