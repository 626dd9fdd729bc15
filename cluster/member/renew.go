package member

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
)

// Bounds of the certificates that a member adds to its row: each is an entry of the log.
const (
	renewEvery  = 10 * time.Minute // for one member, in the long run
	renewAtOnce = 3                // so that it can ask again when an answer was lost
	maxChain    = 8 << 10          // bytes of PEM
	maxRenewers = 4096             // members that are counted; beyond, those that asked longest ago are forgotten
)

// renewals counts, on the server that leads, the certificates that members add to their rows. The zero value is ready. It is safe
// for concurrent use.
type renewals struct {
	mu sync.Mutex
	by *lru.Cache[string, *rate.Limiter]
}

// take counts one for a member at that time.
func (r *renewals) take(member string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		by, err := lru.New[string, *rate.Limiter](maxRenewers)
		if err != nil {
			panic("member: renewals: " + err.Error()) // the size is a constant
		}
		r.by = by
	}
	limit, ok := r.by.Get(member)
	if !ok {
		limit = rate.NewLimiter(rate.Every(renewEvery), renewAtOnce)
		r.by.Add(member, limit)
	}
	if !limit.AllowN(now, 1) {
		return fmt.Errorf("member %s has had %d certificates within %s: %w", member, renewAtOnce, renewEvery, transport.ErrThrottled)
	}
	return nil
}

// mayRenew says whether the certificate of that serial, shown by that member, may be renewed: nil, or why not. row is the
// member's; the zero one if there is none.
func mayRenew(row state.Member, id pki.Identity, serial string, revoked bool, now time.Time) error {
	switch {
	case row.Name != id.Name || row.Server != id.Server || row.Agent != id.Agent:
		return fmt.Errorf("%s: %w", id, leader.ErrNotFound)
	case revoked:
		return fmt.Errorf("certificate %s of %s is revoked: %w", serial, id, leader.ErrConflict)
	case !row.Has(serial):
		return fmt.Errorf("certificate %s is not recorded as one of %s: %w", serial, id, leader.ErrConflict)
	}
	return mayAdd(row, now)
}

// mayAdd says whether a member's row takes one more certificate. One that is not in the row could not be revoked.
func mayAdd(row state.Member, now time.Time) error {
	if row.Certificates(now) >= state.MaxSerials {
		return fmt.Errorf("member %s has %d certificates that have not ended: remove it and let it join again, or wait until one ends: %w", row.Name, state.MaxSerials, leader.ErrConflict)
	}
	return nil
}

// mayRenewNow says whether a member may be asked to renew its certificate: half of the places in its row stay for the renewals that come
// due by themselves.
func mayRenewNow(row state.Member, now time.Time) error {
	if n := row.Certificates(now); n >= state.MaxSerials/2 {
		return fmt.Errorf("member %s has %d certificates that have not expired, of %d at most: half of those are for the renewals that it makes by itself; wait until one expires, or let the member in again, which revokes them (vcctl cluster join-token --for %s): %w",
			row.Name, n, state.MaxSerials, row.Name, leader.ErrConflict)
	}
	return nil
}

// Renew implements transport.Issuer: the same identity, another key or a longer life. serial is that of the certificate that the
// connection showed.
func (m *Member) Renew(ctx context.Context, id pki.Identity, serial string, request []byte) (transport.Certificate, error) {
	row, _ := m.State.Snapshot().Member(id.Name)
	now := time.Now()
	if err := mayRenew(row, id, serial, m.revoked(serial), now); err != nil {
		return transport.Certificate{}, err
	}
	if _, err := pki.KeyOfRequest(request); err != nil { // it takes no place
		return transport.Certificate{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "request", Text: err.Error()}}}
	}
	if err := m.renewals.take(id.Name, now); err != nil {
		return transport.Certificate{}, err
	}
	return m.issue(ctx, id, row.Address, request)
}

// Record implements transport.Issuer: the certificate that a member shows now is to be revoked with the member. serial is that
// of the certificate that the connection showed.
func (m *Member) Record(ctx context.Context, id pki.Identity, serial string, chain []byte) error {
	row, ok := m.State.Snapshot().Member(id.Name)
	if !ok {
		return fmt.Errorf("%s: %w", id, leader.ErrNotFound)
	}
	if row.Has(serial) {
		return nil
	}
	invalid := func(text string) error {
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "chain", Text: text}}}
	}
	if len(chain) > maxChain {
		return invalid(fmt.Sprintf("must be at most %d bytes of PEM", maxChain))
	}
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return invalid(err.Error())
	}
	if pki.SerialOf(certs[0]) != serial {
		return invalid("it is of another certificate than the one shown")
	}
	now := time.Now()
	if err := mayAdd(row, now); err != nil {
		return err
	}
	if err := m.renewals.take(id.Name, now); err != nil {
		return err
	}
	return m.number(ctx, id, certs[0])
}

// number records the number of a member's certificate.
func (m *Member) number(ctx context.Context, id pki.Identity, cert *x509.Certificate) error {
	serial := state.Serial{Number: pki.SerialOf(cert), Until: cert.NotAfter.UTC()}
	if err := m.Propose(ctx, state.KindCertificate, state.Certificate{Member: id.Name, Serial: serial}); err != nil {
		return fmt.Errorf("record the certificate of %s: %w", id, err)
	}
	return nil
}

// How a member asks for its certificate to be recorded or renewed: again after takeDownAgain, then after twice as long, at most
// after recordWithin.
const (
	takeDownAgain = 2 * time.Second
	recordWithin  = time.Minute
)

// failuresOfAStart is how often in a row a certificate may go unrecorded while a cluster finds its leader: two minutes.
const failuresOfAStart = 6

// askAgainAfter is how long a member waits after that many failures in a row, the last with that error.
func askAgainAfter(failures int, err error) time.Duration {
	if errors.Is(err, transport.ErrThrottled) {
		return renewEvery
	}
	return min(recordWithin, takeDownAgain<<min(failures, 10))
}

// keepCertificate renews this member's certificate in time, and takes in files that changed.
func (m *Member) keepCertificate(ctx context.Context) error {
	recorded := "" // of a PKI of the operator's own: what the leader has recorded
	failures := 0
	var notBefore time.Time // after a failure: when the leader is asked again
	for {
		pause := min(time.Minute, max(time.Second, time.Until(m.certificates.RenewAt())/2))
		if m.certificates.Foreign() && recorded == "" {
			pause = min(pause, takeDownAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if _, err := m.certificates.Refresh(time.Now()); err != nil {
			m.log.Error("read the certificate again", "error", err)
		}
		if time.Now().Before(notBefore) || m.removed() {
			continue
		}
		var failed error
		if now := pki.SerialOf(m.certificates.Leaf()); m.certificates.Foreign() && now != recorded {
			recorded = ""
			if failed = m.takenDown(ctx); failed == nil {
				recorded = now
			} else if failures < failuresOfAStart {
				m.log.Debug("record the certificate", "error", failed)
			} else {
				m.log.Error("record the certificate; until it is recorded, removing this member does not revoke it", "error", failed)
			}
		}
		if m.certificates.RenewDue(time.Now()) {
			if failed = m.renew(ctx); failed == nil {
				m.log.Info("certificate renewed", "ends", m.certificates.Leaf().NotAfter)
			} else {
				m.log.Error("renew the certificate", "ends", m.certificates.Leaf().NotAfter, "error", failed)
			}
		}
		if failed == nil {
			failures = 0
			continue
		}
		notBefore = time.Now().Add(askAgainAfter(failures, failed))
		failures++
	}
}

// renew has the leader issue another certificate. The one that this member shows is recorded first: a restored state may not
// have it, and a certificate that the state does not have is not renewed.
func (m *Member) renew(ctx context.Context) error {
	m.renewing.Lock()
	defer m.renewing.Unlock()
	if err := m.takenDown(ctx); err != nil {
		return err
	}
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return err
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		return err
	}
	return m.atServer(func(address string) error {
		c, err := m.client.RenewCertificate(ctx, address, request)
		if err != nil {
			return err
		}
		return m.certificates.Replace(pki.Material{Cert: []byte(c.Cert), Key: keyPEM, CA: []byte(c.CA)}, time.Now())
	})
}

// renewNow renews this member's certificate, whatever is left of its life.
func (m *Member) renewNow(ctx context.Context) (transport.Renewed, error) {
	if m.certificates.Foreign() {
		return transport.Renewed{}, transport.ErrOwnPKI
	}
	if err := m.renew(ctx); err != nil {
		return transport.Renewed{}, err
	}
	leaf := m.certificates.Leaf()
	m.log.Info("certificate renewed, as a server asked", "ends", leaf.NotAfter)
	return transport.Renewed{Serial: pki.SerialOf(leaf), Until: leaf.NotAfter.UTC()}, nil
}

// RenewCertificate has the member of that name renew its certificate now. It is for the server that leads.
func (m *Member) RenewCertificate(ctx context.Context, name string) (transport.Renewed, error) {
	row, ok := m.State.Snapshot().Member(name)
	if !ok {
		return transport.Renewed{}, fmt.Errorf("member %s: %w", name, leader.ErrNotFound)
	}
	if err := mayRenewNow(row, time.Now()); err != nil {
		return transport.Renewed{}, err
	}
	var out transport.Renewed
	var err error
	if name == m.identity.Name {
		out, err = m.renewNow(ctx)
	} else {
		out, err = m.client.RenewNow(ctx, row.Address, name)
	}
	said, detail := transport.AnswerOf(err)
	switch {
	case err == nil:
		now, _ := m.State.Snapshot().Member(name)
		return renewed(row, now, out)
	case errors.Is(err, transport.ErrOwnPKI):
		return out, fmt.Errorf("member %s: %w: %w", name, transport.ErrOwnPKI, leader.ErrConflict)
	case said == transport.Busy, said == transport.Conflict:
		return out, fmt.Errorf("%s: %w", detail, leader.ErrConflict)
	}
	return out, &noRenewal{name, err}
}

// renewed returns the new certificate that a member reports, with the end that its row has. before is the row before the member was
// asked, now the row since.
func renewed(before, now state.Member, said transport.Renewed) (transport.Renewed, error) {
	if i := slices.IndexFunc(now.Serials, func(s state.Serial) bool { return s.Number == said.Serial }); i >= 0 && !before.Has(said.Serial) {
		return transport.Renewed{Serial: said.Serial, Until: now.Serials[i].Until}, nil
	}
	return transport.Renewed{}, &noRenewal{before.Name, errors.New("it names a certificate that this server does not know as a new one of that member")}
}

// noRenewal says that a member did not answer with a new certificate. It may have one: an answer can be lost, to it or from it.
type noRenewal struct {
	member string
	err    error
}

// Error implements error.
func (e *noRenewal) Error() string {
	return fmt.Sprintf("member %s did not confirm that it renewed its certificate: %v; it is not known whether it has a new one: see vcctl cluster certificates list", e.member, e.err)
}

// Unwrap gives the cause.
func (e *noRenewal) Unwrap() error { return e.err }

// Is makes it an ErrUnavailable: the caller may ask again.
func (e *noRenewal) Is(target error) bool { return target == hypervisor.ErrUnavailable }

// takenDown has the leader record which certificate this member shows.
func (m *Member) takenDown(ctx context.Context) error {
	chain := pki.EncodeCertificates(m.certificates.Leaf())
	return m.atServer(func(address string) error { return m.client.RecordCertificate(ctx, address, chain) })
}

// atServer calls f with one server after the other, until one has done it or the leader has answered that it will not.
func (m *Member) atServer(f func(address string) error) error {
	var servers []string
	var err error
	if m.State != nil {
		servers = m.Servers()
	} else if servers, _, err = readServers(m.o.Dir); err != nil {
		return err
	}
	var failed error
	for _, address := range servers {
		if err = f(address); err == nil {
			return nil
		}
		if transport.Shut(err) {
			m.isShut()
		}
		failed = errors.Join(err, failed) // AnswerOf is that of the last one
		if said, _ := transport.AnswerOf(err); said != transport.NoAnswer && said != transport.Leaderless {
			break // the leader has spoken: another server would ask it once more
		}
	}
	return failed
}
