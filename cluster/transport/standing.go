package transport

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"evenkeel/cluster/pki"
)

// ProtocolStanding answers one question: whether the certificate that the caller shows was revoked. It is the only protocol
// that accepts a revoked certificate. A member that the other protocols refuse learns in TLS that its certificate is bad, not
// why.
const ProtocolStanding = "ek-standing/1"

const maxStanding = 1 << 10 // bytes of an answer

// ErrRemoved: the cluster has removed this member.
var ErrRemoved = errors.New("the cluster has removed this member: its certificate is revoked")

// standingAnswer is what a server says of the certificate that was shown to it.
type standingAnswer struct {
	Serial  string `json:"serial"`
	Revoked bool   `json:"revoked"`
}

// standing is what a Dialer knows of its own member.
type standing struct {
	mu   sync.Mutex
	back chan struct{} // closes once the member is removed no more; nil: it is not known to be removed
}

// Removed says whether the cluster is known to have removed this member: the error is ErrRemoved then, and back closes when
// that is over. Until then the Dialer connects to no server.
func (d *Dialer) Removed() (back <-chan struct{}, err error) {
	d.standing.mu.Lock()
	defer d.standing.mu.Unlock()
	if d.standing.back == nil {
		return nil, nil
	}
	return d.standing.back, ErrRemoved
}

// SetRemoved says whether the cluster has removed this member.
func (d *Dialer) SetRemoved(removed bool) {
	d.standing.mu.Lock()
	defer d.standing.mu.Unlock()
	switch {
	case removed && d.standing.back == nil:
		d.standing.back = make(chan struct{})
	case !removed && d.standing.back != nil:
		close(d.standing.back)
		d.standing.back = nil
	}
}

// Standing asks the server at an address whether this member's certificate was revoked. Only a server of the cluster is
// believed.
func (d *Dialer) Standing(ctx context.Context, address string) (revoked bool, err error) {
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("ask %s whether this member was removed: %w", address, err)
	}
	conn, err := d.dial(ctx, address, ProtocolStanding, pki.Want{Server: true})
	if err != nil {
		return fail(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	text, err := io.ReadAll(io.LimitReader(conn, maxStanding))
	if err != nil {
		return fail(err)
	}
	var a standingAnswer
	if err := decodeOne(text, &a); err != nil {
		return fail(err)
	}
	if serial := pki.SerialOf(d.Certificates.Leaf()); a.Serial != serial { // the certificate was replaced meanwhile
		return fail(fmt.Errorf("the answer is about certificate %.64q, not %s", a.Serial, serial))
	}
	return a.Revoked, nil
}

// Shut says whether an error of a call is the other side's refusal of this member in TLS: it may have been removed.
func Shut(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// answerStanding answers a connection of ProtocolStanding, and ends it.
func (p *Port) answerStanding(conn *tls.Conn) {
	defer conn.Close() //nolint:errcheck // the other side has the answer or not
	serial := pki.SerialOf(conn.ConnectionState().PeerCertificates[0])
	_ = conn.SetDeadline(time.Now().Add(p.o.HandshakeTimeout))
	_ = json.NewEncoder(conn).Encode(standingAnswer{Serial: serial, Revoked: p.o.Revoked != nil && p.o.Revoked(serial)})
}

// onlyRevoked says whether the only fault of a certificate is that it was revoked.
func onlyRevoked(err error) bool {
	var r *pki.Refusal
	return errors.As(err, &r) && r.Reason == pki.Revoked
}
