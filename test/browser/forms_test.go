package browser

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
	"evenkeel/test/site"
)

// runs creates a virtual cluster, and waits for it.
func (c *cluster) runs(spec v1.VirtualClusterSpec, of ...client.Option) {
	c.t.Helper()
	r, err := c.api.Create(c.t.Context(), spec, of...)
	must(c.t, err)
	_, err = c.api.Wait(c.t.Context(), *r.Operation, nil)
	must(c.t, err)
}

// has waits until the page has all texts.
func (tab *Tab) has(what string, texts ...string) {
	tab.t.Helper()
	tab.Until(what, func() bool {
		seen := tab.Text()
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(seen, text) })
	})
}

// TestFileAndHistory: a virtual cluster is changed by its file and goes back to an earlier version, and the page says before what each
// would change.
func TestFileAndHistory(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	c.runs(v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.5, Count: 2, Memory: 256 << 20, Image: "tiny"}}})
	tab := c.login(b, "h1", "/ui/virtual-clusters/web", site.Token)
	Eval[bool](tab, `[...document.querySelectorAll("main a")].find((a) => a.innerText === "File and history").click() || true`)
	tab.Until("the file", func() bool { return tab.At() == "/ui/file/web" && strings.Contains(tab.Text(), "in force") })
	accessible(tab, "a file")
	text := Eval[string](tab, `document.querySelector("textarea").value`)
	if !strings.Contains(text, "count: 2") {
		t.Fatalf("the file is %q", text)
	}
	tab.Fill(`textarea`, strings.Replace(text, "name: web", "name: other", 1))
	tab.has("another name is refused, while it is written", "keeps its name")
	tab.Fill(`textarea`, strings.Replace(text, "count: 2", "count: 100", 1))
	tab.has("the answer of admission, while it is written", "What would help")
	tab.Fill(`textarea`, strings.Replace(text, "count: 2", "count: 3", 1))
	tab.has("the difference, while it is written", "groups[vm].count", "2 → 3", "Nothing was changed")
	if vc, err := c.api.VirtualCluster(t.Context(), "web"); err != nil || vc.VMs.Total != 2 {
		t.Fatalf("a check changed it: %+v %v", vc, err)
	}
	tab.Clean()
	tab.Press("Apply")
	tab.Until("the page of web", func() bool { return tab.At() == "/ui/virtual-clusters/web" })
	tab.has("it is larger", "3 of 3 VMs running")
	tab.Go(c.page("h1", "/ui/file/web"))
	tab.Press("Check version 1")
	tab.has("what the way back would change", "3 → 2", "vcctl vc rollback web --to 1")
	tab.Press("Roll back to 1")
	tab.Until("the page of web", func() bool { return tab.At() == "/ui/virtual-clusters/web" })
	tab.has("it is as it was", "2 of 2 VMs running")
	tab.Fill(`input[name=count]`, "100")
	tab.has("why a size is refused, while it is written", "What each host lacks")
	tab.Fill(`input[name=count]`, "3")
	tab.has("what a size would do, while it is written", "Nothing was changed")
	tab.Clean()
	tab.Go(c.page("h1", "/ui/file/web"))
	tab.has("the history", "rollback", "edit", "create")

	fetched := Eval[string](tab, `document.querySelector("textarea").value`)
	elsewhere := 4
	r, err := c.api.Scale(t.Context(), "web", v1.ScaleRequest{Group: "vm", Count: &elsewhere})
	must(t, err)
	_, err = c.api.Wait(t.Context(), *r.Operation, nil)
	must(t, err)
	tab.Fill(`select[name=do]`, "apply")
	tab.Fill(`textarea`, strings.Replace(fetched, "count: 2", "count: 3", 1))
	tab.Press("Apply")
	tab.has("what others changed since the file was fetched", "groups[vm].count", "was 2 in the last file, is 4 now, and 3 in this one")
	if vc, err := c.api.VirtualCluster(t.Context(), "web"); err != nil || vc.VMs.Total != elsewhere {
		t.Fatalf("a file that conflicts was applied: %+v %v", vc, err)
	}
	tab.Clean()
}

// TestBudget: an operator chooses a budget on the curve, sees its moves, and applies them.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	patch, err := v1.ParseSettingPairs([]string{"moves.mode=off"})
	must(t, err)
	_, err = c.api.SetSettings(t.Context(), patch)
	must(t, err)
	_, err = c.api.Cordon(t.Context(), "h2", "")
	must(t, err)
	half := 0.5
	c.runs(v1.VirtualClusterSpec{Name: "web", MinYield: &half, Groups: []v1.GroupSpec{{Name: "vm", Count: 4, CPU: 1.8, Memory: 256 << 20, Image: "tiny"}}})
	_, err = c.api.Uncordon(t.Context(), "h2")
	must(t, err)
	curve, err := c.api.Curve(t.Context())
	must(t, err)
	if len(curve) < 2 {
		t.Fatalf("the curve is %+v", curve)
	}
	tab := c.login(b, "h1", "/ui/plans", site.Token)
	tab.Until("the points of the curve", func() bool {
		return tab.Is(fmt.Sprintf(`document.querySelectorAll(".curve circle").length === %d && document.querySelectorAll("input[name=budget]").length === %d`, len(curve), len(curve)))
	})
	tab.Until("the last budget is chosen", func() bool {
		return tab.Is(`{ const all = document.querySelectorAll("input[name=budget]"); if (all.length) all[all.length - 1].click(); all.length > 0; }`)
	})
	tab.Press("Show the moves")
	tab.has("its moves", "What it would do", "h1", "h2")
	accessible(tab, "the moves of a budget")
	tab.Press("Apply")
	tab.Until("the page of the plan", func() bool { return strings.HasPrefix(tab.At(), "/ui/plans/") })
	tab.has("it is carried out", "done")
	var vc v1.VirtualCluster
	must(t, patience.Until(t.Context(), limit, "VMs get what the moves bought", func() any { return vc.Yield }, func() bool {
		vc, err = c.api.VirtualCluster(t.Context(), "web")
		return err == nil && vc.Yield >= 0.9
	}))
	tab.Clean()
}

// TestFormsOfOperators: a simulation, a setting with default, range and effect, an image of a tenant, and the audit log of all that.
func TestFormsOfOperators(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film"})
	must(t, err)
	c.runs(v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", Count: 2, CPU: 1, Memory: 256 << 20, Image: "tiny"}}})

	tab := c.login(b, "h1", "/ui/simulate", site.Token)
	tab.Fill(`input[name=hosts]`, "many")
	tab.Press("Simulate")
	tab.has("what is no number", "must be a number")
	tab.Fill(`input[name=hosts]`, "2")
	tab.Fill(`input[name=cpu]`, "8")
	tab.Fill(`input[name=memory]`, "16GiB")
	tab.Fill(`input[name=remove]`, "h2")
	tab.Fill(`input[name=virtualCluster]`, "web")
	tab.Fill(`input[name=group]`, "vm")
	tab.Fill(`input[name=need]`, "3")
	tab.Press("Simulate")
	tab.has("what would be", "What would be", "Every VM has a host")
	accessible(tab, "a simulation")
	tab.Fill(`input[name=hosts]`, "")
	tab.Fill(`input[name=cpu]`, "")
	tab.Fill(`input[name=memory]`, "")
	tab.Fill(`input[name=remove]`, "h1,h2")
	tab.Press("Simulate")
	tab.Until("VMs without a host, or why not", func() bool {
		return strings.Contains(tab.Text(), "VMs without a host") || tab.Is(`document.querySelector("#problem") !== null`)
	})
	tab.Clean()

	row := func() string {
		return Eval[string](tab, `[...document.querySelectorAll("tr")].find((r) => r.querySelector("th")?.innerText === "maxVMs")?.innerText ?? ""`)
	}
	set := func(button, value string) {
		t.Helper()
		tab.Fill(`input[name=value][aria-label=maxVMs]`, value)
		tab.Until(button, func() bool {
			return tab.Is(fmt.Sprintf(`{ const b = document.querySelector('button[aria-label=%q]'); if (b) b.click(); b !== null; }`, button+" maxVMs"))
		})
	}
	tab.Go(c.page("h1", "/ui/settings"))
	if text := row(); !strings.Contains(text, "4096") || !strings.Contains(text, "1 to 1048576") || !strings.Contains(text, "Most VMs of one virtual cluster") {
		t.Errorf("the row of maxVMs is %q", text)
	}
	set("Check", "0.5")
	tab.has("a value out of range", "maxVMs")
	tab.Until("a problem", func() bool { return tab.Is(`document.querySelector("#problem") !== null`) })
	set("Check", "17")
	tab.has("what it would do", "Nothing was changed", "would be 17")
	set("Set", "17")
	tab.Until("it is set, and the default stands beside it", func() bool {
		return Eval[string](tab, `document.querySelector("input[aria-label=maxVMs]")?.value ?? ""`) == "17" && !strings.Contains(tab.Text(), "would be") && strings.Contains(row(), "4096")
	})
	if s, err := c.api.Settings(t.Context()); err != nil || s.MaxVMs != 17 {
		t.Errorf("maxVMs is %v %v", s.MaxVMs, err)
	}
	tab.Clean()

	tab.Go(c.page("h1", "/ui/images"))
	tab.Fill(`[aria-labelledby=add] input[name=tenant]`, "nothing")
	tab.Fill(`[aria-labelledby=add] input[name=name]`, "rescue")
	tab.Fill(`[aria-labelledby=add] input[name=file]`, "/images/rescue")
	Eval[bool](tab, `(document.querySelector("select[name=kind]").value = "initrd") !== ""`)
	tab.Press("Add")
	tab.Until("a tenant that is not there", func() bool { return tab.Is(`document.querySelector("#problem") !== null`) })
	tab.Fill(`[aria-labelledby=add] input[name=tenant]`, "film")
	tab.Press("Add")
	tab.has("the image of the tenant", "film/rescue")
	if _, err := c.api.Images(t.Context(), client.OfTenant("film")); err != nil {
		t.Error(err)
	}
	tab.Until("deleted", func() bool {
		return tab.Is(`{ const b = document.querySelector("button[aria-label='Delete film/rescue']"); if (b) b.click(); b !== null; }`)
	})
	tab.Until("it is gone", func() bool {
		return tab.At() == "/ui/images" && !strings.Contains(tab.Text(), "film/rescue") && strings.Contains(tab.Text(), "tiny")
	})
	tab.Clean()

	tab.Go(c.page("h1", "/ui/audit"))
	tab.has("what was done, and what failed", "addImage", "changeSettings", "ok", "failed 404")
	tab.Fill(`select[name=outcome]`, "failed")
	tab.Press("Show")
	tab.Until("what failed alone", func() bool {
		return tab.Is(`location.search.includes("outcome=failed") && document.querySelectorAll("tbody .state").length > 0 && document.querySelectorAll("tbody .state.ok").length === 0`)
	})
	tab.Clean()
}

// TestForecastPage: measured, expected, bands, how well forecasts held and what is reclaimed, as an API with a past of an hour answers.
func TestForecastPage(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	now := time.Now().Truncate(time.Minute)
	f := v1.Forecast{Unit: "cores", Trusted: true, Declared: 4, Need: 1.5, Buffer: 0.25}
	var measured []v1.SampleStep
	for i := range 60 {
		measured = append(measured, v1.SampleStep{At: now.Add(time.Duration(i-60) * time.Minute), Mean: 1 + float64(i%10)/20, Max: 1.7})
	}
	for i := range 20 {
		f.Items = append(f.Items, v1.ForecastStep{At: now.Add(time.Duration(i) * time.Minute), Mean: 1.2, Int50: [2]float64{1.1, 1.3}, Int80: [2]float64{1, 1.4}, Int95: [2]float64{0.9, 1.6}})
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"/v1/auth/self": v1.Self{Name: "x", Role: "admin"}, "/v1/vms/web-vm-0": v1.VM{Name: "web-vm-0", VirtualCluster: "web", State: "running"},
			"/v1/vms/web-vm-0/forecast": f, "/v1/vms/web-vm-0/samples": map[string]any{"items": measured}}[r.URL.Path]
		if answer == nil {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	pages := httptest.NewTLSServer(ui.New(api, nil, slog.New(slog.DiscardHandler)))
	t.Cleanup(pages.Close)
	tab := b.Open(t, pages.URL+"/ui/forecast/web-vm-0")
	tab.Fill(`input[name=token]`, "x")
	tab.Press("Log in")
	tab.has("the forecast", "Trusted", "Reclaimed", "2.500", "How well they held", "1.100 to 1.300")
	if n := Eval[int](tab, `[...document.querySelectorAll(".forecast path")].filter((p) => p.getAttribute("d").length > 20 || p.classList.contains("declared")).length`); n < 5 {
		t.Errorf("%d lines and bands are drawn", n)
	}
	if rows := Eval[int](tab, `document.querySelectorAll("section[aria-labelledby=ahead] tbody tr").length + document.querySelectorAll("section[aria-labelledby=past] tbody tr").length`); rows != 80 {
		t.Errorf("the tables have %d rows", rows)
	}
	for _, theme := range []string{"light", "dark"} {
		tab.Theme(theme)
		accessible(tab, "a forecast, "+theme)
	}
	tab.Clean()
}
