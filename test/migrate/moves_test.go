package migrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/libvirt"
	"evenkeel/test/lab"
)

const (
	memory  = 96 << 20
	hosts   = 3
	guests  = 3
	patient = 2 * time.Minute
)

// move is what one migration took.
type move struct {
	seconds, gap float64
	bytes        int64
	downtime     time.Duration
}

// machine is one host with its VMs' console logs in a directory that all hosts share.
type machine struct {
	*libvirt.Host
	lab *lab.Host
}

// TestMoves moves guests under CPU and memory load from host to host, one move after another, each within its
// budget. None may be lost, doubled or harmed.
func TestMoves(t *testing.T) {
	guest := lab.Real(t)
	qemu := os.Getenv("EVENKEEL_QEMU")
	if qemu == "" {
		t.Skip("QEMU before 8 crashes emulated guests that move while they run: set EVENKEEL_QEMU to an unpacked tree of a newer one")
	}
	moves := 6
	if os.Getenv("EVENKEEL_LONG") == "1" {
		moves = 100
	}
	kvm, err := lab.KVM(t.Context(), guest)
	if err != nil {
		t.Fatal(err)
	}
	l := lab.New(t, lab.Options{Hosts: hosts, QEMU: qemu, TLS: true})
	state := t.TempDir()
	var on []machine
	for _, h := range l.Hosts() {
		m, err := libvirt.Open(t.Context(), libvirt.Options{URI: h.URI(), ForceEmulation: !kvm, StateDir: state, ConsoleLogs: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		on = append(on, machine{m, h})
	}
	specs, at, beats := make([]hypervisor.Spec, guests), make([]int, guests), make([]*lab.Beats, guests)
	for i := range specs {
		s := hypervisor.Spec{
			Identity: hypervisor.Identity{Cluster: "test", VM: fmt.Sprintf("mv-%d", i), Generation: 1}, Name: fmt.Sprintf("ek-moves-g-%d", i),
			VCPUs: 1, Memory: memory, Balloon: memory, CPU: hypervisor.CPU{Cap: 0.2, Weight: 0.2},
			Boot: hypervisor.Boot{Kernel: guest.Kernel, Initrd: guest.Initrd, Cmdline: guest.Cmdline("ek.burn=1 ek.touch=12 ek.rate=6 ek.beat=50")},
		}
		specs[i], at[i] = s, i%hosts
		if err := on[at[i]].Define(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := on[at[i]].Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		beats[i] = lab.FollowBeats(map[string]string{"any": filepath.Join(state, "console", s.VM+".log")})
		t.Cleanup(beats[i].Close)
	}
	for i := range specs {
		await(t, "the guest beats", func() error {
			if b, ok := beats[i].Last(); !ok || b.Seq < 20 {
				return fmt.Errorf("last beat: %v", b)
			}
			return nil
		})
	}
	quiet := time.Now()
	time.Sleep(2 * time.Second) // sleep: what the heartbeat is like while nothing moves
	still := 0.0
	for i := range specs {
		still = max(still, beats[i].Gap(quiet, time.Now()).Seconds())
	}
	var all []move
	for n := range moves {
		i := n % guests
		from, to := at[i], (at[i]+1+n/guests%(hosts-1))%hosts
		m := moveOne(t, on, specs[i], beats[i], from, to)
		t.Logf("%d: %s from h%d to h%d: %+v", n, specs[i].Name, from+1, to+1, m)
		all = append(all, m)
		at[i] = to
	}
	for i, s := range specs {
		for _, wrong := range beats[i].Wrongs() {
			t.Errorf("%s: %s", s.Name, wrong)
		}
		if err := on[at[i]].Destroy(context.WithoutCancel(t.Context()), s.VM); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d moves of guests of %d MiB under load over TLS, 0 lost: %s; longest pause of a heartbeat of 50 ms when nothing moves: %.2f s", len(all), memory>>20, stats(all), still)
}

// allotment of each move.
const allotment = 4 * memory

func moveOne(t *testing.T, on []machine, s hypervisor.Spec, beats *lab.Beats, from, to int) move {
	t.Helper()
	begun := time.Now()
	var moved hypervisor.Moved
	var err error
	for range 3 { // a machine that stands still for seconds ends a move before its budget: what may have been sent meanwhile counts
		moved, err = on[from].Migrate(t.Context(), s.VM, hypervisor.Migration{To: on[to].lab.MigrationURI(), Bandwidth: 32 << 20, MaxBytes: allotment, AutoConverge: true})
		if err == nil || moved.Bytes > allotment || !strings.Contains(err.Error(), "could follow") {
			break
		}
		t.Logf("%s: %+v, %v", s.Name, moved, err)
	}
	took := time.Since(begun)
	if err != nil {
		t.Fatalf("%s from %s to %s: %v", s.Name, on[from].lab.Name, on[to].lab.Name, err)
	}
	if moved.Bytes <= 0 || moved.Bytes > allotment {
		t.Errorf("%s: %d bytes were sent, %d allowed", s.Name, moved.Bytes, int64(allotment))
	}
	ended := time.Now()
	await(t, "the guest beats after its move", func() error {
		if b, _ := beats.Last(); b.At.Before(ended) {
			return fmt.Errorf("last beat: %v", b)
		}
		return nil
	})
	for i, m := range on {
		vms, err := m.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := slices.IndexFunc(vms, func(vm hypervisor.VM) bool { return vm.VM == s.VM })
		if i != to && n >= 0 {
			t.Errorf("after a move from %s to %s host %s lists %+v", on[from].lab.Name, on[to].lab.Name, m.lab.Name, vms[n])
		}
		if i == to && (n < 0 || vms[n].State != hypervisor.Running || vms[n].Generation != s.Generation) {
			t.Errorf("after a move to %s it lists %+v", m.lab.Name, vms)
		}
	}
	return move{seconds: took.Seconds(), gap: beats.Gap(begun, time.Now()).Seconds(), bytes: moved.Bytes, downtime: moved.Downtime}
}

// stats of many moves: median and worst.
func stats(all []move) string {
	pick := func(of func(move) float64) (median, worst float64) {
		var v []float64
		for _, m := range all {
			v = append(v, of(m))
		}
		slices.Sort(v)
		return v[len(v)/2], v[len(v)-1]
	}
	s, sw := pick(func(m move) float64 { return m.seconds })
	b, bw := pick(func(m move) float64 { return float64(m.bytes) / (1 << 20) })
	d, dw := pick(func(m move) float64 { return m.downtime.Seconds() })
	g, gw := pick(func(m move) float64 { return m.gap })
	return fmt.Sprintf("%.2f s (at most %.2f), %.1f MiB (%.1f; %d allowed each), downtime by QEMU %.3f s (%.3f), by the guest's heartbeat %.2f s (%.2f)",
		s, sw, b, bw, allotment>>20, d, dw, g, gw)
}

// await asks until there is no error.
func await(t *testing.T, what string, f func() error) {
	t.Helper()
	end := time.Now().Add(patient)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, patient, err)
		}
		time.Sleep(20 * time.Millisecond) // sleep: to the next look
	}
}
