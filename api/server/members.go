package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
)

// joinPath is where a new member shows its join token. It is for vcd, not for people: its body is
// the cluster's own, and not described by OpenAPI.
const joinPath = "/v1/cluster/join"

// MaxJoinBytes bounds the body of a request to join.
const MaxJoinBytes = 16 << 10

const tagMembers = "Members"

func (s *Server) registerMembers(api huma.API) {
	s.mux.HandleFunc("POST "+joinPath, s.joinMember)
	get(api, route{"listMembers", "/v1/cluster/members", tagMembers, "List members", "Every vcd of the cluster: servers as Raft knows them, agents with their host's lease."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.Member]], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.Member]]{}
			out.Body.Items, _ = s.members(v)
			return out, nil
		})
	change(api, http.MethodDelete, route{"removeMember", "/v1/cluster/members/{name}", tagMembers, "Remove a member",
		"Takes its vote and revokes its certificates. Its host must have no VM, but for deleted ones if it was fenced or confirmed dead: those go with it. Refused if too few healthy servers would be left, unless forced."}, http.StatusOK, nil,
		func(ctx context.Context, in *struct {
			NameParam
			Force bool `query:"force" doc:"Also if too few healthy servers are left for a majority."`
		}) (*answerOf[v1.Acknowledgement], error) {
			if err := s.opts.Members.Remove(ctx, in.Name, in.Force); err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.Acknowledgement]{Body: v1.Acknowledgement{Text: "member " + in.Name + " is removed; its certificates count no more"}}, nil
		})
	get(api, route{"listCertificates", "/v1/cluster/certificates", tagMembers, "List certificates", "Those of members that have not expired, as far as they are recorded: all of a member are revoked with it."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.Certificate]], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.Certificate]]{}
			out.Body.Items = certificatesOf(v.Members(), time.Now())
			return out, nil
		})
	change(api, http.MethodPost, route{"renewCertificate", "/v1/cluster/members/{name}/certificate", tagMembers, "Renew a certificate",
		"Has the member renew its certificate now, without a restart. Its older ones are good until they expire. The cluster gives a member three at once, then one in ten minutes."}, http.StatusOK, nil,
		func(ctx context.Context, in *struct{ NameParam }) (*answerOf[v1.Certificate], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			got, err := s.opts.Members.RenewCertificate(bounded, in.Name)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.Certificate]{Body: v1.Certificate{Member: in.Name, Serial: got.Serial, Until: got.Until, Newest: true}}, nil
		})
	change(api, http.MethodPost, route{"makeJoinToken", "/v1/cluster/join-tokens", tagMembers, "Make a join token", "It lets one member in, once. It is shown in this answer only."},
		http.StatusCreated, v1.JoinTokenRequest{}, s.makeJoinToken)
	get(api, route{"listJoinTokens", "/v1/cluster/join-tokens", tagMembers, "List join tokens", "Without their secrets."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.JoinToken]], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.JoinToken]]{}
			out.Body.Items = each(v.JoinTokens(), joinToken)
			return out, nil
		})
	change(api, http.MethodPost, route{"transferLeadership", "/v1/cluster/leader", tagMembers, "Hand leadership on", "To a server that votes."}, http.StatusOK, v1.LeaderRequest{},
		func(ctx context.Context, in *struct{ JSONBody }) (*answerOf[v1.Acknowledgement], error) {
			q, err := body[v1.LeaderRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			if err := s.opts.Members.TransferLeadership(ctx, q.To); err != nil {
				return nil, s.fail(ctx, err)
			}
			text := "leadership was handed on to " + q.To
			if q.To == "" {
				text = "leadership was handed on; vcctl cluster members shows to which server"
			}
			return &answerOf[v1.Acknowledgement]{Body: v1.Acknowledgement{Text: text}}, nil
		})
	for verb, enable := range map[string]bool{"enable": true, "disable": false} {
		text := map[bool]string{true: "Leases stop restartable VMs again when they run out.", false: "Leases that run out stop no VM and prove nothing, until fencing is enabled again: for work on the network."}[enable]
		change(api, http.MethodPost, route{verb + "Fencing", "/v1/cluster/fencing/" + verb, tagMembers, map[bool]string{true: "Enable fencing", false: "Disable fencing"}[enable], text}, http.StatusOK, v1.ReasonRequest{},
			func(ctx context.Context, in *struct{ JSONBody }) (*answerOf[v1.Acknowledgement], error) {
				q, err := body[v1.ReasonRequest](in.JSONBody)
				if err != nil {
					return nil, err
				}
				if err := s.opts.Members.SetFencing(ctx, enable, q.Reason); err != nil {
					return nil, s.fail(ctx, err)
				}
				return &answerOf[v1.Acknowledgement]{Body: v1.Acknowledgement{Text: text}}, nil
			})
	}
	s.registerLosses(api)
	s.registerSnapshots(api)
}

// certificatesOf members that have not expired at that time, the newest of each first.
func certificatesOf(rows []state.Member, at time.Time) []v1.Certificate {
	out := []v1.Certificate{}
	for _, row := range rows {
		newest := true
		for _, c := range slices.Backward(row.Serials) { // in the order in which they were issued
			if at.After(c.Until) {
				continue
			}
			out = append(out, v1.Certificate{Member: row.Name, Serial: c.Number, Until: c.Until, Newest: newest})
			newest = false
		}
	}
	return out
}

func (s *Server) makeJoinToken(ctx context.Context, in *struct{ JSONBody }) (*answerOf[v1.JoinToken], error) {
	q, err := body[v1.JoinTokenRequest](in.JSONBody)
	if err != nil {
		return nil, err
	}
	if p := principalOf(ctx); p != nil && len(p.From) > 0 { // a member has an admin's power, wherever it is
		return nil, newProblem(http.StatusForbidden, v1.ProblemForbidden, "the member would be let in where the token that asks is not good, which is good from "+
			strings.Join(p.From, ", ")+": ask with a token without ranges")
	}
	seconds := 3600.0
	if q.Seconds != nil {
		seconds = *q.Seconds
	}
	text, row, err := s.opts.Members.NewToken(ctx, time.Duration(seconds*float64(time.Second)),
		state.JoinToken{Server: q.Server, Agent: q.Agent, NoVote: q.NoVote, For: q.For, Comment: q.Comment})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	named(ctx, row.ID)
	out := joinToken(row)
	out.Token = text
	return &answerOf[v1.JoinToken]{Body: out}, nil
}

func joinToken(t state.JoinToken) v1.JoinToken {
	return v1.JoinToken{ID: t.ID, Server: t.Server, Agent: t.Agent, Until: t.Until, NoVote: t.NoVote, For: t.For, UsedBy: t.UsedBy, Comment: t.Comment}
}

// members of the cluster: rows of the state with what Raft, gossip and leases say of them.
func (s *Server) members(v *leader.View) ([]v1.Member, string) {
	nodes, advice := s.opts.Members.Nodes()
	of := map[string]node.Server{}
	for _, n := range nodes {
		of[n.ID] = n
	}
	heard := map[string]*node.Peer{}
	for _, p := range s.opts.Members.Gossips() {
		heard[p.Name] = &p
	}
	out := []v1.Member{}
	for _, row := range v.Members() {
		m := memberOf(row, heard[row.Name])
		if n, ok := of[row.Name]; ok {
			m.Leader, m.Voter, m.Healthy, m.Behind, m.Trouble, m.Contact = n.Leader, n.Voter, n.Healthy, n.Behind, n.Trouble, n.Contact.Seconds()
			m.SlowLog = n.Slow
		} else if row.Server && len(nodes) > 0 {
			m.Trouble = "it has no part in the log: it was to be let in again, and has not come; vcctl cluster join-token --for " + row.Name + " makes a token for it"
		}
		if h, ok := v.Host(row.Name); ok && row.Agent {
			m.Lease = v.HostView(h).Lease
		}
		out = append(out, m)
	}
	return out, advice
}

// maxVersion is how much is shown of the version that a member states in gossip, bytes.
const maxVersion = 64

// memberOf a row, and of what gossip has of it; nil: nothing. Gossip is a hint: it says what is not recorded, and is shown only.
func memberOf(row state.Member, peer *node.Peer) v1.Member {
	m := v1.Member{Name: row.Name, Server: row.Server, Agent: row.Agent, Address: row.Address, Version: row.Version, JoinedAt: row.JoinedAt, Gossip: "silent"}
	for _, c := range row.Serials {
		if c.Until.After(m.CertificateUntil) {
			m.CertificateUntil = c.Until
		}
	}
	if peer != nil {
		m.Gossip = "reachable"
		if m.Version == "" {
			m.Version = audit.Printable(peer.Meta.Version, maxVersion)
		}
	}
	return m
}

// hostStats of a cluster of many members.
func (o Options) hostStats(v *leader.View) map[string]leader.HostStats {
	if o.Members == nil {
		return nil
	}
	return o.Members.HostStats(v)
}
