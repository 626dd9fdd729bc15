package state_test

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// BenchmarkReports applies reports of hosts with 10 VMs each: that they run, as the host reports at its beginning, and the steps
// of a hand-over of all of them, where each VM has an open move.
func BenchmarkReports(b *testing.B) {
	const hosts, each = 100, 10
	k := small(b, hosts)
	for i := range hosts {
		names := make([]string, each)
		for j := range names {
			names[j] = fmt.Sprintf("h%d", i+1)
		}
		k.must(b, state.KindPlan, planOf(k.Snapshot(), fmt.Sprint("a", i), 0.1, gib/16, names...))
	}
	index := uint64(len(k.log))
	apply := func(b *testing.B, kind state.Kind, body any) uint64 {
		b.Helper()
		index++
		entry, err := state.Encode(kind, start.Add(time.Duration(index)*time.Second), body)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		err = k.Apply(index, entry)
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		return index
	}
	report := func(b *testing.B, i int, host string, st state.VMStatus) {
		b.Helper()
		r := state.VMReport{Host: host}
		for j := range each {
			st.VM, st.Generation = fmt.Sprintf("vm-a%d-%d", i, j), 1
			r.VMs = append(r.VMs, st)
		}
		apply(b, state.KindVMReport, r)
	}
	b.Run("running", func(b *testing.B) {
		b.StopTimer()
		for n := range b.N {
			i := n % hosts
			report(b, i, fmt.Sprintf("h%d", i+1), state.VMStatus{Phase: state.Running, ChargedMemory: gib/16 + int64(n)%4096})
		}
	})
	b.Run("hand-over", func(b *testing.B) {
		for i := range hosts {
			report(b, i, fmt.Sprintf("h%d", i+1), state.VMStatus{Phase: state.Running})
		}
		b.ResetTimer()
		b.StopTimer()
		for n := range b.N {
			i := n % hosts
			from, to, id := fmt.Sprintf("h%d", i+1), fmt.Sprintf("h%d", (i+1)%hosts+1), fmt.Sprintf("vm-a%d-%d", i, n/hosts%each)
			move := apply(b, state.KindMove, state.Move{VM: id, Generation: 1, To: to, Open: true, ID: fmt.Sprintf("mg-%08d", index)})
			st := state.VMStatus{VM: id, Generation: 1, Move: move, Room: true}
			apply(b, state.KindVMReport, state.VMReport{Host: to, VMs: []state.VMStatus{st}})
			st.Room, st.Permit = false, true
			apply(b, state.KindVMReport, state.VMReport{Host: from, VMs: []state.VMStatus{st}})
			vm, _ := k.Snapshot().VM(id)
			apply(b, state.KindMove, state.Move{VM: id, Generation: 1, To: to, Move: move, Permit: index, Text: "it stayed"})
			if vm.MovingTo != to {
				b.Fatalf("%+v", vm)
			}
		}
	})
}
