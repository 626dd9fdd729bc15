package client

import (
	"context"

	"evenkeel/api/v1"
)

// PeriodicJobs of which runs are kept.
func (c *Client) PeriodicJobs(ctx context.Context, opts ...Option) ([]v1.PeriodicJob, error) {
	return list[v1.PeriodicJob](ctx, c, opts, "periodic")
}

// PeriodicJob by its name, with a proposal for it on the clock of a time zone; "": UTC.
func (c *Client) PeriodicJob(ctx context.Context, name, zone string, opts ...Option) (v1.PeriodicJob, error) {
	return get[v1.PeriodicJob](ctx, c, append(opts, query("zone", zone)), "periodic", name)
}

// DecidePeriodic accepts, overrides or rejects a job.
func (c *Client) DecidePeriodic(ctx context.Context, verb, name string, q v1.PeriodicRequest, opts ...Option) (v1.PeriodicJob, error) {
	return post[v1.PeriodicJob](ctx, c, q, keyed(opts), "periodic", name, verb)
}
