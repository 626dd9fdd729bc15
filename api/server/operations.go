package server

import (
	"context"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
)

const (
	tagOperation = "Operations"
	// liveEvery is how often a long poll looks for progress that does not go
	// through the log: how far the hosts' agents have come.
	liveEvery = 200 * time.Millisecond
)

func (s *Server) registerOperations(api huma.API) {
	get(api, route{"listOperations", "/v1/operations", tagOperation, "List operations", "The newest changes that were asked for, oldest of them first. Old ones are dropped after a while."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
			VirtualCluster string `query:"virtualCluster" doc:"Only those of the virtual cluster of that name."`
			VM             string `query:"vm" maxLength:"253" doc:"Only those of the VM of that name alone."`
			Host           string `query:"host" maxLength:"253" doc:"Only those of the host of that name."`
			Kind           string `query:"kind" enum:"create,scale,start,stop,delete,apply,edit,rollback,restart,reset,rebalance,drain,move" doc:"Only those of that kind."`
			State          string `query:"state" enum:"pending,done,failed,superseded" doc:"Only those in that state."`
			Limit          int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
		}) (*answerOf[v1.List[v1.Operation]], error) {
			x, err := s.scoped(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.Operation]]{}
			out.Body.Items = []v1.Operation{}
			rows := x.v.Operations()
			for i := len(rows) - 1; i >= 0 && len(out.Body.Items) < in.Limit; i-- {
				row := rows[i]
				if _, name := x.names(row.Name); !x.seesOperation(row) || in.VirtualCluster != "" && name != in.VirtualCluster {
					continue
				}
				if in.Kind != "" && row.Kind != in.Kind {
					continue
				}
				if op := x.operation(row); (in.State == "" || op.State == in.State) && (in.VM == "" || op.VM == in.VM) && (in.Host == "" || op.Host == in.Host) {
					out.Body.Items = append(out.Body.Items, op)
				}
			}
			slices.Reverse(out.Body.Items)
			return out, nil
		})
	get(api, route{"getOperation", "/v1/operations/{id}", tagOperation, "Get an operation", "With wait, the answer comes once the operation has ended or moved on, or when the time is over."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
			ID   string `path:"id" maxLength:"64" doc:"Id of the operation."`
			Wait string `query:"wait" doc:"How long to wait for a change, as a Go duration; at most 60s." example:"30s"`
			Seen string `query:"seen" maxLength:"4096" doc:"The operation's text as last seen: with wait, any other text is answered at once."`
		}) (*answerOf[v1.Operation], error) {
			var wait time.Duration
			if in.Wait != "" {
				d, err := time.ParseDuration(in.Wait)
				if err != nil || d < 0 || d > maxWait {
					return nil, invalidParameter("query", "wait", in.Wait, "must be a duration from 0s to 60s, like 30s")
				}
				wait = d
			}
			op, err := s.await(ctx, in.TenantParams, in.ReadParams, in.ID, in.Seen, wait)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.Operation]{Body: op}, nil
		})
}

// await an operation's end, or its next step if seen is its last one.
func (s *Server) await(ctx context.Context, t TenantParams, r ReadParams, id, seen string, wait time.Duration) (v1.Operation, error) {
	if wait > 0 {
		if err := s.live.acquire(ctx, livePoll); err != nil {
			return v1.Operation{}, err
		}
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	live := time.NewTicker(liveEvery)
	defer live.Stop()
	for {
		x, err := s.one(ctx, t, r)
		if err != nil {
			return v1.Operation{}, err
		}
		row, err := x.findOperation(id)
		if err != nil {
			return v1.Operation{}, err
		}
		op := x.operation(row)
		if wait == 0 || op.Ended() || seen != "" && op.Text != seen {
			return op, nil
		}
		select {
		case <-x.v.Watch():
		case <-live.C:
		case <-over.C:
			return op, nil
		case <-s.draining:
			return op, nil
		case <-ctx.Done():
			return v1.Operation{}, s.fail(ctx, ctx.Err())
		}
	}
}
