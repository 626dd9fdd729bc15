package transport

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

const (
	benchAgents = 1000
	benchVMs    = 10 // per host
	benchEnv    = "EVENKEEL_BENCH_LEADER"
)

// leaderProcess is the other side of BenchmarkAgents: a leader with the files in a
// directory, until its input ends. What the control plane does with calls is not in it.
func leaderProcess(dir string) error {
	k, err := pki.OpenStore(pki.FilesIn(dir), false, time.Now())
	if err != nil {
		return err
	}
	b := newBrain()
	for i := range benchAgents {
		d := agent.Desired{Cluster: clusterID, Index: 1, CPU: 32, Memory: 128 << 30}
		for j := range benchVMs {
			d.VMs = append(d.VMs, vm(fmt.Sprintf("%d-%d", i, j), 1))
		}
		b.set(fmt.Sprintf("h%d", i), d)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	sec := Security{Certificates: k, Revoked: func(string) bool { return false }}
	dialer := &Dialer{Security: sec}
	defer dialer.Close()
	servers := []string{listener.Addr().String()}
	peers := NewPeers(PeersOptions{Security: sec, Dialer: dialer, Leader: forgetful{b}, Log: quiet(), Lead: func() Leading { return Leading{Here: true, Term: 1} }, Servers: func() []string { return servers }})
	port := NewPort(PortOptions{Security: sec, Listener: listener, Dialer: dialer, Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = port.Serve(ctx) })
	wg.Go(func() { _ = peers.Serve(ctx, port.Peers()) })
	fmt.Println(listener.Addr())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	cancel()
	wg.Wait()
	return nil
}

// forgetful keeps no reports.
type forgetful struct{ *brain }

func (forgetful) Report(context.Context, agent.Report) error { return nil }

// BenchmarkAgents is 1,000 agents on one leader in steady state: a stream each, a report with the
// samples of 10 VMs every second, a renewal every 5 s. One iteration is one second of it;
// leader-cpu-% is what the leader's process uses of one core, leader-MiB what it keeps in memory.
func BenchmarkAgents(b *testing.B) {
	s := newSite(b)
	dir := b.TempDir()
	if err := pki.FilesIn(dir).Write(s.material(s.ca, "s1", true, false, time.Now(), time.Hour)); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	rnd := mathrand.New(mathrand.NewPCG(1, 1))
	for i := range benchAgents {
		host := fmt.Sprintf("h%d", i)
		k := s.certificates(nil, host, false, true, time.Now(), time.Hour)
		a := NewAgent(AgentOptions{Host: host, Dialer: s.dialer(k), Servers: []string{strings.TrimSpace(at)}, Rand: mathrand.New(mathrand.NewPCG(uint64(i), 1)), Log: quiet()})
		wg.Go(func() { a.Run(ctx) })
		begin := time.Duration(rnd.Int64N(int64(time.Second)))
		wg.Go(func() { steady(ctx, a, host, begin) })
		for {
			if _, _, err := a.Desired(ctx, host); err == nil {
				break
			}
			time.Sleep(time.Millisecond) // sleep: a bounded poll; until the agent is connected
		}
	}
	time.Sleep(2 * time.Second) // sleep: the first whole reports are not steady state
	used := cpuTime(b, cmd.Process.Pid)
	begin := time.Now()
	b.ResetTimer()
	for range b.N {
		time.Sleep(time.Second) // sleep: the benchmark is what happens meanwhile
	}
	b.StopTimer()
	b.ReportMetric(100*(cpuTime(b, cmd.Process.Pid)-used).Seconds()/time.Since(begin).Seconds(), "leader-cpu-%")
	b.ReportMetric(residentMiB(b, cmd.Process.Pid), "leader-MiB")
}

// steady is what an agent does when nothing happens.
func steady(ctx context.Context, a *Agent, host string, begin time.Duration) {
	time.Sleep(begin) // sleep: spread over the second, as agents are that started at any time
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	report := agent.Report{Host: host, Reach: true, Index: 1}
	for j := range benchVMs {
		report.Samples = append(report.Samples, agent.Sample{VM: fmt.Sprintf("%s-%d", host, j), Generation: 1, State: "running", Cap: 1.234, Balloon: 1 << 30, Resident: 1 << 29, Memory: 1 << 29})
		report.Running = append(report.Running, agent.Instance{VM: fmt.Sprintf("%s-%d", host, j), Generation: 1, Name: "ek-vc-group-1"})
	}
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for j := range report.Samples {
			report.Samples[j].At, report.Samples[j].Used, report.Samples[j].VCPUTime = time.Now().UTC(), 0.123456789*float64(j), time.Duration(n)*time.Second
		}
		_ = a.Report(ctx, report) // the leader's figures count, not this one's
		if n%5 == 0 {
			_, _ = a.Renew(ctx, agent.Renewal{Host: host, Enforcing: true, Boot: "b"})
		}
	}
}

// cpuTime of a process so far, user and system.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	statm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(statm))[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
