package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/api/server"
	"evenkeel/cluster/audit"
	"evenkeel/cmd/internal/clidoc"
	"evenkeel/test/memnet"
	"evenkeel/test/site"
)

// generated pages and those whose commands test/readme plays with all of their output.
var notPlayed = []string{"README.md", "docs/tutorials/one-host.md", "docs/reference/vcctl.md", "docs/reference/vcd.md"}

// file is the VC file of a page's virtual cluster.
const file = "name: %s\nminYield: 0.1\ngroups: [{name: worker, count: 3, cpu: 1, memory: 1GiB}]\n"

// prepared say what a command of a page needs, by how it begins.
var prepared = []struct {
	begin   string
	stop    string // the host whose vcd ends before
	refused string // what vcctl says where the cluster of the test has nothing to do
}{
	{"host confirm-dead --yes -m power supply burnt h3", "h3", ""},
	{"host confirm-dead --yes h5", "h5", ""},
	{"plan stop ID", "", "is done"},
	{"periodic accept nightly --zone", "", "no period was found"}, // of the one run that there was
	{"host drain --next", "", "cannot be emptied as things are"},
	{"login", "", "takes no log-in with OpenID Connect"}, // there is no issuer: TestLogin has one
	{"role grant", "", "takes no tokens of OpenID Connect"},
	{"auth revoke", "", "takes no tokens of OpenID Connect"},
	{"role revoke", "", "not found"},                                       // what was not granted
	{"cluster join --join-token-file token h1:7480", "", "No valid token"}, // h2's, which lost its disk: test/cluster does it
}

// TestCommandsInPagesRun carries out each command of vcctl in a code block of a page, in the order of the page and in simulated time. The
// cluster has three servers and seven hosts, the virtual clusters web and render, and a fence device for h2.
func TestCommandsInPagesRun(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := clidoc.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, page := range pages {
		rel, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(clidoc.Lines(rel, string(text), "vcctl"), func(l clidoc.Line) bool { return !l.Block })
		if len(lines) == 0 || slices.Contains(notPlayed, rel) {
			continue
		}
		ran += len(lines)
		t.Run(rel, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPage(t, lines)
				for _, l := range lines {
					p.play(t, l)
				}
			})
		})
	}
	if ran < 90 {
		t.Errorf("only %d commands were found: the search looks in the wrong place", ran)
	}
}

// page is a cluster that the commands of a page are given to.
type page struct {
	*site.Site
	dir, token string
}

// obedient is a fence device of h2 that does what it is asked for.
type obedient struct{}

func (obedient) Has(host string) bool                         { return host == "h2" }
func (obedient) Test(context.Context, string) (string, error) { return "the power is on", nil }
func (obedient) Off(context.Context, string) (string, error)  { return "the power is off", nil }

func newPage(t *testing.T, lines []clidoc.Line) *page {
	dir := t.TempDir()
	s, err := site.New(site.Options{Dir: filepath.Join(dir, ".site"), Hosts: 7, Fence: obedient{}, Lease: 4 * time.Second, Network: &memnet.Network{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		time.Sleep(time.Minute) // sleep: simulated time; what looks after requests ends by itself
	})
	if err := s.Servers(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for n := 4; n <= 7; n++ {
		if err := s.Join(t.Context(), fmt.Sprintf("h%d", n), false, true); err != nil {
			t.Fatal(err)
		}
	}
	p := &page{Site: s, dir: dir, token: filepath.Join(dir, "admin.token")}
	files := map[string]string{"admin.token": site.Token, "instance.json": threeOnTwo}
	for _, name := range []string{"web", "render", "batch"} {
		files[name+".yaml"] = fmt.Sprintf(file, name)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var needs []string
	for _, l := range lines {
		needs = append(needs, l.Args...)
	}
	p.must(t, "cluster", "settings", "set", "placement=pack") // all VMs on h1, as the pages have it
	if !slices.Contains(needs, "create") {                    // virtual clusters that the page is about
		p.must(t, "vc", "create", "-f", filepath.Join(dir, "render.yaml"), "--wait")
		p.must(t, "vc", "create", "-f", filepath.Join(dir, "web.yaml"), "--wait")
	}
	if slices.Contains(needs, "nightly") { // a run of the job that the page is about
		run := filepath.Join(dir, "nightly.yaml")
		if err := os.WriteFile(run, []byte("periodic: {name: nightly}\n"+fmt.Sprintf(file, "render-1")), 0o600); err != nil {
			t.Fatal(err)
		}
		p.must(t, "vc", "create", "-f", run, "--wait")
		p.must(t, "vc", "delete", "render-1", "--wait")
	}
	if slices.Contains(needs, "film") && !slices.Contains(needs, "tenant") { // a tenant that another page makes
		p.must(t, "tenant", "create", "film")
	}
	if slices.Contains(needs, "ID") {
		p.must(t, "host", "drain", "h1")
		p.must(t, "host", "undrain", "h1")
	}
	return p
}

// address of the server that leads.
func (p *page) address() string { return p.Address(p.Leader()) }

// oneAtATime: urfave/cli writes to flags that all of its programs share.
var oneAtATime sync.Mutex

// vcctl runs one command line.
func (p *page) vcctl(t *testing.T, limit time.Duration, args ...string) (status int, out, errs string) {
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var o, e bytes.Buffer
	tool := &tool{in: strings.NewReader(""), out: &o, err: &e, dial: p.Dial, config: filepath.Join(p.dir, "config", "config.yaml")}
	status = tool.run(ctx, append([]string{"vcctl", "--address", p.address(), "--token-file", p.token, "--cacert", p.CAFile()}, args...))
	return status, o.String(), e.String()
}

// must run a command line.
func (p *page) must(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := p.vcctl(t, time.Minute, args...)
	if status != 0 {
		t.Fatalf("vcctl %s: status %d: %s", strings.Join(args, " "), status, errs)
	}
	return out
}

// play a command of the page.
func (p *page) play(t *testing.T, l clidoc.Line) {
	t.Helper()
	args := p.filled(t, l.Args)
	line := strings.Join(l.Args, " ")
	if strings.HasPrefix(line, "cluster init") || strings.HasPrefix(line, "cluster join ") {
		socket, end := p.newcomer(t)
		defer end()
		args = append(args, "--socket", socket)
	}
	limit, endless := time.Minute, false
	for _, a := range args {
		if a == "-w" || a == "follow" || a == "console" {
			limit, endless = time.Second, true
		}
	}
	refused := ""
	for _, c := range prepared {
		if !strings.HasPrefix(line, c.begin) {
			continue
		}
		refused = c.refused
		if c.stop != "" {
			if err := p.Stop(c.stop); err != nil {
				t.Fatal(err)
			}
			// Its last renewal may have been a moment ago.
			if err := p.Await(t.Context(), c.stop+" may be called dead", func() bool {
				status, _, _ := p.vcctl(t, limit, args...)
				return status == 0
			}); err != nil {
				t.Errorf("%s:%d: vcctl %s: %v", l.Page, l.Row, line, err)
			}
			return
		}
	}
	status, out, errs := p.vcctl(t, limit, args...)
	switch {
	case endless && status == 6: // it was ended
	case refused != "" && strings.Contains(errs, refused):
	case status != 0:
		t.Errorf("%s:%d: vcctl %s: status %d: %s", l.Page, l.Row, line, status, errs)
	}
	if strings.HasPrefix(line, "token create ") {
		if err := os.WriteFile(filepath.Join(p.dir, args[2]+".token"), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasPrefix(line, "cluster join-token") {
		if err := os.WriteFile(filepath.Join(p.dir, "token"), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// filled puts what there is where the page has names for it.
func (p *page) filled(t *testing.T, args []string) []string {
	id := func(list, key string) string {
		var answer struct{ Items []map[string]any }
		command := []string{list, "list", "-o", "json"}
		if list == "plan" || list == "migration" {
			command = append(command, "--all")
		}
		if err := json.Unmarshal([]byte(p.must(t, command...)), &answer); err != nil || len(answer.Items) == 0 {
			t.Fatalf("vcctl %s list: %d items, %v", list, len(answer.Items), err)
		}
		for _, item := range answer.Items {
			if item["name"] == "deploy" {
				return fmt.Sprint(item[key])
			}
		}
		return fmt.Sprint(answer.Items[0][key])
	}
	var out []string
	for i, a := range args {
		switch {
		case a == "$done":
			continue
		case a == "$h":
			a = "h2"
		case a == "s1", a == "s2": // servers of a page with servers that are no hosts
			a = "h" + a[1:]
			if args[1] == "join" {
				a = p.address()
			}
		case a == "FIRST-HOST:7480", a == "h1:7480", a == "192.0.2.11", strings.HasPrefix(a, "https://192.0.2."):
			a = p.address()
		case a == "3f2a9c0d11e4b865":
			a = id("token", "id")
		case a == "ID":
			a = id("plan", "id")
		case a == "FILE" && args[0] == "solve":
			a = filepath.Join(p.dir, "instance.json")
		case a == "NAME" && args[0] == "solve":
			a = "best"
		case a == "TIME":
			a = "1s"
		case a == "POLICY":
			a = "pack"
		case a == "STEPS":
			a = "1000"
		case a == "S":
			a = "1"
		case a == "NAME" && args[0] == "vm":
			a = "render-worker-0"
		case a == "NAME":
			a = "render"
		case a == "ca.pem":
			a = p.CAFile()
		case a == "FILE", a == "token" && i > 0, i > 0 && strings.Contains(a, ".") && slices.Contains([]string{"-f", "--token-file", "--cacert", "save", "restore", "history"}, args[i-1]):
			a = filepath.Join(p.dir, a)
		}
		out = append(out, a)
	}
	return out
}

// newcomer is the socket of a vcd that belongs to no cluster. While it is there, simulated time stands still: the kernel has it.
func (p *page) newcomer(t *testing.T) (socket string, end func()) {
	dir, err := os.MkdirTemp("", "vcctl") // a short name: the kernel allows 107 bytes for a socket's
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	socket = filepath.Join(dir, "vcd.sock")
	wg.Go(func() {
		_ = server.ServeSetup(ctx, socket, &outside{name: "h8", dir: filepath.Join(dir, "h8"), connect: p.Connect}, (*audit.Log)(nil), slog.New(slog.DiscardHandler))
	})
	for { // the file is there before the socket takes connections
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			break
		}
		runtime.Gosched()
	}
	return socket, func() {
		cancel()
		wg.Wait()
		_ = os.RemoveAll(dir)
	}
}
