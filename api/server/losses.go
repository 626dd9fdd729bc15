package server

import (
	"bytes"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/node"
)

// registerLosses has what operators say and do about hosts that do not answer.
func (s *Server) registerLosses(api huma.API) {
	change(api, http.MethodPost, route{"confirmHostDead", "/v1/hosts/{name}/confirm-dead", tagHost, "Confirm that a host is dead",
		"An operator's word that the host runs nothing: its restartable VMs start elsewhere. Make sure that its power is off: the word counts as proof. Refused while its agent is heard of."},
		http.StatusOK, v1.ReasonRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			ChangeParams
			JSONBody
		}) (*answerOf[v1.Host], error) {
			q, err := body[v1.ReasonRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			if err := s.opts.Members.ConfirmDead(ctx, in.Name, asker(ctx), q.Reason, in.DryRun); err != nil {
				return nil, s.fail(ctx, err)
			}
			return s.getHost(ctx, in.Name, "")
		})
	change(api, http.MethodPost, route{"fenceHost", "/v1/hosts/{name}/fence", tagHost, "Fence a host",
		"Turns the host's power off with its fence device and checks that it is off. With test it only asks the device whether the power is on."}, http.StatusOK, v1.FenceRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			JSONBody
		}) (*answerOf[v1.Acknowledgement], error) {
			q, err := body[v1.FenceRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			text, err := s.opts.Members.FenceHost(ctx, in.Name, q.Test)
			if p := problemOf(err); err != nil && p.Status == http.StatusInternalServerError { // what the device says is for the operator
				return nil, newProblem(http.StatusBadGateway, v1.ProblemUnavailable, err.Error())
			}
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.Acknowledgement]{Body: v1.Acknowledgement{Text: text}}, nil
		})
}

// snapshotPath is where the state of the cluster is saved and restored.
const snapshotPath = "/v1/cluster/snapshot"

// MaxSnapshotBytes bounds a snapshot that is restored.
const MaxSnapshotBytes = 1 << 30

func (s *Server) registerSnapshots(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "saveSnapshot", Method: http.MethodGet, Path: snapshotPath, Tags: []string{tagMembers}, Summary: "Save the state of the cluster",
		Description: "A file with all that was acknowledged. It holds hashes of tokens and cloud-init data: keep it like a secret.",
		Responses:   map[string]*huma.Response{"200": {Description: "ok", Content: map[string]*huma.MediaType{"application/octet-stream": {}}}},
		Errors:      []int{http.StatusUnauthorized, http.StatusServiceUnavailable},
	}, func(ctx context.Context, _ *struct{}) (*binaryAnswer, error) {
		var b bytes.Buffer
		if err := s.opts.Members.SaveSnapshot(ctx, &b); err != nil {
			return nil, s.fail(ctx, err)
		}
		return &binaryAnswer{ContentType: "application/octet-stream", Body: b.Bytes()}, nil
	})
	huma.Register(api, huma.Operation{
		OperationID: "restoreSnapshot", Method: http.MethodPost, Path: snapshotPath, Tags: []string{tagMembers}, Summary: "Restore the state of the cluster",
		Description:      "Puts a saved state in force on all servers. What was changed since it was saved is forgotten. Nothing is started or stopped then until every host that it knows has said what it runs, or was confirmed dead.",
		SkipValidateBody: true, MaxBodyBytes: MaxSnapshotBytes,
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable},
	}, func(ctx context.Context, in *struct {
		Foreign bool     `query:"foreign" doc:"Also a snapshot of another cluster."`
		WaitFor []string `query:"waitFor" doc:"Hosts that had joined since it was saved and that the restored state does not know: they are waited for as well."`
		RawBody []byte   `contentType:"application/octet-stream"`
	}) (*answerOf[v1.Snapshot], error) {
		saved, err := s.opts.Members.RestoreSnapshot(ctx, bytes.NewReader(in.RawBody), in.Foreign, in.WaitFor...)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		return &answerOf[v1.Snapshot]{Body: snapshot(saved)}, nil
	})
}

type binaryAnswer struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func snapshot(n node.Saved) v1.Snapshot {
	return v1.Snapshot{Cluster: n.Cluster, Index: n.Index, Term: n.Term, Epoch: n.Epoch, Time: n.Time, Server: n.Server, Version: n.Software,
		Hosts: n.Hosts, Members: n.Members, VirtualClusters: n.VCs, VMs: n.VMs, Images: n.Images}
}
