package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"evenkeel/api/v1"
)

func list[T any](ctx context.Context, c *Client, query url.Values, opts []Option, parts ...string) ([]T, error) {
	var out v1.List[T]
	err := c.call(ctx, outgoing{http.MethodGet, parts, query, nil}, &out, opts)
	return out.Items, err
}

func one[T any](ctx context.Context, c *Client, opts []Option, parts ...string) (T, error) {
	var out T
	err := c.call(ctx, outgoing{http.MethodGet, parts, nil, nil}, &out, opts)
	return out, err
}

// change a virtual cluster.
func (c *Client) change(ctx context.Context, method string, body any, opts []Option, parts ...string) (v1.Result, error) {
	return keyed[v1.Result](ctx, c, method, body, opts, parts...)
}

// VirtualClusters, oldest first.
func (c *Client) VirtualClusters(ctx context.Context, opts ...Option) ([]v1.VirtualCluster, error) {
	return list[v1.VirtualCluster](ctx, c, nil, opts, "v1", "virtual-clusters")
}

// VirtualCluster of that name.
func (c *Client) VirtualCluster(ctx context.Context, name string, opts ...Option) (v1.VirtualCluster, error) {
	return one[v1.VirtualCluster](ctx, c, opts, "v1", "virtual-clusters", name)
}

// Explain a virtual cluster.
func (c *Client) Explain(ctx context.Context, name string, opts ...Option) (v1.Explanation, error) {
	return one[v1.Explanation](ctx, c, opts, "v1", "virtual-clusters", name, "explain")
}

// Create a virtual cluster.
func (c *Client) Create(ctx context.Context, spec v1.VirtualClusterSpec, opts ...Option) (v1.Result, error) {
	return c.change(ctx, http.MethodPost, spec, opts, "v1", "virtual-clusters")
}

// Scale a group of a virtual cluster.
func (c *Client) Scale(ctx context.Context, name string, req v1.ScaleRequest, opts ...Option) (v1.Result, error) {
	return c.change(ctx, http.MethodPatch, req, opts, "v1", "virtual-clusters", name)
}

// Start a virtual cluster.
func (c *Client) Start(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return c.change(ctx, http.MethodPost, nil, opts, "v1", "virtual-clusters", name, "start")
}

// Stop a virtual cluster.
func (c *Client) Stop(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return c.change(ctx, http.MethodPost, nil, opts, "v1", "virtual-clusters", name, "stop")
}

// Delete a virtual cluster.
func (c *Client) Delete(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return c.change(ctx, http.MethodDelete, nil, opts, "v1", "virtual-clusters", name)
}

// VMs of a virtual cluster and on a host; "" means any.
func (c *Client) VMs(ctx context.Context, virtualCluster, host string, opts ...Option) ([]v1.VM, error) {
	q := url.Values{}
	if virtualCluster != "" {
		q.Set("virtualCluster", virtualCluster)
	}
	if host != "" {
		q.Set("host", host)
	}
	return list[v1.VM](ctx, c, q, opts, "v1", "vms")
}

// VM of that name or id.
func (c *Client) VM(ctx context.Context, name string, opts ...Option) (v1.VM, error) {
	return one[v1.VM](ctx, c, opts, "v1", "vms", name)
}

// Samples of a VM, by name or id: what it used of a resource ("" is v1.ResourceCPU), in a resolution ("" is 1m), in steps that
// end after since: a time (RFC 3339), or how long ago (30m); "" is all there are.
func (c *Client) Samples(ctx context.Context, name, resource, resolution, since string, opts ...Option) (v1.Samples, error) {
	q := url.Values{}
	if resource != "" {
		q.Set("resource", resource)
	}
	if resolution != "" {
		q.Set("resolution", resolution)
	}
	if since != "" {
		q.Set("since", since)
	}
	var out v1.Samples
	err := c.call(ctx, outgoing{http.MethodGet, []string{"v1", "vms", name, "samples"}, q, nil}, &out, opts)
	return out, err
}

// Forecast of what a VM, by name or id, will use of a resource ("" is v1.ResourceCPU) in the next steps (0 is 10).
func (c *Client) Forecast(ctx context.Context, name, resource string, steps int, opts ...Option) (v1.Forecast, error) {
	q := url.Values{}
	if resource != "" {
		q.Set("resource", resource)
	}
	if steps != 0 {
		q.Set("steps", strconv.Itoa(steps))
	}
	var out v1.Forecast
	err := c.call(ctx, outgoing{http.MethodGet, []string{"v1", "vms", name, "forecast"}, q, nil}, &out, opts)
	return out, err
}

// Hosts by name.
func (c *Client) Hosts(ctx context.Context, opts ...Option) ([]v1.Host, error) {
	return list[v1.Host](ctx, c, nil, opts, "v1", "hosts")
}

// Host of that name.
func (c *Client) Host(ctx context.Context, name string, opts ...Option) (v1.Host, error) {
	return one[v1.Host](ctx, c, opts, "v1", "hosts", name)
}

// Cordon a host.
func (c *Client) Cordon(ctx context.Context, host, reason string, opts ...Option) (v1.Host, error) {
	var out v1.Host
	err := c.call(ctx, outgoing{http.MethodPut, []string{"v1", "hosts", host, "cordon"}, nil, v1.CordonRequest{Reason: reason}}, &out, opts)
	return out, err
}

// Uncordon a host.
func (c *Client) Uncordon(ctx context.Context, host string, opts ...Option) (v1.Host, error) {
	var out v1.Host
	err := c.call(ctx, outgoing{http.MethodDelete, []string{"v1", "hosts", host, "cordon"}, nil, nil}, &out, opts)
	return out, err
}

// Images by name.
func (c *Client) Images(ctx context.Context, opts ...Option) ([]v1.Image, error) {
	return list[v1.Image](ctx, c, nil, opts, "v1", "images")
}

// AddImage to the catalogue.
func (c *Client) AddImage(ctx context.Context, spec v1.ImageSpec, opts ...Option) (v1.Image, error) {
	return keyed[v1.Image](ctx, c, http.MethodPost, spec, opts, "v1", "images")
}

// DeleteImage from the catalogue.
func (c *Client) DeleteImage(ctx context.Context, name string, opts ...Option) error {
	_, err := keyed[struct{}](ctx, c, http.MethodDelete, nil, opts, "v1", "images", name)
	return err
}

// Status of the cluster.
func (c *Client) Status(ctx context.Context, opts ...Option) (v1.ClusterStatus, error) {
	return one[v1.ClusterStatus](ctx, c, opts, "v1", "cluster", "status")
}

// Operation of that id as it stands.
func (c *Client) Operation(ctx context.Context, id string, opts ...Option) (v1.Operation, error) {
	return one[v1.Operation](ctx, c, opts, "v1", "operations", id)
}

// pollFor is how long one request for an operation may hang.
const pollFor = 30 * time.Second

// maxSeen is the longest text the server takes as seen, bytes. A text can name
// every host of the cluster; beyond this length only the end is waited for.
const maxSeen = 4096

// How long, and how often, a wait asks a server that went away, or that has no leader: one that is
// restarted is back in seconds, and so is a leader.
const (
	awayFor   = 30 * time.Second
	awayRetry = 500 * time.Millisecond
)

// Wait until an operation has ended or ctx does, and report each step on the
// way. It returns the operation as last seen, also beside an error.
func (c *Client) Wait(ctx context.Context, op v1.Operation, progress func(v1.Operation)) (v1.Operation, error) {
	var away time.Time // since when there is no answer
	for !op.Ended() {
		if progress != nil {
			progress(op)
		}
		q := url.Values{"wait": {pollFor.String()}}
		if op.Text != "" && len(op.Text) <= maxSeen {
			q.Set("seen", op.Text)
		}
		r, err := c.request(ctx, http.MethodGet, []string{"v1", "operations", op.ID}, q, nil)
		if err != nil {
			return op, err
		}
		next := op
		switch err := c.do(r, pollFor+c.timeout, &next); {
		case err == nil:
			op, away = next, time.Time{}
		case !(errors.Is(err, ErrUnreachable) || IsProblem(err, v1.ProblemNoLeader)) || (!away.IsZero() && time.Since(away) > awayFor):
			return op, err
		default:
			if away.IsZero() {
				away = time.Now()
			}
			select {
			case <-ctx.Done():
				return op, ctx.Err()
			case <-time.After(awayRetry):
			}
		}
	}
	if progress != nil {
		progress(op)
	}
	return op, nil
}
