package ui_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// visitor is a browser without scripts.
type visitor struct {
	t    *testing.T
	http *http.Client
	base string
}

func visit(t *testing.T) *visitor {
	t.Helper()
	return visitHosts(t, 1)
}

// visitHosts visits the only server of so many hosts.
func visitHosts(t *testing.T, hosts int) *visitor {
	t.Helper()
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: hosts, CPU: 4, Memory: 8 << 30})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Servers(t.Context(), 1))
	for i := 2; i <= hosts; i++ {
		must(t, s.Join(t.Context(), "h"+strconv.Itoa(i), false, true))
	}
	must(t, s.Await(t.Context(), "the hosts are ready", func() bool {
		v, err := s.Member("h1").View(t.Context(), false)
		return err == nil && site.Ready(v) == hosts
	}))
	jar, err := cookiejar.New(nil)
	must(t, err)
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server of the test
	t.Cleanup(tr.CloseIdleConnections)
	return &visitor{t: t, base: "https://" + s.Address("h1"), http: &http.Client{Jar: jar, Transport: tr}}
}

func (v *visitor) do(r *http.Request, err error) (*http.Response, string) {
	v.t.Helper()
	must(v.t, err)
	resp, err := v.http.Do(r)
	must(v.t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	must(v.t, err)
	return resp, string(b)
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.t.Helper()
	return v.do(http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+path, nil))
}

func (v *visitor) post(path string, form url.Values, header ...string) (*http.Response, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+path, strings.NewReader(form.Encode()))
	must(v.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return v.do(r, nil)
}

var formField = regexp.MustCompile(`name="form" value="([0-9a-f]{64})"`)

// TestForms: a form needs the session's own field and page, and a check changes nothing.
func TestForms(t *testing.T) {
	t.Parallel()
	v := visit(t)
	resp, text := v.post("/ui/login", url.Values{"token": {site.Token}, "next": {"/ui/new"}})
	if resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/ui/new" {
		t.Fatalf("%s at %s: %s", resp.Status, resp.Request.URL, text)
	}
	field := formField.FindStringSubmatch(text)
	if field == nil {
		t.Fatalf("no field in %s", text)
	}
	file := "name: web\ngroups:\n  - {name: vm, count: 2, cpu: 1, memory: 512MiB, image: tiny}\n"
	for _, c := range []struct {
		what   string
		form   url.Values
		header []string
		status int
		says   string
	}{
		{"no field", url.Values{"file": {file}}, nil, http.StatusForbidden, "another session"},
		{"a wrong field", url.Values{"file": {file}, "form": {strings.Repeat("0", 64)}}, nil, http.StatusForbidden, "another session"},
		{"from another site", url.Values{"file": {file}, "form": field[1:]}, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden, ""},
		{"from another origin", url.Values{"file": {file}, "form": field[1:]}, []string{"Origin", "https://elsewhere.example"}, http.StatusForbidden, ""},
		{"no VC file", url.Values{"file": {"name: ["}, "form": field[1:]}, nil, http.StatusUnprocessableEntity, "Invalid request"},
		{"too long", url.Values{"file": {strings.Repeat("x", 300<<10)}, "form": field[1:]}, nil, http.StatusRequestEntityTooLarge, ""},
		{"a check", url.Values{"file": {file}, "form": field[1:], "dry": {"1"}}, nil, http.StatusOK, "Nothing was changed"},
	} {
		resp, text := v.post("/ui/new", c.form, c.header...)
		if resp.StatusCode != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s: %s", c.what, resp.Status, text)
		}
		if resp, _ := v.get("/ui/virtual-clusters/web"); resp.StatusCode != http.StatusNotFound {
			t.Fatalf("%s: %s", c.what, resp.Status)
		}
	}
	if resp, text := v.post("/ui/new", url.Values{"file": {file}, "form": field[1:]}); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/ui/virtual-clusters/web" {
		t.Errorf("%s at %s: %s", resp.Status, resp.Request.URL, text)
	}
}

// TestStrangers get the log-in and the program's own files. Nothing of theirs reaches the API but a token that they log in with.
func TestStrangers(t *testing.T) {
	t.Parallel()
	var asked []string
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusUnauthorized)
	})
	pages := ui.New(api, nil, slog.New(slog.DiscardHandler))
	for _, path := range []string{"/ui/", "/ui/hosts", "/ui/hosts/h1", "/ui/virtual-clusters/film/web", "/ui/new", "/ui/plans/x", "/ui/events", "/ui/settings", "/ui/images", "/ui/tokens", "/ui/migrations", "/ui/migrations/x", "/ui/operations", "/ui/rightsizing", "/ui/roles", "/ui/tenants", "/ui/tenants/film", "/ui/audit", "/ui/simulate", "/ui/console/a/b", "/ui/forecast/a", "/ui/file/a/b", "/ui/periodic/a/b", "/ui/nothing"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("do=delete")))
			if w.Code != http.StatusSeeOther && w.Code != http.StatusMethodNotAllowed || strings.Contains(w.Body.String(), "<main") {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
	for path, status := range map[string]int{"/ui/stream": http.StatusUnauthorized, "/ui/console-stream/a": http.StatusUnauthorized, "/ui/assets/xterm/xterm.js": http.StatusOK, "/ui/assets/": http.StatusNotFound, "/ui/login": http.StatusOK, "/ui/assets/evenkeel.js": http.StatusOK, "/ui/assets/../ui.go": http.StatusTemporaryRedirect,
		"/ui/assets/none": http.StatusNotFound} {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != status || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	w := httptest.NewRecorder()
	form := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ui/login", strings.NewReader("token=x&next="+strings.Repeat("x", 1<<20)))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if pages.ServeHTTP(w, form); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a long form of a stranger: %d", w.Code)
	}
	if asked != nil {
		t.Errorf("the API was asked: %q", asked)
	}
}

// TestNext: a log-in returns to pages of this server only.
func TestNext(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, next := range []string{"https://elsewhere.example/ui/", "//elsewhere.example/ui/", "/v1/hosts", "javascript:alert(1)", "/ui/../v1/hosts", `/\elsewhere.example/ui/`, ""} {
		resp, _ := v.post("/ui/login", url.Values{"token": {site.Token}, "next": {next}})
		at, err := resp.Location()
		must(t, err)
		if at.Host != strings.TrimPrefix(v.base, "https://") || !strings.HasPrefix(at.Path, "/ui/") {
			t.Errorf("%q: %s", next, at)
		}
	}
}

// part of n equal items, as the API answers a request for it.
func part[T any](r *http.Request, item T, n int) v1.Part[T] {
	offset, _ := strconv.Atoi(r.FormValue("offset"))
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		return v1.Part[T]{Items: slices.Repeat([]T{item}, n)}
	}
	return v1.Part[T]{Items: slices.Repeat([]T{item}, max(0, min(limit, n-offset))), Matches: n, Total: n}
}

// TestLargeClusters: a page of 1,000 hosts and 10,000 VMs asks the API for no more than one of 10, and is small; so is what the API answers.
func TestLargeClusters(t *testing.T) {
	t.Parallel()
	load := func(hosts int, path string) (asked, answered, size int) {
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			var out any
			switch r.URL.Path {
			case "/v1/auth/self":
				out = v1.Self{Name: "x", Role: "admin"}
			case "/v1/cluster/status":
				out = v1.ClusterStatus{Ready: true}
			case "/v1/hosts":
				out = part(r, v1.Host{Name: "host-0001.example", State: "ready", Lease: "held", Allowance: v1.Resources{CPU: 64, Memory: 1 << 38}, Allocated: v1.Resources{CPU: 33.3, Memory: 1 << 37}}, hosts)
			case "/v1/virtual-clusters":
				out = part(r, v1.VirtualCluster{Name: "some-virtual-cluster", Tenant: "film", State: "running"}, 2*hosts)
			case "/v1/vms":
				out = part(r, v1.VM{Name: "some-virtual-cluster-group-10", VirtualCluster: "some-virtual-cluster", Tenant: "film", Host: "host-0001.example", State: "running"}, 10*hosts)
			case "/v1/hosts/h1":
				out = v1.Host{Name: "h1", State: "ready"}
			case "/v1/virtual-clusters/web":
				out = v1.VirtualCluster{Name: "web", Tenant: "default", State: "running"}
			case "/v1/virtual-clusters/web/explain":
				out = v1.Explanation{}
			default:
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			text, err := json.Marshal(out)
			must(t, err)
			answered += len(text)
			_, _ = w.Write(text)
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.AddCookie(&http.Cookie{Name: "__Host-evenkeel", Value: "x"})
		w := httptest.NewRecorder()
		ui.New(api, nil, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return asked, answered, w.Body.Len()
	}
	for path, limit := range map[string]int{"/ui/": 300 << 10, "/ui/hosts": 300 << 10, "/ui/virtual-clusters": 200 << 10, "/ui/vms": 200 << 10, "/ui/vms?from=9900&q=film": 200 << 10,
		"/ui/virtual-clusters/web": 200 << 10, "/ui/virtual-clusters/web?from=9900": 200 << 10, "/ui/hosts/h1": 200 << 10} {
		few, _, _ := load(10, path)
		many, answered, size := load(1000, path)
		if many != few || many > 6 || size > limit || path != "/ui/" && answered > 100<<10 { // the overview's map has all hosts
			t.Errorf("%s: %d requests of the API for 10 hosts, %d for 1,000, which answers %d bytes for %d", path, few, many, answered, size)
		}
	}
}

// TestPagesAtOnce: of one caller two pages are made at a time, and of all eight.
func TestPagesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, peak := map[string]int{}, map[string]int{}
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			w.Header().Set("Content-Type", "application/json")
			if strings.HasSuffix(r.URL.Path, "/self") {
				_ = json.NewEncoder(w).Encode(v1.Self{ID: token, Name: "x", Role: "auditor"})
				return
			}
			count := func(by int) {
				mu.Lock()
				defer mu.Unlock()
				for _, of := range []string{token, "all"} {
					now[of] += by
					peak[of] = max(peak[of], now[of])
				}
			}
			count(1)
			time.Sleep(10 * time.Second) // sleep: of simulated time
			count(-1)
			_, _ = w.Write([]byte(`{"items":[]}`))
		})
		pages := ui.New(api, nil, slog.New(slog.DiscardHandler))
		var group sync.WaitGroup
		codes := map[int]int{}
		for i := range 60 {
			group.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/vms", nil)
				r.AddCookie(&http.Cookie{Name: "__Host-evenkeel", Value: strconv.Itoa(i % 6)})
				w := httptest.NewRecorder()
				pages.ServeHTTP(w, r)
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
			})
		}
		group.Wait()
		if peak["all"] != 8 || peak["0"] > 2 || codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests] == 0 || len(codes) != 2 {
			t.Errorf("at once %v, answers %v", peak, codes)
		}
	})
}

// vendored are the checksums of files of others, as npm has them in @xterm/xterm 5.5.0.
var vendored = map[string]string{
	"xterm/xterm.js":  "1f991ac3b4b283ebf96e60ae23a00a52765dd3a2e46fa6fdda9f1aab032f7495",
	"xterm/xterm.css": "ba8e6985669488981ccf40c0cefe3aba80722cb6c92de7ad628b0bd717faf2b6",
}

// TestAssets: files of others are as they were published, browsers ask only whether a file is still the one they have, and the page that
// needs most files needs at most 300 KiB.
func TestAssets(t *testing.T) {
	t.Parallel()
	pages := ui.New(http.NotFoundHandler(), nil, slog.New(slog.DiscardHandler))
	load := func(name, packing, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/assets/"+name, nil)
		r.Header.Set("Accept-Encoding", packing)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		return w
	}
	for name, want := range vendored {
		if sum := sha256.Sum256(load(name, "", "").Body.Bytes()); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is another: %x", name, sum)
		}
	}
	size := 0
	for _, name := range []string{"evenkeel.css", "evenkeel.js", "icon.svg", "console.js", "xterm/xterm.js", "xterm/xterm.css"} {
		whole, packed := load(name, "", ""), load(name, "gzip, br", "")
		unpacked, err := gzip.NewReader(packed.Body)
		size += packed.Body.Len()
		must(t, err)
		b, err := io.ReadAll(unpacked)
		must(t, err)
		if !bytes.Equal(b, whole.Body.Bytes()) || packed.Header().Get("ETag") == whole.Header().Get("ETag") {
			t.Errorf("%s is another when it is packed", name)
		}
		if again := load(name, "gzip", packed.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", name, again.Code)
		}
	}
	if size > 280<<10 {
		t.Errorf("a console's files have %d bytes", size)
	}
}

// TestConsoleOrigin: a page of another port, to which a browser sends the same cookies, gets no console.
func TestConsoleOrigin(t *testing.T) {
	t.Parallel()
	for origin, reaches := range map[string]bool{"https://example.com": true, "https://example.com:9999": false, "http://example.com": false, "https://evil.example": false, "null": false, "": false} {
		asked := ""
		pages := ui.New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.RequestURI() }), nil, slog.New(slog.DiscardHandler))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/console-stream/film/web-vm-0", nil)
		r.AddCookie(&http.Cookie{Name: "__Host-evenkeel", Value: "x"})
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Origin", origin)
		pages.ServeHTTP(httptest.NewRecorder(), r)
		if want := "/v1/vms/web-vm-0/console?tenant=film"; (asked == want) != reaches || !reaches && asked != "" {
			t.Errorf("%q: asked for %q", origin, asked)
		}
	}
}
