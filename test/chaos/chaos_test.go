package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
	"evenkeel/test/patience"
)

// Environment variables of a run, which make chaos sets.
const (
	seedVariable  = "EVENKEEL_CHAOS_SEED"  // default: another each time
	timeVariable  = "EVENKEEL_CHAOS_TIME"  // default: 5m
	kindsVariable = "EVENKEEL_CHAOS_KINDS" // default: all
	outVariable   = "EVENKEEL_CHAOS_OUT"   // directory for logs and the time line; default: a new one, kept if the test fails
)

// peace is how long after the last fault everything must be as it should be.
const peace = 120 * time.Second

// cluster starts the hosts; everything ends with the test.
func cluster(t *testing.T, out string, log *Log) (*Site, lab.Guest) {
	t.Helper()
	guest := lab.Real(t)
	qemu := os.Getenv("EVENKEEL_QEMU")
	if qemu == "" {
		t.Skip("QEMU before 8 crashes emulated guests that move while they run: set EVENKEEL_QEMU to an unpacked tree of a newer one")
	}
	bin := t.TempDir()
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	l := lab.New(t, lab.Options{Hosts: hosts, Shared: true, QEMU: qemu, TLS: true, StateSize: 512 << 20})
	s, err := StartSite(t.Context(), l, guest, bin, out, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var stuck []string
	err = patience.Until(t.Context(), time.Minute, "the cluster is healthy", func() any { return stuck }, func() bool {
		now, err := look(t.Context(), s)
		stuck = Stuck(now, waits)
		return err == nil && len(stuck) == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, guest
}

// outputs is the directory for what a run leaves behind.
func outputs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(outVariable); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir, err := os.MkdirTemp("", "evenkeel-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs and the time line are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir) // the test passed: the logs are of no use
	})
	return dir
}

// TestChaos disturbs a cluster by seed, and checks whether every promise was kept.
func TestChaos(t *testing.T) {
	lab.Real(t)
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	length := 5 * time.Minute
	if text := os.Getenv(timeVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", timeVariable, err)
		}
	}
	kinds, err := ParseKinds(os.Getenv(kindsVariable))
	if err != nil {
		t.Fatalf("%s: %v", kindsVariable, err)
	}
	out := outputs(t)
	lines, err := os.Create(filepath.Join(out, "timeline.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	log := NewLog(lines)
	log.Say("begin", "", fmt.Sprintf("seed %d, %v, kinds %s", seed, length, strings.Join(kinds, ",")))
	t.Logf("seed %d: make chaos SEED=%d TIME=%v KINDS=%s", seed, seed, length, strings.Join(kinds, ","))
	s, guest := cluster(t, out, log)
	w, err := Begin(t.Context(), s, guest, seed)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer w.End()
	var names []string
	for _, h := range s.Hosts {
		names = append(names, h.Name)
	}
	begun := time.Now()
	s.Disturb(t.Context(), Plan(seed, kinds, names, length))
	w.Quiet()
	undisturbed := time.Now()
	log.Say("peace", "", "nothing disturbs the cluster any more")
	r := Report{Seed: seed, Length: length, Struck: log.Struck()}
	var now Cluster
	err = patience.Until(t.Context(), peace, "nothing is stuck", nil, func() bool {
		now, err = look(t.Context(), s)
		if r.Stuck = Stuck(now, waits); err != nil {
			r.Stuck = append(r.Stuck, err.Error())
		}
		if len(r.Stuck) > 0 {
			time.Sleep(time.Second) // sleep: each check loads the cluster
		}
		return len(r.Stuck) == 0
	})
	log.Say("settled", "", fmt.Sprintf("%.1f s after the last fault: %d stuck (%v)", time.Since(undisturbed).Seconds(), len(r.Stuck), err))
	w.End()
	if err := patience.Until(t.Context(), time.Minute, "every server answers", nil, func() bool { err = w.ReadBack(t.Context()); return err == nil }); err != nil {
		r.Broken = append(r.Broken, err.Error())
	}
	s.judge(t, w, &r, log, begun)
	for _, m := range now.Migrations {
		if r.Moves == nil {
			r.Moves = map[string]int{}
		}
		r.Moves[m.State]++
	}
	log.Say("report", "", r.String())
	t.Logf("\n%s", r)
	if r.Failed() {
		t.Errorf("seed %d: promises were broken; the time line:\n%s", seed, strings.Join(log.Last(150), "\n"))
	}
}

// judge everything that was recorded.
func (s *Site) judge(t *testing.T, w *Work, r *Report, log *Log, begun time.Time) {
	t.Helper()
	end := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	var at time.Time
	r.NoWrite, at = Longest(w.acks, begun, lastOf(w.acks, end))
	r.NoWriteAt = at.Sub(begun)
	r.NoLeader, at = Longest(w.leads, begun, lastOf(w.leads, end))
	r.NoLeaderAt = at.Sub(begun)
	r.Drains, r.Acked = w.drains, w.history.Acked()
	r.Lost, r.Unsure = w.history.Lost()
	r.Duplicates = s.Watch.Duplicates()
	r.Needless, r.Needed = Restarts(s.Watch.History("", time.Time{}), log.Losses(), w.ran())
	r.Looks, r.LooksGap = s.Watch.Looks()
	for name, b := range w.beats {
		r.Beats = append(r.Beats, Heartbeats(name, b.All(), s.Watch.History(w.domains[name], time.Time{}))...)
		for _, wrong := range b.Wrongs() {
			if strings.Contains(wrong, "CORRUPT") {
				r.Beats = append(r.Beats, name+" "+wrong)
			}
		}
	}
	for n, wrong := range w.wrong {
		if n < 10 {
			r.Broken = append(r.Broken, "an answer says no for good: "+wrong)
		}
	}
	r.Broken = append(r.Broken, log.Violations()...)
	for _, h := range s.Hosts {
		output, err := os.ReadFile(h.LogFile())
		if err != nil {
			t.Error(err)
		}
		panics, library := Crashed(string(output))
		for _, p := range panics {
			r.Broken = append(r.Broken, h.Name+": vcd: "+p)
		}
		for _, p := range library {
			r.Crashes = append(r.Crashes, h.Name+": "+p)
		}
	}
}

// lastOf the moments; end if there is none.
func lastOf(moments []time.Time, end time.Time) time.Time {
	if len(moments) == 0 {
		return end
	}
	return moments[len(moments)-1]
}

// look at the cluster once.
func look(ctx context.Context, s *Site) (Cluster, error) {
	c := Cluster{Drains: map[string]v1.Drain{}, Processes: s.Watch.Now()}
	var errs [5]error
	c.Status, errs[0] = ask(ctx, s, 0, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
	if s.Host(c.Status.Leader) != nil { // what hosts say, the leader knows
		c.Status, errs[0] = s.Host(c.Status.Leader).API.Status(ctx)
	}
	c.VMs, errs[1] = ask(ctx, s, 0, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "", "") })
	c.VCs, errs[2] = ask(ctx, s, 0, func(ctx context.Context, c *client.Client) ([]v1.VirtualCluster, error) {
		return c.VirtualClusters(ctx)
	})
	c.Migrations, errs[3] = ask(ctx, s, 0, func(ctx context.Context, c *client.Client) ([]v1.Migration, error) {
		return c.Migrations(ctx, "", "", "", 0)
	})
	c.Plans, errs[4] = ask(ctx, s, 0, func(ctx context.Context, c *client.Client) ([]v1.Plan, error) { return c.Plans(ctx, "", 0) })
	err := errors.Join(errs[:]...)
	for _, h := range s.Hosts {
		c.Hosts = append(c.Hosts, h.Name)
		d, failed := ask(ctx, s, 0, func(ctx context.Context, c *client.Client) (v1.Drain, error) { return c.HostDrain(ctx, h.Name) })
		c.Drains[h.Name], err = d, errors.Join(err, failed)
	}
	return c, err
}
