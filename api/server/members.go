package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// joinPath is where a new member shows its join token. It is for vcd, not for people: its body is
// the cluster's own, and not described by OpenAPI.
const joinPath = "/v1/cluster/join"

func (s *Server) registerMembers(_ huma.API) {
	s.mux.HandleFunc("POST "+joinPath, s.joinMember)
}

// joinMember lets a member in. What is wrong with a token is said to nobody but the events.
func (s *Server) joinMember(w http.ResponseWriter, r *http.Request) {
	var q transport.JoinRequest
	d := json.NewDecoder(r.Body)
	if err := d.Decode(&q); err != nil {
		writeProblem(w, r, newProblem(http.StatusBadRequest, v1.ProblemMalformed, fmt.Sprintf("the body is no request to join: %v", err)))
		return
	}
	a, err := s.opts.Members.Admit(r.Context(), q)
	if err != nil {
		var already *problem
		if errors.Is(err, state.ErrToken) || errors.Is(err, pki.ErrToken) {
			err = newProblem(http.StatusForbidden, v1.ProblemUnauthorized, "the join token is not known, used, or over; make a new one with `vcctl cluster join-token`")
		}
		p := s.fail(r.Context(), err)
		if errors.As(p, &already) {
			writeProblem(w, r, already)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(a) // the client is gone: it has to join anew, with another token
}
