package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"evenkeel/api/v1"
)

// bulkTimeout is for what may be large, or waits for other programs.
const bulkTimeout = 10 * time.Minute

// Members of the cluster.
func (c *Client) Members(ctx context.Context, opts ...Option) ([]v1.Member, error) {
	return list[v1.Member](ctx, c, nil, opts, "v1", "cluster", "members")
}

// RemoveMember from the cluster.
func (c *Client) RemoveMember(ctx context.Context, name string, force bool) (v1.Acknowledgement, error) {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	var out v1.Acknowledgement
	err := c.call(ctx, outgoing{http.MethodDelete, []string{"v1", "cluster", "members", name}, q, nil}, &out, nil)
	return out, err
}

// MakeJoinToken that lets one member in.
func (c *Client) MakeJoinToken(ctx context.Context, q v1.JoinTokenRequest) (v1.JoinToken, error) {
	var out v1.JoinToken
	err := c.call(ctx, outgoing{http.MethodPost, []string{"v1", "cluster", "join-tokens"}, nil, q}, &out, nil)
	return out, err
}

// JoinTokens there are, without their secrets.
func (c *Client) JoinTokens(ctx context.Context, opts ...Option) ([]v1.JoinToken, error) {
	return list[v1.JoinToken](ctx, c, nil, opts, "v1", "cluster", "join-tokens")
}

// MakeToken of the API; the answer holds its secret, once.
func (c *Client) MakeToken(ctx context.Context, q v1.TokenRequest, opts ...Option) (v1.Token, error) {
	var out v1.Token
	err := c.call(ctx, outgoing{http.MethodPost, []string{"v1", "tokens"}, nil, q}, &out, opts)
	return out, err
}

// Tokens of the API, without their secrets.
func (c *Client) Tokens(ctx context.Context, opts ...Option) ([]v1.Token, error) {
	return list[v1.Token](ctx, c, nil, opts, "v1", "tokens")
}

// RevokeToken of the API, by its id.
func (c *Client) RevokeToken(ctx context.Context, id string, opts ...Option) (v1.TokenRevocation, error) {
	var out v1.TokenRevocation
	err := c.call(ctx, outgoing{http.MethodDelete, []string{"v1", "tokens", id}, nil, nil}, &out, opts)
	return out, err
}

// TransferLeadership to a server; "" is the one whose log is the newest.
func (c *Client) TransferLeadership(ctx context.Context, to string) (v1.Acknowledgement, error) {
	return c.acknowledged(ctx, v1.LeaderRequest{To: to}, "v1", "cluster", "leader")
}

// SetFencing enables or disables the cluster's fencing: whether the end of a lease stops VMs.
func (c *Client) SetFencing(ctx context.Context, enable bool, reason string) (v1.Acknowledgement, error) {
	verb := "disable"
	if enable {
		verb = "enable"
	}
	return c.acknowledged(ctx, v1.ReasonRequest{Reason: reason}, "v1", "cluster", "fencing", verb)
}

// ConfirmDead confirms, as the operator, that a host is dead.
func (c *Client) ConfirmDead(ctx context.Context, host, reason string, opts ...Option) (v1.Host, error) {
	var out v1.Host
	err := c.call(ctx, outgoing{http.MethodPost, []string{"v1", "hosts", host, "confirm-dead"}, nil, v1.ReasonRequest{Reason: reason}}, &out, opts)
	return out, err
}

// Fence a host with its device, or only try the device.
func (c *Client) Fence(ctx context.Context, host string, test bool) (v1.Acknowledgement, error) {
	r, err := c.request(ctx, http.MethodPost, []string{"v1", "hosts", host, "fence"}, nil, v1.FenceRequest{Test: test})
	if err != nil {
		return v1.Acknowledgement{}, err
	}
	var out v1.Acknowledgement
	err = c.do(r, bulkTimeout, &out)
	return out, err
}

func (c *Client) acknowledged(ctx context.Context, q any, parts ...string) (v1.Acknowledgement, error) {
	var out v1.Acknowledgement
	err := c.call(ctx, outgoing{http.MethodPost, parts, nil, q}, &out, nil)
	return out, err
}

// SaveSnapshot copies the saved state of the cluster to w.
func (c *Client) SaveSnapshot(ctx context.Context, w io.Writer) (int64, error) {
	r, err := c.request(ctx, http.MethodGet, []string{"v1", "cluster", "snapshot"}, nil, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/octet-stream, application/problem+json")
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, c.unreachable(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	if resp.StatusCode != http.StatusOK {
		return 0, problem(resp, r)
	}
	return io.Copy(w, resp.Body)
}

// RestoreSnapshot puts a saved state in force. foreign: also that of another cluster. waitFor are hosts that it does
// not know and that may run its VMs.
func (c *Client) RestoreSnapshot(ctx context.Context, saved []byte, foreign bool, waitFor ...string) (v1.Snapshot, error) {
	q := url.Values{}
	if len(waitFor) > 0 {
		q.Set("waitFor", strings.Join(waitFor, ","))
	}
	if foreign {
		q.Set("foreign", "true")
	}
	var out v1.Snapshot
	r, err := c.request(ctx, http.MethodPost, []string{"v1", "cluster", "snapshot"}, q, nil)
	if err != nil {
		return out, err
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(saved)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(len(saved))
	r.Header.Set("Content-Type", "application/octet-stream")
	err = c.do(r, bulkTimeout, &out)
	return out, err
}
