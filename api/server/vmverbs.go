package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
)

func (s *Server) registerVMVerbs(api huma.API) {
	const base = "/v1/vms/{name}"
	change(api, http.MethodPost, route{"migrateVM", base + "/migrate", tagVM, "Move a VM to another host",
		"A plan of one live migration. If the VM cannot move: 409 blocked, with the reason and what would help. Nothing keeps the VM there: later plans may move it again."},
		http.StatusAccepted, v1.MigrateRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			CallParams
			JSONBody
		}) (*planResultAnswer, error) {
			q, err := body[v1.MigrateRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			x, err := s.one(ctx, in.TenantParams, ReadParams{Consistency: "stale"})
			if err != nil {
				return nil, err
			}
			vm, err := x.vm(in.Name)
			if err != nil {
				return nil, err
			}
			return s.planned(ctx, in.CallParams, func(ctx context.Context, call leader.Call) (leader.MoveResult, error) {
				return s.cluster.MigrateVM(ctx, vm.Name, leader.MigrateRequest{To: q.To, MaxBytes: (*int64)(q.MaxBytes), By: asker(ctx), Text: q.Reason}, call)
			})
		})
	optionalBody(api, base+"/migrate")
	for _, verb := range []struct {
		name, summary, text string
		do                  func(context.Context, string, leader.Call) (leader.Result, error)
	}{
		{"start", "Start a VM", "One that was stopped alone, or ended. Admitted beside what runs: if it does not fit now, it is refused (409 refused) with the reasons per host.", s.cluster.StartVM},
		{"stop", "Stop a VM", "Its guest is asked to power off, and it stays stopped until it, or its whole virtual cluster, is started. Its host keeps its memory and its disk; its CPU is free for others.", s.cluster.StopVM},
		{"restart", "Restart a VM", "Its guest is asked to power off; then it starts again on the same host. Meanwhile it keeps its CPU and memory.", s.cluster.RestartVM},
		{"reset", "Reset a VM", "Its guest boots again at once, as by a reset button: what it has not written to its disk is lost. Its host resets it once, or never: whether it did, the operation says.", s.cluster.ResetVM},
	} {
		change(api, http.MethodPost, route{verb.name + "VM", base + "/" + verb.name, tagVM, verb.summary, verb.text}, http.StatusAccepted, nil, s.vmVerb(verb.name, verb.do))
	}
}

// vmVerb carries out a change of one VM.
func (s *Server) vmVerb(verb string, do func(context.Context, string, leader.Call) (leader.Result, error)) func(context.Context, *vcInput) (*resultAnswer, error) {
	return func(ctx context.Context, in *vcInput) (*resultAnswer, error) {
		if err := in.unversioned(); err != nil {
			return nil, err
		}
		return s.result(ctx, verb, in.TenantParams, "", in.CallParams, func(ctx context.Context, x scopedView, _ string, call leader.Call) (leader.Result, error) {
			vm, err := x.vm(in.Name)
			if err != nil {
				return leader.Result{}, err
			}
			return do(ctx, vm.Name, call)
		})
	}
}
