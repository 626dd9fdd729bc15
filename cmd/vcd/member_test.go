package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/freeport"
	"evenkeel/test/patience"
)

// host is a vcd that runs as a member in this process, with a simulated hypervisor.
type host struct {
	t                   *testing.T
	config, socket, dir string
	advertise, name     string
	stop                context.CancelFunc
	ended               chan int
	out, errs           *bytes.Buffer
	program             string // run it as a process of its own; "" = in this one
	gently              bool   // its process is ended as systemd ends it, not killed
}

// buildVcd builds the program itself.
func buildVcd(t *testing.T, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "vcd")
	args := append([]string{"build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", program}, flags...)
	if said, err := exec.CommandContext(t.Context(), "go", append(args, "evenkeel/cmd/vcd")...).CombinedOutput(); err != nil {
		t.Fatalf("build vcd: %v: %s", err, said)
	}
	return program
}

// exec runs vcd as a process until ctx ends, which kills it or ends it gently, and returns its exit status: 0 if it was killed.
func (h *host) exec(ctx context.Context) int {
	cmd := exec.CommandContext(ctx, h.program, "run", "--config", h.config)
	cmd.Stdout, cmd.Stderr = h.out, h.errs
	if h.gently {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		_ = cmd.Run() // its status says it
		return cmd.ProcessState.ExitCode()
	}
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		fmt.Fprintln(h.errs, err)
		return 1
	}
	return 0
}

// admin is a client with the admin token of a cluster that was made.
func admin(t *testing.T, made v1.SetupAnswer, c client.Config) *client.Client {
	t.Helper()
	c.CAFile, c.Token = filepath.Join(t.TempDir(), "ca.pem"), made.AdminToken
	if err := os.WriteFile(c.CAFile, []byte(made.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "vcd") // short: the kernel allows a socket 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, name: name, dir: filepath.Join(dir, "data"), config: filepath.Join(dir, "vcd.yaml"), socket: filepath.Join(dir, "run", "s"), advertise: at}
	h.write("server: true\nagent: true\n")
	return h
}

func (h *host) write(roles string) {
	text := fmt.Sprintf("name: %s\n%slisten: %s\nadvertise: %s\ngossip: ''\ndataDir: %s\nsocket: %s\nhypervisor: simulated\nlogLevel: error\n", h.name, roles, h.advertise, h.advertise, h.dir, h.socket)
	if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) start() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.ended, h.out, h.errs = cancel, make(chan int, 1), &bytes.Buffer{}, &bytes.Buffer{}
	if h.program != "" {
		go func() { h.ended <- h.exec(ctx) }()
	} else {
		go func() { h.ended <- run(ctx, []string{"vcd", "run", "--config", h.config}, h.out, h.errs) }()
	}
	h.t.Cleanup(func() { h.end() })
	h.await("the local socket answers", func() bool { _, err := client.NewLocal(h.socket).Setup(h.t.Context()); return err == nil })
}

// end a vcd that runs, and return its exit status.
func (h *host) end() int {
	if h.stop == nil {
		return 0
	}
	h.stop()
	h.stop = nil
	return <-h.ended
}

func (h *host) await(what string, ok func() bool) {
	h.t.Helper()
	patience.Eventually(h.t, patience.Stall, what, h.doing, func() bool {
		select {
		case s := <-h.ended:
			h.ended <- s
			h.t.Fatalf("vcd of %s ended with %d before %s: %s", h.name, s, what, h.errs)
		default:
		}
		return ok()
	})
}

// doing is what vcd says of itself and its cluster on its local socket.
func (h *host) doing() any {
	ctx, cancel := context.WithTimeout(h.t.Context(), patience.Within(2*time.Second))
	defer cancel()
	local := client.NewLocal(h.socket)
	defer local.Close()
	s, err := local.Setup(ctx)
	return fmt.Sprintf("%s: member %t, ready %t, %s, %v", h.name, s.Member, s.Ready, s.Reason, err)
}

func (h *host) recover(args ...string) (int, string) {
	var out, errs bytes.Buffer
	status := run(h.t.Context(), append([]string{"vcd", "recover", "--config", h.config}, args...), &out, &errs)
	return status, out.String() + errs.String()
}

// From nothing to three servers by the local sockets, then two are lost for good and the third is made the cluster.
func TestSetupAndRecover(t *testing.T) {
	h1, h2, h3 := newHost(t, "h1"), newHost(t, "h2"), newHost(t, "h3")
	if status, said := h1.recover("--yes"); status != 2 || !strings.Contains(said, "no member of a cluster") {
		t.Errorf("recover of nothing: %d %s", status, said)
	}
	h1.start()
	if info, err := os.Stat(h1.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the local socket: %v %v", info.Mode(), err)
	}
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"vcd", "run", "--config", h1.config}, &out, &errs); status != 1 || !strings.Contains(errs.String(), "another vcd drives") {
		t.Errorf("a second vcd on the same host: %d %s", status, &errs)
	}
	local := client.NewLocal(h1.socket)
	if s, err := local.Setup(t.Context()); err != nil || s.Member || s.Ready || s.Name != "h1" || s.Reason == "" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, y := range []float64{-0.1, 1.1} {
		if _, err := local.Init(t.Context(), v1.SetupInit{MinYield: &y}); !client.IsProblem(err, v1.ProblemInvalid) {
			t.Errorf("a minimum yield of %g: %v", y, err)
		}
	}
	if _, err := local.Join(t.Context(), v1.SetupJoin{Token: "ekj1.nonsense", Addresses: []string{"127.0.0.1:1"}}); !client.IsProblem(err, v1.ProblemInvalid) {
		t.Errorf("a bad token: %v", err)
	}
	if _, err := local.Join(t.Context(), v1.SetupJoin{Token: "ekj1.nonsense"}); !client.IsProblem(err, v1.ProblemInvalid) {
		t.Errorf("no address: %v", err)
	}
	made, err := local.Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	if !made.Member || made.Cluster == "" || !strings.HasPrefix(made.AdminToken, "ekt_") || !strings.Contains(made.CA, "BEGIN CERTIFICATE") {
		t.Errorf("%+v", made)
	}
	if _, err := local.Init(t.Context(), v1.SetupInit{}); !client.IsProblem(err, v1.ProblemExists) {
		t.Errorf("init twice: %v", err)
	}
	if _, err := local.Join(t.Context(), v1.SetupJoin{Token: "ekj1.x", Addresses: []string{h1.advertise}}); !client.IsProblem(err, v1.ProblemExists) {
		t.Errorf("join of a member: %v", err)
	}
	dial := func(addresses ...string) *client.Client {
		return admin(t, made, client.Config{Address: strings.Join(addresses, ",")})
	}
	api := dial(h1.advertise)
	for _, h := range []*host{h2, h3} {
		h.start()
		k, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
		if err != nil {
			t.Fatal(err)
		}
		// The servers that cannot be reached are passed over.
		a, err := client.NewLocal(h.socket).Join(t.Context(), v1.SetupJoin{Token: k.Token, Addresses: []string{"127.0.0.1:1", h1.advertise}})
		if err != nil || a.Cluster != made.Cluster || a.AdminToken != "" {
			t.Fatalf("%+v, %v", a, err)
		}
		if _, err := client.NewLocal(h1.socket).Join(t.Context(), v1.SetupJoin{Token: k.Token, Addresses: []string{h1.advertise}}); err == nil {
			t.Error("a member joined again")
		}
	}
	for h, want := range map[*host][]string{h1: {"initCluster", "failed", "initCluster", "ok", "initCluster", "failed"}, h2: {"joinCluster", "ok"}} {
		log, err := os.ReadFile(filepath.Join(h.dir, "audit.log"))
		if err != nil {
			t.Fatal(err)
		}
		rest := string(log)
		for i := 0; i < len(want); i += 2 {
			line := `"actor":{"id":"local"},"verb":"` + want[i] + `","object":{"kind":"member","name":"` + h.name + `"},"outcome":"` + want[i+1] + `"`
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Errorf("%s: no further %s in:\n%s", h.name, line, log)
			}
			rest = after
		}
		if strings.Contains(strings.ReplaceAll(string(log), "ekj1.ID", ""), "ekj1.") || strings.Contains(string(log), "ekt_") {
			t.Errorf("%s: a token is in the audit log:\n%s", h.name, log)
		}
	}
	h4 := newHost(t, "h4")
	h4.start()
	used, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true, For: "h9"})
	if err != nil {
		t.Fatal(err)
	}
	// The cluster's answer on a token or a name reaches the client: it is not a failure of this server.
	_, err = client.NewLocal(h4.socket).Join(t.Context(), v1.SetupJoin{Token: used.Token, Addresses: []string{"127.0.0.1:1", h1.advertise, h2.advertise}})
	if !client.IsProblem(err, v1.ProblemInvalid) || !strings.Contains(err.Error(), "join token is not known, used, or over") {
		t.Errorf("a token that lets another member in: %v", err)
	}
	again, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
	if err != nil {
		t.Fatal(err)
	}
	h4.end()
	h4.name = "h2" // which is in already
	h4.write("server: true\nagent: true\n")
	h4.start()
	_, err = client.NewLocal(h4.socket).Join(t.Context(), v1.SetupJoin{Token: again.Token, Addresses: []string{h1.advertise}})
	if !client.IsProblem(err, v1.ProblemConflict) || !strings.Contains(err.Error(), "--for h2") {
		t.Errorf("a name that is taken: %v", err)
	}
	h4.end()
	h1.await("three servers vote", func() bool {
		members, err := api.Members(t.Context())
		n := 0
		for _, m := range members {
			if m.Voter && m.Healthy {
				n++
			}
		}
		return err == nil && n == 3
	})
	if status, said := h1.recover(); status != 1 || !strings.Contains(said, "vcd must be stopped") {
		t.Errorf("recover beside a vcd that runs: %d %s", status, said)
	}
	h1.await("an image is added, whichever server leads", func() bool {
		_, err := api.AddImage(t.Context(), v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/boot/tiny"})
		if err != nil && !client.IsProblem(err, v1.ProblemNoLeader) && !client.IsProblem(err, v1.ProblemExists) {
			t.Fatal(err)
		}
		return err == nil || client.IsProblem(err, v1.ProblemExists)
	})
	// All three hold what was acknowledged before two of them are lost.
	follower := dial(h3.advertise)
	h3.await("h3 has the image", func() bool {
		images, err := follower.Images(t.Context(), client.Stale())
		return err == nil && len(images) == 1
	})
	for _, h := range []*host{h1, h2, h3} {
		if status := h.end(); status != 0 {
			t.Errorf("vcd of %s ended with %d: %s", h.name, status, h.errs)
		}
	}
	h3.start()
	h3.await("one of three servers answers that none leads", func() bool {
		_, err := follower.Images(t.Context())
		if err == nil {
			t.Fatal("one of three servers answers as if it led")
		}
		return client.IsProblem(err, v1.ProblemNoLeader) // its port may not listen yet
	})
	h3.end()

	status, said := h3.recover()
	if status != 0 || !strings.Contains(said, "nothing was changed") || !strings.Contains(said, "has the log up to entry ") || !strings.Contains(said, "h1 ("+h1.advertise+")") {
		t.Errorf("%d %s", status, said)
	}
	if status, said := h3.recover("--yes", "now"); status != 2 {
		t.Errorf("%d %s", status, said)
	}
	if !strings.Contains(said, "will be waited for: h1, h2, h3") {
		t.Errorf("which hosts it knows is not said: %s", said)
	}
	if status, said := h3.recover("--yes", "--wait-for", "H9"); status != 2 || !strings.Contains(said, "no name of a host") {
		t.Errorf("%d %s", status, said)
	}
	status, said = h3.recover("--yes", "--wait-for", "h9")
	if status != 0 || !strings.Contains(said, "cluster "+made.Cluster+" recovered: h3 is its only voter now") || !strings.Contains(said, "h2 ("+h2.advertise+") must not come back") {
		t.Fatalf("%d %s", status, said)
	}
	h3.start()
	h3.await("h3 leads", func() bool { _, err := follower.Images(t.Context()); return err == nil })
	images, err := follower.Images(t.Context())
	if err != nil || len(images) != 1 {
		t.Errorf("what was acknowledged is lost: %+v, %v", images, err)
	}
	s, err := follower.Status(t.Context())
	if err != nil || s.RecoveryFreeze != "recovery" || s.Epoch == 0 || !slices.Contains(s.RecoveryFreezeHosts, "h9") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := follower.Create(t.Context(), v1.VirtualClusterSpec{Name: "a", Groups: []v1.GroupSpec{{Name: "w", CPU: 0.1, Memory: 64 << 20}}}); !client.IsProblem(err, v1.ProblemUnavailable) {
		t.Errorf("something is started while hosts are still to be heard of: %v", err)
	}
	var refused *client.Error
	if errors.As(err, &refused) && refused.Problem.Status != http.StatusServiceUnavailable {
		t.Errorf("%+v", refused.Problem)
	}
}

// What the certificate says counts, also when vcd is started again on a configuration that says less.
func TestRolesOfTheCertificate(t *testing.T) {
	h1, h2 := newHost(t, "h1"), newHost(t, "h2")
	h2.write("server: true\nagent: false\n")
	h1.start()
	h2.start()
	made, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := h1.dial(made.CA, made.AdminToken)
	if err := h2.enter(api, h1, v1.JoinTokenRequest{Agent: true}); err != nil {
		t.Fatal(err)
	}
	h2.end()
	h2.start()
	h2.await("h2 is ready", func() bool { h, err := api.Host(t.Context(), "h2"); return err == nil && h.State == "ready" })
}
