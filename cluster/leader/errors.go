package leader

import (
	"errors"
	"fmt"
	"strings"

	"evenkeel/cluster/state"
)

var (
	// ErrNotFound: no such virtual cluster, VM, host, image or operation.
	ErrNotFound = state.ErrNotFound
	// ErrConflict: it changed meanwhile, exists already, or is in use.
	ErrConflict = state.ErrConflict
	// ErrPrecondition: the object is not at the version that If-Match named. It is a conflict too.
	ErrPrecondition = fmt.Errorf("not at the version asked for: %w", state.ErrConflict)
	// ErrNoLeader: there is no leader now, so that nothing can be decided.
	ErrNoLeader = errors.New("no leader")
	// ErrTimeout: the answer did not come in time; the change may still happen.
	ErrTimeout = errors.New("timed out, may still be going on")
)

// FrozenError says that nothing may change until hosts have reported what they run.
type FrozenError struct {
	Reason  string
	Pending []string
}

// Error implements error.
func (e *FrozenError) Error() string {
	return fmt.Sprintf("nothing is changed after the %s until these hosts have said what they run: %s; vcctl host confirm-dead declares dead one that never will",
		e.Reason, strings.Join(e.Pending, ", "))
}

// FieldError is one fault of a request.
type FieldError struct {
	Field string // path as the user writes it: groups[0].cpu
	Text  string // what is wrong and what to write instead
	Value any    // what was written, if it is short
}

// Invalid says that a request can never be carried out as it is.
type Invalid struct{ Fields []FieldError }

// Error implements error.
func (e *Invalid) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + ": " + f.Text
	}
	return "invalid request: " + strings.Join(parts, "; ")
}

// Refused says that admission has no room, and why.
type Refused struct{ Decision state.Decision }

// Error implements error.
func (e *Refused) Error() string { return "refused by admission: " + e.Decision.Summary }
