package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"evenkeel/cluster/audit"
)

// maxAudit is the most bytes that are read of another server's audit records.
const maxAudit = 16 << 20

// registerAudit makes Peers answer other servers with this one's audit records.
func (p *Peers) registerAudit(mux *http.ServeMux) {
	if p.o.Audit != nil {
		mux.HandleFunc("GET /v1/audit", p.serversOnly("read the audit log", p.audit))
	}
}

func (p *Peers) audit(w http.ResponseWriter, r *http.Request) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(w, http.StatusBadRequest, kindMalformed, "the query cannot be read")
		return
	}
	f, err := audit.ParseFilter(values)
	if err != nil {
		refuse(w, http.StatusBadRequest, kindMalformed, "%v", err)
		return
	}
	a, err := p.o.Audit(r.Context(), f)
	if err != nil {
		p.o.Log.WarnContext(r.Context(), "answer with audit records", "error", err)
		refuse(w, http.StatusInternalServerError, kindInternal, "the server's log has the details")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	_ = out.Encode(a) // the client is gone: an error has no receiver
}

// Audit asks a server for its own audit records.
func (c *Client) Audit(ctx context.Context, address string, f audit.Filter) (audit.Answer, error) {
	var out audit.Answer
	u := urlOf(address, "audit")
	u.RawQuery = f.Values().Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return out, err
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return out, fmt.Errorf("ask %s for audit records: %w", address, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	if resp.StatusCode != http.StatusOK {
		return out, fmt.Errorf("ask %s for audit records: %w", address, problemOf(resp))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAudit+1))
	switch {
	case err != nil:
		return out, fmt.Errorf("ask %s for audit records: %w", address, err)
	case len(body) > maxAudit:
		return out, fmt.Errorf("ask %s for audit records: more than %d bytes: %w", address, maxAudit, ErrTooLarge)
	}
	return out, decodeOne(body, &out)
}
