package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
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
	CallParams
}

func (s *Server) registerVirtualClusters(api huma.API) {
	const base = "/v1/virtual-clusters"
	get(api, route{"listVirtualClusters", base, tagVC, "List virtual clusters", "All virtual clusters, oldest first."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.VirtualCluster]], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.VirtualCluster]]{}
			out.Body.Items = []v1.VirtualCluster{}
			for _, vc := range v.VCs() {
				out.Body.Items = append(out.Body.Items, virtualCluster(v.VCView(vc)))
			}
			return out, nil
		})
	get(api, route{"getVirtualCluster", base + "/{name}", tagVC, "Get a virtual cluster", "One virtual cluster, with its groups and their VMs counted by phase."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
		}) (*vcAnswer, error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			vc, ok := v.VCNamed(in.Name)
			if !ok {
				return nil, notFound("there is no virtual cluster %q", in.Name)
			}
			return &vcAnswer{ETag: etag(vc.ModifyIndex), Body: virtualCluster(v.VCView(vc))}, nil
		})
	get(api, route{"explainVirtualCluster", base + "/{name}/explain", tagVC, "Explain a virtual cluster",
		"Why it has the yield it has, which host binds it, or why it is not admitted."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
		}) (*answerOf[v1.Explanation], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			vc, ok := v.VCNamed(in.Name)
			if !ok {
				return nil, notFound("there is no virtual cluster %q", in.Name)
			}
			e := leader.Explain(v, vc)
			return &answerOf[v1.Explanation]{Body: v1.Explanation{VirtualCluster: vc.Name, State: string(v.VCView(vc).State), Yield: e.Yield,
				MinYield: e.MinYield, Bottleneck: e.Bottleneck, Lines: append([]string{}, e.Lines...), Decision: decision(e.Decision)}}, nil
		})
	change(api, http.MethodPost, route{"createVirtualCluster", base, tagVC, "Create a virtual cluster",
		"Admits all of it or nothing. If it does not fit now it is queued, or refused (409 with the reasons per host) where onFull is reject."},
		http.StatusAccepted, v1.VirtualClusterSpec{},
		func(ctx context.Context, in *struct {
			CallParams
			JSONBody
		}) (*resultAnswer, error) {
			spec, err := body[v1.VirtualClusterSpec](in.JSONBody)
			if err != nil {
				return nil, err
			}
			named(ctx, spec.Name)
			return s.result(ctx, "create", in.CallParams, func(ctx context.Context, call leader.Call) (leader.Result, error) {
				return s.cluster.Create(ctx, specOf(spec), call)
			})
		})
	change(api, http.MethodPatch, route{"scaleVirtualCluster", base + "/{name}", tagVC, "Scale a virtual cluster",
		"Changes the number of VMs of a group or what each of them needs: all or nothing, refused like an admission."},
		http.StatusAccepted, v1.ScaleRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			CallParams
			JSONBody
		}) (*resultAnswer, error) {
			req, err := body[v1.ScaleRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			by := leader.Scale{Group: req.Group, Count: req.Count, CPU: req.CPU, Memory: (*int64)(req.Memory)}
			return s.result(ctx, "scale", in.CallParams, func(ctx context.Context, call leader.Call) (leader.Result, error) {
				return s.cluster.Scale(ctx, in.Name, by, call)
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
		return s.result(ctx, name, in.CallParams, func(ctx context.Context, call leader.Call) (leader.Result, error) { return do(ctx, in.Name, call) })
	}
}

// result carries a change out and answers with what became of it.
func (s *Server) result(ctx context.Context, verb string, p CallParams, do func(context.Context, leader.Call) (leader.Result, error)) (*resultAnswer, error) {
	call, err := p.call()
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := do(bounded, call)
	s.metrics.admission(verb, r, err)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	v, err := s.cluster.View(bounded, true) // what was just done is known here
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &resultAnswer{Status: http.StatusAccepted}
	out.Body = v1.Result{Decision: decision(r.Decision), DryRun: r.DryRun, Replayed: r.Replayed,
		Changes: each(r.Changes, func(c leader.Change) v1.Change {
			return v1.Change{Verb: c.Verb, VM: c.VM, VirtualCluster: c.VC, Text: c.Text}
		})}
	if r.DryRun || r.Replayed {
		out.Status = http.StatusOK
	}
	if r.VC.ID != "" {
		view := v.VCView(r.VC)
		if r.DryRun {
			view = r.View()
		}
		vc := virtualCluster(view)
		out.Body.VirtualCluster = &vc
		if !r.DryRun {
			out.ETag = etag(r.VC.ModifyIndex)
		}
	}
	if r.Operation.ID != "" {
		op := operation(v, r.Operation)
		out.Body.Operation = &op
		out.Location = "/v1/operations/" + op.ID
	}
	return out, nil
}
