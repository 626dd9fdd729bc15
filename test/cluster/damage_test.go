package cluster

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// raft.db of a server is damaged in 40 places while VMs run on its host, and vcd is away for longer than a lease. With the commands
// of vcd's own message the host comes back, and its VMs run on in the same processes.
func logDamaged(t *testing.T, s *site, tab *table) {
	hurt := s.spared(s.leader(t))
	hurt.set(t, settings{noWatchdog: true}) // it would reset the host after the lease, as it must
	t.Cleanup(func() { hurt.set(t, settings{}) })
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	s.create(t, spec("move", 1, "restart", hurt), hurt)
	s.create(t, spec("stay", 1, "keep", hurt), hurt)
	before := s.watch.Processes()
	after := s.lastEvent(t)
	hurt.terminate(t)
	at := time.Now()
	inHost := func(command string) (string, error) {
		out, err := hurt.Command(t.Context(), "bash", "-c", command).CombinedOutput()
		return string(out), err
	}
	const spoil = `for i in $(seq 2 41); do printf garbage | dd of=/var/lib/evenkeel/raft/raft.db bs=1 seek=$((i * 4096 + i)) conv=notrunc status=none; done`
	if out, err := inHost(spoil); err != nil {
		t.Fatalf("damage the log: %v: %s", err, out)
	}
	out, err := inHost(filepath.Join(s.bin, "vcd") + " run --config /etc/evenkeel/vcd.yaml")
	_, command, reported := strings.Cut(out, "here: ")
	command, _, ended := strings.Cut(command, " ; start vcd")
	if err == nil || !reported || !ended || !strings.Contains(out, "raft.db is damaged") || strings.Contains(out, "goroutine ") {
		t.Fatalf("vcd on a damaged log: %v: %s", err, out)
	}
	if out, err := inHost(command); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	for time.Since(at) < 25*time.Second {
		time.Sleep(time.Second) // sleep: an operator takes longer than a lease
	}
	hurt.launch(t)
	joined := time.Now()
	eventually(t, 30*time.Second, "the host is let in", func(ctx context.Context) error {
		token, err := s.others(hurt)[0].Vcctl(ctx, "", "cluster", "join-token", "--server", "--agent", "--for", hurt.Name)
		if err == nil {
			_, err = hurt.Vcctl(ctx, token, "cluster", "join", s.others(hurt)[0].Port())
		}
		if err != nil && strings.Contains(err.Error(), "member of a cluster already") { // the answer to an earlier try was lost
			err = nil
		}
		return err
	})
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	back := time.Since(joined)
	s.event(t, 10*time.Second, after, "member-rejoined", hurt.Name, "")
	s.untouched(t, "move", before)
	s.untouched(t, "stay", before)
	tab.add("raft.db damaged in 40 places, vcd away for 25 s", "the host voted again %.1f s after it was started on an empty directory; no VM touched", back.Seconds())
}
