package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// standIn is the lab's watchdog, which would cut a host's power.
type standIn struct {
	path string
	mu   sync.Mutex
	out  bytes.Buffer
}

func (s *standIn) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

// did is what was done to it: "armed 15", "disarmed", "expired 15". Pets are left out, and the ends of connections that say
// nothing; the end of one that was taken over by another is such an end, whatever went before it.
func (s *standIn) did() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.out.String()) {
		var e struct {
			Event   string
			Seconds int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return []string{"what it writes is not read: " + line}
		}
		switch e.Event {
		case "ready", "petted", "disconnected":
		case "armed", "expired":
			out = append(out, fmt.Sprintf("%s %d", e.Event, e.Seconds))
		default:
			out = append(out, e.Event)
		}
	}
	return out
}

func startStandIn(t *testing.T) *standIn {
	t.Helper()
	dir, err := os.MkdirTemp("", "dog") // short: the kernel allows a socket 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "watchdog")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "evenkeel/test/lab/cmd/watchdog").CombinedOutput(); err != nil {
		t.Fatalf("build the stand-in: %v: %s", err, said)
	}
	s := &standIn{path: filepath.Join(dir, "s")}
	cmd := exec.Command(program, "-socket", s.path, "true")
	cmd.Stdout, cmd.Stderr = s, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it ends by the signal
	})
	return s
}

// A watchdog whose time-out is changed while it is armed counts by the old one until the leader knows that it counts on it no
// more; one that is taken out of the configuration is disarmed then. The host is not reset, and its VM not touched.
func TestWatchdogLeavesTheConfiguration(t *testing.T) {
	dog := startStandIn(t)
	h := newHost(t, "h1")
	roles := "server: true\nagent: true\n"
	guarded := func(seconds int) string {
		return fmt.Sprintf("%swatchdog: {device: %s, timeout: %ds}\n", roles, dog.path, seconds)
	}
	h.write(guarded(15))
	h.start()
	made, err := client.NewLocal(h.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := admin(t, made, client.Config{Address: h.advertise})
	if _, err := api.AddImage(t.Context(), v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/boot/tiny"}); err != nil {
		t.Fatal(err)
	}
	var created error
	h.await("a virtual cluster is created", func() bool {
		_, created = api.Create(t.Context(), v1.VirtualClusterSpec{Name: "a", OnHostLoss: "restart", Groups: []v1.GroupSpec{{Name: "w", CPU: 0.1, Memory: 64 << 20, Image: "tiny"}}})
		return created == nil
	})
	guards := func(seconds float64) func() bool {
		return func() bool {
			vms, err := api.VMs(t.Context(), "", "")
			host, err2 := api.Host(t.Context(), "h1")
			return err == nil && err2 == nil && len(vms) == 1 && vms[0].State == "running" && host.Watchdog == seconds && host.Lease == "held"
		}
	}
	h.await("a VM runs that is guarded", guards(15))
	vms, err := api.VMs(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	before := vms[0]
	for _, c := range []struct {
		config  string
		seconds float64
		did     []string // since the start before
	}{
		{guarded(60), 60, []string{"armed 15", "armed 60"}},
		{roles, 0, []string{"armed 60", "disarmed"}},
		{roles, 0, nil},
	} {
		n := len(dog.did())
		if status := h.end(); status != 0 {
			t.Fatalf("vcd ended with %d: %s", status, h.errs)
		}
		h.write(c.config)
		h.start()
		h.await(fmt.Sprintf("the leader counts on %g s", c.seconds), func() bool {
			return len(dog.did()) >= n+len(c.did) && guards(c.seconds)()
		})
		did := dog.did()[n:]
		if c.seconds > 0 { // seen only if it was read before the next connection came
			did = slices.DeleteFunc(did, func(s string) bool { return s == "disarmed" })
		}
		if !slices.Equal(did, c.did) {
			t.Errorf("with %q: %q, want %q", c.config, did, c.did)
		}
	}
	vms, err = api.VMs(t.Context(), "", "")
	if err != nil || len(vms) != 1 || vms[0].ID != before.ID || vms[0].Host != before.Host {
		t.Errorf("VMs are %+v, were %+v: %v", vms, before, err)
	}
}
