package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
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
	"evenkeel/test/site"
)

// BenchmarkCommands runs the commands that operators use most against 1,000 simulated hosts with 10,000 VMs, from the command line
// to the last byte, over TLS, without the start of a process. Median and greatest time, and the longest line, are metrics:
//
//	go test -tags libvirt_dlopen,hashicorpmetrics -run '^$' -bench 'Commands|Members' -benchtime 10x ./cmd/vcctl
func BenchmarkCommands(b *testing.B) {
	const hosts, vcs, each = 1000, 200, 50
	address, dir := bigCluster(b, hosts)
	b.Setenv("EVENKEEL_ADDRESS", address)
	b.Setenv("EVENKEEL_CACERT", filepath.Join(dir, "ca.pem"))
	b.Setenv("EVENKEEL_TOKEN_FILE", filepath.Join(dir, "admin.token"))
	b.Setenv("HOME", dir)
	api, err := client.New(client.Config{Address: address, Token: readAll(b, filepath.Join(dir, "admin.token")), CAFile: filepath.Join(dir, "ca.pem"), Timeout: 5 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	for i := range vcs {
		spec := v1.VirtualClusterSpec{Name: fmt.Sprintf("vc%d", i), Groups: []v1.GroupSpec{{Name: "worker", Count: each, CPU: 1, Memory: 512 << 20, Network: "lan", Labels: map[string]string{"env": "prod", "tier": "web"}}}}
		if _, err := api.Create(b.Context(), spec); err != nil {
			b.Fatal(err)
		}
	}
	for begin := time.Now(); ; time.Sleep(time.Second) { // sleep: the question is a costly one
		s, err := api.Status(b.Context())
		if err == nil && s.VMs.Running == vcs*each {
			b.Logf("%d VMs on %d hosts run after %s", s.VMs.Running, hosts, time.Since(begin).Round(time.Second))
			break
		}
		if time.Since(begin) > 10*time.Minute {
			b.Fatalf("not all VMs run: %+v, %v", s.VMs, err)
		}
	}
	for _, line := range []string{"cluster status", "host list", "vm list", "vm list --vc vc7", "vm list --selector env=prod --sort used:desc", "vc list", "vc get vc7", "vc explain vc7", "host get h7",
		"host drain h7 --dry-run", "events", "migration list", "plan list"} {
		benchCommand(b, line)
	}
}

// BenchmarkMembers is BenchmarkCommands for the members: three servers, whose state has 997 agents more. Those send nothing.
func BenchmarkMembers(b *testing.B) {
	s, err := site.New(site.Options{Dir: b.TempDir(), Hosts: 3})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	if err := s.Servers(b.Context(), 3); err != nil {
		b.Fatal(err)
	}
	first := s.Member(s.Leader())
	for i := range 997 {
		row := state.Member{Name: fmt.Sprintf("h%d", i+4), Agent: true, Address: fmt.Sprintf("10.0.%d.%d:7480", i/250, i%250+1), Version: "test"}
		if err := first.Propose(b.Context(), state.KindMemberPut, row); err != nil {
			b.Fatal(err)
		}
	}
	b.Setenv("EVENKEEL_ADDRESS", s.Address(s.Leader()))
	b.Setenv("EVENKEEL_CACERT", s.CAFile())
	b.Setenv("EVENKEEL_TOKEN", site.Token)
	b.Setenv("HOME", b.TempDir())
	for _, line := range []string{"cluster members", "cluster members -o wide"} {
		benchCommand(b, line)
	}
}

// benchCommand runs a command line again and again. It reports the median and the greatest time, and the longest line.
func benchCommand(b *testing.B, line string) {
	b.Run(strings.ReplaceAll(line, " ", "_"), func(b *testing.B) {
		columns := 0
		var took []time.Duration
		for b.Loop() {
			var out, problem bytes.Buffer
			t := &tool{in: strings.NewReader(""), out: &out, err: &problem, warned: map[string]bool{}}
			begin := time.Now()
			if status := t.run(b.Context(), append([]string{"vcctl"}, strings.Fields(line)...)); status != 0 {
				b.Fatalf("%s: status %d: %s", line, status, problem.String())
			}
			took = append(took, time.Since(begin))
			for l := range strings.Lines(out.String()) {
				columns = max(columns, textWidth(strings.TrimRight(l, "\n")))
			}
		}
		slices.Sort(took)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		b.ReportMetric(ms(took[len(took)/2]), "median-ms")
		b.ReportMetric(ms(took[len(took)-1]), "max-ms")
		b.ReportMetric(float64(columns), "columns")
	})
}

func readAll(b *testing.B, path string) string {
	b.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// bigCluster is one server with so many simulated hosts.
func bigCluster(b *testing.B, hosts int) (address, dir string) {
	b.Helper()
	dir = b.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	world, err := simulated.New(simulated.Options{Hosts: hosts, CPU: 16, Memory: 64 << 30})
	if err != nil {
		b.Fatal(err)
	}
	set := state.DefaultSettings()
	set.MaxVMs = max(set.MaxVMs, 20*hosts)
	whole, err := single.Start(ctx, single.Options{Dir: dir, ID: "n1", Settings: set, Logger: quiet,
		Open: func(context.Context) (map[string]hypervisor.Host, error) { return world.All(), nil },
		Agent: agent.Options{SampleEvery: 10 * time.Second, Allowance: func(c hypervisor.Capacity) agent.Limits {
			return agent.Limits{CPU: c.CPU - 1, Memory: c.Memory - 1<<30}
		}, Overhead: func(hypervisor.Capacity) int64 { return 0 }}})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	b.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = whole.Close()
		_ = world.Close()
	})
	if err := whole.AwaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	if _, _, err := whole.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/boot/tiny"}, leader.Call{}); err != nil {
		b.Fatal(err)
	}
	hash, err := server.EnsureAdminToken(filepath.Join(dir, "admin.token"))
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	certs, err := server.EnsureCertificates(dir, listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	api := server.New(whole.Service, server.Options{Tokens: []server.TokenHash{hash}, Version: "test", Logger: quiet})
	wg.Go(func() { _ = api.Serve(ctx, listener, certs.TLS()) })
	return "https://" + listener.Addr().String(), dir
}
