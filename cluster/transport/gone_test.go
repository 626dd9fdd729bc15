package transport

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A call that is given up in the middle, because its caller seems to be gone, is never answered as if it had been carried out:
// the connection may still take an answer to the caller.
func TestGivenUpIsNoAcknowledgement(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := slog.New(slog.DiscardHandler)
	p := &Peers{o: PeersOptions{Log: log, Lead: func() Leading { return Leading{Here: true, Term: 1} }},
		lines: map[string]*line{"h1": {session: 7, term: 1, last: map[string]uint64{}, busy: map[string]chan struct{}{callReport: make(chan struct{})}}}}
	call := func() *http.Request {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/hosts/h1/report", http.NoBody)
		r.SetPathValue("host", "h1")
		r.Header.Set(headerSession, "7")
		r.Header.Set(headerCall, "1")
		return r
	}
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request){
		"a call that waits for its turn": func(w http.ResponseWriter, r *http.Request) {
			if _, _, leave := p.enter(w, r, callReport); leave != nil {
				t.Error("it may go on")
			}
		},
		"a call that fails": func(w http.ResponseWriter, r *http.Request) { p.fail(w, r, context.Canceled) },
		"a relayed call": func(w http.ResponseWriter, r *http.Request) {
			newRelay(&Dialer{}, ProtocolPeer, log).proxy.ErrorHandler(w, r, errors.Join(errors.New("relay"), context.Canceled))
		},
	} {
		w := httptest.NewRecorder()
		serve(w, call())
		if w.Code < 500 {
			t.Errorf("%s is answered with %d", name, w.Code)
		}
	}
}
