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
}
