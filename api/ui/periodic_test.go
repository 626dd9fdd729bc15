package ui_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
)

// TestPeriodicPicture: the page of a job has a picture of what is reserved and of its newest runs, and a table that counts the runs that
// needed more; its commands are what a shell needs, and it takes two requests of the API.
func TestPeriodicPicture(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 28, 1, 0, 0, 0, time.UTC)
	job := v1.PeriodicJob{Name: "render-#", Tenant: "film", State: "accepted", Runs: 30,
		Contract:    &v1.PeriodicContract{Zone: "Europe/Berlin", Start: "20260301T020000", Rule: "FREQ=DAILY", Length: "3m", Deadline: "2h", Miss: 0.05, Runs: 30, VMs: 2, Step: "1m", Cores: []float64{1, 2, 1}},
		Occurrences: []v1.Occurrence{}, History: []v1.PeriodicRun{}}
	for i := range 30 {
		run := v1.PeriodicRun{VirtualCluster: fmt.Sprintf("render-%d", i), Started: begin, Step: "1m", Cores: []float64{0.5, 1.5, 0.5}}
		if i == 29 { // the newest needs more in the second minute, and takes longer
			run.Cores = []float64{0.5, 3, 0.5, 0.25}
		}
		job.History = append(job.History, run)
	}
	job.History[28].Cores, job.History[28].Step = nil, "" // of which nothing is known
	for i := range 3 {                                    // summer time begins in the second night
		at := begin.Add(time.Duration(i) * 24 * time.Hour)
		job.Occurrences = append(job.Occurrences, v1.Occurrence{Period: at, Start: at, End: at.Add(time.Hour), Due: at.Add(2 * time.Hour), State: []string{"confirmed", "skipped", "degraded"}[i]})
	}
	asked := 0
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/auth/self":
			_ = json.NewEncoder(w).Encode(v1.Self{Name: "x", Role: "operator"})
		case r.URL.EscapedPath() == "/v1/periodic/render-%23" && r.URL.Query().Get("tenant") == "film":
			_ = json.NewEncoder(w).Encode(job)
		case r.URL.EscapedPath() == "/v1/periodic/render-%23/accept" && r.URL.Query().Get("dryRun") == "true":
			_ = json.NewEncoder(w).Encode(job)
		default:
			http.NotFound(w, r)
		}
	})
	load := func(method, path string, form url.Values) string {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: "__Host-evenkeel", Value: "x"})
		w := httptest.NewRecorder()
		ui.New(api, nil, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	page := load(http.MethodGet, "/ui/periodic/film/render-%23", nil)
	if asked != 2 {
		t.Errorf("%d requests of the API", asked)
	}
	if n := strings.Count(page, `<path class="run"`); n != 20 {
		t.Errorf("%d runs are drawn", n)
	}
	for _, want := range []string{
		`<path class="reserved" d="M0 180V120.0H150.0V60.0H300.0V120.0H450.0V180"/>`, // of 3 cores and 4 minutes
		`<path class="run" d="M0 180V150.0H150.0V0.0H300.0V150.0H450.0V165.0H600.0V180"/>`,
		`<th scope="row">1m</th><td class="n">2.00</td><td class="n">1.57</td><td class="n">3.00</td><td class="n">1 of 20</td>`,
		`<th scope="row">3m</th><td class="n">0.00</td><td class="n">0.25</td><td class="n">0.25</td><td class="n">1 of 1</td>`,
		"<h3>Sat 28 Mar</h3>", "02:00:00 to 03:00:00", "<h3>Sun 29 Mar</h3>", "03:00:00 to 04:00:00", "5.0%",
		`<button name="do" value="override">Keep 2026-03-29</button>`, `>Skip 2026-03-28</button>`, `>Skip 2026-03-30</button>`,
		`data-copy="vcctl periodic reject &#39;film/render-#&#39;"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	checked := load(http.MethodPost, "/ui/periodic/film/render-%23", url.Values{"form": {ui.FormToken("x")}, "do": {"accept"}, "dry": {"1"}, "miss": {"1%"}, "rule": {"FREQ=DAILY;BYHOUR=2"}, "skip": {"2026-12-24, 2026-12-25"}})
	if want := `vcctl periodic accept &#39;film/render-#&#39; --miss 0.01 --rule &#39;FREQ=DAILY;BYHOUR=2&#39; --skip 2026-12-24 --skip 2026-12-25`; !strings.Contains(checked, want) {
		t.Errorf("the page has no %s: %s", want, checked)
	}
}
