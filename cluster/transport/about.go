package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// about answers with this server's status.
func (p *Peers) about(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.o.About()) // the client is gone: an error has no receiver
}

// About asks a server for its status: what its PeersOptions.About returns, decoded into out.
func (c *Client) About(ctx context.Context, address string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, urlOf(address, "about").String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s how it is: %w", address, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s how it is: %w", address, problemOf(resp))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCall))
	if err != nil {
		return fmt.Errorf("ask %s how it is: %w", address, err)
	}
	return decodeOne(body, out)
}
