package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

// Errors of calls to other members.
var (
	// ErrNoLeader: no leader is known or can be reached now. Try again.
	ErrNoLeader = errors.New("no leader")
	// ErrRefused: the other member does not let this one do that.
	ErrRefused = errors.New("refused by the member asked")
	// errWhole: the leader does not have what a report is a change of.
	errWhole = errors.New("the leader wants the whole report")
	// errSession: the leader is another, or began again.
	errSession = errors.New("the leader does not know the session")
	// ErrThrottled: the member asks for more than it is given in that time. Try again much later.
	ErrThrottled = errors.New("too many requests")
	// ErrTooLarge: a frame, body or answer is larger than any should be.
	ErrTooLarge = errors.New("larger than the limit")
)

// Types of the problem documents of this package (RFC 9457). Those that the API has as well are the same.
const (
	problemPrefix  = "urn:evenkeel:problem:"
	kindMalformed  = problemPrefix + "malformed"
	kindForbidden  = problemPrefix + "forbidden"
	kindMember     = problemPrefix + "member-refused" // the member that sent the request, for whichever caller it did so
	kindNotFound   = problemPrefix + "not-found"
	kindWhole      = problemPrefix + "whole-report-wanted"
	kindSession    = problemPrefix + "unknown-session"
	kindLate       = problemPrefix + "late-call"
	kindTooLarge   = problemPrefix + "too-large"
	kindUpgrade    = problemPrefix + "upgrade-required"
	kindInternal   = problemPrefix + "internal"
	kindConflict   = problemPrefix + "conflict"
	kindNoLeader   = problemPrefix + "no-leader"
	kindElsewhere  = problemPrefix + "elsewhere"
	kindOutOfReach = problemPrefix + "unavailable"
	kindTimeout    = problemPrefix + "timeout"
	kindNoHistory  = problemPrefix + "no-history"
	kindThrottled  = problemPrefix + "too-many-requests"
	kindOwnPKI     = problemPrefix + "own-pki"

	problemMediaType = "application/problem+json"
	maxProblem       = 64 << 10 // bytes of a document that are read
)

// Problem is an answer that says what went wrong, as an error.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("%s (%d)", p.Title, p.Status)
	}
	return fmt.Sprintf("%s (%d): %s", p.Title, p.Status, p.Detail)
}

// Is says which sentinel of this package a problem matches.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrNoLeader:
		return p.Type == kindNoLeader
	case ErrRefused:
		return p.Status == http.StatusForbidden
	case ErrTooLarge:
		return p.Type == kindTooLarge
	case ErrThrottled:
		return p.Status == http.StatusTooManyRequests
	case errWhole:
		return p.Type == kindWhole
	case errSession:
		return p.Type == kindSession
	case agent.ErrNoHistory, hypervisor.ErrNotFound:
		return p.Type == kindNoHistory
	}
	return false
}

// Answer is what the cluster answered to a request, if it answered: a member that asks another server learns nothing else.
type Answer int

// The kinds of answers.
const (
	NoAnswer   Answer = iota
	Forbidden         // the right to it was not shown
	Conflict          // it does not go with the state of things
	Malformed         // it can never be answered otherwise
	Leaderless        // there is no leader now; nothing was changed, and the client may ask again
	Busy              // the server takes no more requests now; it may be asked again
)

// AnswerOf reads an error of Join. detail is the cluster's own text.
func AnswerOf(err error) (a Answer, detail string) {
	var p *Problem
	if errors.As(err, &p) {
		switch p.Status {
		case http.StatusForbidden:
			return Forbidden, p.Detail
		case http.StatusConflict:
			return Conflict, p.Detail
		case http.StatusBadRequest, http.StatusUnprocessableEntity:
			return Malformed, p.Detail
		case http.StatusTooManyRequests:
			return Busy, p.Detail
		case http.StatusServiceUnavailable:
			if p.Type == kindNoLeader {
				return Leaderless, p.Detail
			}
		}
	}
	return NoAnswer, ""
}

var titles = map[string]string{
	kindMalformed:  "The request cannot be read",
	kindForbidden:  "Not allowed to this member",
	kindMember:     "This member is refused",
	kindNotFound:   "Not found",
	kindWhole:      "The whole report is wanted",
	kindSession:    "Unknown session",
	kindLate:       "A later call was answered before",
	kindTooLarge:   "The request is too large",
	kindUpgrade:    "An upgrade of the connection is needed",
	kindInternal:   "The member failed",
	kindConflict:   "Not as things are now",
	kindNoLeader:   "No leader",
	kindElsewhere:  "Another server leads",
	kindOutOfReach: "Out of reach",
	kindTimeout:    "Timed out",
	kindNoHistory:  "Nothing was measured",
	kindThrottled:  "Too many requests",
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, status int, kind, format string, args ...any) {
	h := w.Header()
	h.Set("Content-Type", problemMediaType)
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Problem{Type: kind, Title: titles[kind], Status: status, Detail: fmt.Sprintf(format, args...)}) // the client is gone: an error has no receiver
}

// problemOf reads an answer that is no success as an error.
func problemOf(resp *http.Response) error {
	p := &Problem{Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == problemMediaType {
		if text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem)); err == nil {
			_ = json.Unmarshal(text, p) // the status gives what the document does not
		}
	}
	p.Status = resp.StatusCode
	return p
}
