package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Handler is the public API as it is served.
type Handler = http.Handler

// NoServer is the public API of a member that is no server.
var NoServer Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusServiceUnavailable, kindNoLeader, "this member is an agent; ask one of the cluster's servers")
})

// JoinAlone is the public API on the members' port of a server that has a second port for the API: new members join there, and
// else it answers only with the server's health.
func JoinAlone(api Handler) Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case joinPath, "/livez", "/readyz":
			api.ServeHTTP(w, r)
		default:
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusMisdirectedRequest, kindElsewhere, "this port is for members of the cluster; the API has a port of its own on this server (apiListen in vcd.yaml)")
		}
	})
}

// Times and sizes of the public API for clients that have not authenticated; the API gives more time to those that have.
const (
	apiHeaderTime = 10 * time.Second
	apiWriteTime  = 5 * time.Second
	apiIdleTime   = 2 * time.Minute
	apiDrainTime  = 5 * time.Second
	apiMaxHeader  = 32 << 10
	apiStreams    = 100 // of one HTTP/2 connection at once
)

// ServeAPI answers on connections that are past their TLS handshake, until ctx ends. It closes connections of Port.API on which
// no client authenticates in time. It calls a handler's method Drain, if there is one, before the end, so that the handler ends
// its streams.
func ServeAPI(ctx context.Context, h Handler, l net.Listener, log *slog.Logger) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	srv := &http.Server{Handler: pathsOnly(h), Protocols: protocols, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: apiHeaderTime, WriteTimeout: apiWriteTime, IdleTimeout: apiIdleTime, MaxHeaderBytes: apiMaxHeader,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: apiStreams, WriteByteTimeout: 30 * time.Second},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	if q, ok := l.(*queue); ok && q.table != nil {
		srv.ConnContext, srv.ConnState = q.table.marker, q.table.state
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	var err error
	ended := false
	select {
	case err = <-done:
		ended = true
	case <-ctx.Done():
	}
	if d, ok := h.(interface{ Drain() }); ok {
		d.Drain()
	}
	if ctx.Err() == nil {
		_ = srv.Close() // nothing is kept in what is left
		return err
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiDrainTime)
	defer cancel()
	if srv.Shutdown(bounded) != nil {
		log.Warn("requests were cut off at shutdown")
		_ = srv.Close()
	}
	if !ended {
		err = <-done
	}
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // the port may be closed first
		return err
	}
	return nil
}
