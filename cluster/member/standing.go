package member

import (
	"context"
	"errors"
	"time"

	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
)

// A member that servers refuse asks whether it was removed: after askStanding, then after twice as long, at most after
// askStandingWithin.
const (
	askStanding       = 5 * time.Second
	askStandingWithin = 5 * time.Minute
)

// removed says whether the cluster is known to have removed this member.
func (m *Member) removed() bool {
	_, err := m.dialer.Removed()
	return err != nil
}

// isShut takes in that a server refused this member.
func (m *Member) isShut() {
	select {
	case m.shutAt <- struct{}{}:
	default:
	}
}

// watchStanding finds out, once servers refuse this member, whether the cluster has removed it, and logs that once. A removed member
// asks servers only that, less and less often, until it is admitted again or shows another certificate.
func (m *Member) watchStanding(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.shutAt:
		}
		serial, err := m.standing(ctx)
		if !errors.Is(err, transport.ErrRemoved) {
			if err != nil {
				m.log.Debug("whether this member was removed is not known", "error", err)
			}
			if !wait(ctx, askStanding) {
				return
			}
			continue
		}
		m.dialer.SetRemoved(true)
		m.log.Error("the cluster has removed this member: it is given no orders and no lease, and its VMs stay as they are, those that may be started elsewhere until the lease is over",
			"certificate", serial, "to do", m.o.IfRemoved)
		if !m.awaitReturn(ctx, serial) {
			return
		}
		m.dialer.SetRemoved(false)
		m.log.Info("this member counts again", "certificate", pki.SerialOf(m.certificates.Leaf()))
	}
}

// awaitReturn waits until the certificate of that serial is valid again, or this member shows another one. false: ctx has
// ended.
func (m *Member) awaitReturn(ctx context.Context, serial string) bool {
	pause, asked := askStanding, time.Now()
	for wait(ctx, askStanding) {
		if pki.SerialOf(m.certificates.Leaf()) != serial {
			return true
		}
		if time.Since(asked) < pause {
			continue
		}
		if _, err := m.standing(ctx); err == nil {
			return true
		}
		pause, asked = min(2*pause, askStandingWithin), time.Now()
	}
	return false
}

// wait waits for d. false: ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// standing asks the other servers for the standing of this member's certificate: nil if it is valid, transport.ErrRemoved if
// one of them answers that it was revoked (another may not know that yet), another error if none has answered.
func (m *Member) standing(ctx context.Context) (serial string, err error) {
	serial = pki.SerialOf(m.certificates.Leaf())
	servers, err := m.otherServers()
	if err != nil {
		return serial, err
	}
	failed, counts := errors.New("no server is known"), false
	for _, address := range servers {
		revoked, err := m.dialer.Standing(ctx, address)
		switch {
		case err != nil:
			failed = err
		case revoked:
			return serial, transport.ErrRemoved
		default:
			counts = true
		}
	}
	if counts {
		return serial, nil
	}
	return serial, failed
}

// otherServers returns the other servers of the cluster, by their addresses.
func (m *Member) otherServers() ([]string, error) {
	var all []string
	var err error
	if m.State != nil {
		all = m.Servers()
	} else if all, _, err = readServers(m.o.Dir); err != nil {
		return nil, err
	}
	var others []string
	for _, a := range all {
		if a != m.o.Advertise {
			others = append(others, a)
		}
	}
	return others, nil
}
