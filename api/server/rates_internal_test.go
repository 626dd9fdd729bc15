package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// In any time a principal gets no more than the burst and what comes in at the rate, and after a second one more, whatever others do.
func TestRateOfAPrincipal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rates{perSecond: float64(rapid.IntRange(1, 50).Draw(t, "rate"))}
		begin := time.Unix(1_000_000, 0)
		now, taken := begin, map[string]int{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
			for range rapid.IntRange(1, 100).Draw(t, "requests") {
				if r.take(id, now) {
					taken[id]++
				}
			}
			if may := r.perSecond*burst + r.perSecond*now.Sub(begin).Seconds(); float64(taken[id]) > may+1e-6 {
				t.Fatalf("%d requests of %s in %s, more than %v", taken[id], id, now.Sub(begin), may)
			}
		}
		for r.take("a", now) {
		}
		if !r.take("a", now.Add(time.Second)) {
			t.Fatal("none after a second")
		}
	})
}

// The buckets of principals that send nothing more are dropped; an empty one stays.
func TestRatesForgetFullBuckets(t *testing.T) {
	r, now := rates{perSecond: 1}, time.Unix(1_000_000, 0)
	for i := range maxBuckets - 1 {
		r.take(fmt.Sprint(i), now)
	}
	now = now.Add(time.Minute)
	for r.take("busy", now) {
	}
	r.take("one more", now)
	if len(r.of) != 2 || r.take("busy", now) {
		t.Errorf("%d buckets are left", len(r.of))
	}
}

// Beyond the rate a token gets 429 with Retry-After, others and strangers go on as before, and a second later it is served again.
func TestTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keyring{}
		fast, slow := k.add("fast", state.RoleOperator, time.Time{}), k.add("slow", state.RoleOperator, time.Time{})
		s := New(k, Options{Members: seat{leads: true}, Logger: slog.New(slog.DiscardHandler), Rate: 2})
		for i := range 2 * burst {
			if through, _, _, w := asked(s, "GET", "/v1/vms", "Bearer "+fast); !through {
				t.Fatalf("request %d: %d %s", i, w.Code, w.Body)
			}
		}
		refused := func(what string, token string, want int) *httptest.ResponseRecorder {
			t.Helper()
			through, _, _, w := asked(s, "GET", "/v1/vms", "Bearer "+token)
			if code := w.Code; through != (want == 200) || !through && code != want {
				t.Errorf("%s: through %v, %d %s", what, through, code, w.Body)
			}
			return w
		}
		if w := refused("one more", fast, 429); w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "requestRate") {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
		refused("another token", slow, 200)
		refused("a stranger", "nonsense", 401)
		time.Sleep(time.Second) // sleep: in the bubble, for the bucket to fill
		refused("a second later", fast, 200)
		refused("the second one then", fast, 200)
		refused("the third one then", fast, 429)
	})
}

// Dry runs of a tenant are bounded for all its tokens together; other requests, other tenants and roles of the cluster go on. What a
// viewer sends, and dryRun where there is none, takes nothing from the tenant. A request that is refused for want of room stays refused.
func TestTooManyDryRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keyring{}
		of := func(tenant string, role state.Role) string {
			text, row := NewToken()
			row.Name, row.Role, row.Tenant = "a", role, tenant
			k.put(row)
			return "Bearer " + text
		}
		one, two, other, operator := of("film", state.RoleEditor), of("film", state.RoleEditor), of("acme", state.RoleEditor), "Bearer "+k.add("o", state.RoleOperator, time.Time{})
		s := New(k, Options{Members: seat{leads: true}, Logger: slog.New(slog.DiscardHandler), Rate: 500})
		const probe = "/v1/virtual-clusters?dryRun=true"
		ask := func(what, token, path string, want bool) {
			t.Helper()
			if through, _, _, w := asked(s, "POST", path, token); through != want || !want && w.Code != 429 {
				t.Errorf("%s: through %v, %d %s", what, through, w.Code, w.Body)
			}
		}
		viewer := of("film", state.RoleViewer)
		for range 3 * probeRate * burst {
			for _, r := range [][2]string{{"GET", "/v1/vms?dryRun=1"}, {"HEAD", "/v1/vms?dryRun=1"}, {"GET", "/v1/nothing?dryRun=1"}, {"POST", probe}, {"POST", "/v1/hosts/h1/cordon?dryRun=1"}, {"POST", "/v1/vms/a/start?dryRun=1"}} {
				if _, _, _, w := asked(s, r[0], r[1], viewer); w.Code == 429 {
					t.Fatalf("a viewer's %s %s: %s", r[0], r[1], w.Body)
				}
			}
		}
		for i := range probeRate * burst {
			ask("within the burst", []string{one, two}[i%2], probe, true)
		}
		ask("one more", one, probe, false)
		ask("one more of the other token", two, "/v1/virtual-clusters?dryRun=1", false)
		ask("no dry run", one, "/v1/virtual-clusters?dryRun=false", true)
		ask("another tenant", other, probe, true)
		for range 3 * probeRate * burst {
			ask("an operator", operator, probe, true)
		}
		ctx := context.WithValue(t.Context(), principalKey{}, &principal{Tenant: "film", Role: state.RoleEditor})
		refused := func() string {
			var p *problem
			if !errors.As(s.fail(ctx, newProblem(409, v1.ProblemRefused, "host h1 lacks 2 cores")), &p) {
				t.Fatal("no problem")
			}
			return p.Type
		}
		if got := refused(); got != v1.ProblemRefused {
			t.Errorf("a refusal beyond the bound: %s", got)
		}
		time.Sleep(time.Second) // sleep: in the bubble, for the bucket to fill
		if got := refused(); got != v1.ProblemRefused {
			t.Errorf("a refusal a second later: %s", got)
		}
		ask("a second later", one, probe, true)
		ask("the second one then", one, probe, true)
		ask("the third one then", one, probe, false)
	})
}

// Without a limit on requests that on dry runs stays, and a smaller limit bounds them, too.
func TestDryRunsAreBoundedAtEachRate(t *testing.T) {
	for rate, want := range map[float64]int{0: probeRate * burst, 1: burst, DefaultRate: probeRate * burst} {
		synctest.Test(t, func(t *testing.T) {
			k := &keyring{}
			text, row := NewToken()
			row.Name, row.Role, row.Tenant = "a", state.RoleEditor, "film"
			k.put(row)
			s := New(k, Options{Members: seat{leads: true}, Logger: slog.New(slog.DiscardHandler), Rate: rate})
			got := 0
			for range 10 * probeRate * burst {
				if through, _, _, _ := asked(s, "POST", "/v1/virtual-clusters?dryRun=true", "Bearer "+text); through {
					got++
				}
			}
			if got != want {
				t.Errorf("requestRate %g: %d dry runs at once, want %d", rate, got, want)
			}
		})
	}
}
