package server

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
)

const (
	tagAudit  = "Audit"
	auditPath = "/v1/audit"
)

func (s *Server) registerAudit(api huma.API) {
	get(api, route{"listAudit", auditPath, tagAudit, "List audit records",
		"Who asked for what, from where, and what came of it: the newest records that match, newest last. Each server keeps a log of its own; the server that is asked " +
			"merges those of all by time. `missing` names the servers whose records are not in the answer."},
		func(ctx context.Context, in *struct {
			Since   string `query:"since" maxLength:"64" doc:"Only records from then on: a time (RFC 3339), or how long ago (30m, 6h)."`
			Until   string `query:"until" maxLength:"64" doc:"Only records before then: a time, or how long ago."`
			Actor   string `query:"actor" maxLength:"256" doc:"Only those of a token, by its id or name, or of a client's address."`
			Verb    string `query:"verb" maxLength:"256" doc:"Only those of an operation, by its id in this document."`
			Object  string `query:"object" maxLength:"256" doc:"Only those about an object: kind, name, or kind/name."`
			Outcome string `query:"outcome" pattern:"^(ok|refused|failed|[1-5][0-9][0-9])$" doc:"ok, refused (401, 403, 429), failed (other errors), or an HTTP status."`
			Limit   int    `query:"limit" minimum:"1" maximum:"10000" default:"100" doc:"The newest so many."`
		}) (*answerOf[v1.AuditList], error) {
			f := audit.Filter{Actor: in.Actor, Verb: in.Verb, Object: in.Object, Outcome: in.Outcome, Limit: in.Limit}
			now := time.Now()
			var err error
			if f.Since, err = sinceOf(in.Since, now); err != nil {
				return nil, err
			}
			if f.Until, err = sinceOf(in.Until, now); err != nil {
				return nil, invalidParameter("query", "until", in.Until, "must be a time like 2026-03-01T12:00:00Z, or how long ago, like 30m")
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			a, err := s.opts.Audit.Query(bounded, f)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.AuditList]{Body: v1.AuditList{Items: each(a.Items, auditRecord), Missing: a.Notes()}}, nil
		})
}

func auditRecord(r audit.Record) v1.AuditRecord {
	return v1.AuditRecord{At: r.At, Server: r.Server, Seq: r.Seq, Actor: v1.AuditActor(r.Actor), Verb: r.Verb, Object: v1.AuditObject(r.Object),
		Outcome: r.Outcome, Status: r.Status, Count: r.Count, Detail: r.Detail}
}
