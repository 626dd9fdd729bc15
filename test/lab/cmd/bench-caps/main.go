// Command bench-caps measures how well CPU caps hold on this machine's real
// QEMU, and prints a table.
//
// Two busy VMs of one vCPU run on a lab host that is limited to 1.1 cores, of
// which 1.0 is the CPU allowance (the rest is for the emulators' own threads,
// which share the host's limit). For each pair of caps it takes the CPU time of
// the VMs' vCPUs over a window, and repeats that; the figure of a cap is the median of its
// rounds. It also measures how soon a changed cap holds.
//
// The host's control group goes before other work on the machine, so that
// figures can be had on one that is not quite calm; its load is printed with them.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/libvirt"
	"evenkeel/test/lab"
)

func main() {
	window := flag.Duration("window", 10*time.Second, "time over which CPU use is measured")
	rounds := flag.Int("rounds", 5, "windows per pair of caps; the median counts")
	limit := flag.Float64("limit", 1.1, "cores of the whole host")
	flag.Parse()
	if *rounds < 1 || *window <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *window, *rounds, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "bench-caps:", err)
		os.Exit(1)
	}
}

// pairs of caps, in cores; what they sum to is within the allowance. The second VM is idle (destroyed) where
// its cap is 0.
var pairs = [][2]float64{{0.1, 0.8}, {0.2, 0.7}, {0.25, 0.75}, {0.3, 0.6}, {0.4, 0.5}, {0.5, 0.5}, {1, 0}}

// bench is the host and its two VMs.
type bench struct {
	host *lab.Host
	hv   *libvirt.Host
	vms  [2]hypervisor.Spec
}

func measure(ctx context.Context, window time.Duration, rounds int, limit float64) (err error) {
	guest, err := lab.FindGuest()
	if err != nil {
		return err
	}
	kvm, err := lab.KVM(ctx, guest)
	if err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Precede(); err != nil {
		return err
	}
	b := &bench{host: l.Host(1)}
	if err := b.host.LimitCPU(limit); err != nil {
		return err
	}
	b.hv, err = libvirt.Open(ctx, libvirt.Options{URI: b.host.URI(), ForceEmulation: !kvm, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer b.hv.Close()
	capacity, err := b.hv.Capacity(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s, KVM %v, cgroup v%d, %g CPUs, host limited to %g cores, before other work; windows of %v, median of %d\n",
		capacity.Software, capacity.KVM, capacity.Cgroup, capacity.CPU, limit, window, rounds)
	fmt.Printf("load average before: %s\n\n", load())
	if err := b.boot(ctx, guest); err != nil {
		return err
	}
	worst, err := b.accuracy(ctx, window, rounds)
	if err != nil {
		return err
	}
	if err := b.latency(ctx); err != nil {
		return err
	}
	fmt.Printf("\nload average after: %s\n", load())
	if worst.machine > 0.02 {
		fmt.Printf("The machine was busy: for %.0f%% of the time of some window a VM below its cap was held back by other work, not by its cap. Figures from a calm machine are better.\n", 100*worst.machine)
	}
	return nil
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// boot starts both VMs, busy from the start, and waits until they have booted.
func (b *bench) boot(ctx context.Context, guest lab.Guest) error {
	for i := range b.vms {
		b.vms[i] = hypervisor.Spec{
			Identity: hypervisor.Identity{Cluster: "bench", VM: fmt.Sprintf("bench-%d", i), Generation: 1},
			Name:     fmt.Sprintf("ek-bench-caps-%d", i), VCPUs: 1, Memory: 128 << 20, Balloon: 128 << 20,
			CPU:  hypervisor.CPU{Cap: 0.5, Weight: 0.5},
			Boot: hypervisor.Boot{Kernel: guest.Kernel, Initrd: guest.Initrd, Cmdline: guest.Cmdline("ek.burn=1 ek.beat=1000")},
		}
		if err := b.hv.Start(ctx, b.vms[i]); err != nil {
			return err
		}
	}
	for _, vm := range b.vms {
		limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
		err := b.booted(limited, vm.VM)
		cancel()
		if err != nil {
			return fmt.Errorf("wait for %s to boot: %w", vm.Name, err)
		}
	}
	return nil
}

func (b *bench) booted(ctx context.Context, id string) error {
	console, err := b.hv.Console(ctx, id)
	if err != nil {
		return err
	}
	defer console.Close()
	stop := context.AfterFunc(ctx, func() { _ = console.Close() })
	defer stop()
	for lines := bufio.NewScanner(console); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "BEAT ") {
			return nil
		}
	}
	return errors.Join(ctx.Err(), io.ErrUnexpectedEOF)
}

func (b *bench) set(ctx context.Context, i int, cap float64) error {
	return b.hv.SetCPU(ctx, b.vms[i].VM, hypervisor.CPU{Cap: cap, Weight: cap})
}

// sample is what a VM has used at an instant, and how long its quotas kept it off the CPU.
type sample struct {
	at              time.Time
	used, throttled time.Duration
}

func (b *bench) sample(i int) (s sample, err error) {
	if s.used, err = b.host.VCPUTime(b.vms[i].Name); err != nil {
		return s, err
	}
	s.at = time.Now()
	s.throttled, err = b.host.Throttled(b.vms[i].Name)
	return s, err
}

// figure is one VM at one cap.
type figure struct {
	cap     float64 // cores
	use     float64 // cores, median of the rounds
	machine float64 // share of the time it was held back by neither its cap nor idleness, worst round
}

func (f figure) err() float64 { return 100 * math.Abs(f.use-f.cap) } // points of one core

// accuracy measures all pairs and prints the table; worst is the figure whose VM the machine
// held back most.
func (b *bench) accuracy(ctx context.Context, window time.Duration, rounds int) (worst figure, err error) {
	var stats []figure
	fmt.Printf("%-6s %-12s %8s %8s %12s   %s\n", "VM", "caps", "cap %", "use %", "error", "rounds")
	for _, caps := range pairs {
		n := 2
		if caps[1] == 0 {
			n = 1
			if err := b.hv.Destroy(ctx, b.vms[1].VM); err != nil {
				return worst, err
			}
		}
		for i := range n {
			if err := b.set(ctx, i, min(caps[i], 0.1)); err != nil { // shrink before grow
				return worst, err
			}
		}
		for i := range n {
			if err := b.set(ctx, i, caps[i]); err != nil {
				return worst, err
			}
		}
		if err := sleep(ctx, time.Second); err != nil {
			return worst, err
		}
		uses := make([][]float64, n)
		machine := make([]float64, n)
		for range rounds {
			var before [2]sample
			for i := range n {
				if before[i], err = b.sample(i); err != nil {
					return worst, err
				}
			}
			if err := sleep(ctx, window); err != nil {
				return worst, err
			}
			for i := range n {
				after, err := b.sample(i)
				if err != nil {
					return worst, err
				}
				d := float64(after.at.Sub(before[i].at))
				used := float64(after.used-before[i].used) / d
				capped := float64(after.throttled-before[i].throttled) / d
				uses[i] = append(uses[i], used)
				machine[i] = max(machine[i], caps[i]-used-max(0, capped-(1-caps[i])))
			}
		}
		for i := range n {
			f := figure{caps[i], median(uses[i]), machine[i]}
			stats = append(stats, f)
			if f.machine > worst.machine {
				worst = f
			}
			fmt.Printf("%-6d %-12s %8.1f %8.2f %+12.2f   %.2f\n", i+1, fmt.Sprintf("%g/%g", 100*caps[0], 100*caps[1]), 100*f.cap, 100*f.use, 100*(f.use-f.cap), percent(uses[i]))
		}
	}
	for _, group := range []struct {
		name string
		in   func(figure) bool
	}{
		{"caps of 10% to 80%", func(f figure) bool { return f.cap < 0.9 }},
		{"cap of 100%", func(f figure) bool { return f.cap >= 0.9 }},
	} {
		sum, highest, n := 0.0, 0.0, 0
		for _, f := range stats {
			if group.in(f) {
				sum, highest, n = sum+f.err(), max(highest, f.err()), n+1
			}
		}
		fmt.Printf("\n%s: mean absolute error %.2f points, max %.2f points", group.name, sum/float64(n), highest)
	}
	fmt.Println()
	return worst, nil
}

func percent(cores []float64) []float64 {
	p := make([]float64, len(cores))
	for i, c := range cores {
		p[i] = 100 * c
	}
	return p
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// latency changes the cap of the first VM up and down and looks every 5 ms at what it
// has used. A cap holds from the first instant after which the next 300 ms (three
// periods of the quota) are within 5 points of it.
func (b *bench) latency(ctx context.Context) error {
	fmt.Printf("\n%-16s %12s %28s\n", "changed cap", "call took", "holds, after its return")
	from := 1.0
	for _, to := range []float64{0.2, 0.8, 0.1, 0.6, 0.3, 0.9, 0.5} {
		called := time.Now()
		if err := b.set(ctx, 0, to); err != nil {
			return err
		}
		returned := time.Now()
		var points []sample
		for time.Since(returned) < 2*time.Second {
			s, err := b.sample(0)
			if err != nil {
				return err
			}
			points = append(points, s)
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		says := "not within 1.7 s"
		if at, ok := inForce(points, to); ok {
			says = at.Sub(returned).Round(time.Millisecond).String()
		}
		fmt.Printf("%3.0f%% -> %3.0f%%     %12v %28s\n", 100*from, 100*to, returned.Sub(called).Round(100*time.Microsecond), says)
		from = to
	}
	return nil
}

func inForce(points []sample, cap float64) (time.Time, bool) {
	for i, p := range points {
		for _, q := range points[i+1:] {
			if d := q.at.Sub(p.at); d >= 300*time.Millisecond {
				if math.Abs(float64(q.used-p.used)/float64(d)-cap) < 0.05 {
					return p.at, true
				}
				break
			}
		}
	}
	return time.Time{}, false
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
