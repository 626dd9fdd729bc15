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

// JoinAlone is the public API on the members' port of a server that has a second port for the API: new members join there,
// and nothing else is answered but how the server is.
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

// Times and sizes of the public API. Callers that have not authenticated have these; the API gives more time to those that have.
const (
	apiHeaderTime = 10 * time.Second
	apiWriteTime  = 5 * time.Second
	apiIdleTime   = 2 * time.Minute
	apiDrainTime  = 5 * time.Second
	apiMaxHeader  = 32 << 10
	apiStreams    = 100 // of one HTTP/2 connection at once
)

// ServeAPI answers on connections that are past their TLS handshake, until ctx ends. Connections of Port.API are closed when
// nobody authenticates on them in time. A handler with a method Drain is called before the end, so that it ends its streams.
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
