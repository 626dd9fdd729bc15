package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"evenkeel/cluster/pki"
)

// Protocols of the port, as ALPN names them.
const (
	ProtocolRaft = "ek-raft/1"
	ProtocolPeer = "ek-peer/1"
	// ProtocolForward carries requests of the public API that a server forwards to the leader, and nothing else: no
	// request that a client wrote can become a call between members.
	ProtocolForward = "ek-forward/1"
)

const handshakeTimeout = 5 * time.Second

// Security decides which members a member believes. The Port and the Dialer share it.
type Security struct {
	Certificates *pki.CertificateStore
	// Revoked says whether a certificate of that serial was revoked, by this server's state. It is called often.
	Revoked func(serial string) bool
	// Refused is called with every peer that was refused, and why (*pki.Refusal, *Trespass, an error of TLS), for audit events.
	// It must not block, and must itself see to it that a flood does no harm. nil: it is not called.
	Refused func(remote net.Addr, why error)
	// Founding distinguishes clusters of one name, which a PKI of the operator's own may certify one after the other. It is a
	// name that members of one founding have in common and send along (in TLS's server_name, which has no other use here).
	// Members with certificates of such a PKI refuse others. "" = it is not known, and is not sent.
	Founding string
	// Now is the time certificates are judged by; nil: time.Now.
	Now func() time.Time
}

func (s Security) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s Security) refused(remote net.Addr, why error) {
	if s.Refused != nil {
		s.Refused(remote, why)
	}
}

func (s Security) cluster() string { return s.Certificates.Identity().Cluster }

// verify checks the chain that the other side of a connection presented.
func (s Security) verify(certs []*x509.Certificate, want pki.Want) (pki.Identity, error) {
	want.Cluster = s.cluster()
	return s.Certificates.Verify(certs, s.now(), s.Revoked, want)
}

// sameFounding says what is wrong with a member that was let into another cluster of this one's name.
func (s Security) sameFounding(certs []*x509.Certificate, theirs string) error {
	if !s.Certificates.Foreign() || s.Founding == "" || theirs == "" || theirs == s.Founding {
		return nil
	}
	id, _ := pki.IdentityOf(certs[0]) // it was verified
	return &pki.Refusal{Reason: pki.WrongCluster, Identity: id, Serial: pki.SerialOf(certs[0]), Detail: "it is of another cluster of that name, which was made at another time"}
}

// still says whether a certificate that was good at the handshake is still good.
func (s Security) still(cert *x509.Certificate) error {
	if serial := pki.SerialOf(cert); s.Revoked != nil && s.Revoked(serial) {
		id, _ := pki.IdentityOf(cert) // it was read at the handshake
		return &pki.Refusal{Reason: pki.Revoked, Identity: id, Serial: serial}
	}
	if s.now().After(cert.NotAfter) {
		id, _ := pki.IdentityOf(cert)
		return &pki.Refusal{Reason: pki.Expired, Identity: id, Serial: pki.SerialOf(cert)}
	}
	return nil
}

// Dialer connects to other members.
type Dialer struct {
	Security
	// Connect makes the connection below TLS; nil: TCP.
	Connect func(ctx context.Context, address string) (net.Conn, error)

	HandshakeTimeout time.Duration // of connection and handshake together; 0: 5 s

	members  members
	standing standing
}

// Dial connects to a member and speaks one of the protocols of members to it. It fails if the other side is not what is wanted
// (the cluster is this one in any case), so that nothing that this member says reaches a stranger. While this member is known
// to be removed, it fails at once.
func (d *Dialer) Dial(ctx context.Context, address, protocol string, want pki.Want) (*tls.Conn, error) {
	if _, err := d.Removed(); err != nil {
		return nil, fmt.Errorf("connect to %s over %s: %w", address, protocol, err)
	}
	return d.dial(ctx, address, protocol, want)
}

func (d *Dialer) dial(ctx context.Context, address, protocol string, want pki.Want) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.HandshakeTimeout, handshakeTimeout))
	defer cancel()
	connect := d.Connect
	if connect == nil {
		connect = tcp
	}
	raw, err := connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	below := &watched{Conn: raw}
	conn := tls.Client(below, &tls.Config{
		MinVersion:           tls.VersionTLS13,
		NextProtos:           []string{protocol},
		ServerName:           d.Founding,
		GetClientCertificate: d.Certificates.GetClientCertificate,
		InsecureSkipVerify:   true, // by name; VerifyConnection verifies by identity
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := d.verify(cs.PeerCertificates, want)
			return err
		},
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if errors.As(err, new(*pki.Refusal)) {
			d.refused(raw.RemoteAddr(), err)
		}
		return nil, fmt.Errorf("connect to %s over %s: %w", address, protocol, err)
	}
	if !d.members.keep(conn, below) {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, net.ErrClosed)
	}
	return conn, nil
}

// Close ends all connections that the Dialer made; it makes no more.
func (d *Dialer) Close() { d.members.closeAll() }

func tcp(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
}

// keepAlive finds out within half a minute that the other machine is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
