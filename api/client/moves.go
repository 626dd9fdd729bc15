package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"evenkeel/api/v1"
)

// keyed sends a change with a key, the caller's or a new one, so that it can be sent to another server if one
// does not answer.
func keyed[T any](ctx context.Context, c *Client, method string, body any, opts []Option, parts ...string) (T, error) {
	var out T
	opts = append([]Option{IdempotencyKey(rand.Text())}, opts...)
	err := c.call(ctx, outgoing{method, parts, nil, body}, &out, opts)
	return out, err
}

// Rebalance the cluster: move VMs so that the least yield grows.
func (c *Client) Rebalance(ctx context.Context, q v1.RebalanceRequest, opts ...Option) (v1.PlanResult, error) {
	return keyed[v1.PlanResult](ctx, c, http.MethodPost, q, opts, "v1", "rebalance")
}

// Curve is the greatest least yield by the bytes that moves send.
func (c *Client) Curve(ctx context.Context, opts ...Option) ([]v1.CurvePoint, error) {
	return list[v1.CurvePoint](ctx, c, nil, opts, "v1", "rebalance", "curve")
}

// Plans of moves, oldest first: the newest limit of them, in that state; "" means any.
func (c *Client) Plans(ctx context.Context, state string, limit int, opts ...Option) ([]v1.Plan, error) {
	return list[v1.Plan](ctx, c, some(limit, "state", state), opts, "v1", "plans")
}

// some parameters of a list: those that are not empty, and a limit where there is one.
func some(limit int, pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

// Plan of that id.
func (c *Client) Plan(ctx context.Context, id string, opts ...Option) (v1.Plan, error) {
	return one[v1.Plan](ctx, c, opts, "v1", "plans", id)
}

// ApplyPlan carries out a plan that was only proposed.
func (c *Client) ApplyPlan(ctx context.Context, id string, opts ...Option) (v1.PlanResult, error) {
	return keyed[v1.PlanResult](ctx, c, http.MethodPost, nil, opts, "v1", "plans", id, "apply")
}

// StopPlan lets no further move of a plan begin.
func (c *Client) StopPlan(ctx context.Context, id string, opts ...Option) (v1.Plan, error) {
	var out v1.Plan
	err := c.call(ctx, outgoing{http.MethodPost, []string{"v1", "plans", id, "stop"}, nil, nil}, &out, opts)
	return out, err
}

// Simulate answers what the cluster would be like with other hosts, needs or budgets.
func (c *Client) Simulate(ctx context.Context, q v1.SimulateRequest) (v1.SimulateResult, error) {
	var out v1.SimulateResult
	r, err := c.request(ctx, http.MethodPost, []string{"v1", "simulate"}, nil, q)
	if err != nil {
		return out, err
	}
	IdempotencyKey(rand.Text())(r) // it changes nothing, so any server may be asked again
	err = c.do(r, bulkTimeout, &out)
	return out, err
}

// FailoverCapacity says for each host whether all VMs still fit without it.
func (c *Client) FailoverCapacity(ctx context.Context, opts ...Option) ([]v1.FailoverRow, error) {
	var out v1.List[v1.FailoverRow]
	r, err := c.request(ctx, http.MethodGet, []string{"v1", "failover-capacity"}, nil, nil)
	if err != nil {
		return nil, err
	}
	for _, o := range opts {
		o(r)
	}
	err = c.do(r, bulkTimeout, &out)
	return out.Items, err
}

// Migrations of a plan and of a VM, in that state, oldest first: the newest limit of them; "" means any.
func (c *Client) Migrations(ctx context.Context, plan, vm, state string, limit int, opts ...Option) ([]v1.Migration, error) {
	return list[v1.Migration](ctx, c, some(limit, "plan", plan, "vm", vm, "state", state), opts, "v1", "migrations")
}

// Migration of that id.
func (c *Client) Migration(ctx context.Context, id string, opts ...Option) (v1.Migration, error) {
	return one[v1.Migration](ctx, c, opts, "v1", "migrations", id)
}

// AbortMigration: the VM stays where it is.
func (c *Client) AbortMigration(ctx context.Context, id string, opts ...Option) (v1.Migration, error) {
	var out v1.Migration
	err := c.call(ctx, outgoing{http.MethodPost, []string{"v1", "migrations", id, "abort"}, nil, nil}, &out, opts)
	return out, err
}

// Drain a host: move all its VMs away.
func (c *Client) Drain(ctx context.Context, host string, q v1.DrainRequest, opts ...Option) (v1.DrainResult, error) {
	return keyed[v1.DrainResult](ctx, c, http.MethodPost, q, opts, "v1", "hosts", host, "drain")
}

// Undrain a host: it takes new VMs again, and no more leave it.
func (c *Client) Undrain(ctx context.Context, host string, opts ...Option) (v1.Host, error) {
	var out v1.Host
	err := c.call(ctx, outgoing{http.MethodDelete, []string{"v1", "hosts", host, "drain"}, nil, nil}, &out, opts)
	return out, err
}

// HostDrain is how far the drain of a host is.
func (c *Client) HostDrain(ctx context.Context, host string, opts ...Option) (v1.Drain, error) {
	return one[v1.Drain](ctx, c, opts, "v1", "hosts", host, "drain")
}

// HostEmpty says whether a host runs any VM of the cluster, as its hypervisor reports.
func (c *Client) HostEmpty(ctx context.Context, host string, opts ...Option) (v1.HostEmpty, error) {
	return one[v1.HostEmpty](ctx, c, opts, "v1", "hosts", host, "empty")
}

// DrainGroups are the batches of hosts that can be drained at the same time, one batch after another.
func (c *Client) DrainGroups(ctx context.Context, opts ...Option) (v1.DrainBatches, error) {
	return one[v1.DrainBatches](ctx, c, opts, "v1", "drain-batches")
}

// Settings of the cluster.
func (c *Client) Settings(ctx context.Context, opts ...Option) (v1.ClusterSettings, error) {
	return one[v1.ClusterSettings](ctx, c, opts, "v1", "cluster", "settings")
}

// Rightsizing is what is reclaimed of what was declared, or would be.
func (c *Client) Rightsizing(ctx context.Context, opts ...Option) (v1.Rightsizing, error) {
	return one[v1.Rightsizing](ctx, c, opts, "v1", "cluster", "rightsizing")
}

// SetSettings changes settings of the cluster, and returns all of them.
func (c *Client) SetSettings(ctx context.Context, q v1.SettingsPatch, opts ...Option) (v1.ClusterSettings, error) {
	var out v1.ClusterSettings
	err := c.call(ctx, outgoing{http.MethodPatch, []string{"v1", "cluster", "settings"}, nil, q}, &out, opts)
	return out, err
}

// Watch reads again and again, at these intervals, until until says that it is enough or ctx ends. A server that
// went away, or has no leader, is waited for as in Wait. It returns what was last read, also beside an error.
func Watch[T any](ctx context.Context, every time.Duration, read func(context.Context) (T, error), until func(T) bool) (T, error) {
	var last T
	var away time.Time
	for {
		next, err := read(ctx)
		pause := every
		switch {
		case err == nil:
			last, away = next, time.Time{}
			if until(last) {
				return last, nil
			}
		case ctx.Err() != nil:
			return last, ctx.Err()
		case !(errors.Is(err, ErrUnreachable) || IsProblem(err, v1.ProblemNoLeader)) || (!away.IsZero() && time.Since(away) > awayFor):
			return last, err
		default:
			if away.IsZero() {
				away = time.Now()
			}
			pause = max(every, awayRetry)
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(pause):
		}
	}
}
