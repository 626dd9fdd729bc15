package browser

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

var (
	scale   = flag.Bool("scale", false, "measure the dashboard of a large cluster: minutes, on a machine of its own")
	scaleAt = flag.String("at", "", "with -scale: of the cluster that this `FILE` names, the output of vcsim cluster --serve, instead of a new one")
	scaleOf = flag.String("of", "1000,10000,200", "with -scale: of a new cluster of so many `HOSTS,VMS,TENANTS`")
)

// Bounds of a page, at any size of the cluster.
const (
	maxUsable   = time.Second
	maxRequests = 6
	maxWeight   = 300 << 10 // bytes of a first visit, as they are sent
	maxUpdate   = 100 * time.Millisecond
	maxHeap     = 150 << 20 // bytes after an hour of events
)

// served is a cluster that vcsim keeps.
type served struct {
	Servers []string `json:"servers"`
	Token   string   `json:"token"`
	CAFile  string   `json:"caFile"`
}

// serve starts a cluster of three servers, each a process of its own, with simulated hosts; or takes the one that a file names.
func serve(t *testing.T) (h served) {
	t.Helper()
	return serveOf(t, *scaleOf)
}

// serveOf serves a cluster of so many hosts, VMs and tenants: "HOSTS,VMS,TENANTS".
func serveOf(t *testing.T, size string) (h served) {
	t.Helper()
	if *scaleAt != "" {
		text, err := os.ReadFile(*scaleAt)
		must(t, err)
		must(t, json.Unmarshal(text, &h))
		return h
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "vcsim")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", program, "../../cmd/vcsim")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build vcsim: %v\n%s", err, out)
	}
	var hosts, vms, tenants int
	if _, err := fmt.Sscanf(size, "%d,%d,%d", &hosts, &vms, &tenants); err != nil {
		t.Fatalf("a cluster of %s: %v", size, err)
	}
	cmd := exec.CommandContext(t.Context(), program, "cluster", "--serve", "--servers", "3", "--largest", "20", "--dir", filepath.Join(dir, "cluster"),
		"--hosts", fmt.Sprint(hosts), "--vms", fmt.Sprint(vms), "--tenants", fmt.Sprint(tenants))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr, cmd.Dir = os.Stderr, dir
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it was ended by a signal
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err)
	must(t, json.Unmarshal(line, &h))
	return h
}

// measurement of one page.
type measurement struct {
	path     string
	usable   []time.Duration // first visit, then visits with the files cached
	requests []string
	again    int // requests of a later visit
	weight   int
	update   time.Duration
	nodes    int
}

// measure a page: a first visit, five later ones, and live updates while something changes.
func measure(tab *Tab, traffic *Traffic, page, path string, change func()) (m measurement) {
	m.path = path
	tab.Leave()
	tab.Forget()
	traffic.Take()
	tab.Go(page + path)
	m.usable = append(m.usable, tab.Usable())
	tab.Rests()
	m.requests, m.weight = traffic.Take()
	for range 5 {
		tab.Leave()
		traffic.Take()
		tab.Go(page + path)
		m.usable = append(m.usable, tab.Usable())
		tab.Rests()
		requests, _ := traffic.Take()
		m.again = max(m.again, len(requests))
	}
	m.nodes = tab.Main(true).Nodes
	if change != nil && Eval[bool](tab, `"live" in document.getElementById("main").dataset`) {
		before := tab.Main(false).Busy
		looks := 0
		for range 4 {
			change()
			must(tab.t, patience.Until(tab.t.Context(), limit, "a new look", func() any { return looks }, func() bool {
				requests, _ := traffic.Take()
				looks += len(requests)
				return len(requests) > 0
			}))
			tab.Rests()
			requests, _ := traffic.Take()
			looks += len(requests)
		}
		m.update = (tab.Main(false).Busy - before) / time.Duration(looks)
	}
	return m
}

func (m measurement) String() string {
	warm := slices.Clone(m.usable[1:])
	slices.Sort(warm)
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %.0f | %d | %d |", m.path, m.usable[0].Milliseconds(), warm[len(warm)/2].Milliseconds(), warm[len(warm)-1].Milliseconds(),
		len(m.requests), m.again, float64(m.weight)/1024, m.update.Milliseconds(), m.nodes)
}

// judge a page by the bounds.
func (m measurement) judge(t *testing.T) {
	t.Helper()
	if worst := slices.Max(m.usable); worst > maxUsable {
		t.Errorf("%s is usable after %s", m.path, worst)
	}
	if m.update > maxUpdate {
		t.Errorf("%s: an update takes %s of the main thread", m.path, m.update)
	}
	m.judgeTraffic(t)
}

func (m measurement) judgeTraffic(t *testing.T) {
	t.Helper()
	// Simulated hosts have no console: the page of one asks once more, for the reason.
	requests := slices.DeleteFunc(slices.Clone(m.requests), func(u string) bool {
		return strings.HasPrefix(u, "https:") && strings.Contains(u, "/ui/console-stream/")
	})
	if len(requests) > maxRequests {
		t.Errorf("%s asks %d times: %q", m.path, len(requests), requests)
	}
	if m.weight > maxWeight {
		t.Errorf("%s weighs %d bytes", m.path, m.weight)
	}
}

// pagesOf a session: those of its menu, and others.
func pagesOf(tab *Tab, more ...string) []string {
	return append(Eval[[]string](tab, `[...document.querySelectorAll("nav a")].map((a) => a.pathname)`), more...)
}

// TestScale measures every page of a large cluster in a real browser, as an operator and as a tenant, against servers that are
// processes of their own. It prints a table:
//
//	go test -tags libvirt_dlopen,hashicorpmetrics -count 1 -timeout 30m -run TestScale ./test/browser -args -scale
func TestScale(t *testing.T) {
	if !*scale {
		t.Skip("it takes minutes and measures time, which other tests beside it would change: -args -scale")
	}
	h := serve(t)
	api, err := client.New(client.Config{Address: strings.Join(h.Servers, ","), Token: h.Token, CAFile: h.CAFile, Patience: 20 * time.Second})
	must(t, err)
	t.Cleanup(api.Close)
	own, err := api.MakeToken(t.Context(), v1.TokenRequest{Name: "of a tenant", Role: "owner", Tenant: "t1"})
	must(t, err)
	of, err := api.VMs(t.Context(), "", "", client.OfTenant("t1"))
	must(t, err)
	vm := of[0]
	b := Start(t, required, OverHTTP1)
	n := 0
	change := func() {
		n++
		name := fmt.Sprintf("live%d-%d", os.Getpid(), n)
		spec := v1.VirtualClusterSpec{Name: name, Groups: []v1.GroupSpec{{Name: "w", CPU: 0.1, Memory: 256 << 20, Image: "tiny"}}}
		_, err := api.Create(t.Context(), spec, client.OfTenant("t1"), client.IdempotencyKey(name))
		must(t, err)
		t.Cleanup(func() {
			_, _ = api.Delete(context.Background(), name, client.OfTenant("t1")) // what is left of it concerns no later run: its name has the process
		})
	}
	page := "https://" + h.Servers[len(h.Servers)-1] // one that joined last, and does not lead
	vmPages := []string{"/ui/new", "/ui/console/t1/" + vm.Name, "/ui/forecast/t1/" + vm.Name, "/ui/vms?q=" + vm.Name}
	for _, c := range []struct {
		role, token string
		more        []string
	}{
		{"operator", h.Token, append([]string{"/ui/hosts/" + vm.Host, "/ui/virtual-clusters/t1/" + vm.VirtualCluster, "/ui/vms?from=9600"}, vmPages...)},
		{"tenant", own.Token, append([]string{"/ui/virtual-clusters/" + vm.VirtualCluster}, vmPages...)},
	} {
		tab := b.Open(t, page+"/ui/virtual-clusters")
		tab.Fill(`input[name=token]`, c.token)
		tab.Press("Log in")
		tab.Until("the pages", func() bool { return tab.At() == "/ui/virtual-clusters" })
		traffic := tab.Watch()
		fmt.Printf("as %s\n| page | first visit, ms | later, median | later, slowest | requests, first | later | KiB, first | update, ms | DOM nodes |\n", c.role)
		for _, path := range pagesOf(tab, c.more...) {
			m := measure(tab, traffic, page, path, change)
			fmt.Println(m)
			m.judge(t)
		}
		Eval[bool](tab, `document.querySelector("form.self button").click() || true`)
		tab.Until("the log-in", func() bool { return tab.At() == "/ui/login" })
	}
}

// hour of events, replayed: so many a second for so long, at a multiple of the speed.
const (
	replayRate  = 10
	replayHours = 1
	replaySpeed = 60
)

// TestScaleHour has a page follow an hour of events of a large cluster, replayed sixty times as fast, with all of the page's waits
// shortened alike: it then looks as often as in an hour.
func TestScaleHour(t *testing.T) {
	if !*scale {
		t.Skip("it takes minutes: -args -scale")
	}
	h := serve(t)
	var sent atomic.Int64
	at := replay(t, h, &sent)
	b := Start(t, required, OverHTTP1)
	tab := b.Open(t, at+"/ui/")
	tab.Fill(`input[name=token]`, h.Token)
	tab.Press("Log in")
	tab.Until("the pages", func() bool { return tab.At() == "/ui/" })
	tab.Prepare(fmt.Sprintf(`{ const wait = window.setTimeout; window.setTimeout = (f, ms, ...more) => wait(f, ms / %d, ...more); }`, replaySpeed))
	traffic := tab.Watch()
	for _, path := range []string{"/ui/", "/ui/vms", "/ui/events"} {
		tab.Go(at + path)
		begin := tab.Main(true)
		sent.Store(0)
		traffic.Take()
		const all = replayRate * 3600 * replayHours
		err := patience.Until(t.Context(), time.Minute, "an hour of events", func() any { return sent.Load() }, func() bool { return sent.Load() >= all })
		must(t, err)
		tab.Rests()
		requests, _ := traffic.Take()
		end := tab.Main(true)
		memory, err := b.Memory()
		must(t, err)
		fmt.Printf("%s: %d events, %d looks; heap %.1f MiB before, %.1f after; DOM nodes %d before, %d after; renderer %.0f MiB; main thread %.1f s\n", path, sent.Load(), len(requests),
			float64(begin.Heap)/(1<<20), float64(end.Heap)/(1<<20), begin.Nodes, end.Nodes, float64(memory)/(1<<20), (end.Busy - begin.Busy).Seconds())
		if end.Heap > maxHeap || memory > maxHeap {
			t.Errorf("%s keeps %d bytes of objects, its renderer %d", path, end.Heap, memory)
		}
		tab.Clean()
	}
}

// replay stands before a server: all goes through but the stream, which has events as fast as they are replayed. It ends after an hour of
// them, and then only stays open.
func replay(t *testing.T, h served, sent *atomic.Int64) string {
	t.Helper()
	behind, err := url.Parse("https://" + h.Servers[0])
	must(t, err)
	proxy := &httputil.ReverseProxy{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // the server of the test
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(behind)
			r.Out.Header.Del("Origin") // forms are of the proxy's pages
		}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ui/stream" {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		every := time.NewTicker(time.Second / replayRate / replaySpeed * 10)
		defer every.Stop()
		for r.Context().Err() == nil {
			select {
			case <-every.C:
			case <-r.Context().Done():
				return
			}
			for range 10 {
				if n := sent.Add(1); n <= replayRate*3600*replayHours {
					_, _ = fmt.Fprintf(w, "id: %d\ndata: {\"seq\":%d,\"kind\":\"vm-running\",\"object\":\"vm\",\"name\":\"base1-w-1\",\"text\":\"VM base1-w-1 runs on h%d\"}\n\n", n, n, n%1000)
				}
			}
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
