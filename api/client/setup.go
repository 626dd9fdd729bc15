package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"evenkeel/api/v1"
)

// NewLocal makes a client of the vcd on this host, by its local socket. It knows Setup, Init and Join only.
func NewLocal(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	here := &servers{addresses: []*url.URL{{Scheme: "http", Host: "vcd"}}, transport: &http.Transport{DialContext: dial}}
	return &Client{local: true, servers: here, timeout: 2 * time.Minute, http: &http.Client{Transport: here}}
}

// Setup is what the vcd of this host says of itself.
func (c *Client) Setup(ctx context.Context) (v1.SetupState, error) {
	return get[v1.SetupState](ctx, c, nil, "setup")
}

// Init makes a new cluster whose first server is this host.
func (c *Client) Init(ctx context.Context, q v1.SetupInit) (v1.SetupAnswer, error) {
	return post[v1.SetupAnswer](ctx, c, q, nil, "setup", "init")
}

// Join makes this host a member of a cluster.
func (c *Client) Join(ctx context.Context, q v1.SetupJoin) (v1.SetupAnswer, error) {
	return post[v1.SetupAnswer](ctx, c, q, nil, "setup", "join")
}
