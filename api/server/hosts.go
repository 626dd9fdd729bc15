package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
)

const tagHost = "Hosts"

func (s *Server) registerHosts(api huma.API) {
	get(api, route{"listHosts", "/v1/hosts", tagHost, "List hosts", "All hosts by name, with what they have, may give and do give."},
		func(ctx context.Context, in *struct {
			PartParams
			ReadParams
		}) (*answerOf[v1.Part[v1.Host]], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			out, of := listPart[v1.Host](in.PartParams), s.programs(v)
			v.EachHost(func(h *state.Host) bool {
				shown := sync.OnceValue(func() v1.Host { return hostOf(v, *h) })
				out.offer(func() string { h := shown(); return h.Name + " " + h.State + " " + h.Lease + " " + h.CordonReason }, func() v1.Host {
					h := shown()
					of.on(&h)
					return h
				})
				return true
			})
			return out.answer(), nil
		})
	get(api, route{"getHost", "/v1/hosts/{name}", tagHost, "Get a host", "One host, as in the list."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
		}) (*answerOf[v1.Host], error) {
			return s.getHost(ctx, in.Name, in.Consistency)
		})

	type on struct {
		NameParam
		ChangeParams
		JSONBody
	}
	cordon := func(ctx context.Context, in *on) (*answerOf[v1.Host], error) {
		req, err := body[v1.CordonRequest](in.JSONBody)
		if err != nil {
			return nil, err
		}
		return s.cordon(ctx, in.Name, true, req.Reason, in.DryRun)
	}
	const text = "No new VM is placed on a cordoned host; those on it run on."
	change(api, http.MethodPut, route{"cordonHost", "/v1/hosts/{name}/cordon", tagHost, "Cordon a host", text}, http.StatusOK, v1.CordonRequest{}, cordon)
	change(api, http.MethodPost, route{"cordonHostPost", "/v1/hosts/{name}/cordon", tagHost, "Cordon a host", text + " The same as PUT."}, http.StatusOK, v1.CordonRequest{}, cordon)
	for _, op := range []*huma.Operation{api.OpenAPI().Paths["/v1/hosts/{name}/cordon"].Put, api.OpenAPI().Paths["/v1/hosts/{name}/cordon"].Post} {
		op.RequestBody.Required = false // a reason need not be given
	}
	change(api, http.MethodDelete, route{"uncordonHost", "/v1/hosts/{name}/cordon", tagHost, "Uncordon a host", "The host takes new VMs again."}, http.StatusOK, nil,
		func(ctx context.Context, in *struct {
			NameParam
			ChangeParams
		}) (*answerOf[v1.Host], error) {
			return s.cordon(ctx, in.Name, false, "", in.DryRun)
		})
}

func (s *Server) getHost(ctx context.Context, name, consistency string) (*answerOf[v1.Host], error) {
	v, err := s.view(ctx, consistency)
	if err != nil {
		return nil, err
	}
	h, ok := v.Host(name)
	if !ok {
		return nil, notFound("there is no host %q", name)
	}
	shown := hostOf(v, h)
	s.programs(v).on(&shown)
	return &answerOf[v1.Host]{Body: shown}, nil
}

// programs are the members by name: the vcd of each host.
type programs map[string]v1.Member

func (s *Server) programs(v *leader.View) programs {
	if s.opts.Members == nil {
		return nil
	}
	heard := map[string]*node.Peer{}
	for _, p := range s.opts.Members.Gossips() {
		heard[p.Name] = &p
	}
	out := programs{}
	for _, row := range v.Members() {
		out[row.Name] = memberOf(row, heard[row.Name])
	}
	return out
}

// on shows the vcd of a host with it.
func (p programs) on(h *v1.Host) {
	m, is := p[h.Name]
	if !is {
		return
	}
	h.Version = m.Version
	for _, role := range []struct {
		has  bool
		name string
	}{{m.Server, "server"}, {m.Agent, "agent"}} {
		if role.has {
			h.Roles = append(h.Roles, role.name)
		}
	}
}

// hostOf a row, with its drain if it has one.
func hostOf(v *leader.View, row state.Host) v1.Host {
	out := host(v.HostView(row))
	if row.Drain.State != "" {
		d := drainOf(v, row)
		out.Drain = &d
	}
	return out
}

func (s *Server) cordon(ctx context.Context, name string, on bool, reason string, dryRun bool) (*answerOf[v1.Host], error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := s.cluster.Cordon(bounded, name, on, reason, dryRun); err != nil {
		return nil, s.fail(ctx, err)
	}
	return s.getHost(ctx, name, "")
}
