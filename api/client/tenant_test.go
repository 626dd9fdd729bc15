package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"evenkeel/api/v1"
)

// The client's tenant goes with every request for what tenants own, and with no other.
func TestTenant(t *testing.T) {
	var path, query string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, query = r.URL.EscapedPath(), r.URL.RawQuery
		_, _ = io.WriteString(w, `{"state":"done"}`)
	}))
	defer s.Close()
	ask := map[string]func(context.Context, *Client) error{
		"GET list":      func(ctx context.Context, c *Client) error { _, err := c.VirtualClusters(ctx); return err },
		"other tenant":  func(ctx context.Context, c *Client) error { _, err := c.VMs(ctx, "", "h1", OfTenant("*")); return err },
		"no tenant":     func(ctx context.Context, c *Client) error { _, err := c.Tokens(ctx, OfTenant("")); return err },
		"change":        func(ctx context.Context, c *Client) error { _, err := c.Delete(ctx, "a", DryRun()); return err },
		"events":        func(ctx context.Context, c *Client) error { _, err := c.ListEvents(ctx, EventQuery{}); return err },
		"hosts":         func(ctx context.Context, c *Client) error { _, err := c.Hosts(ctx); return err },
		"quota":         func(ctx context.Context, c *Client) error { _, err := c.Quota(ctx, "*"); return err },
		"its operation": func(ctx context.Context, c *Client) error { return wait(ctx, c, v1.Operation{VirtualCluster: "a"}) },
		"named operation": func(ctx context.Context, c *Client) error {
			return wait(ctx, c, v1.Operation{VirtualCluster: "a", Tenant: "web"})
		},
		"plan's operation": func(ctx context.Context, c *Client) error { return wait(ctx, c, v1.Operation{Plan: "p"}) },
	}
	for _, x := range []struct{ tenant, what, path, query string }{
		{"", "GET list", "/v1/virtual-clusters", ""},
		{"film", "GET list", "/v1/virtual-clusters", "tenant=film"},
		{"*", "GET list", "/v1/virtual-clusters", "tenant=%2A"},
		{"film", "other tenant", "/v1/vms", "host=h1&tenant=%2A"},
		{"film", "no tenant", "/v1/tokens", ""},
		{"film", "change", "/v1/virtual-clusters/a", "dryRun=true&tenant=film"},
		{"film", "events", "/v1/events", "follow=false&tenant=film"},
		{"film", "hosts", "/v1/hosts", ""},
		{"film", "quota", "/v1/quotas/%2A", ""},
		{"film", "its operation", "/v1/operations/o", "tenant=film&wait=30s"},
		{"film", "named operation", "/v1/operations/o", "tenant=web&wait=30s"},
		{"*", "plan's operation", "/v1/operations/o", "wait=30s"},
	} {
		c, err := New(Config{Address: s.URL, Tenant: x.tenant})
		if err != nil {
			t.Fatal(err)
		}
		if err := ask[x.what](t.Context(), c); err != nil || path != x.path || query != x.query {
			t.Errorf("%s of tenant %q: asked %s?%s, %v; want %s?%s", x.what, x.tenant, path, query, err, x.path, x.query)
		}
		c.Close()
	}
}

func wait(ctx context.Context, c *Client, op v1.Operation) error {
	op.ID, op.State = "o", v1.OperationPending
	_, err := c.Wait(ctx, op, nil)
	return err
}
