package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
)

// simulatePath is where a simulation is asked; its body may hold a saved state.
const simulatePath = "/v1/simulate"

// MaxSimulateBytes bounds a simulation: a saved state of some hundred megabytes in base64.
const MaxSimulateBytes = 256 << 20

func (s *Server) registerSimulate(api huma.API) {
	change(api, http.MethodPost, route{"simulate", simulatePath, tagPlan, "Ask what would be if the cluster were another",
		"With hosts more or less, other needs, other bytes, for the cluster as it is or for a saved state: the minimum yield after the best moves, what would be refused, and the bytes it takes. Nothing is changed."},
		http.StatusOK, v1.SimulateRequest{},
		func(ctx context.Context, in *struct{ JSONBody }) (*answerOf[v1.SimulateResult], error) {
			q, err := parse(in.JSONBody, v1.ParseSimulate)
			if err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			r, err := s.cluster.Simulate(bounded, simulateRequestOf(q))
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			v, err := s.cluster.View(bounded, true) // for names
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.SimulateResult]{Body: v1.SimulateResult{
				MinYieldBefore: r.MinYieldBefore, MinYieldAfter: r.MinYieldAfter, AverageYieldBefore: r.AverageYieldBefore, AverageYieldAfter: r.AverageYieldAfter,
				Bytes: v1.Size(r.Bytes), Refused: append([]string{}, r.Refused...), Plan: plan(v, r.Plan),
				Unplaced: each(r.Unplaced, func(u leader.Unplaced) v1.Unplaced { return v1.Unplaced{VM: u.VM, VirtualCluster: u.VC, Why: u.Why} })}}, nil
		})
	get(api, route{"listFailoverCapacity", "/v1/failover-capacity", tagPlan, "Does everything fit without any one host",
		"Each host is thought away in turn: whether its VMs find other hosts, rules kept, and the minimum yield of the cluster then. Nothing is changed."},
		func(ctx context.Context, _ *struct{}) (*answerOf[v1.List[v1.FailoverRow]], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			rows, err := s.cluster.FailoverCapacity(bounded)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.List[v1.FailoverRow]]{Body: v1.List[v1.FailoverRow]{Items: each(rows, func(r leader.FailoverRow) v1.FailoverRow {
				return v1.FailoverRow{Host: r.Host, Fits: r.Fits, MinYield: r.MinYield, Unplaced: append([]string{}, r.Unplaced...), Text: r.Text}
			})}}, nil
		})
}

func simulateRequestOf(q v1.SimulateRequest) leader.SimulateRequest {
	out := leader.SimulateRequest{RemoveHosts: q.RemoveHosts, MaxBytes: (*int64)(q.MaxBytes), Snapshot: q.Snapshot}
	for _, h := range q.AddHosts {
		out.AddHosts = append(out.AddHosts, leader.SimulatedHost{CPU: h.CPU, Memory: int64(h.Memory), Count: h.Count})
	}
	for _, n := range q.Needs {
		out.Needs = append(out.Needs, leader.SimulatedNeed{VC: n.VirtualCluster, Group: n.Group, CPU: n.CPU})
	}
	return out
}
