package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// Mover is what the API asks of the cluster about moves. *leader.Service is one. Errors are those of package
// leader, wrapped.
type Mover interface {
	// Rebalance makes a plan and puts it in force, except in a dry run or where plans are only proposed. Where
	// no move is worth it, the answer is a plan without steps.
	Rebalance(ctx context.Context, q leader.RebalanceRequest, call leader.Call) (leader.MoveResult, error)
	Curve(ctx context.Context) ([]leader.CurvePoint, error)
	ApplyPlan(ctx context.Context, id string, call leader.Call) (leader.MoveResult, error)
	StopPlan(ctx context.Context, id, by string) (state.MovePlan, error)
	// MigrateVM moves one VM, by its full name. *leader.Unmovable: it cannot move, and why.
	MigrateVM(ctx context.Context, name string, q leader.MigrateRequest, call leader.Call) (leader.MoveResult, error)
	AbortMigration(ctx context.Context, id, by string) (state.Migration, error)
	Settings(ctx context.Context, patch func(*state.Settings) error, call leader.Call) (state.Settings, error)

	// Drain a host. *leader.Blocked: VMs cannot leave it, and nothing was moved.
	Drain(ctx context.Context, host string, q leader.DrainRequest, call leader.Call) (leader.DrainResult, error)
	Undrain(ctx context.Context, host string, call leader.Call) error
	// DrainBatches are hosts that can be drained together, one batch after another, and those that cannot be drained.
	DrainBatches(ctx context.Context) ([]leader.DrainBatch, []leader.Undrainable, error)
	// Empty is whether a host runs any VM of this cluster, as its hypervisor reports.
	Empty(ctx context.Context, host string) (leader.EmptyView, error)
	// Simulate answers what the cluster would be like with other hosts, needs or budgets; FailoverCapacity what if each host in turn failed.
	Simulate(ctx context.Context, q leader.SimulateRequest) (leader.SimulateResult, error)
	FailoverCapacity(ctx context.Context) ([]leader.FailoverRow, error)
}

const tagRebalance = "Re-balancing"

type planResultAnswer struct {
	Status   int
	ETag     string `header:"ETag" doc:"Version of the plan."`
	Location string `header:"Location" doc:"The operation to wait on."`
	Body     v1.PlanResult
}

func (s *Server) registerRebalance(api huma.API) {
	change(api, http.MethodPost, route{"rebalance", "/v1/rebalance", tagRebalance, "Re-balance the cluster",
		"Makes the plan that gives the greatest minimum yield for at most maxBytes sent by live migration, aborted moves included, and carries it out. " +
			"Where no move is worth it the answer (200) is a plan without moves, whose reason says so with figures."},
		http.StatusAccepted, v1.RebalanceRequest{},
		func(ctx context.Context, in *struct {
			CallParams
			JSONBody
		}) (*planResultAnswer, error) {
			q, err := body[v1.RebalanceRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			return s.planned(ctx, in.CallParams, func(ctx context.Context, call leader.Call) (leader.MoveResult, error) {
				return s.cluster.Rebalance(ctx, leader.RebalanceRequest{MaxBytes: (*int64)(q.MaxBytes), By: asker(ctx), Text: q.Reason}, call)
			})
		})
	optionalBody(api, "/v1/rebalance")
	get(api, route{"rebalanceCurve", "/v1/rebalance/curve", tagRebalance, "Get the curve of yield by bytes",
		"For each number of bytes that buys more, a minimum yield that moves of so many bytes reach; a plan for a budget may find more. The first point is 0 bytes: only caps change."},
		func(ctx context.Context, in *struct{}) (*answerOf[v1.List[v1.CurvePoint]], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			points, err := s.cluster.Curve(bounded)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.List[v1.CurvePoint]]{Body: v1.List[v1.CurvePoint]{Items: each(points, func(p leader.CurvePoint) v1.CurvePoint {
				return v1.CurvePoint{Bytes: v1.Size(p.Bytes), MinYield: p.MinYield}
			})}}, nil
		})
	change(api, http.MethodPost, route{"applyPlan", "/v1/plans/{id}/apply", tagPlan, "Apply a plan that was proposed",
		"The plan is checked against the cluster as it is. If it does not hold any more: 409 conflict, nothing is changed, and a new plan has to be made."},
		http.StatusAccepted, nil,
		func(ctx context.Context, in *struct {
			IDParam
			CallParams
		}) (*planResultAnswer, error) {
			return s.planned(ctx, in.CallParams, func(ctx context.Context, call leader.Call) (leader.MoveResult, error) {
				return s.cluster.ApplyPlan(ctx, in.ID, call)
			})
		})
	change(api, http.MethodPost, route{"stopPlan", "/v1/plans/{id}/stop", tagPlan, "Stop a plan",
		"No further move of it begins; those under way end. Nothing is moved back."}, http.StatusOK, nil,
		func(ctx context.Context, in *struct {
			IDParam
			ChangeParams
		}) (*planAnswer, error) {
			if !in.DryRun {
				bounded, cancel := context.WithTimeout(ctx, requestTimeout)
				defer cancel()
				if _, err := s.cluster.StopPlan(bounded, in.ID, asker(ctx)); err != nil {
					return nil, s.fail(ctx, err)
				}
			}
			v, err := s.view(ctx, "")
			if err != nil {
				return nil, err
			}
			p, ok := v.MovePlan(in.ID)
			if !ok {
				return nil, notFound("there is no plan %q (any more)", in.ID)
			}
			return &planAnswer{ETag: etag(p.ModifyIndex), Body: plan(v, p)}, nil
		})
	change(api, http.MethodPost, route{"abortMigration", "/v1/migrations/{id}/abort", tagMigration, "Abort a migration",
		"The VM stays on the host that it runs on; what was sent counts against the plan all the same."}, http.StatusOK, nil,
		func(ctx context.Context, in *struct {
			IDParam
			ChangeParams
		}) (*migrationAnswer, error) {
			if !in.DryRun {
				bounded, cancel := context.WithTimeout(ctx, requestTimeout)
				defer cancel()
				if _, err := s.cluster.AbortMigration(bounded, in.ID, asker(ctx)); err != nil {
					return nil, s.fail(ctx, err)
				}
			}
			v, err := s.view(ctx, "")
			if err != nil {
				return nil, err
			}
			m, ok := v.Migration(in.ID)
			if !ok {
				return nil, notFound("there is no migration %q (any more)", in.ID)
			}
			return &migrationAnswer{ETag: etag(m.ModifyIndex), Body: migration(v, m)}, nil
		})
}

// optionalBody says in the API's description that a POST's body may be left out.
func optionalBody(api huma.API, path string) {
	api.OpenAPI().Paths[path].Post.RequestBody.Required = false
}

// planned carries out what makes a plan or puts it in force, and answers with it.
func (s *Server) planned(ctx context.Context, p CallParams, do func(context.Context, leader.Call) (leader.MoveResult, error)) (*planResultAnswer, error) {
	call, err := p.call()
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := do(bounded, call)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	v, err := s.cluster.View(bounded, true) // what was just done is known here
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &planResultAnswer{Status: http.StatusOK, Body: v1.PlanResult{Plan: plan(v, r.Plan), DryRun: r.DryRun, Replayed: r.Replayed}}
	for _, h := range r.Hosts {
		out.Body.Hosts = append(out.Body.Hosts, v1.HostYield{Host: h.Host, YieldBefore: h.Before, YieldAfter: h.After})
	}
	if !r.DryRun && r.Plan.ModifyIndex > 0 {
		out.ETag = etag(r.Plan.ModifyIndex)
	}
	if r.Operation.ID != "" {
		op := operation(v, r.Operation)
		out.Body.Operation, out.Location = &op, "/v1/operations/"+op.ID
		if !r.DryRun && !r.Replayed {
			out.Status = http.StatusAccepted
		}
	}
	return out, nil
}
