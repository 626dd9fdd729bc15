package client

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// Console opens the serial console of a VM, by its name or id. It ends with
// ctx, or when the VM does; Read then returns io.EOF.
func (c *Client) Console(ctx context.Context, vm string) (io.ReadWriteCloser, error) {
	r, err := c.request(ctx, http.MethodGet, nil, nil, "vms", vm, "console")
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for _, name := range signature {
		if v := r.Header.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	ws, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.URL.String(), "http"),
		&websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, problem(resp, r.Request)
		}
		return nil, c.unreachable(ctx, err)
	}
	return websocket.NetConn(ctx, ws, websocket.MessageBinary), nil
}
