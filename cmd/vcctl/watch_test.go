package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// -w goes on when the server is away for a while, and ends when what it watches is gone.
func TestWatchOutlivesTheServer(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch asked.Add(1) {
		case 1:
			_, _ = w.Write([]byte(`{"name":"h1","state":"ready"}`))
		case 2, 3:
			panic(http.ErrAbortHandler) // the connection breaks, and the one that is made in its place
		case 4:
			_, _ = w.Write([]byte(`{"name":"h1","state":"cordoned"}`))
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"type":"urn:evenkeel:problem:not-found","title":"Not found","status":404}`))
		}
	}))
	defer srv.Close()
	t.Setenv("HOME", t.TempDir())
	var out, errs bytes.Buffer
	status := run([]string{"vcctl", "--address", srv.URL, "--token", "x", "host", "get", "h1", "-w", "-o", "json"}, strings.NewReader(""), &out, &errs)
	if status != statusNotFound {
		t.Errorf("exit status %d, want %d: %s", status, statusNotFound, errs.String())
	}
	if a, b := strings.Index(out.String(), `"ready"`), strings.Index(out.String(), `"cordoned"`); a < 0 || b < a {
		t.Errorf("printed %s", out.String())
	}
	if strings.Count(errs.String(), "trying again") != 1 {
		t.Errorf("said %q", errs.String())
	}
}
