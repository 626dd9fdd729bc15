package server

import (
	"context"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
)

// ReadParams come with every read. (Exported because huma reads embedded structs only then.)
type ReadParams struct {
	Index       uint64 `query:"index" doc:"Answer only once the state asked has come to this index of the log, as Evenkeel-Index named it: a stale read that sees one's own change."`
	Consistency string `query:"consistency" enum:"linearizable,stale" default:"linearizable" doc:"linearizable: everything acknowledged before is in the answer. stale: what the asked server knows, also when there is no leader."`
}

// ChangeParams come with every change.
type ChangeParams struct {
	DryRun bool `query:"dryRun" doc:"Plan and answer, change nothing."`
}

// CallParams come with every change of a virtual cluster, and with what moves VMs.
type CallParams struct {
	ChangeParams
	IfMatch        string `header:"If-Match" maxLength:"64" doc:"The ETag that the virtual cluster, or the plan, must have; 412 if it has another."`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"128" doc:"Any text of the client's making: the same request with the same key is carried out once and answered again. Kept for 24 hours, the newest 10,000 at most."`
}

// call of the cluster that the parameters ask for.
func (p CallParams) call() (leader.Call, error) {
	c := leader.Call{IdempotencyKey: p.IdempotencyKey, DryRun: p.DryRun}
	if p.IfMatch == "" || p.IfMatch == "*" {
		return c, nil
	}
	tag := strings.TrimSuffix(strings.TrimPrefix(p.IfMatch, `"`), `"`)
	index, err := strconv.ParseUint(tag, 10, 64)
	if err != nil || index == 0 || p.IfMatch != etag(index) {
		return c, invalidParameter("header", "If-Match", p.IfMatch, `must be an ETag as the API gives it, like "42" with its quotes`)
	}
	c.IfMatch = index
	return c, nil
}

// unversioned refuses If-Match where nothing has a version that it could name.
func (p CallParams) unversioned() error {
	if p.IfMatch == "" {
		return nil
	}
	return invalidParameter("header", "If-Match", p.IfMatch, "nothing has a version here: leave it out")
}

func etag(index uint64) string { return `"` + strconv.FormatUint(index, 10) + `"` }

// NameParam is the name in the path.
type NameParam struct {
	Name string `path:"name" maxLength:"253" doc:"Name."`
}

// jsonBody is the raw body of a request; package v1 parses it and names the field
// and the line of each fault.
type jsonBody struct {
	RawBody     []byte `contentType:"application/json"`
	ContentType string `header:"Content-Type" hidden:"true"`
}

// JSONBody embeds jsonBody's fields in inputs.
type JSONBody jsonBody

func (b JSONBody) check() error {
	if b.ContentType == "" {
		return nil
	}
	media, parameters, err := mime.ParseMediaType(b.ContentType)
	if charset := parameters["charset"]; err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		p := newProblem(http.StatusUnsupportedMediaType, v1.ProblemMediaType, "the body must be JSON in UTF-8: Content-Type: application/json")
		p.Errors = []v1.FieldError{{In: "header", Field: "Content-Type", Message: p.Detail}}
		return p
	}
	return nil
}

// parse the body after looking at its type.
func parse[T any](b JSONBody, f func([]byte) (T, error)) (T, error) {
	var v T
	err := b.check()
	if err == nil {
		v, err = f(b.RawBody)
	}
	if err != nil {
		return v, problemOf(err)
	}
	return v, nil
}

// body of a request.
func body[T any](b JSONBody) (T, error) { return parse(b, v1.Decode[T]) }

// answerOf wraps a body.
type answerOf[T any] struct{ Body T }

// route is an operation as the OpenAPI document has it.
type route struct{ id, path, tag, summary, text string }

// get registers a read.
func get[I, O any](api huma.API, r route, h func(context.Context, *I) (*O, error)) {
	huma.Register(api, huma.Operation{
		OperationID: r.id, Method: http.MethodGet, Path: r.path, Summary: r.summary, Description: r.text, Tags: []string{r.tag},
		Errors: []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusServiceUnavailable, http.StatusGatewayTimeout},
	}, h)
}

// change registers what changes something. body is a value of the type that the request's body holds, nil for none.
func change[I, O any](api huma.API, method string, r route, status int, body any, h func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: r.id, Method: method, Path: r.path, Summary: r.summary, Description: r.text, Tags: []string{r.tag}, DefaultStatus: status,
		SkipValidateBody: true,
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed,
			http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusServiceUnavailable, http.StatusGatewayTimeout},
	}
	if body != nil {
		op.RequestBody = &huma.RequestBody{}
	}
	if r.path == simulatePath {
		op.MaxBodyBytes = MaxSimulateBytes
	}
	huma.Register(api, op, h)
	if body != nil {
		op.RequestBody.Content["application/json"].Schema = api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(body), true, "")
	}
}

// describeSizes states in the OpenAPI document that sizes may be written with a unit.
func describeSizes(doc *huma.OpenAPI) {
	for _, name := range []string{"GroupSpec", "Disk", "ScaleRequest", "ImageSpec", "SimulatedHost", "SettingsPatch", "MovePatch", "RebalanceRequest", "DrainRequest", "SimulateRequest"} {
		schema := doc.Components.Schemas.Map()[name]
		if schema == nil {
			continue
		}
		for _, field := range []string{"memory", "memoryMin", "size", "minMemory", "maxBytes", "bandwidth"} {
			p := schema.Properties[field]
			if p == nil {
				continue
			}
			minimum, pattern := 1.0, `^[0-9]+((\.[0-9]+)?[KMGT]iB)?$`
			if field == "maxBytes" || field == "bandwidth" {
				minimum = 0
			}
			if field == "maxBytes" && name != "MovePatch" { // a v1.Bound
				pattern = `^([0-9]+((\.[0-9]+)?[KMGT]iB)?|unlimited)$`
			}
			schema.Properties[field] = &huma.Schema{
				Description: p.Description,
				OneOf: []*huma.Schema{
					{Type: huma.TypeInteger, Format: "int64", Minimum: &minimum, Description: "Bytes."},
					{Type: huma.TypeString, Pattern: pattern, Examples: []any{"2GiB"}},
				},
			}
		}
	}
}
