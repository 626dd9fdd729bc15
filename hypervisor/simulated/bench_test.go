package simulated_test

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// crowd is hosts with equally many VMs each, which want more CPU than there is.
func crowd(b *testing.B, hosts, vms int, o simulated.Options) (*simulated.World, *simulated.Virtual) {
	b.Helper()
	o.Hosts = hosts
	w, clock := stepped(b, o)
	for i := range vms {
		run(b, w, w.Hosts()[i%hosts], sized(fmt.Sprint("vm", i), 1, float64(i%4)/4, float64(i%3+1)))
	}
	return w, clock
}

func BenchmarkList1000(b *testing.B) {
	w, clock := crowd(b, 1, 1000, simulated.Options{})
	h := w.Host("h1")
	for b.Loop() {
		clock.Advance(time.Second)
		if _, err := h.List(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStats1000(b *testing.B) {
	w, clock := crowd(b, 1, 1000, simulated.Options{})
	h := w.Host("h1")
	for b.Loop() {
		clock.Advance(time.Second)
		if _, err := h.Stats(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// All hosts sampled once, after a minute in which every VM's demand changed sixty times.
func BenchmarkMinuteOf20000VMsOn1000Hosts(b *testing.B) {
	w, clock := crowd(b, 1000, 20000, simulated.Options{Workload: func(hypervisor.Spec) simulated.Workload {
		return simulated.Trace{Interval: time.Second, Cores: []float64{0.2, 1, 0.5}}
	}})
	for b.Loop() {
		clock.Advance(time.Minute)
		for _, name := range w.Hosts() {
			if _, err := w.Host(name).Stats(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkSetCPUAmong1000(b *testing.B) {
	w, clock := crowd(b, 1, 1000, simulated.Options{})
	h := w.Host("h1")
	for i := 0; b.Loop(); i++ {
		clock.Advance(time.Millisecond)
		if err := h.SetCPU(ctx, "vm7", hypervisor.CPU{Cap: float64(i%2+1) / 4, Weight: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

// A thousand VMs defined and started on twelve hosts, each change kept in a file.
func BenchmarkStart1000Kept(b *testing.B) {
	for b.Loop() {
		w, _ := crowd(b, 12, 1000, simulated.Options{StateFile: b.TempDir() + "/state"})
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRestore1000(b *testing.B) {
	o := simulated.Options{StateFile: b.TempDir() + "/state"}
	w, _ := crowd(b, 12, 1000, o)
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		again, err := simulated.New(o)
		if err != nil {
			b.Fatal(err)
		}
		if err := again.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
