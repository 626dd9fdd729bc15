package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
)

// TestKeysMissing: the cluster names a host without the CA's certificate of its libvirt before an operator drains it. A drain says so and
// moves nothing. The condition ends once the file is there.
func TestKeysMissing(t *testing.T) {
	lab.Real(t)
	s := newSiteOn(t, lab.Options{Hosts: 3, Shared: true, TLS: true})
	mode := "off"
	s.moves(t, v1.MovePatch{Mode: &mode})
	h1 := s.hosts[0]
	ca := "/etc/libvirt/pki/cacert.pem"
	mv := func(from, to string) {
		t.Helper()
		if out, err := h1.Command(t.Context(), "mv", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.create(t, spec("stays", 2, "keep", h1), h1)
	mv(ca, ca+".away")
	h1.terminate(t)
	h1.launch(t) // its agent looks at the start; else every three minutes
	launched := time.Now()

	want := fmt.Sprintf("h1 cannot send VMs: %s is missing on h1 (see docs/how-to/set-up-live-migration.md)", ca)
	conditions := func(ctx context.Context) (out []string, err error) {
		status, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
		for _, c := range status.Conditions {
			out = append(out, c.Text)
		}
		return out, err
	}
	eventually(t, 40*time.Second, "the condition", func(ctx context.Context) error {
		all, err := conditions(ctx)
		if err == nil && !slices.Contains(all, want) {
			err = fmt.Errorf("conditions: %q", all)
		}
		return err
	})
	t.Logf("named %.1f s after the agent's start", time.Since(launched).Seconds())

	for _, args := range [][]string{{"host", "drain", "h1", "--dry-run"}, {"host", "drain", "h1"}} {
		begun := time.Now()
		out, err := h1.Vcctl(t.Context(), "", args...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Fatalf("vcctl %v: %v", args, err)
		}
		if text := out + err.Error(); !strings.Contains(text, "host h1 cannot send VMs: "+ca+" is missing on h1") || strings.Contains(text, "target") {
			t.Errorf("vcctl %v: %s", args, text)
		}
		t.Logf("vcctl %v: %.1f s\n%s%v", args, time.Since(begun).Seconds(), out, err)
	}
	if all := s.migrations(t, time.Time{}); len(all) > 0 {
		t.Errorf("%d migrations were tried: %+v", len(all), all)
	}

	mv(ca+".away", ca)
	eventually(t, 90*time.Second, "the condition ends", func(ctx context.Context) error {
		all, err := conditions(ctx)
		if err == nil && slices.Contains(all, want) {
			err = errors.New("it is still there")
		}
		return err
	})
	if out, err := h1.Vcctl(t.Context(), "", "host", "drain", "h1", "--dry-run"); err != nil {
		t.Errorf("with the file: %v\n%s", err, out)
	}
	s.once(t)
}
