package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

type drainResultAnswer struct {
	Status   int
	Location string `header:"Location" doc:"The operation to wait on."`
	Body     v1.DrainResult
}

func (s *Server) registerDrains(api huma.API) {
	const path = "/v1/hosts/{name}/drain"
	change(api, http.MethodPost, route{"drainHost", path, tagHost, "Empty a host",
		"Closes the host for new VMs and moves those it has to other hosts by live migration, within the bytes and until the deadline. First it looks for VMs that cannot move: " +
			"with onBlocked stop, the default, they are a refusal (409 blocked, with each of them and what to do about it), and nothing moves. No VM is stopped but with onBlocked shutdown. " +
			"A host that is being emptied already goes on with the new options."},
		http.StatusAccepted, v1.DrainRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			CallParams
			JSONBody
		}) (*drainResultAnswer, error) {
			q, err := body[v1.DrainRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			return s.drainHost(ctx, in.Name, q, in.CallParams)
		})
	optionalBody(api, path)
	change(api, http.MethodDelete, route{"undrainHost", path, tagHost, "Stop emptying a host",
		"No VM leaves the host any more; moves under way end, and nothing is moved back. The host takes new VMs again, unless it was cordoned before the drain: it stays so."}, http.StatusOK, nil,
		func(ctx context.Context, in *struct {
			NameParam
			CallParams
		}) (*answerOf[v1.Host], error) {
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			call, err := in.call()
			if err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if err := s.cluster.Undrain(bounded, in.Name, call); err != nil {
				return nil, s.fail(ctx, err)
			}
			return s.getHost(ctx, in.Name, "")
		})
	get(api, route{"getHostDrain", path, tagHost, "Get how far a host is emptied", "With each VM, how much of it was sent, how fast, and when it is there. The state is none where no drain was requested. With wait, the answer comes once the drain changed after index, or has ended."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
			WaitParam
		}) (*answerOf[v1.Drain], error) {
			return poll(ctx, s, in.ReadParams, in.WaitParam, func(v *leader.View) (*answerOf[v1.Drain], uint64, bool, error) {
				h, ok := v.Host(in.Name)
				if !ok {
					return nil, 0, true, notFound("there is no host %q", in.Name)
				}
				d := drainOf(v, h)
				index := max(1, h.Drain.Index)
				if p, ok := v.MovePlan(h.Drain.Plan); ok {
					index = max(index, p.ModifyIndex)
				}
				return &answerOf[v1.Drain]{Body: d}, index, d.Ended(), nil
			})
		})
	get(api, route{"getHostEmpty", "/v1/hosts/{name}/empty", tagHost, "Is a host empty", "Whether the host's hypervisor, by its last word, runs none of this cluster's VMs, and none is on its way there."},
		func(ctx context.Context, in *struct{ NameParam }) (*answerOf[v1.HostEmpty], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			e, err := s.cluster.Empty(bounded, in.Name)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.HostEmpty]{Body: v1.HostEmpty{Host: in.Name, Empty: e.Empty, VMs: append([]string{}, e.VMs...), Unmanaged: append([]string{}, e.Unmanaged...), At: e.At}}, nil
		})
	get(api, route{"listDrainBatches", "/v1/drain-batches", tagHost, "List hosts that can be emptied together",
		"All hosts but those with a drain, in groups that can be empty at the same time while everything fits on the others, rules kept, at no lower minimum yield than the present one or the cluster's default, whichever is less; and the hosts for which there is no way."},
		func(ctx context.Context, in *struct{}) (*answerOf[v1.DrainBatches], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			batches, stuck, err := s.cluster.DrainBatches(bounded)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.DrainBatches]{Body: v1.DrainBatches{
				Items: each(batches, func(t leader.DrainBatch) v1.DrainBatch {
					return v1.DrainBatch{Hosts: t.Hosts, Bytes: v1.Size(t.Bytes), MinYield: t.MinYield}
				}),
				Blocked: each(stuck, func(u leader.Undrainable) v1.BlockedHost {
					return v1.BlockedHost{Host: u.Host, Why: u.Why, Blockers: blockers(u.Blockers)}
				})}}, nil
		})
}

// drainOf a host with each of its VMs.
func drainOf(v *leader.View, h state.Host) v1.Drain {
	d := v.DrainView(h)
	out := drain(h.Name, h.Drain)
	out.BytesMoved = v1.Size(d.BytesMoved)
	for _, vm := range d.VMs {
		out.VMs = append(out.VMs, v1.DrainVM{VM: vm.VM, VirtualCluster: vm.VC, State: vm.State, To: vm.To, Migration: vm.Migration,
			Bytes: v1.Size(vm.Bytes), BytesMoved: v1.Size(vm.BytesMoved), Rate: vm.Rate, ETA: vm.ETA, Text: vm.Text})
	}
	return out
}

func (s *Server) drainHost(ctx context.Context, host string, q v1.DrainRequest, p CallParams) (*drainResultAnswer, error) {
	call, err := p.call()
	if err != nil {
		return nil, err
	}
	var deadline time.Duration
	if q.Deadline != "" {
		if deadline, err = v1.ParseDuration(q.Deadline); err != nil {
			return nil, invalidParameter("body", "deadline", q.Deadline, "%v", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := s.cluster.Drain(bounded, host, leader.DrainRequest{Deadline: deadline, MaxBytes: (*int64)(q.MaxBytes), OnBlocked: q.OnBlocked, OtherHosts: q.OtherHosts, By: asker(ctx), Reason: q.Reason}, call)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	v, err := s.cluster.View(bounded, true) // what was just done is known here
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &drainResultAnswer{Status: http.StatusOK, Body: v1.DrainResult{Host: host, Blockers: blockers(r.Blockers), DryRun: r.DryRun, Replayed: r.Replayed}}
	if r.Plan.ID != "" || len(r.Plan.Steps) > 0 {
		p := plan(v, r.Plan)
		out.Body.Plan = &p
	}
	if r.Operation.ID != "" && !r.DryRun {
		op := operation(v, r.Operation)
		out.Body.Operation, out.Location = &op, "/v1/operations/"+op.ID
		if !r.Replayed {
			out.Status = http.StatusAccepted
		}
	}
	return out, nil
}

func blockers(in []leader.Blocker) []v1.Blocker {
	return each(in, func(b leader.Blocker) v1.Blocker {
		return v1.Blocker{VM: b.VM, VirtualCluster: b.VC, Why: b.Why, Advice: append([]string{}, b.Advice...), Proved: b.Proved}
	})
}
