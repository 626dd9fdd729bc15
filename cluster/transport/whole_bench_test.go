package transport

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

// used CPU of this process.
func used(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// measured reports bytes and CPU of one call of f, which does not depend on what else the machine does.
func measured(b *testing.B, f func(i int) int) {
	bytes, begin := 0, used(b)
	for i := range b.N {
		bytes += f(i)
	}
	b.ReportMetric(float64((used(b)-begin).Nanoseconds())/float64(b.N)/1000, "cpu-us/op")
	b.ReportMetric(float64(bytes)/float64(b.N), "bytes/op")
	b.ReportMetric(0, "ns/op")
}

// wholeVMs are the VMs of a host as a leader sends them.
func wholeVMs(n int) (out []agent.VM) {
	for i := range n {
		one := vm(fmt.Sprintf("vm-01J9Z8X7W6V5T4S3R2Q1P0N%03d", i), 3)
		one.Spec.Name, one.Spec.VCPUs = fmt.Sprintf("ek-film.render-worker-%d", i), 2
		one.Spec.Memory, one.Spec.CPU.Cap, one.ChargedMemory, one.MayStart, one.Seen = 2<<30, 1.234567, 2<<30, true, true
		out = append(out, one)
	}
	return out
}

// BenchmarkDesired is what it takes the leader to send a host that one of its VMs changed: the change, as it is sent; or the whole
// state, plain or compressed.
func BenchmarkDesired(b *testing.B) {
	for _, n := range []int{10, 100} {
		states := make([]agent.Desired, 2)
		for i := range states {
			states[i] = agent.Desired{Cluster: clusterID, Index: uint64(1000 + i), CPU: 32, Memory: 128 << 30, VMs: wholeVMs(n)}
			states[i].VMs[n/2].Spec.CPU.Cap = float64(1 + i)
		}
		b.Run(fmt.Sprintf("change/%d", n), func(b *testing.B) {
			var e desiredEncoder
			e.frame(states[1])
			var line bytes.Buffer
			measured(b, func(i int) int {
				f, _ := e.frame(states[i%2])
				line.Reset()
				_ = json.NewEncoder(&line).Encode(f)
				return line.Len()
			})
		})
		b.Run(fmt.Sprintf("whole/%d", n), func(b *testing.B) {
			var line bytes.Buffer
			measured(b, func(i int) int {
				line.Reset()
				_ = json.NewEncoder(&line).Encode(states[i%2])
				return line.Len()
			})
		})
		b.Run(fmt.Sprintf("compressed/%d", n), func(b *testing.B) {
			var line bytes.Buffer
			w, _ := flate.NewWriter(&line, flate.BestSpeed) // one for the stream, which knows what was sent before
			measured(b, func(i int) int {
				line.Reset()
				_ = json.NewEncoder(w).Encode(states[i%2])
				_ = w.Flush()
				return line.Len()
			})
		})
	}
}

// BenchmarkReport is what it takes the leader to read a report of which only the samples are new: the change, as it is sent, or
// the whole report.
func BenchmarkReport(b *testing.B) {
	for _, n := range []int{10, 100} {
		r := agent.Report{Host: "h1", Reach: true, Index: 1}
		for i := range n {
			id := fmt.Sprintf("vm-01J9Z8X7W6V5T4S3R2Q1P0N%03d", i)
			r.Samples = append(r.Samples, agent.Sample{VM: id, Generation: 1, State: string(hypervisor.Running), Cap: 1.234, Used: 0.123456789, Balloon: 1 << 30, Resident: 1 << 29, Memory: 1 << 29})
			r.Running = append(r.Running, agent.Instance{VM: id, Generation: 1, Name: fmt.Sprintf("ek-film.render-worker-%d", i)})
		}
		var e reportEncoder
		var d reportDecoder
		change := func(b *testing.B) []byte {
			c, _, err := e.change(r, true)
			if err != nil {
				b.Fatal(err)
			}
			raw, _ := json.Marshal(c)
			got, err := d.take(c)
			if err != nil {
				b.Fatal(err)
			}
			e.taken(1)
			d.keep(1, got)
			return raw
		}
		change(b)
		raw := change(b)
		b.Run(fmt.Sprintf("change/%d", n), func(b *testing.B) {
			measured(b, func(int) int {
				var c Change
				_ = json.Unmarshal(raw, &c)
				got, _ := d.take(c)
				d.keep(1, got)
				return len(raw)
			})
		})
		whole, _ := json.Marshal(r)
		b.Run(fmt.Sprintf("whole/%d", n), func(b *testing.B) {
			measured(b, func(int) int {
				var got agent.Report
				_ = json.Unmarshal(whole, &got)
				return len(whole)
			})
		})
	}
}
