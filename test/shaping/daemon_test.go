package shaping_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
)

// buildVCD once for all tests.
var buildVCD = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "evenkeel-shaping-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "vcd")
	cmd := exec.Command("go", "build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", out, "evenkeel/cmd/vcd")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build vcd: %w\n%s", err, text)
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("EVENKEEL_REAL") == "1" {
		if bin, err := buildVCD(); err == nil {
			_ = os.RemoveAll(filepath.Dir(bin))
		}
	}
	os.Exit(code)
}

// site is vcd on a host of the lab, with guests that play.
type site struct {
	*client.Client
	t     *testing.T
	host  *lab.Host
	bin   string
	dir   string
	args  []string
	cmd   *exec.Cmd
	log   *os.File
	mu    sync.Mutex
	plays map[string]*played // by VM
}

// newSite starts vcd where VMs may have so many cores and so much memory, with forecasts by steps of that long.
func newSite(t *testing.T, cpu float64, memory int64, step time.Duration) *site {
	t.Helper()
	g := lab.Real(t)
	l := lab.New(t, lab.Options{})
	if err := l.Precede(); err != nil {
		t.Fatal(err)
	}
	bin, err := buildVCD()
	if err != nil {
		t.Fatal(err)
	}
	kvm, err := lab.KVM(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, host: l.Host(1), bin: bin, dir: t.TempDir(), plays: map[string]*played{}}
	s.args = []string{"dev", "--data-dir", s.dir, "--listen", addr, "--hypervisor", s.host.URI(), "--guest", filepath.Dir(g.Kernel), fmt.Sprintf("--emulation=%v", !kvm),
		"--allowance-cpu", fmt.Sprint(cpu), "--allowance-memory", fmt.Sprintf("%dMiB", memory/mib), "--min-yield", "0.5", "--forecast-step", step.String()}
	if s.log, err = os.Create(filepath.Join(s.dir, "vcd.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			s.tail(80)
		}
		_ = s.log.Close()
	})
	s.start()
	token, err := os.ReadFile(filepath.Join(s.dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Client, err = client.New(client.Config{Address: "https://" + addr, Token: strings.TrimSpace(string(token)), CAFile: filepath.Join(s.dir, "ca.pem")}); err != nil {
		t.Fatal(err)
	}
	return s
}

// start vcd and wait until it says that it is ready.
func (s *site) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, s.args...)
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "ready https://") {
			err = fmt.Errorf("vcd said %q", line)
		}
		ready <- err
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case err := <-ready:
		if err != nil {
			s.tail(20)
			s.t.Fatal("vcd did not become ready:", err)
		}
	case <-time.After(time.Minute):
		s.tail(20)
		s.t.Fatal("vcd was not ready within a minute")
	}
}

// kill -9.
func (s *site) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed: that is its status
	s.cmd = nil
}

func (s *site) tail(lines int) {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		s.t.Log(err)
		return
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	s.t.Log("last lines of vcd's log:\n" + strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// vc of one VM that plays, of so much memory and at least that; its guest swaps.
func vc(name string, memory, least int64, settings string) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnFull: "reject", Needs: "estimated", Groups: []v1.GroupSpec{{Name: "g", Count: 1, CPU: 0.2, Memory: v1.Size(memory), MemoryMin: v1.Size(least),
		Disk: &v1.Disk{Size: v1.Size(64 * mib), Ephemeral: true},
		Boot: &v1.Boot{Kernel: "tiny", Cmdline: "console=ttyS0 quiet panic=-1 ek.beat=3600000 ek.swap=vda " + settings}}}}
}

// admit a VC and follow what its guest says; the error says why it is refused.
func (s *site) admit(spec v1.VirtualClusterSpec) error {
	s.t.Helper()
	r, err := s.Create(s.t.Context(), spec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	op, err := s.Wait(ctx, *r.Operation, nil)
	if err != nil || op.State != v1.OperationDone {
		s.t.Fatalf("%s %s: %s, %s (%v)", op.Kind, op.VirtualCluster, op.State, op.Text, err)
	}
	name := spec.Name + "-g-0"
	s.mu.Lock()
	s.plays[name] = &played{step: -1}
	s.mu.Unlock()
	go s.follow(name)
	return nil
}

// follow a guest's console until the test ends, over every vcd.
func (s *site) follow(vm string) {
	for s.t.Context().Err() == nil {
		c, err := s.Console(s.t.Context(), vm)
		if err == nil {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				s.mu.Lock()
				s.plays[vm].take(strings.TrimSpace(lines.Text()))
				s.mu.Unlock()
			}
			_ = c.Close()
		}
		select {
		case <-s.t.Context().Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (s *site) play(vm string) played {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.plays[vm]; p != nil {
		return *p
	}
	return played{step: -1}
}

// vms as the cluster shows them, by name.
func (s *site) vms() map[string]v1.VM {
	s.t.Helper()
	all, err := s.VMs(s.t.Context(), "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]v1.VM{}
	for _, vm := range all {
		out[vm.Name] = vm
	}
	return out
}

// processes of QEMU by domain: one run of a VM is told from the next by it.
func (s *site) processes() map[string]string {
	s.t.Helper()
	out, err := exec.Command("virsh", "-q", "-c", s.host.URI(), "list", "--name").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range strings.Fields(string(out)) {
		pid, err := s.host.Command(s.t.Context(), "cat", "/run/libvirt/qemu/"+name+".pid").Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		found[name] = strings.TrimSpace(string(pid))
	}
	return found
}
