package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/api/oidc"
	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/state"
)

// OpenID verifies tokens of an OpenID Connect issuer. *oidc.Verifier is one.
type OpenID interface {
	// Verify a token. The error is oidc.ErrRefused or oidc.ErrUnavailable.
	Verify(ctx context.Context, token string) (oidc.Identity, error)
	// Current is what Verify returned with the groups that the person has now, without waiting; CurrentSoon waits a little. The error
	// is oidc.ErrRefused.
	Current(token string, id oidc.Identity) (oidc.Identity, error)
	CurrentSoon(ctx context.Context, token string, id oidc.Identity) (oidc.Identity, error)
	Config() oidc.Config
	Stats() oidc.Stats
	ui.Issuer // for the dashboard
}

const (
	authPath = "/v1/auth"
	selfPath = "/v1/auth/self"
	tagAuth  = "Log-in"
)

func (s *Server) registerOpenID(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "getAuth", Method: http.MethodGet, Path: authPath, Tags: []string{tagAuth}, Summary: "Get how to log in",
		Description: "Which issuer of OpenID Connect this server takes tokens of. Needs no token.", Security: []map[string][]string{},
	}, func(context.Context, *struct{}) (*answerOf[v1.Auth], error) {
		out := v1.Auth{}
		if s.opts.OpenID != nil {
			c := s.opts.OpenID.Config()
			out.OIDC = &v1.OIDC{Issuer: c.Issuer, ClientID: c.ClientID, Audience: c.Audience, MaxAge: c.MaxAge.Seconds(), Scopes: c.Scopes}
		}
		return &answerOf[v1.Auth]{Body: out}, nil
	})
	get(api, route{"getSelf", selfPath, tagAuth, "Get the holder of the token", "Whose token it is, and which role it has, as the server that is asked knows it."},
		func(ctx context.Context, _ *struct{ TenantParams }) (*answerOf[v1.Self], error) {
			p := principalOf(ctx)
			out := v1.Self{ID: p.ID, Name: p.Name, Role: string(p.Role), Tenant: p.Tenant, Actor: p.actor(), Groups: p.Groups, Roles: each(p.roles, assignedRole)}
			if !p.Until.IsZero() {
				out.Until = &p.Until
			}
			return &answerOf[v1.Self]{Body: out}, nil
		})
}

// identifyOpenID finds the principal of a request by a JSON Web Token.
//
// Roles are those that the configuration gives to groups, and then those that are bound to the person and to groups: see principal.act.
func (s *Server) identifyOpenID(ctx context.Context, token, asked string) (*principal, *problem) {
	if s.opts.OpenID == nil {
		return nil, newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized,
			"this server takes no tokens of OpenID Connect: its vcd.yaml has no oidc; give a token of the API")
	}
	id, err := s.opts.OpenID.Verify(ctx, token)
	if err == nil {
		id, err = s.opts.OpenID.CurrentSoon(ctx, token, id)
	}
	switch {
	case errors.Is(err, oidc.ErrUnavailable):
		p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, err.Error())
		p.retry = true
		return nil, p
	case err != nil:
		return nil, newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, fmt.Sprintf("%v; log in again with `vcctl login`", err))
	}
	p := s.person(id, asked)
	p.token = token
	if why := s.revokedUser(p); why != nil {
		return nil, why
	}
	return p, nil
}

// person is the principal of an identity: with the roles that the configuration gives to its groups, and those that are bound.
func (s *Server) person(id oidc.Identity, asked string) *principal {
	p := &principal{ID: id.ID, Name: id.Name, Subject: id.Subject, Groups: id.Groups, Issued: id.Issued, Until: id.Until}
	var own []assigned
	if id.Role != "" {
		own = append(own, assigned{Role: id.Role})
	}
	for _, b := range id.Bindings {
		own = append(own, assigned{Tenant: b.Tenant, Role: b.Role})
	}
	issuer := s.opts.OpenID.Config().Issuer
	subjects := []state.Subject{{Kind: state.SubjectUser, Issuer: issuer, Name: id.Subject}}
	for _, group := range id.Groups {
		subjects = append(subjects, state.Subject{Kind: state.SubjectGroup, Issuer: issuer, Name: group})
	}
	p.act(own, s.cluster.BindingsOf(subjects...), asked)
	return p
}

// personEnded says why a person has no longer the role that a request was let in with, by the issuer; nil: it has it.
func (s *Server) personEnded(p *principal) *problem {
	if p.token == "" || s.opts.OpenID == nil {
		return nil
	}
	was := oidc.Identity{ID: p.ID, Name: p.Name, Subject: p.Subject, Groups: p.Groups, Issued: p.Issued, Until: p.Until}
	config := s.opts.OpenID.Config()
	was.Role, was.Bindings = config.RoleOf(p.Groups), config.BindingsOf(p.Groups)
	now, err := s.opts.OpenID.Current(p.token, was)
	if err != nil {
		return newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, err.Error())
	}
	if q := s.person(now, p.Tenant); p.Role != "" && !slices.ContainsFunc(q.roles, func(h assigned) bool { return h.Tenant == p.Tenant && covers(h.Role, p.Role) }) {
		return newProblem(http.StatusForbidden, v1.ProblemForbidden, "the group that gave the role "+string(p.Role)+" was taken away while this request ran")
	}
	return nil
}

// maxGroupsShown bounds the groups that a message names, maxGroupShown the bytes of each.
const (
	maxGroupsShown = 20
	maxGroupShown  = 100
)

// withoutRole is the answer to a subject of OpenID Connect whose groups have no role.
func withoutRole(p *principal) *problem {
	seen := "the token names no groups: does the issuer put them into the claim of oidc.groupsClaim?"
	if len(p.Groups) > 0 {
		var shown []string
		for _, g := range p.Groups[:min(len(p.Groups), maxGroupsShown)] {
			shown = append(shown, fmt.Sprintf("%q", audit.Printable(g, maxGroupShown)))
		}
		if more := len(p.Groups) - len(shown); more > 0 {
			shown = append(shown, fmt.Sprintf("%d more", more))
		}
		seen = "the groups of the token: " + strings.Join(shown, ", ")
	}
	return newProblem(http.StatusForbidden, v1.ProblemForbidden,
		fmt.Sprintf("%s has no role in this cluster: neither oidc.roles in vcd.yaml nor a role binding gives one to the user %s or to any of its groups; %s", p.label(), audit.Printable(p.Subject, maxGroupShown), seen))
}

var (
	descOIDCTokens = desc("oidc_tokens_total", "Tokens of OpenID Connect that this server judged: accepted, refused, or unavailable because it knows no keys of the issuer.", "result")
	descOIDCKeys   = desc("oidc_keys_timestamp_seconds", "When this server last fetched the keys of the OpenID Connect issuer; 0: never.")
	descOIDCErrors = desc("oidc_fetch_errors_total", "Tries to fetch the keys of the OpenID Connect issuer that failed.")
)

type openIDCollector struct{ s *Server }

// Describe implements prometheus.Collector.
func (openIDCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descOIDCTokens
	ch <- descOIDCKeys
	ch <- descOIDCErrors
}

// Collect implements prometheus.Collector.
func (c openIDCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.s.opts.OpenID.Stats()
	for result, count := range map[string]uint64{"accepted": n.Accepted, "refused": n.Refused, "unavailable": n.Unavailable} {
		ch <- prometheus.MustNewConstMetric(descOIDCTokens, prometheus.CounterValue, float64(count), result)
	}
	at := 0.0
	if !n.Fetched.IsZero() {
		at = float64(n.Fetched.Unix())
	}
	ch <- prometheus.MustNewConstMetric(descOIDCKeys, prometheus.GaugeValue, at)
	ch <- prometheus.MustNewConstMetric(descOIDCErrors, prometheus.CounterValue, float64(n.FetchErrors))
}
