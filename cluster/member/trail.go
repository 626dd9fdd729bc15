package member

import (
	"context"
	"fmt"
	"sync"
	"time"

	"evenkeel/cluster/audit"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
)

// auditTime is how long another server may take to read its audit log.
const auditTime = 10 * time.Second

// Trail is the audit log of a member, together with those of the other servers.
type Trail struct {
	*audit.Log // of this member; nil: it keeps none
	m          *Member
}

// Trail returns the trail of this member.
func (m *Member) Trail() Trail { return Trail{m.o.Audit, m} }

// Query queries the logs of all servers. The answer names a server that does not answer.
func (t Trail) Query(ctx context.Context, f audit.Filter) (audit.Answer, error) {
	own, err := t.Log.Query(ctx, f)
	if err != nil || t.m.State == nil {
		return own, err
	}
	answers := []audit.Answer{own}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, row := range t.m.State.Snapshot().Members() {
		if !row.Server || row.Name == t.m.identity.Name {
			continue
		}
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, auditTime)
			defer cancel()
			a, err := t.m.client.Audit(bounded, row.Address, f)
			if err != nil {
				a = audit.Answer{Missing: []string{row.Name + ": " + err.Error()}}
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, a)
		})
	}
	wg.Wait()
	return audit.Merge(answers, f), nil
}

// RecordAction records in the audit log what this member did, or refused to do, for the caller in the context.
func (m *Member) RecordAction(ctx context.Context, verb string, object audit.Object, detail string, err error) {
	r := audit.Record{Actor: audit.Of(ctx), Verb: verb, Object: object, Outcome: audit.Ok, Detail: detail}
	if err != nil {
		r.Outcome, r.Detail = audit.Failed, err.Error()
	}
	m.o.Audit.Add(r)
}

// issuer is the member as an issuer of certificates to other members, which records what it issues.
type issuer struct{ *Member }

// Renew implements transport.Issuer.
func (i issuer) Renew(ctx context.Context, id pki.Identity, serial string, request []byte) (transport.Certificate, error) {
	ctx = audit.With(ctx, audit.Actor{ID: "certificate:" + serial, Name: id.Name})
	out, err := i.Member.Renew(ctx, id, serial, request)
	i.certified(ctx, "renewCertificate", id, []byte(out.Cert), err)
	return out, err
}

// Record implements transport.Issuer.
func (i issuer) Record(ctx context.Context, id pki.Identity, serial string, chain []byte) error {
	ctx = audit.With(ctx, audit.Actor{ID: "certificate:" + serial, Name: id.Name})
	row, _ := i.State.Snapshot().Member(id.Name)
	before := len(row.Serials)
	err := i.Member.Record(ctx, id, serial, chain)
	if row, _ = i.State.Snapshot().Member(id.Name); err != nil || len(row.Serials) != before { // a member repeats it after each start
		i.certified(ctx, "recordCertificate", id, chain, err)
	}
	return err
}

// certified records a certificate of a member. What is refused is counted: a member may ask as often as it likes.
func (i issuer) certified(ctx context.Context, verb string, id pki.Identity, cert []byte, err error) {
	if err != nil {
		i.o.Audit.Refuse(audit.Refusal{Kind: audit.CertificateRefused, Address: id.Name, Detail: fmt.Sprintf("%s: %v", verb, err)})
		return
	}
	detail := ""
	if certs, err := pki.ParseCertificates(cert); err == nil {
		detail = fmt.Sprintf("serial %s, until %s", pki.SerialOf(certs[0]), certs[0].NotAfter.UTC().Format(time.RFC3339))
	}
	i.RecordAction(ctx, verb, audit.Object{Kind: "member", Name: id.Name}, detail, nil)
}
