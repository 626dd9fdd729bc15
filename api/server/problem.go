package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// problem is a problem document as an error that huma knows how to write.
type problem struct {
	v1.Problem
	retry bool // worth trying again soon
	plain bool // its text speaks only of the object that the request named: tenants may see it
}

// Error implements error.
func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return v1.ProblemMediaTypeDefault }

// GetHeaders implements huma.HeadersError.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{"Cache-Control": {"no-store"}}
	if p.retry {
		h.Set("Retry-After", "1")
	}
	return h
}

var titles = map[string]string{
	v1.ProblemMalformed:     "The request cannot be read",
	v1.ProblemUnauthorized:  "No valid token",
	v1.ProblemForbidden:     "Not within the role of the token",
	v1.ProblemQuota:         "Over quota",
	v1.ProblemSuspended:     "The tenant is suspended",
	v1.ProblemNotFound:      "Not found",
	v1.ProblemMethod:        "Method not allowed",
	v1.ProblemNotAcceptable: "No such media type to answer with",
	v1.ProblemSlow:          "The request came too slowly",
	v1.ProblemConflict:      "Conflict",
	v1.ProblemExists:        "Exists already",
	v1.ProblemRefused:       "Refused by admission",
	v1.ProblemBlocked:       "VMs cannot move",
	v1.ProblemRestart:       "VMs would restart",
	v1.ProblemPrecondition:  "Changed meanwhile",
	v1.ProblemTooLarge:      "The request is too large",
	v1.ProblemMediaType:     "Unsupported media type",
	v1.ProblemInvalid:       "Invalid request",
	v1.ProblemUnsupported:   "Not supported by this version",
	v1.ProblemUpgrade:       "WebSocket needed",
	v1.ProblemTooMany:       "Too many requests",
	v1.ProblemInternal:      "The server failed",
	v1.ProblemNoLeader:      "No leader",
	v1.ProblemUnavailable:   "Out of reach",
	v1.ProblemTimeout:       "Timed out",
}

func newProblem(status int, kind, detail string) *problem {
	return &problem{Problem: v1.Problem{Type: kind, Title: titles[kind], Status: status, Detail: detail}}
}

// kinds are the types of problems that huma reports, by status.
var kinds = map[int]string{
	http.StatusBadRequest:            v1.ProblemMalformed,
	http.StatusUnauthorized:          v1.ProblemUnauthorized,
	http.StatusForbidden:             v1.ProblemForbidden,
	http.StatusNotFound:              v1.ProblemNotFound,
	http.StatusMethodNotAllowed:      v1.ProblemMethod,
	http.StatusNotAcceptable:         v1.ProblemNotAcceptable,
	http.StatusRequestTimeout:        v1.ProblemSlow,
	http.StatusConflict:              v1.ProblemConflict,
	http.StatusRequestEntityTooLarge: v1.ProblemTooLarge,
	http.StatusUnsupportedMediaType:  v1.ProblemMediaType,
	http.StatusUnprocessableEntity:   v1.ProblemInvalid,
	http.StatusTooManyRequests:       v1.ProblemTooMany,
}

// newError makes the problem of an error that huma found: a parameter that does not fit, a body
// that is missing. An error with a status that is not in kinds becomes an internal one, without its
// text.
func newError(status int, msg string, errs ...error) huma.StatusError {
	kind, known := kinds[status]
	if !known {
		kind, msg, errs = v1.ProblemInternal, "the server's log has the details", nil
	}
	p := newProblem(status, kind, msg)
	for _, err := range errs {
		var d huma.ErrorDetailer
		if !errors.As(err, &d) {
			continue
		}
		e := d.ErrorDetail()
		in, field, _ := strings.Cut(e.Location, ".")
		f := v1.FieldError{In: in, Field: field, Message: e.Message}
		if field == "" {
			f.In, f.Field = "", in
		}
		if v, ok := e.Value.(string); ok && v != "" && len(v) <= 60 {
			f.Value = v
		}
		p.Errors = append(p.Errors, f)
	}
	if len(p.Errors) > 0 {
		p.Detail = summary(p.Errors)
	} else if kind == v1.ProblemMalformed {
		p.Errors = []v1.FieldError{{In: "body", Field: "body", Message: msg}}
	}
	return p
}

// fail turns an error of the cluster or of a parser into a problem. What is not
// meant for users is logged and kept from them.
func (s *Server) fail(ctx context.Context, err error) error {
	var cut *problem
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &cut) { // its token ended
		return cut
	}
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		s.log.ErrorContext(ctx, "request failed", "request", requestID(ctx), "error", err)
	}
	if tenant := principalOf(ctx).of(); tenant != "" {
		p = restricted(p, tenant)
	}
	return p
}

func problemOf(err error) *problem {
	if p := problemOfChange(err); p != nil {
		return p
	}
	var (
		already  *problem
		document *v1.Invalid
		invalid  *leader.Invalid
		refused  *leader.Refused
		exists   *leader.Exists
		frozen   *leader.FrozenError
		busy     *leader.Busy
		quota    *state.QuotaError
	)
	switch {
	case errors.As(err, &already):
		return already
	case errors.As(err, &frozen):
		p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, frozen.Error())
		p.retry = true
		return p
	case errors.Is(err, node.ErrRefused), errors.Is(err, member.ErrNoCA):
		return newProblem(http.StatusConflict, v1.ProblemConflict, reasonOf(err))
	case errors.Is(err, node.ErrNotLeader):
		return noLeader("leadership changed meanwhile; try again")
	case errors.As(err, &document):
		p := newProblem(http.StatusUnprocessableEntity, v1.ProblemInvalid, "")
		if document.Malformed {
			p = newProblem(http.StatusBadRequest, v1.ProblemMalformed, "")
		}
		p.Detail = summary(document.Fields)
		for _, f := range document.Fields {
			f.In = "body"
			if f.Field == "" {
				f.Field = "body" // the document as a whole
			}
			p.Errors = append(p.Errors, f)
		}
		return p
	case errors.As(err, &invalid):
		p := newProblem(http.StatusUnprocessableEntity, v1.ProblemInvalid, "")
		for _, f := range invalid.Fields {
			in := "body"
			if f.Field == "Idempotency-Key" {
				in = "header"
			}
			p.Errors = append(p.Errors, v1.FieldError{In: in, Field: f.Field, Message: f.Text, Value: finite(f.Value)})
		}
		p.Detail = summary(p.Errors)
		return p
	case errors.As(err, &refused):
		p := newProblem(http.StatusConflict, v1.ProblemRefused, refused.Decision.Summary)
		p.Hosts, p.Advice = hostReasons(refused.Decision.Hosts), refused.Decision.Advice
		return p
	case errors.As(err, &busy):
		p := newProblem(http.StatusConflict, v1.ProblemConflict, busy.Text)
		p.plain = true
		return p
	case errors.As(err, &quota):
		return newProblem(http.StatusForbidden, v1.ProblemQuota, quota.Error())
	case errors.Is(err, state.ErrSuspended):
		return newProblem(http.StatusForbidden, v1.ProblemSuspended, err.Error())
	case errors.As(err, &exists):
		p := newProblem(http.StatusConflict, v1.ProblemExists, exists.Text)
		p.Errors = []v1.FieldError{{In: "body", Field: exists.Field, Message: strings.TrimPrefix(exists.Text, exists.Field+": ")}}
		return p
	case errors.Is(err, leader.ErrPrecondition):
		return newProblem(http.StatusPreconditionFailed, v1.ProblemPrecondition, reasonOf(err))
	case errors.Is(err, leader.ErrNotFound):
		return newProblem(http.StatusNotFound, v1.ProblemNotFound, err.Error())
	case errors.Is(err, leader.ErrConflict), errors.Is(err, state.ErrTooNew), errors.Is(err, state.ErrInUse), errors.Is(err, hypervisor.ErrNotFound):
		return newProblem(http.StatusConflict, v1.ProblemConflict, reasonOf(err))
	case errors.Is(err, hypervisor.ErrInvalid), errors.Is(err, node.ErrBadSnapshot):
		return newProblem(http.StatusUnprocessableEntity, v1.ProblemInvalid, err.Error())
	case errors.Is(err, leader.ErrNoLeader):
		p := newProblem(http.StatusServiceUnavailable, v1.ProblemNoLeader, err.Error()+"; nothing was changed")
		p.retry = true
		return p
	case errors.Is(err, leader.ErrTimeout), errors.Is(err, node.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		return newProblem(http.StatusGatewayTimeout, v1.ProblemTimeout, err.Error())
	case errors.Is(err, hypervisor.ErrUnavailable), errors.Is(err, context.Canceled):
		p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, err.Error())
		p.retry = true
		return p
	}
	return newProblem(http.StatusInternalServerError, v1.ProblemInternal, "the server's log has the details")
}

// reasonOf a conflict is its text without that of state.ErrConflict and state.ErrInUse: the
// problem's type says as much.
func reasonOf(err error) string {
	text := strings.ReplaceAll(err.Error(), ": "+state.ErrConflict.Error(), "")
	return strings.TrimSuffix(text, ": "+state.ErrInUse.Error())
}

// problemOfChange is the problem of a change for which VMs would have to restart, or cannot move, or that others made differently
// meanwhile; nil for any other error.
func problemOfChange(err error) *problem {
	var restarts *leader.NeedsRestart
	var merged *leader.Conflicts
	var blocked *leader.Blocked
	var stays *leader.Unmovable
	switch {
	case errors.As(err, &blocked):
		p := newProblem(http.StatusConflict, v1.ProblemBlocked, err.Error())
		p.Blockers = blockers(blocked.Blockers)
		return p
	case errors.As(err, &stays):
		p := newProblem(http.StatusConflict, v1.ProblemBlocked, stays.Error())
		p.Advice = stays.Blocker.Advice
		return p
	case errors.As(err, &restarts):
		return withFields(newProblem(http.StatusConflict, v1.ProblemRestart, restarts.Error()), restarts.Fields)
	case errors.As(err, &merged):
		fields := each(merged.Fields, func(f leader.Conflict) leader.FieldError { return leader.FieldError{Field: f.Field, Text: f.Says()} })
		return withFields(newProblem(http.StatusConflict, v1.ProblemConflict, merged.Error()), fields)
	}
	return nil
}

// withFields adds a fault for each field. The faults speak only of the virtual cluster that the request named.
func withFields(p *problem, fields []leader.FieldError) *problem {
	p.plain = true
	for _, f := range fields {
		p.Errors = append(p.Errors, v1.FieldError{In: "body", Field: f.Field, Message: f.Text})
	}
	return p
}

// finite keeps values that JSON cannot carry out of a document.
func finite(v any) any {
	switch x := v.(type) {
	case float64:
		if _, err := json.Marshal(x); err != nil {
			return fmt.Sprint(x)
		}
	case nil, string, int, int64, uint64, bool:
	default:
		return fmt.Sprint(x)
	}
	return v
}

func summary(faults []v1.FieldError) string {
	if len(faults) == 0 {
		return ""
	}
	if len(faults) == 1 {
		return faults[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", faults[0], len(faults)-1)
}

func notFound(format string, args ...any) error {
	return newProblem(http.StatusNotFound, v1.ProblemNotFound, fmt.Sprintf(format, args...))
}

// invalidParameter is a fault of one parameter.
func invalidParameter(in, name, value, format string, args ...any) *problem {
	p := newProblem(http.StatusUnprocessableEntity, v1.ProblemInvalid, "")
	f := v1.FieldError{In: in, Field: name, Message: fmt.Sprintf(format, args...)}
	if len(value) <= 60 {
		f.Value = value
	}
	p.Errors = []v1.FieldError{f}
	p.Detail = summary(p.Errors)
	return p
}

// stampProblem writes the request's id into problems that huma writes.
func stampProblem(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*problem); ok {
		c := *p
		c.Instance = "urn:evenkeel:request:" + requestID(ctx.Context())
		return &c, nil
	}
	return v, nil
}

// writeProblem answers a request outside huma.
func writeProblem(w http.ResponseWriter, r *http.Request, p *problem) {
	c := p.Problem
	c.Instance = "urn:evenkeel:request:" + requestID(r.Context())
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", v1.ProblemMediaTypeDefault)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(c) // an error here means that the client is gone: there is no one to report it to
}
