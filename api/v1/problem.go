package v1

import (
	"fmt"
	"strings"
)

// Types of problems: the `type` of a problem document is ProblemPrefix and one of these.
// They are stable; the words of title and detail are not.
const (
	ProblemPrefix = "urn:evenkeel:problem:"

	ProblemMalformed        = ProblemPrefix + "malformed"              // 400: not JSON, or half of it
	ProblemUnauthorized     = ProblemPrefix + "unauthorized"           // 401
	ProblemForbidden        = ProblemPrefix + "forbidden"              // 403: the role of the token does not reach that far
	ProblemQuota            = ProblemPrefix + "quota"                  // 403: the tenant may not use more
	ProblemSuspended        = ProblemPrefix + "suspended"              // 403: the tenant is suspended
	ProblemNotFound         = ProblemPrefix + "not-found"              // 404
	ProblemMethod           = ProblemPrefix + "method-not-allowed"     // 405
	ProblemNotAcceptable    = ProblemPrefix + "not-acceptable"         // 406
	ProblemSlow             = ProblemPrefix + "request-too-slow"       // 408
	ProblemConflict         = ProblemPrefix + "conflict"               // 409: changed meanwhile, or in use
	ProblemExists           = ProblemPrefix + "exists"                 // 409: the name is taken
	ProblemRefused          = ProblemPrefix + "refused"                // 409: admission has no room
	ProblemRestart          = ProblemPrefix + "restart"                // 409: running VMs would have to restart, which the request does not allow
	ProblemBlocked          = ProblemPrefix + "blocked"                // 409: VMs that cannot move block the drain of a host
	ProblemPrecondition     = ProblemPrefix + "precondition-failed"    // 412: not at the version of If-Match
	ProblemTooLarge         = ProblemPrefix + "too-large"              // 413
	ProblemMediaType        = ProblemPrefix + "unsupported-media-type" // 415
	ProblemInvalid          = ProblemPrefix + "invalid"                // 422: a field or parameter is wrong
	ProblemUnsupported      = ProblemPrefix + "unsupported"            // 422: known, but not by this version
	ProblemUpgrade          = ProblemPrefix + "upgrade-required"       // 426: a WebSocket is wanted here
	ProblemTooMany          = ProblemPrefix + "too-many-requests"      // 429: more at once or in a second than one token or address may have
	ProblemInternal         = ProblemPrefix + "internal"               // 500
	ProblemNoLeader         = ProblemPrefix + "no-leader"              // 503
	ProblemUnavailable      = ProblemPrefix + "unavailable"            // 503: a host or its hypervisor is out of reach
	ProblemTimeout          = ProblemPrefix + "timeout"                // 504: the change may still happen
	ProblemMediaTypeDefault = "application/problem+json"
)

// Problem is the document of every error, after RFC 9457.
type Problem struct {
	Type     string       `json:"type" doc:"What kind of problem it is, as a stable URN: urn:evenkeel:problem:refused and so on." example:"urn:evenkeel:problem:refused"`
	Title    string       `json:"title" doc:"The kind of problem in words; the same for every problem of the type."`
	Status   int          `json:"status" doc:"The HTTP status of the answer."`
	Detail   string       `json:"detail,omitempty" doc:"What went wrong this time, and what to do about it."`
	Instance string       `json:"instance,omitempty" doc:"The request, as it stands in the server's log: urn:evenkeel:request:ID."`
	Errors   []FieldError `json:"errors,omitempty" doc:"Each fault of the request, by field."`
	Hosts    []HostReason `json:"hosts,omitempty" doc:"For a refusal: what each host lacked."`
	Advice   []string     `json:"advice,omitempty" doc:"For a refusal: what would make it fit."`
	Blockers []Blocker    `json:"blockers,omitempty" doc:"For a host that cannot be emptied: the VMs that cannot leave, and what to do about each."`
}

// FieldError is one fault of a request.
type FieldError struct {
	Field   string `json:"field" doc:"Path of the field as the user writes it, or the name of the parameter." example:"groups[0].cpu"`
	In      string `json:"in,omitempty" doc:"Where it stands: body, path, query or header."`
	Line    int    `json:"line,omitempty" doc:"Line of the document, from 1."`
	Message string `json:"message" doc:"What is wrong with it, and what to write instead."`
	Value   any    `json:"value,omitempty" doc:"What was given, if it is short."`
}

// HostReason is why a host could not take what was asked.
type HostReason struct {
	Host          string  `json:"host" doc:"Name of the host."`
	Cordoned      bool    `json:"cordoned,omitempty" doc:"The host takes no new VMs."`
	CPUMissing    float64 `json:"cpuMissing" doc:"Cores that it lacks."`
	MemoryMissing Size    `json:"memoryMissing" doc:"Bytes that it lacks."`
	Rule          string  `json:"rule,omitempty" doc:"Rule of affinity that keeps the VMs from it." example:"avoid app=db"`
	Text          string  `json:"text" doc:"The same in words."`
}

// Invalid says what is wrong with a document. Malformed: it is not even
// a document (broken JSON or YAML), so that nothing after the fault was read.
type Invalid struct {
	Malformed bool
	Fields    []FieldError
}

// Error implements error.
func (e *Invalid) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.String()
	}
	return strings.Join(parts, "\n")
}

// String is "line 4: groups[0].cpu: what is wrong".
func (f FieldError) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", f.Line)
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}
