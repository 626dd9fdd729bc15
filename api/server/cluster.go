package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

const (
	tagCluster = "Cluster"
	tagHealth  = "Health"
)

type textAnswer struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func text(s string) *textAnswer {
	return &textAnswer{ContentType: "text/plain; charset=utf-8", Body: []byte(s)}
}

func (s *Server) registerCluster(api huma.API) {
	get(api, route{"getClusterStatus", "/v1/cluster/status", tagCluster, "Get the cluster's status", "The cluster at a glance. To a token of a tenant: whether the cluster serves requests, and what the tenant has, may use and uses."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.ClusterStatus], error) {
			x, err := s.scoped(ctx, TenantParams{}, in.ReadParams)
			switch {
			case err != nil:
				return nil, err
			case x.restricted:
				return &answerOf[v1.ClusterStatus]{Body: x.status(s.opts.Version, s.cluster.Ready() == nil)}, nil
			}
			return &answerOf[v1.ClusterStatus]{Body: s.status(x.v)}, nil
		})
	plain := func() map[string]*huma.Response {
		return map[string]*huma.Response{"200": {Description: "ok", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
	}
	none := []map[string][]string{}
	huma.Register(api, huma.Operation{
		OperationID: "livez", Method: http.MethodGet, Path: "/livez", Tags: []string{tagHealth}, Summary: "Is the process alive",
		Description: "Answers ok as long as the process serves requests. Needs no token.", Responses: plain(), Security: none,
	}, func(context.Context, *struct{}) (*textAnswer, error) { return text("ok\n"), nil })
	huma.Register(api, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: []string{tagHealth}, Summary: "Is the server ready",
		Description: "ok once a leader is known and every configured host has reported; else 503 and why not. Needs no token.", Responses: plain(), Security: none,
		Errors: []int{http.StatusServiceUnavailable},
	}, func(context.Context, *struct{}) (*textAnswer, error) {
		if err := s.cluster.Ready(); err != nil {
			// Strangers ask, too: the names of hosts are for those with a token.
			kind, why := v1.ProblemUnavailable, "a host has not reported yet; /v1/cluster/status names it"
			if errors.Is(err, leader.ErrNoLeader) {
				kind, why = v1.ProblemNoLeader, "no leader is known"
			}
			p := newProblem(http.StatusServiceUnavailable, kind, "not ready: "+why)
			p.retry = true
			return nil, p
		}
		return text("ok\n"), nil
	})
	huma.Register(api, huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{tagHealth}, Summary: "Metrics for Prometheus",
		Description: "Yields, allowances, allocations and use, admissions, requests, Raft.", Responses: plain(), Errors: []int{http.StatusUnauthorized},
	}, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			r, w := humago.Unwrap(hctx)
			s.metrics.handler.ServeHTTP(w, r)
		}}, nil
	})
}

func (s *Server) status(v *leader.View) v1.ClusterStatus {
	meta, _ := v.Meta()
	hosts, vcs := make([]leader.HostView, 0, 16), v.VCViews()
	out := v1.ClusterStatus{
		ID: meta.ID, Version: s.opts.Version, Leader: v.Leader, Index: v.Index(), Ready: true, CreatedAt: meta.CreatedAt, MinYield: leader.MinYieldOf(vcs),
		Hosts: map[string]int{}, VirtualClusters: map[string]int{},
		Settings: settings(meta.Settings),
	}
	if err := s.cluster.Ready(); err != nil {
		out.Ready, out.NotReady = false, err.Error()
	}
	add := func(to *v1.Resources, r state.Resources) { to.CPU += r.CPU; to.Memory += v1.Size(r.Memory) }
	for _, row := range v.Hosts() {
		h := v.HostView(row)
		hosts = append(hosts, h)
		out.Hosts[h.State]++
		add(&out.Capacity, h.Capacity)
		add(&out.Allowance, h.Allowance)
		add(&out.Allocated, h.Allocated)
		add(&out.Used, h.Used)
	}
	unknown := 0
	for i := range vcs {
		out.VirtualClusters[string(vcs[i].State)]++
		unknown += vcs[i].Unknown
	}
	out.VMs = count(v.CountVMs(), unknown)
	out.Epoch, out.FencingDisabled, out.RecoveryFreeze, out.RecoveryFreezeHosts = meta.Epoch, meta.FencingDisabled, meta.RecoveryFreeze.Reason, meta.RecoveryFreeze.Pending
	if s.opts.Members != nil {
		out.Members, out.Advice = s.members(v)
		nodes, _ := s.opts.Members.Nodes()
		out.Voters, out.Tolerance = tolerated(nodes)
		out.Format = v.Format()
		out.BackupAt, _ = s.opts.Members.LastBackup()
	}
	out.Conditions = s.conditions(v, hosts, out)
	return out
}
