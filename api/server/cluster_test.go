package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/single"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/memnet"
	"evenkeel/test/patience"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

// cluster is a whole one in this process: the log on disk, the control loop,
// the agents of simulated hosts, and the API over TLS on a port of its own.
type cluster struct {
	service *leader.Service
	network memnet.Network
	address string
	caFile  string
	token   string
	log     *strings.Builder // guarded by the logger's own lock
	stop    func() error     // of the API; the second call does nothing
}

// bubble runs a test beside others, in simulated time: what waits takes no time, and no limit depends on the machine.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// What looks after requests ends soon after the last of them, by itself.
		t.Cleanup(func() { time.Sleep(time.Minute) }) // sleep: simulated time
		f(t)
	})
}

// start a cluster of 2 hosts with 4 cores and 8 GiB for VMs each.
func start(t *testing.T) *cluster {
	t.Helper()
	dir := scratch.Dir(t)
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{log: &strings.Builder{}}
	log := slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	world, err := simulated.New(simulated.Options{Hosts: 2, CPU: 5, Memory: 9 << 30, Timing: &simulated.Timing{Beat: 20 * time.Millisecond}})
	must(t, err)
	whole, err := single.Start(ctx, single.Options{Dir: dir, ID: "n1", Settings: state.DefaultSettings(), Logger: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (map[string]hypervisor.Host, error) { return world.All(), nil },
		Agent: agent.Options{Clock: site.Steady, SampleEvery: 50 * time.Millisecond,
			Allowance: func(hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: 4, Memory: 8 << 30} },
			Overhead:  func(hypervisor.Capacity) int64 { return 0 }}})
	must(t, err)
	c.service = whole.Service
	_, _, err = whole.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/boot/tiny"}, leader.Call{})
	must(t, err)

	hash, err := server.EnsureAdminToken(filepath.Join(dir, "admin.token"))
	must(t, err)
	raw, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	must(t, err)
	c.token = strings.TrimSpace(string(raw))
	listener, err := c.network.Listen("127.0.0.1:0")
	must(t, err)
	certs, err := server.EnsureCertificates(dir, listener.Addr().String())
	must(t, err)
	c.caFile, c.address = certs.CAFile, "https://"+listener.Addr().String()
	api := server.New(c.service, server.Options{Tokens: []server.TokenHash{hash}, Version: "test", Logger: log})
	serving, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- api.Serve(serving, listener, certs.TLS()) }()
	c.stop = sync.OnceValue(func() error { end(); return <-served })
	must(t, whole.AwaitReady(ctx))
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		cancel()
		must(t, whole.Close())
		must(t, world.Close())
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls for what has no event of its own, and follows what the cluster does.
func (c *cluster) eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	patience.Eventually(t, patience.Stall, what, func() any {
		v, err := c.service.View(t.Context(), true)
		must(t, err)
		return site.Doing(v)
	}, f)
}

func (c *cluster) client(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.New(client.Config{Address: c.address, Token: c.token, CAFile: c.caFile, Dial: c.network.Dial})
	must(t, err)
	t.Cleanup(api.Close)
	return api
}

// raw is a plain HTTP client that trusts the cluster.
func (c *cluster) raw(t *testing.T) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(c.caFile)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: c.network.Dial}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request sends one request by hand.
func (c *cluster) request(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, c.address+path, in)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := c.raw(t).Do(r)
	must(t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	out, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(out)
}

// small is a VC that fits many times.
func small(name string, count int) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, Groups: []v1.GroupSpec{{Name: "w", Count: count, CPU: 0.5, Memory: 64 << 20}}}
}

// create a VC and wait until it runs.
func (c *cluster) create(t *testing.T, spec v1.VirtualClusterSpec) v1.VirtualCluster {
	t.Helper()
	api := c.client(t)
	r, err := api.Create(t.Context(), spec)
	must(t, err)
	op, err := api.Wait(t.Context(), *r.Operation, nil)
	must(t, err)
	if op.State != v1.OperationDone {
		t.Fatalf("create %s: %+v", spec.Name, op)
	}
	vc, err := api.VirtualCluster(t.Context(), spec.Name)
	must(t, err)
	return vc
}
