package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// keysMissing: the cluster names a host without the CA's certificate of its libvirt before an operator drains it. A drain says so and
// moves nothing. The condition ends once the file is there.
func keysMissing(t *testing.T, s *site, tab *table) {
	h := s.spared(s.leader(t))
	before := must(t, s, func(ctx context.Context, c *client.Client) (v1.ClusterSettings, error) { return c.Settings(ctx) })
	mode := "off"
	s.moves(t, v1.MovePatch{Mode: &mode})
	defer func() { s.moves(t, v1.MovePatch{Mode: &before.Moves.Mode}) }()
	ca := "/etc/libvirt/pki/cacert.pem"
	mv := func(from, to string) {
		t.Helper()
		if out, err := h.Command(context.Background(), "mv", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.create(t, spec("stays", 2, "keep", h), h)
	mv(ca, ca+".away")
	back := sync.OnceFunc(func() { mv(ca+".away", ca) })
	defer back()
	began := time.Now()
	h.terminate(t)
	h.launch(t) // its agent looks at the start; else every three minutes
	launched := time.Now()

	want := fmt.Sprintf("%s cannot send VMs: %s is missing on %[1]s (see docs/how-to/set-up-live-migration.md)", h.Name, ca)
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
	named := time.Since(launched)

	for _, args := range [][]string{{"host", "drain", h.Name, "--dry-run"}, {"host", "drain", h.Name}} {
		begun := time.Now()
		out, err := h.Vcctl(t.Context(), "", args...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Fatalf("vcctl %v: %v", args, err)
		}
		if text := out + err.Error(); !strings.Contains(text, "host "+h.Name+" cannot send VMs: "+ca+" is missing on "+h.Name) || strings.Contains(text, "target") {
			t.Errorf("vcctl %v: %s", args, text)
		}
		t.Logf("vcctl %v: %.1f s\n%s%v", args, time.Since(begun).Seconds(), out, err)
	}
	if all := s.migrations(t, began); len(all) > 0 {
		t.Errorf("%d migrations were tried: %+v", len(all), all)
	}

	back()
	// A leader that has just begun knows of no condition yet: the drain, too, says when the file is known to be there.
	eventually(t, 90*time.Second, "the condition ends, and the host can be drained", func(ctx context.Context) error {
		all, err := conditions(ctx)
		if err == nil && slices.Contains(all, want) {
			err = errors.New("it is still there")
		}
		if err != nil {
			return err
		}
		out, err := h.Vcctl(ctx, "", "host", "drain", h.Name, "--dry-run")
		if err != nil {
			err = fmt.Errorf("with the file: %w\n%s", err, out)
		}
		return err
	})
	tab.add("a host without a key for moves", "named %.1f s after its agent's start; its drain refused, nothing moved", named.Seconds())
}
