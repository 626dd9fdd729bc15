package e2e

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
	dir, err := os.MkdirTemp("", "evenkeel-e2e-")
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
	if bin, err := buildVCD(); err == nil && os.Getenv("EVENKEEL_REAL") == "1" {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// daemon is a vcd of ours, over several lives on one data directory.
type daemon struct {
	t    *testing.T
	bin  string
	dir  string
	args []string
	cmd  *exec.Cmd
	log  *os.File
	*client.Client
}

// newDaemon starts vcd on a lab host. Its data directory and log last as long as the test.
func newDaemon(t *testing.T, h *lab.Host, args ...string) *daemon {
	t.Helper()
	g := lab.Real(t)
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
	d := &daemon{t: t, bin: bin, dir: t.TempDir()}
	d.args = append([]string{"dev", "--data-dir", d.dir, "--listen", addr, "--hypervisor", h.URI(), "--guest", filepath.Dir(g.Kernel),
		fmt.Sprintf("--emulation=%v", !kvm)}, args...)
	if d.log, err = os.Create(filepath.Join(d.dir, "vcd.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			d.tail(60)
		}
		_ = d.log.Close()
	})
	d.start()
	if d.Client, err = client.New(client.Config{Address: "https://" + addr, Token: d.token(), CAFile: filepath.Join(d.dir, "ca.pem")}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *daemon) token() string {
	b, err := os.ReadFile(filepath.Join(d.dir, "admin.token"))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// start vcd and wait until it says that it is ready.
func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(d.bin, d.args...)
	d.cmd.Stderr = d.log
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
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
			d.tail(20)
			d.t.Fatal("vcd did not become ready:", err)
		}
	case <-time.After(60 * time.Second):
		d.tail(20)
		d.t.Fatal("vcd was not ready within 60 s")
	}
}

// kill -9.
func (d *daemon) kill() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it was killed: that is its status
	d.cmd = nil
}

func (d *daemon) tail(lines int) {
	b, err := os.ReadFile(d.log.Name())
	if err != nil {
		d.t.Log(err)
		return
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	d.t.Log("last lines of vcd's log:\n" + strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// eventually asks until the answer is right.
func (d *daemon) eventually(within time.Duration, what string, right func(ctx context.Context) (bool, error)) {
	d.t.Helper()
	// Thrice as long: on a busy machine all takes its time, and nothing is lost where it does not.
	ctx, cancel := context.WithTimeout(d.t.Context(), 3*within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := right(ctx)
		if ok && err == nil {
			return
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			d.t.Fatalf("not within %s: %s (last error: %v)", within, what, last)
		}
	}
}

// done waits for an operation.
func (d *daemon) done(r v1.Result, err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	op, err := d.Wait(ctx, *r.Operation, nil)
	if err != nil || op.State != v1.OperationDone {
		d.t.Fatalf("%s %s: %s, %s (%v)", op.Kind, op.VirtualCluster, op.State, op.Text, err)
	}
}

// spec of a VC of n idle guests.
func spec(name string, n int, cpu float64) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnFull: "reject", Groups: []v1.GroupSpec{{Name: "g", Count: n, CPU: cpu, Memory: 96 << 20,
		Boot: &v1.Boot{Kernel: "tiny", Cmdline: "console=ttyS0 quiet panic=-1"}}}}
}

// domains that run on a lab host, by libvirt's own list: name -> process of QEMU, which
// tells one run of a VM from the next.
func domains(t *testing.T, h *lab.Host) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "virsh", "-q", "-c", h.URI(), "list", "--all", "--name").Output()
	if err != nil {
		t.Fatalf("virsh list: %v", err)
	}
	found := map[string]string{}
	for _, name := range strings.Fields(string(out)) {
		cmd := h.Command(ctx, "cat", "/run/libvirt/qemu/"+name+".pid")
		pid, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			pid = nil // it went away between the two questions
		} else if err != nil {
			t.Fatal(err)
		}
		found[name] = strings.TrimSpace(string(pid))
	}
	return found
}
