package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"evenkeel/api/v1"
)

// AuditQuery says which audit records are wanted. Empty fields match all.
type AuditQuery struct {
	Since, Until                 string // a time (RFC 3339), or how long ago (30m)
	Actor, Verb, Object, Outcome string
	Limit                        int // the newest so many; 0 = 100
}

// Audit records of all servers, newest last, and what is missing from them.
func (c *Client) Audit(ctx context.Context, q AuditQuery, opts ...Option) (v1.AuditList, error) {
	values := url.Values{}
	for name, text := range map[string]string{"since": q.Since, "until": q.Until, "actor": q.Actor, "verb": q.Verb, "object": q.Object, "outcome": q.Outcome} {
		if text != "" {
			values.Set(name, text)
		}
	}
	if q.Limit != 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	var out v1.AuditList
	err := c.call(ctx, outgoing{http.MethodGet, []string{"v1", "audit"}, values, nil}, &out, opts)
	return out, err
}
