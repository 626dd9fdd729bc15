package transport

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/pki"
)

// Bounds of a request to join. Each field is bounded, because the request comes from a host that is not a member.
const (
	maxAddress    = 255     // bytes of host:port
	maxMachine    = 128     // bytes of the id of a machine, and of a run of it
	maxJoinPEM    = 8 << 10 // bytes of a request for a certificate, and of a chain
	joinIDDigits  = 16      // of the id of a join token, hexadecimal
	joinSecretLen = 43      // characters of its secret, base64url
)

// JoinRequest is what a new member sends to POST /v1/cluster/join of the public API.
type JoinRequest struct {
	ID      string `json:"id"`     // of the join token
	Secret  string `json:"secret"` // of the join token
	Name    string `json:"name"`   // of the member: its host's, a DNS label
	Address string `json:"address"`
	Request string `json:"request"` // for a certificate: PKCS #10, PEM
	// Chain of a member that has a certificate of the operator's own PKI, PEM, its own first. It wants no other; Request proves
	// that it has the key, for Purpose.
	Chain string `json:"chain,omitempty"`
	// Machine that it is on, and the run of it: by these a member that lost its disk is known again. "" = not known.
	Machine string `json:"machine,omitempty"`
	Boot    string `json:"boot,omitempty"`
}

// Purpose is the purpose of the proof that comes with a Chain: this token, for this member, in this cluster.
func (q JoinRequest) Purpose(cluster string) string {
	return strings.Join([]string{"join", cluster, q.ID, q.Secret, q.Name, q.Address}, "\n")
}

// String is for logs: it leaves the secret out.
func (q JoinRequest) String() string { return fmt.Sprintf("request of %.64q to join", q.Name) }

// GoString is String, so that %#v shows no more.
func (q JoinRequest) GoString() string { return q.String() }

// ParseJoin decodes one request to join, strictly: a field that is not known is an error. It checks no field; see Check.
func ParseJoin(body []byte) (JoinRequest, error) {
	var q JoinRequest
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return JoinRequest{}, fmt.Errorf("decode a request to join: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return JoinRequest{}, errors.New("decode a request to join: there is more after its end")
	}
	return q, nil
}

// Check checks the form and the length of every field: nil, or a *leader.Invalid that names all that are wrong. It parses no
// certificate.
func (q JoinRequest) Check() error {
	var faults []leader.FieldError
	fault := func(field, text string) { faults = append(faults, leader.FieldError{Field: field, Text: text}) }
	if raw, err := hex.DecodeString(q.ID); err != nil || len(q.ID) != joinIDDigits || hex.EncodeToString(raw) != q.ID {
		fault("id", fmt.Sprintf("must be %d digits of lower-case hexadecimal", joinIDDigits))
	}
	if len(q.Secret) != joinSecretLen || strings.Trim(q.Secret, base64Letters) != "" {
		fault("secret", fmt.Sprintf("must be %d characters of base64url", joinSecretLen))
	}
	if !pki.ValidName(q.Name) {
		fault("name", "must be a DNS label in lower case")
	}
	if err := CheckAddress(q.Address); err != nil {
		fault("address", err.Error())
	}
	for _, f := range []struct{ name, text string }{{"machine", q.Machine}, {"boot", q.Boot}} {
		if len(f.text) > maxMachine {
			fault(f.name, fmt.Sprintf("must be at most %d bytes", maxMachine))
		}
	}
	for _, f := range []struct{ name, text string }{{"request", q.Request}, {"chain", q.Chain}} {
		if len(f.text) > maxJoinPEM {
			fault(f.name, fmt.Sprintf("must be at most %d bytes of PEM", maxJoinPEM))
		}
	}
	if len(faults) > 0 {
		return &leader.Invalid{Fields: faults}
	}
	return nil
}

const base64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// CheckAddress says what is wrong with the address of a member's port: it must be host:port, the host a DNS name or an IP
// address without a zone, the port from 1 to 65535.
func CheckAddress(address string) error {
	if len(address) > maxAddress {
		return fmt.Errorf("must be at most %d bytes", maxAddress)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return errors.New("must end with a port from 1 to 65535")
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return nil
	}
	if !isDNSName(host) {
		return errors.New("must begin with a DNS name or an IP address")
	}
	return nil
}

// isDNSName says whether s is a DNS name: labels of 1 to 63 letters, digits, hyphens and underscores, none with a hyphen at an
// end. A final dot is allowed.
func isDNSName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, base64Letters) != "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}
