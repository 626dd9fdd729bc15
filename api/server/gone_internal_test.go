package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A request that is given up in the middle, because its client seems to be gone, is never answered as if it had been carried out,
// and an answer that broke off is not ended as if it were whole.
func TestGivenUpIsNoSuccess(t *testing.T) {
	s := New(broken{}, Options{Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	s.observe(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errors.New("write: broken pipe")) })).
		ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/virtual-clusters", http.NoBody))
	if w.Code != http.StatusGatewayTimeout {
		t.Errorf("it is answered with %d", w.Code)
	}
	defer func() {
		if p := recover(); p != any(http.ErrAbortHandler) {
			t.Errorf("an answer that broke off ends with %v", p)
		}
	}()
	s.observe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/vms", http.NoBody))
}
