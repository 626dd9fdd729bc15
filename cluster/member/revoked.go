package member

import (
	"context"
	"time"

	"evenkeel/cluster/audit"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
)

const (
	// revokedEvery is how old what is known of revoked certificates may be: agents' streams ask once a second each.
	revokedEvery = time.Second
	// reportEvery is how often an agent looks whether it has refused a peer.
	reportEvery = 5 * time.Second
	// maxReported are the events of one agent that are taken down in a minute.
	maxReported = 10
)

// revocations is a list of revoked certificates, as of a time.
type revocations struct {
	at  time.Time
	all []pki.Revocation
}

// revoked says whether a certificate is revoked: by the state that this server has, or by what this member has received before.
func (m *Member) revoked(serial string) bool {
	return m.shut.Has(serial) || m.State != nil && m.State.Snapshot().Revoked(serial)
}

// revocations returns the revoked certificates of the state. The caller must not change the answer.
func (m *Member) revocations() []pki.Revocation {
	if old := m.revokedNow.Load(); old != nil && time.Since(old.at) < revokedEvery {
		return old.all
	}
	now := revocations{at: time.Now()}
	for _, r := range m.State.Snapshot().RevokedCertificates() {
		now.all = append(now.all, pki.Revocation{Serial: r.Number, Until: r.Until})
	}
	m.revokedNow.Store(&now)
	return now.all
}

// shutOut takes in revoked certificates, and ends the connections of their holders.
func (m *Member) shutOut(list []pki.Revocation) {
	news, err := m.shut.Add(list, time.Now())
	if err != nil {
		m.log.Error("keep which certificates are revoked", "error", err)
	}
	if news {
		m.port.Recheck()
	}
}

// keepRevoked stores the revoked certificates of a server's state, so that they are known before the state is, until ctx ends.
func (m *Member) keepRevoked(ctx context.Context) {
	for ctx.Err() == nil {
		m.shutOut(m.revocations())
		select {
		case <-ctx.Done():
		case <-time.After(reportEvery):
		}
	}
}

// reportRefusals reports to the leader which peers an agent that is no server refused, until ctx ends.
func (m *Member) reportRefusals(ctx context.Context) {
	var reported uint64
	for ctx.Err() == nil {
		var events []transport.Event
		last := reported
		for _, a := range m.audits.last(time.Now()) {
			if a.N > reported {
				events = append(events, transport.Event{At: a.At, Kind: a.Kind, Name: a.Name, Text: a.Text})
				last = a.N
			}
		}
		if len(events) > 0 && m.report(ctx, events) {
			reported = last
		}
		select {
		case <-ctx.Done():
		case <-time.After(reportEvery):
		}
	}
}

// report reports events to the leader through the first server that finds it.
func (m *Member) report(ctx context.Context, events []transport.Event) bool {
	servers, _, err := readServers(m.o.Dir)
	if err != nil {
		return false
	}
	for _, address := range servers {
		bounded, cancel := context.WithTimeout(ctx, reportEvery)
		err := m.client.ReportEvents(bounded, address, m.identity.Name, events)
		cancel()
		if err == nil {
			return true
		}
		m.log.Debug("events are not reported", "server", address, "error", err)
	}
	return false
}

// taken counts the recorded events of one agent since a time.
type taken struct {
	since time.Time
	n     int
}

// takeDown records what an agent reports itself: the peers that it refused, and nothing else. The report is not proved. So the
// record names the agent, and the number of records is bounded.
func (m *Member) takeDown(host string, events []transport.Event) {
	m.reporters.mu.Lock()
	defer m.reporters.mu.Unlock()
	if m.reporters.of == nil {
		m.reporters.of = map[string]*taken{}
	}
	now := time.Now()
	t := m.reporters.of[host]
	if t == nil || now.Sub(t.since) >= time.Minute {
		t = &taken{since: now}
		m.reporters.of[host] = t
	}
	for _, e := range events {
		if e.Kind != refusedKind || t.n >= maxReported {
			continue
		}
		t.n++
		q := audit.Refusal{Kind: refusedKind, Address: e.Name, By: "agent " + host, Class: e.Text, Detail: e.Text}
		m.o.Audit.Refuse(q)
		m.audits.refuse(q, now)
	}
}
