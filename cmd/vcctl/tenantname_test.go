package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder is a server that notes what it is asked, and gives prepared answers.
type recorder struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []string          // METHOD path?query body
	answers map[string]string // by "METHOD path": the body; a leading number and a blank are the status
}

func newRecorder(t *testing.T, answers map[string]string) *recorder {
	r := &recorder{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		line := q.Method + " " + q.URL.EscapedPath()
		r.mu.Lock()
		text, ok := r.answers[line]
		if q.URL.RawQuery != "" {
			line += "?" + q.URL.RawQuery
		}
		if len(body) > 0 {
			line += " " + string(body)
		}
		r.asked = append(r.asked, line)
		r.mu.Unlock()
		kind := "application/json"
		status := http.StatusOK
		switch {
		case !ok:
			kind, status, text = "application/problem+json", http.StatusNotFound, `{"type":"urn:evenkeel:problem:not-found","title":"Not found","status":404,"detail":"there is no such thing"}`
		case strings.HasPrefix(text, "403 "):
			kind, status, text = "application/problem+json", http.StatusForbidden, text[4:]
		case strings.HasPrefix(text, "204"):
			status, text = http.StatusNoContent, ""
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(r.Close)
	return r
}

// vcctl runs a command line against the recorder.
func (r *recorder) vcctl(args ...string) (status int, asked []string, out, errs string) {
	r.mu.Lock()
	r.asked = nil
	r.mu.Unlock()
	var o, e bytes.Buffer
	status = run(append([]string{"vcctl", "--address", r.URL}, args...), strings.NewReader(""), &o, &e)
	r.mu.Lock()
	defer r.mu.Unlock()
	return status, r.asked, o.String(), e.String()
}

// atHome is a home directory with that configuration, and an environment without any.
func atHome(t *testing.T, config string) (file string) {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{"XDG_CONFIG_HOME", "EVENKEEL_ADDRESS", "EVENKEEL_TOKEN", "EVENKEEL_TOKEN_FILE", "EVENKEEL_CACERT", "EVENKEEL_TENANT", "EVENKEEL_CONTEXT"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	file = filepath.Join(home, ".config", "evenkeel", "config.yaml")
	if config == "" {
		return file
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const vcsOfAll = `{"items":[{"name":"web","tenant":"default","state":"running"},{"name":"web","tenant":"film","state":"queued"}]}`

// Which tenant a command acts in: that of a full name, of the flag, of the environment, of the configuration, in this order.
func TestTenantOfCommand(t *testing.T) {
	r := newRecorder(t, map[string]string{
		"GET /v1/virtual-clusters": vcsOfAll, "GET /v1/virtual-clusters/web": `{"name":"web"}`, "DELETE /v1/virtual-clusters/web": `{}`,
		"GET /v1/vms": `{"items":[{"name":"web-w-0","tenant":"film","virtualCluster":"web"}]}`, "GET /v1/vms/web-w-0": `{"name":"web-w-0"}`, "GET /v1/vms/01M": `{"name":"x"}`,
		"GET /v1/events": `{"items":[],"last":0}`, "GET /v1/tokens": `{"items":[]}`, "GET /v1/hosts": `{"items":[]}`,
	})
	for _, c := range []struct {
		env, config string
		line        string
		status      int
		asked       string // the first request
		says        string // on either output
	}{
		{"", "", "vc list", 0, "GET /v1/virtual-clusters", "NAME"},
		{"", "", "vc list --tenant film", 0, "GET /v1/virtual-clusters?tenant=film", "NAME"},
		{"", "", "vc list -A", 0, "GET /v1/virtual-clusters?tenant=%2A", "TENANT    NAME"},
		{"", "", "vc list --tenant *", 0, "GET /v1/virtual-clusters?tenant=%2A", "film      web    queued"},
		{"", "", "vc list -A --tenant *", 0, "GET /v1/virtual-clusters?tenant=%2A", "TENANT"},
		{"", "", "vc list -A --tenant film", 2, "", "contradict"},
		{"", "", "vm list -A --vc film/web", 0, "GET /v1/vms?tenant=film&virtualCluster=web", "NAME"},
		{"", "", "vm list -A", 0, "GET /v1/vms?tenant=%2A", "film     web-w-0"},
		{"", "", "vm list -A --vc web", 2, "", "name one tenant"},
		{"", "", "vc get web", 0, "GET /v1/virtual-clusters/web", ""},
		{"", "", "vc get film/web", 0, "GET /v1/virtual-clusters/web?tenant=film", ""},
		{"", "", "vc get default/web", 0, "GET /v1/virtual-clusters/web?tenant=default", ""},
		{"film", "", "vc get default/web", 0, "GET /v1/virtual-clusters/web?tenant=default", ""},
		{"", "", "vc get film/gone", 4, "GET /v1/virtual-clusters/gone?tenant=film", "getting virtual cluster film/gone: "},
		{"", "", "vc get --tenant film film/web", 0, "GET /v1/virtual-clusters/web?tenant=film", ""},
		{"", "", "vc get --tenant lab film/web", 2, "", "film/web is of tenant film, and --tenant says lab"},
		{"", "", "--tenant * vc delete web", 2, "", "vc delete: name one tenant"},
		{"*", "", "vc delete web", 2, "", "name one tenant"},
		{"*", "", "vc delete film/web --dry-run", 0, "DELETE /v1/virtual-clusters/web?dryRun=true&tenant=film", ""},
		{"*", "", "vc create -f x.yaml", 2, "", "name one tenant"},
		{"", "", "vc get film/", 2, "", "is no name"},
		{"", "", "vc get /web", 2, "", "is no name"},
		{"", "", "vc get film/a/b", 2, "", "is no name"},
		{"", "", "vc get */web", 2, "", "is no name"},
		{"", "", "vm get film/web-w-0", 0, "GET /v1/vms/web-w-0?tenant=film", ""},
		{"", "", "vm get 01M", 0, "GET /v1/vms/01M", ""},
		{"film", "tenant: lab", "vc list", 0, "GET /v1/virtual-clusters?tenant=film", ""},
		{"", "tenant: lab", "vc list", 0, "GET /v1/virtual-clusters?tenant=lab", ""},
		{"film", "tenant: lab", "vc list --tenant web", 0, "GET /v1/virtual-clusters?tenant=web", ""},
		{"film", "", "vc list --tenant=", 0, "GET /v1/virtual-clusters", ""},
		{"", "tenant: lab", "events", 0, "GET /v1/events?follow=false&limit=100&tenant=lab", ""},
		{"", "tenant: lab", "host list", 0, "GET /v1/hosts", ""},
	} {
		atHome(t, c.config)
		t.Setenv("EVENKEEL_TENANT", c.env)
		status, asked, out, errs := r.vcctl(strings.Fields(c.line)...)
		first := ""
		if len(asked) > 0 {
			first = asked[0]
		}
		if status != c.status || first != c.asked || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s (EVENKEEL_TENANT=%s, %s): status %d, want %d; asked %q, want %q; printed %s%s, want %q", c.line, c.env, c.config, status, c.status, asked, c.asked, out, errs, c.says)
		}
	}
}

// What follows a request stays in its tenant, and hints name it.
func TestTenantOfWhatFollows(t *testing.T) {
	op := `{"id":"o1","kind":"stop","virtualCluster":"web","state":"%s","text":"0 of 1 VMs stopped"}`
	pending, done := strings.Replace(op, "%s", "pending", 1), strings.Replace(op, "%s", "done", 1)
	r := newRecorder(t, map[string]string{
		"POST /v1/virtual-clusters/web/stop": `{"changes":[],"operation":` + pending + `}`,
		"GET /v1/operations/o1":              done, "GET /v1/virtual-clusters/web": `{"name":"web"}`,
		"GET /v1/vms":                         `{"items":[]}`,
		"POST /v1/virtual-clusters/web/start": `403 {"type":"urn:evenkeel:problem:quota","title":"Over quota","status":403,"detail":"tenant film: cpu: limit 4, used 3, asked 2"}`,
	})
	atHome(t, "")
	_, _, out, _ := r.vcctl("vc", "stop", "film/web")
	if want := "watch it with: vcctl vc get film/web -w\n"; !strings.HasSuffix(out, want) {
		t.Errorf("printed %q, want %q at its end", out, want)
	}
	status, asked, _, errs := r.vcctl("vc", "stop", "web", "--tenant", "film", "--wait")
	want := []string{"POST /v1/virtual-clusters/web/stop?tenant=film", "GET /v1/operations/o1?seen=0+of+1+VMs+stopped&tenant=film&wait=30s", "GET /v1/virtual-clusters/web?tenant=film"}
	if status != 0 || !slices.Equal(asked, want) || !strings.Contains(errs, "stop film/web: pending") {
		t.Errorf("status %d, asked %q, want %q; said %q", status, asked, want, errs)
	}
	if _, asked, _, _ := r.vcctl("vc", "get", "film/web"); !slices.Contains(asked, "GET /v1/vms?tenant=film&virtualCluster=web") {
		t.Errorf("vc get asked %q", asked)
	}
	if status, _, _, errs := r.vcctl("vc", "start", "film/web"); status != statusRefused || !strings.Contains(errs, "limit 4, used 3, asked 2\n`vcctl quota get`") {
		t.Errorf("over quota: status %d, %q", status, errs)
	}
}

// What operators see of hosts, of the cluster and in completion is that of all tenants, under full names.
func TestAllTenantsForOperators(t *testing.T) {
	vms := `{"items":[{"name":"web-w-0","tenant":"default","virtualCluster":"web","group":"w","host":"h1"},{"name":"web-w-0","tenant":"film","virtualCluster":"web","group":"w","host":"h1"}]}`
	answers := map[string]string{
		"GET /v1/virtual-clusters": `{"items":[{"name":"web","tenant":"default","groups":[{"name":"w"}]},{"name":"web","tenant":"film","groups":[{"name":"w"}]}]}`, "GET /v1/vms": vms,
		"GET /v1/hosts": `{"items":[{"name":"h1"}]}`, "GET /v1/hosts/h1": `{"name":"h1"}`, "GET /v1/cluster/status": `{}`, "GET /v1/migrations": `{"items":[]}`,
		"GET /v1/vms/web-w-0/samples": `{"items":[]}`,
	}
	r := newRecorder(t, answers)
	file := filepath.Join(t.TempDir(), "history.json")
	for _, c := range []struct {
		config, line, asked, says string
	}{
		{"", "host get h1", "GET /v1/vms?host=h1&tenant=%2A", "film/web-w-0"},
		{"tenant: lab", "host get h1", "GET /v1/vms?host=h1&tenant=%2A", "film/web-w-0"},
		{"tenant: lab", "top", "GET /v1/virtual-clusters?tenant=%2A", "film/web-w-0"},
		{"", "top --tenant film", "GET /v1/vms?tenant=film", ""},
		{"tenant: lab", "cluster history " + file, "GET /v1/vms/web-w-0/samples?resolution=5m&resource=cpu&since=", ""},
		{"tenant: lab", "cluster history " + file, "GET /v1/vms/web-w-0/samples?resolution=5m&resource=cpu&since=&tenant=film", "2 virtual clusters, 2 VMs"},
		{"", "__complete -- vc get ", "GET /v1/virtual-clusters?consistency=stale&tenant=%2A", "web\nfilm/web\n"},
		{"", "__complete -- vm get film/", "GET /v1/vms?consistency=stale&tenant=%2A", "film/web-w-0\n"},
		{"", "__complete -- --tenant film vc get ", "GET /v1/virtual-clusters?consistency=stale&tenant=film", "web\n"},
		{"", "__complete -- --tenant=film vc get ", "GET /v1/virtual-clusters?consistency=stale&tenant=film", "web\n"},
		{"tenant: lab", "__complete -- vc get ", "GET /v1/virtual-clusters?consistency=stale&tenant=lab", "web\n"},
	} {
		_ = os.Remove(file)
		atHome(t, c.config)
		status, asked, out, errs := r.vcctl(strings.Split(c.line, " ")...)
		for i, line := range asked {
			if at := strings.Index(line, "since="); at >= 0 { // a time of now
				rest := line[at:]
				line = line[:at] + "since="
				if next := strings.Index(rest, "&"); next >= 0 {
					line += rest[next:]
				}
			}
			asked[i] = line
		}
		if status != 0 || !slices.Contains(asked, c.asked) || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s (%s): status %d; asked %q, want %q; printed %s%s, want %q", c.line, c.config, status, asked, c.asked, out, errs, c.says)
		}
	}
}

// refusing answers as a server, or to a token, that does not take tenant=*.
func refusing(t *testing.T, problem string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Has("tenant") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"type":"urn:evenkeel:problem:`+problem+`","title":"no","status":422}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"h1","items":[{"name":"web"}]}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// Servers from before there were tenants, during an upgrade, and tokens of tenants refuse to list all.
func TestAllTenantsRefused(t *testing.T) {
	for _, c := range []struct {
		problem, line string
		status        int
	}{
		{"invalid", "host get h1", 0}, {"not-found", "host get h1", 4}, {"invalid", "top", 0},
		{"invalid", "__complete -- vc get w", 0}, {"not-found", "__complete -- vc get w", 0}, {"invalid", "vc list -A", 2},
	} {
		atHome(t, "")
		r := recorder{Server: refusing(t, c.problem)}
		status, _, out, errs := r.vcctl(strings.Split(c.line, " ")...)
		if status != c.status || status == 0 && !strings.Contains(out, "web") {
			t.Errorf("%s, %s: status %d, want %d: %s%s", c.line, c.problem, status, c.status, out, errs)
		}
	}
}

func TestSimulatedNeedOfTenant(t *testing.T) {
	for text, want := range map[string][2]string{"web=1": {"web", ""}, "web/front=1": {"web", "front"}, "film/web/front=1": {"film/web", "front"}, "film/web/=1": {"film/web", ""}} {
		if n, err := simulatedNeed(text); err != nil || n.VirtualCluster != want[0] || n.Group != want[1] {
			t.Errorf("%s: %+v, %v, want %q", text, n, err, want)
		}
	}
}
