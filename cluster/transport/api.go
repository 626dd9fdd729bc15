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

// ServeAPI answers on connections that are past their TLS handshake, until ctx ends.
// A handler with a method Drain is told before, so that it ends its streams.
func ServeAPI(ctx context.Context, h Handler, l net.Listener, log *slog.Logger) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	srv := &http.Server{Handler: h, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 90 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if d, ok := h.(interface{ Drain() }); ok {
		d.Drain()
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if srv.Shutdown(bounded) != nil {
		_ = srv.Close() // what is left is cut off
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
