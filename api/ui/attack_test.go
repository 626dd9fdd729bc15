package ui_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
)

func TestAttackMemory(t *testing.T) {
	var list v1.List[v1.VM]
	for i := range 10_000 {
		list.Items = append(list.Items, v1.VM{ID: fmt.Sprintf("00VHNCZB5MH1QYK6VDF6E%05d", i), Name: fmt.Sprintf("cluster-%d-worker-%d", i/10, i%10), VirtualCluster: fmt.Sprintf("cluster-%d", i/10),
			Domain: fmt.Sprintf("ek-cluster-%d-worker-%d", i/10, i%10), Group: "worker", State: "running", Host: fmt.Sprintf("host-%d", i%1000), Tenant: "film", Labels: map[string]string{"app": "db"}})
	}
	body, _ := json.Marshal(list)
	t.Logf("one answer: %d bytes", len(body))
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/self") {
			_, _ = w.Write([]byte(`{"id":"x","name":"x","role":"auditor"}`))
			return
		}
		_, _ = w.Write(body)
	})
	pages := ui.New(api, slog.New(slog.DiscardHandler))
	one := func() int {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/ui/vms", nil)
		r.AddCookie(&http.Cookie{Name: "__Host-evenkeel", Value: "x"})
		pages.ServeHTTP(w, r)
		return w.Body.Len()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	n := one()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	t.Logf("one page: %d bytes of HTML, allocates %d MB, %s", n, (after.TotalAlloc-before.TotalAlloc)>>20, took)
	var group sync.WaitGroup
	var peak uint64
	for range 100 {
		group.Go(func() { one() })
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for {
		select {
		case <-done:
			t.Logf("100 pages at once: heap %d MB at the most", peak>>20)
			return
		case <-time.After(20 * time.Millisecond):
			runtime.ReadMemStats(&after)
			peak = max(peak, after.HeapInuse)
		}
	}
}
