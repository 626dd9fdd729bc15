package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/control"
)

// tryPath is where a what-if is asked; its body may hold a saved state.
const tryPath = "/v1/plans/try"

// MaxTryBytes bounds a what-if: a saved state of some hundred megabytes in base64.
const MaxTryBytes = 256 << 20

func (s *Server) registerTry(api huma.API) {
	change(api, http.MethodPost, "tryPlan", tryPath, tagPlan, "Ask what would be if the cluster were another",
		"With hosts more or less, other needs, other bytes, for the cluster as it is or for a saved state: the minimum yield after the best moves, what would be refused, and the bytes it takes. Nothing is changed.",
		http.StatusOK, v1.TryRequest{},
		func(ctx context.Context, in *struct{ JSONBody }) (*answerOf[v1.TryResult], error) {
			q, err := parse(in.JSONBody, v1.ParseTry)
			if err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			r, err := s.cluster.Try(bounded, tryOf(q))
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			v, err := s.cluster.View(bounded, true) // for names
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.TryResult]{Body: v1.TryResult{
				MinYieldBefore: r.MinYieldBefore, MinYieldAfter: r.MinYieldAfter, AverageYieldBefore: r.AverageYieldBefore, AverageYieldAfter: r.AverageYieldAfter,
				Bytes: v1.Size(r.Bytes), Refused: append([]string{}, r.Refused...), Plan: plan(v, r.Plan),
				Unplaced: each(r.Unplaced, func(u control.Unplaced) v1.Unplaced { return v1.Unplaced{VM: u.VM, VirtualCluster: u.VC, Why: u.Why} })}}, nil
		})
	get(api, "sparePlans", "/v1/plans/spare", tagPlan, "Does everything fit without any one host",
		"Each host is thought away in turn: whether its VMs find other hosts, rules kept, and the minimum yield of the cluster then. Nothing is changed.",
		func(ctx context.Context, _ *struct{}) (*answerOf[v1.List[v1.SpareRow]], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			rows, err := s.cluster.Spare(bounded)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.List[v1.SpareRow]]{Body: v1.List[v1.SpareRow]{Items: each(rows, func(r control.SpareRow) v1.SpareRow {
				return v1.SpareRow{Host: r.Host, Fits: r.Fits, MinYield: r.MinYield, Unplaced: append([]string{}, r.Unplaced...), Text: r.Text}
			})}}, nil
		})
}

func tryOf(q v1.TryRequest) control.TryRequest {
	out := control.TryRequest{RemoveHosts: q.RemoveHosts, MaxBytes: (*int64)(q.MaxBytes), Snapshot: q.Snapshot}
	for _, h := range q.AddHosts {
		out.AddHosts = append(out.AddHosts, control.TryHost{CPU: h.CPU, Memory: int64(h.Memory), Count: h.Count})
	}
	for _, n := range q.Needs {
		out.Needs = append(out.Needs, control.TryNeed{VC: n.VirtualCluster, Group: n.Group, CPU: n.CPU})
	}
	return out
}
