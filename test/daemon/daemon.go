// Package daemon runs vcd as a process of its own on a host of the lab, for tests: with a binary built from this tree, over several
// starts on one data directory. A test reaches it by its API, as any client does.
//
// It never stands in for vcd, and it leaves nothing behind: the process ends with its test, and the binary is removed with the tests of the package.
package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/freeport"
	"evenkeel/test/lab"
	"evenkeel/test/patience"
)

// binary of vcd, built once for all tests of a package.
var binary struct {
	sync.Mutex
	path string
}

func build() (string, error) {
	binary.Lock()
	defer binary.Unlock()
	if binary.path != "" {
		return binary.path, nil
	}
	dir, err := os.MkdirTemp("", "evenkeel-vcd-")
	if err != nil {
		return "", fmt.Errorf("build vcd: %w", err)
	}
	out := filepath.Join(dir, "vcd")
	cmd := exec.Command("go", "build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", out, "evenkeel/cmd/vcd")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build vcd: %w\n%s", err, text), os.RemoveAll(dir))
	}
	binary.path = out
	return out, nil
}

// Main runs the tests of a package that start daemons, and removes the binary that they used. It returns the status to exit with.
func Main(m *testing.M) int {
	code := m.Run()
	binary.Lock()
	defer binary.Unlock()
	if binary.path != "" {
		_ = os.RemoveAll(filepath.Dir(binary.path)) // what stays of it disturbs no other test
	}
	return code
}

// Daemon is a vcd. It belongs to the test's own goroutine, but for its Client.
type Daemon struct {
	*client.Client
	Dir     string // its data directory
	Address string // of its API, https://host:port

	t    *testing.T
	host *lab.Host
	bin  string
	args []string
	cmd  *exec.Cmd
	log  *os.File
}

// New starts `vcd dev` on a host of the lab, with more arguments. Its data directory and log last as long as the test; if that fails, the
// end of the log is shown.
func New(t *testing.T, h *lab.Host, args ...string) *Daemon {
	t.Helper()
	g := lab.Real(t)
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	kvm, err := lab.KVM(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, host: h, bin: bin, Dir: t.TempDir(), Address: "https://" + addr}
	d.args = append([]string{"dev", "--data-dir", d.Dir, "--listen", addr, "--hypervisor", h.URI(), "--guest", filepath.Dir(g.Kernel),
		fmt.Sprintf("--emulation=%v", !kvm)}, args...)
	if d.log, err = os.Create(filepath.Join(d.Dir, "vcd.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			d.Tail(60)
		}
		_ = d.log.Close()
	})
	d.Launch()
	if d.Client, err = client.New(client.Config{Address: d.Address, Token: d.Token(), CAFile: filepath.Join(d.Dir, "ca.pem")}); err != nil {
		t.Fatal(err)
	}
	return d
}

// Token is the administrator's.
func (d *Daemon) Token() string {
	b, err := os.ReadFile(filepath.Join(d.Dir, "admin.token"))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Launch vcd, also again after Kill, and wait until it prints that it is ready. If libvirtd went down with the vcd before, Launch
// starts it again first; also where it goes down only then, and vcd ends because it cannot connect.
func (d *Daemon) Launch() {
	d.t.Helper()
	for try := 1; ; try++ {
		d.host.MendDaemon(d.t)
		err := d.start()
		if err == nil {
			return
		}
		if try == 3 || d.host.DaemonRuns() {
			d.Tail(20)
			d.t.Fatal("vcd did not become ready: ", err)
		}
		d.Kill()
	}
}

// start starts vcd, and waits until it prints that it is ready.
func (d *Daemon) start() error {
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
		return err
	case <-time.After(patience.Within(time.Minute)):
		return errors.New("not within a minute")
	}
}

// Kill -9.
func (d *Daemon) Kill() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it was killed: that is its status
	d.cmd = nil
}

// Tail shows the last lines of the log.
func (d *Daemon) Tail(lines int) {
	b, err := os.ReadFile(d.log.Name())
	if err != nil {
		d.t.Log(err)
		return
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	d.t.Log("last lines of vcd's log:\n" + strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// Eventually asks until the answer is right. The limit is on the time in which the VMs do nothing and the answer stays the same.
func (d *Daemon) Eventually(limit time.Duration, what string, right func(ctx context.Context) (bool, error)) {
	d.t.Helper()
	var last error
	err := patience.Until(d.t.Context(), limit, what, func() any { return fmt.Sprintf("%s; %v", d.doing(), last) }, func() bool {
		ctx, cancel := context.WithTimeout(d.t.Context(), patience.Within(limit))
		defer cancel()
		var ok bool
		ok, last = right(ctx)
		return ok && last == nil
	})
	if err != nil {
		d.Tail(20)
		d.t.Fatal(err)
	}
}

// doing is what the daemon's VMs do.
func (d *Daemon) doing() string {
	ctx, cancel := context.WithTimeout(d.t.Context(), patience.Within(5*time.Second))
	defer cancel()
	vms, err := d.VMs(ctx, "", "")
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, vm := range vms {
		fmt.Fprintf(&b, "VM %s on %s %s; ", vm.Name, vm.Host, vm.State)
	}
	return b.String()
}

// Done waits for an operation, which must end well.
func (d *Daemon) Done(r v1.Result, err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), patience.Within(2*time.Minute))
	defer cancel()
	op, err := d.Wait(ctx, *r.Operation, nil)
	if err != nil || op.State != v1.OperationDone {
		d.t.Fatalf("%s %s: %s, %s (%v)", op.Kind, op.VirtualCluster, op.State, op.Text, err)
	}
}

// Processes of QEMU on its host by domain, by libvirt's own list. A process identifies one run of a VM. A libvirtd that does not answer
// is mended first: the list is often the first thing asked of it after a vcd was killed.
func (d *Daemon) Processes() map[string]string {
	d.t.Helper()
	list := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(d.t.Context(), patience.Within(time.Minute))
		defer cancel()
		return exec.CommandContext(ctx, "virsh", "-q", "-c", d.host.URI(), "list", "--all", "--name").Output()
	}
	out, err := list()
	if err != nil {
		d.host.MendDaemon(d.t)
		out, err = list()
	}
	if err != nil {
		d.t.Fatalf("virsh list: %v", err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), patience.Within(time.Minute))
	defer cancel()
	found := map[string]string{}
	for _, name := range strings.Fields(string(out)) {
		cmd := d.host.Command(ctx, "cat", "/run/libvirt/qemu/"+name+".pid")
		pid, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			pid = nil // it went away between the two questions
		} else if err != nil {
			d.t.Fatal(err)
		}
		found[name] = strings.TrimSpace(string(pid))
	}
	return found
}
