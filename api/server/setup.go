package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
)

// Setup makes this host a member. Errors are those that fail knows.
type Setup interface {
	State() v1.SetupState
	Init(ctx context.Context, q v1.SetupInit) (v1.SetupAnswer, error)
	Join(ctx context.Context, q v1.SetupJoin) (v1.SetupAnswer, error)
}

// ServeSetup answers root of this host on a unix socket until ctx ends. A user who may open
// the socket may make the host a member of any cluster.
func ServeSetup(ctx context.Context, path string, setup Setup, trail Audit, log *slog.Logger) error {
	l, err := listenUnix(path)
	if err != nil {
		return fmt.Errorf("local socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/setup", func(w http.ResponseWriter, _ *http.Request) { answerSetup(w, setup.State()) })
	mux.HandleFunc("POST /v1/setup/init", func(w http.ResponseWriter, r *http.Request) {
		var q v1.SetupInit
		if readSetup(w, r, &q) {
			a, err := setup.Init(audit.With(r.Context(), local), q)
			recordSetup(trail, "initCluster", setup.State().Name, "", err)
			setupDone(w, r, a, err, log)
		}
	})
	mux.HandleFunc("POST /v1/setup/join", func(w http.ResponseWriter, r *http.Request) {
		var q v1.SetupJoin
		if readSetup(w, r, &q) {
			a, err := setup.Join(audit.With(r.Context(), local), q)
			recordSetup(trail, "joinCluster", setup.State().Name, "through "+strings.Join(q.Addresses, ", "), err)
			setupDone(w, r, a, err, log)
		}
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, MaxHeaderBytes: 32 << 10}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("local socket: %w", err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(bounded) != nil {
		_ = srv.Close() // a client that still waits for the host to become a member has to ask again
	}
	<-done
	return nil
}

// listenUnix listens on a socket of mode 0600. It replaces a socket on which no process answers.
func listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close() // a process answers
		return nil, fmt.Errorf("%s: another vcd answers there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// local is the user who may open the socket: root of this host.
var local = audit.Actor{ID: "local"}

// recordSetup takes into the audit log that this host was made a member, or was to be.
func recordSetup(trail Audit, verb, name, detail string, err error) {
	status := http.StatusOK
	if err != nil {
		status = problemOf(err).Status
		detail = strings.TrimPrefix(detail+": "+err.Error(), ": ")
	}
	trail.Add(audit.Record{Actor: local, Verb: verb, Object: audit.Object{Kind: "member", Name: name}, Outcome: audit.OutcomeOf(status), Status: status, Detail: detail})
}

func readSetup(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(io.LimitReader(r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		writeProblem(w, r, newProblem(http.StatusBadRequest, v1.ProblemMalformed, err.Error()))
		return false
	}
	return true
}

func answerSetup(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // an error here means that the client is gone: there is no one to report it to
}

func setupDone(w http.ResponseWriter, r *http.Request, a v1.SetupAnswer, err error, log *slog.Logger) {
	if err == nil {
		answerSetup(w, a)
		return
	}
	log.Error("setup", "path", r.URL.Path, "error", err)
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError { // to root of this host nothing need be hidden
		p.Detail = err.Error()
	}
	writeProblem(w, r, p)
}
