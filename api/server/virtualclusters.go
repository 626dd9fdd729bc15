package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

const tagVC = "Virtual clusters"

type resultAnswer struct {
	Status   int
	ETag     string `header:"ETag" doc:"Version of the virtual cluster."`
	Location string `header:"Location" doc:"The operation to wait on."`
	Body     v1.Result
}

type vcAnswer struct {
	ETag string `header:"ETag" doc:"Version of the virtual cluster."`
	Body v1.VirtualCluster
}

type vcInput struct {
	NameParam
	TenantParams
	CallParams
}

func (s *Server) registerVirtualClusters(api huma.API) {
	const base = "/v1/virtual-clusters"
	get(api, route{"listVirtualClusters", base, tagVC, "List virtual clusters", "All virtual clusters, oldest first."},
		func(ctx context.Context, in *struct {
			TenantParams
			PartParams
			ReadParams
			Lacking bool `query:"lacking" doc:"Only those in the queue, and those that run with a yield below what they are promised."`
		}) (*answerOf[v1.Part[v1.VirtualCluster]], error) {
			x, err := s.scoped(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			out := listPart[v1.VirtualCluster](in.PartParams)
			x.eachVC(func(vc *state.VC) {
				view := sync.OnceValue(func() *leader.VCView { seen := x.v.VCView(*vc); return &seen })
				if in.Lacking && !view().Lacking() {
					return
				}
				out.offer(func() string { return vc.Name + " " + string(view().State) }, func() v1.VirtualCluster { return x.virtualCluster(*view()) })
			})
			return out.answer(), nil
		})
	get(api, route{"getVirtualCluster", base + "/{name}", tagVC, "Get a virtual cluster", "One virtual cluster, with its groups and their VMs counted by phase."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
		}) (*vcAnswer, error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			vc, err := x.vc(in.Name)
			if err != nil {
				return nil, err
			}
			out := x.virtualCluster(x.v.VCView(vc))
			out.Tenant = ownerOf(vc.Name)
			return &vcAnswer{ETag: x.version(vc.ID, vc.ModifyIndex), Body: out}, nil
		})
	get(api, route{"explainVirtualCluster", base + "/{name}/explain", tagVC, "Explain a virtual cluster",
		"Why it has the yield it has, which host binds it, or why it is not admitted."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
		}) (*answerOf[v1.Explanation], error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			vc, err := x.vc(in.Name)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.Explanation]{Body: x.explanation(vc)}, nil
		})
	change(api, http.MethodPost, route{"createVirtualCluster", base, tagVC, "Create a virtual cluster",
		"Admits all of it or nothing. If it does not fit now it is queued, or refused (409 with the reasons per host) where onFull is reject."},
		http.StatusAccepted, v1.VirtualClusterSpec{},
		func(ctx context.Context, in *struct {
			TenantParams
			CallParams
			JSONBody
		}) (*resultAnswer, error) {
			spec, err := body[v1.VirtualClusterSpec](in.JSONBody)
			if err != nil {
				return nil, err
			}
			named(ctx, spec.Name)
			return s.result(ctx, "create", in.TenantParams, "", in.CallParams, func(ctx context.Context, x scopedView, _ string, call leader.Call) (leader.Result, error) {
				vc, err := x.spec(spec)
				if err != nil {
					return leader.Result{}, err
				}
				return s.cluster.Create(ctx, vc, call)
			})
		})
	change(api, http.MethodPatch, route{"scaleVirtualCluster", base + "/{name}", tagVC, "Scale a virtual cluster",
		"Changes the number of VMs of a group or what each of them needs: all or nothing, refused like an admission."},
		http.StatusAccepted, v1.ScaleRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			CallParams
			JSONBody
		}) (*resultAnswer, error) {
			req, err := body[v1.ScaleRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			by := leader.Scale{Group: req.Group, Count: req.Count, CPU: req.CPU, Memory: (*int64)(req.Memory)}
			return s.result(ctx, "scale", in.TenantParams, in.Name, in.CallParams, func(ctx context.Context, _ scopedView, full string, call leader.Call) (leader.Result, error) {
				return s.cluster.Scale(ctx, full, by, call)
			})
		})
	change(api, http.MethodDelete, route{"deleteVirtualCluster", base + "/{name}", tagVC, "Delete a virtual cluster",
		"Stops its VMs and removes them with their disks."}, http.StatusAccepted, nil, s.verb("delete", s.cluster.Delete))
	change(api, http.MethodPost, route{"startVirtualCluster", base + "/{name}/start", tagVC, "Start a virtual cluster",
		"Starts what is stopped or failed; admitted again, all or nothing."}, http.StatusAccepted, nil, s.verb("start", s.cluster.Start))
	change(api, http.MethodPost, route{"stopVirtualCluster", base + "/{name}/stop", tagVC, "Stop a virtual cluster",
		"Asks its guests to power off. Disks are kept; what it had of the hosts is free for others."}, http.StatusAccepted, nil, s.verb("stop", s.cluster.Stop))
}

func (s *Server) verb(name string, do func(context.Context, string, leader.Call) (leader.Result, error)) func(context.Context, *vcInput) (*resultAnswer, error) {
	return func(ctx context.Context, in *vcInput) (*resultAnswer, error) {
		return s.result(ctx, name, in.TenantParams, in.Name, in.CallParams, func(ctx context.Context, _ scopedView, full string, call leader.Call) (leader.Result, error) {
			return do(ctx, full, call)
		})
	}
}

// result carries a change out and answers with what became of it. name is that of the virtual cluster as the request has it, "" for
// one that is to be.
func (s *Server) result(ctx context.Context, verb string, t TenantParams, name string, p CallParams,
	do func(ctx context.Context, x scopedView, full string, call leader.Call) (leader.Result, error)) (*resultAnswer, error) {
	x, err := s.one(ctx, t, ReadParams{Consistency: "stale"}) // for names and rights; what is changed is read by the leader's service
	if err != nil {
		return nil, err
	}
	full := ""
	if name != "" {
		full = x.full(name)
	}
	call, err := x.call(p, full)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := do(bounded, x, full, call)
	s.metrics.admission(verb, r, err)
	if err != nil {
		return nil, s.fail(ctx, x.conflicts(err))
	}
	if x.v, err = s.cluster.View(bounded, true); err != nil { // what was just done is known here
		return nil, s.fail(ctx, err)
	}
	out := &resultAnswer{Status: http.StatusAccepted}
	out.Body = v1.Result{Decision: x.decision(r.Decision, false), DryRun: r.DryRun, Replayed: r.Replayed, Changes: x.changes(r.Changes), Fields: x.fieldChanges(r.Fields)}
	if r.DryRun || r.Replayed || r.Operation.ID == "" {
		out.Status = http.StatusOK
	}
	if r.VC.ID != "" {
		view := x.v.VCView(r.VC)
		if r.DryRun {
			view = r.View()
		}
		vc := x.virtualCluster(view)
		out.Body.VirtualCluster = &vc
		if !r.DryRun {
			out.ETag = x.version(r.VC.ID, r.VC.ModifyIndex)
		}
	}
	if r.Operation.ID != "" {
		op := x.operation(r.Operation)
		out.Body.Operation = &op
		out.Location = "/v1/operations/" + op.ID
	}
	return out, nil
}
