package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/state"
)

const tagToken = "Tokens"

// Tokens is what the API asks of the cluster's tokens. *leader.Service is one.
type Tokens interface {
	// Token by its id, as this server knows it; AwaitToken waits until it is there or ctx ends.
	Token(id string) (state.Token, bool)
	AwaitToken(ctx context.Context, id string) (state.Token, bool)
	MakeToken(ctx context.Context, t state.Token, dryRun bool) (state.Token, error)
	RevokeToken(ctx context.Context, d state.TokenDrop, dryRun bool) (state.Token, error)
	// UseToken remembers a use; TokenUses are the last ones that this server knows of.
	UseToken(id string, at time.Time)
	TokenUses() map[string]time.Time
}

type tokenAnswer struct {
	Status       int
	CacheControl string `header:"Cache-Control"`
	Body         v1.Token
}

func (s *Server) registerTokens(api huma.API) {
	get(api, route{"listTokens", "/v1/tokens", tagToken, "List tokens of the API", "Never their secrets. The token in the file of `vcd dev` is not among them."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
		}) (*answerOf[v1.List[v1.Token]], error) {
			x, err := s.scopedOrAll(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			uses := s.cluster.TokenUses()
			rows := slices.DeleteFunc(x.v.Tokens(), func(t state.Token) bool { return !x.ownsToken(t) })
			return &answerOf[v1.List[v1.Token]]{Body: v1.List[v1.Token]{Items: each(rows, func(t state.Token) v1.Token {
				if used := uses[t.ID]; used.After(t.LastUsed) {
					t.LastUsed = used
				}
				return x.token(t)
			})}}, nil
		})
	change(api, http.MethodPost, route{"makeToken", "/v1/tokens", tagToken, "Make a token of the API", "Its secret is shown in this answer only. For a role of the cluster, tenant in the body says whose it is."},
		http.StatusCreated, v1.TokenRequest{}, s.makeToken)
	change(api, http.MethodDelete, route{"revokeToken", "/v1/tokens/{id}", tagToken, "Revoke a token of the API",
		"It is refused from now on, and what runs with it (event streams, consoles, long polls) ends within 5 s, on every server. The last admin token that does not expire is not revoked (409)."},
		http.StatusOK, nil, s.revokeToken)
}

func (s *Server) makeToken(ctx context.Context, in *struct {
	TenantParams
	ChangeParams
	JSONBody
}) (*tokenAnswer, error) {
	q, err := body[v1.TokenRequest](in.JSONBody)
	if err != nil {
		return nil, err
	}
	role := state.Role(q.Role)
	principal := principalOf(ctx)
	if q.Tenant, err = tenantOfChange(principal, in.TenantParams, q.Tenant); err != nil {
		return nil, err
	}
	if err := roleOfTenant(q); err != nil {
		return nil, err
	}
	if principal == nil || !covers(principal.Role, role) {
		return nil, newProblem(http.StatusForbidden, v1.ProblemForbidden, fmt.Sprintf("a token of role %s may do what the token of this request may not", role))
	}
	text, row := NewToken()
	row.Name, row.Role, row.Tenant, row.MadeBy = q.Name, role, q.Tenant, madeBy(ctx)
	if row.Until, err = endOf(q, principal, time.Now()); err != nil {
		return nil, err
	}
	if row.From, err = rangesOf(q, principal); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	named(ctx, row.ID)
	made, err := s.cluster.MakeToken(bounded, row, in.DryRun)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &tokenAnswer{Status: http.StatusCreated, CacheControl: "no-store", Body: tokenOf(made)}
	if in.DryRun {
		out.Status, out.Body.ID = http.StatusOK, ""
	} else {
		out.Body.Token = text
	}
	return out, nil
}

func (s *Server) revokeToken(ctx context.Context, in *struct {
	IDParam
	TenantParams
	ChangeParams
}) (*answerOf[v1.TokenRevocation], error) {
	own, err := tenantOfChange(principalOf(ctx), in.TenantParams, "")
	if err != nil {
		return nil, err
	}
	if own != "" {
		if row, there := s.cluster.Token(in.ID); !there || row.Tenant != own { // by one way, so that both take equally long
			return nil, notFound("token %s: not found", in.ID)
		}
	}
	// Not ended by its own effect, should the token be that of this request.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	row, err := s.cluster.RevokeToken(bounded, state.TokenDrop{ID: in.ID, By: madeBy(ctx), AdminElsewhere: len(s.opts.Tokens) > 0}, in.DryRun)
	if err != nil {
		return nil, s.fail(bounded, err)
	}
	running := s.live.running(in.ID)
	out := v1.TokenRevocation{ID: row.ID, Name: row.Name, Role: string(row.Role), DryRun: in.DryRun,
		EventStreams: running[liveStream], Consoles: running[liveConsole], LongPolls: running[livePoll]}
	verb := "is revoked"
	if in.DryRun {
		verb = "would be revoked"
	}
	out.Text = fmt.Sprintf("token %s (%s, %s) %s; on the leader it has %d event streams, %d consoles and %d long polls, which end with it within 5 s",
		row.ID, row.Name, out.Role, verb, out.EventStreams, out.Consoles, out.LongPolls)
	if principal := principalOf(ctx); principal != nil && principal.ID == row.ID {
		out.Text += "; it is the token of this very request: the next one needs another token"
	}
	return &answerOf[v1.TokenRevocation]{Body: out}, nil
}

// endOf is when a new token ends; zero: never. It does not outlive the token that asks for it: the holder of a token for a day must
// not have another one after it.
func endOf(q v1.TokenRequest, asks *principal, now time.Time) (time.Time, error) {
	last := asks.lastingEnd()
	if q.Seconds == nil {
		return last, nil
	}
	until := now.Add(time.Duration(*q.Seconds * float64(time.Second))).UTC().Truncate(time.Second)
	if !last.IsZero() && until.After(last) {
		return until, problemOf(&v1.Invalid{Fields: []v1.FieldError{{Field: "seconds", Message: "the token would outlive the one that asks for it, which ends at " +
			last.UTC().Format(time.RFC3339) + ": leave it out to end then, too", Value: *q.Seconds}}})
	}
	return until, nil
}

// rangesOf a new token: the addresses that it is good from. They are within those of the token that asks for it: its holder must
// not have another one for elsewhere.
func rangesOf(q v1.TokenRequest, asks *principal) ([]string, error) {
	refuse := func(why string) ([]string, error) {
		return nil, problemOf(&v1.Invalid{Fields: []v1.FieldError{{Field: "from", Message: why, Value: q.From}}})
	}
	if len(q.From) == 0 {
		return asks.From, nil
	}
	ranges, err := state.TokenRanges(q.From)
	switch {
	case err != nil:
		return refuse(err.Error())
	case !state.RangesWithin(ranges, asks.From):
		return refuse("the token would be good from where the one that asks for it is not, which is good from " + strings.Join(asks.From, ", ") + ": leave it out for the same")
	}
	return ranges, nil
}

// roleOfTenant refuses a role of a tenant without one, and a role of the cluster with one.
func roleOfTenant(q v1.TokenRequest) error {
	ofTenant := slices.Contains(state.TenantRoles(), state.Role(q.Role))
	switch {
	case ofTenant && q.Tenant == "":
		return problemOf(&v1.Invalid{Fields: []v1.FieldError{{Field: "tenant", Message: "is needed with role " + q.Role + ", which is one of a tenant"}}})
	case !ofTenant && q.Tenant != "":
		return problemOf(&v1.Invalid{Fields: []v1.FieldError{{Field: "tenant", Message: "goes with a role of a tenant (owner, editor, viewer), not with " + q.Role, Value: q.Tenant}}})
	}
	return nil
}

// covers says whether a role may do all that another may. Who may administer the cluster may give everything.
func covers(own, other state.Role) bool {
	if slices.Contains(grants[own], permitAdminister) {
		return true
	}
	for _, p := range grants[other] {
		if !slices.Contains(grants[own], p) {
			return false
		}
	}
	return true
}

// madeBy is who asks, as rows and events of tokens name it.
func madeBy(ctx context.Context) string {
	principal := audit.Of(ctx)
	return audit.Actor{ID: principal.ID, Name: principal.Name}.String()
}

func tokenOf(t state.Token) v1.Token {
	out := v1.Token{ID: t.ID, Name: t.Name, Role: string(t.Role), Tenant: t.Tenant, From: t.From, MadeBy: t.MadeBy}
	if !t.MadeAt.IsZero() {
		out.MadeAt = &t.MadeAt
	}
	if !t.Until.IsZero() {
		out.Until = &t.Until
	}
	if !t.LastUsed.IsZero() {
		out.LastUsed = &t.LastUsed
	}
	return out
}
