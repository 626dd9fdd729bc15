// Package capacity states what a VM takes of a host, and adds up what the VMs of a host take: the one home of that rule.
//
// A VM is charged what it may take at any moment, not what it uses: the cap in force on it, and the larger of the memory that its host
// last reported and its balloon's target, with what QEMU takes besides. While its share or its host changes, the larger amount counts, on
// both hosts. A host keeps a reserve free for memory that VMs below their boot memory may take back by themselves.
package capacity

import "evenkeel/allocator"

// Resources are CPU in cores and memory in bytes.
type Resources struct {
	CPU    float64 `json:"cpu"`
	Memory int64   `json:"memory"`
}

// MinCPU is the least share that a host can enforce, cores: no VM runs with less.
const MinCPU = 0.001

// tolerance of sums of float64 cores against a limit, relative.
const tolerance = 1e-9

// VM is what the charge of a VM follows from.
type VM struct {
	Reported int64   // memory that its host last reported it to have, or that it was allowed since, bytes
	Target   int64   // of its balloon, bytes
	Boot     int64   // memory it was started with, bytes: the most that it can take back by itself
	Share    float64 // cores that each VM of its group is given
	Frozen   float64 // cap that it keeps until it has stopped or arrived, cores
	Stopping bool    // it has no share any more
}

// Memory is the memory that counts as the VM's, bytes.
func (v VM) Memory() int64 {
	if v.Stopping {
		return v.Reported
	}
	return max(v.Reported, v.Target)
}

// Charge of the VM on a host where each VM takes so many bytes beyond its own memory.
func (v VM) Charge(overhead int64) Charge {
	memory := v.Memory()
	// A VM that stops has a deficit, too: its balloon may deflate before it ends.
	c := Charge{CPU: v.Frozen, Memory: memory + overhead, Deficit: max(0, v.Boot-memory)}
	if !v.Stopping {
		c.CPU = max(v.Frozen, v.Share)
	}
	return c
}

// Charge is what one VM takes of a host.
type Charge struct {
	CPU     float64 // cores
	Memory  int64   // bytes, with the overhead
	Deficit int64   // bytes that it may take back by itself beyond that
}

// Load is what VMs are charged to their host.
type Load struct {
	CPU     float64 // cores
	Memory  int64   // bytes
	Reserve allocator.Reserve[int64]
	VMs     int
}

// Add a VM.
func (l *Load) Add(c Charge) {
	l.CPU += c.CPU
	l.Memory += c.Memory
	l.Reserve.Add(c.Deficit)
	l.VMs++
}

// Keep adds the memory of a VM that does not run, and that may start again.
func (l *Load) Keep(c Charge) { l.Memory += c.Memory }

// Taken is the memory that is not free for others: what is charged, and the reserve.
func (l Load) Taken() int64 { return l.Memory + l.Reserve.Bytes() }

// Ledger is a host's load, and what the VMs of this cluster may use there.
type Ledger struct {
	Load
	Usable Resources
}

// Free is what is left beside the load and the reserve; below 0 where the host is beyond its limits.
func (l Ledger) Free() Resources {
	return Resources{CPU: l.Usable.CPU - l.CPU, Memory: l.Usable.Memory - l.Taken()}
}

// Fits says whether a VM can come beside the load.
func (l Ledger) Fits(c Charge) bool {
	l.Add(c)
	return l.CPU <= l.Usable.CPU*(1+tolerance) && l.Taken() <= l.Usable.Memory
}

// Exceeded says which resources of the host exceed their limits by more than before. A host whose limits fell below its load may go on,
// and may get better.
func (l Ledger) Exceeded(before Load) (cpu, memory bool) {
	return l.CPU > l.Usable.CPU*(1+tolerance) && l.CPU > before.CPU*(1+tolerance), l.Taken() > l.Usable.Memory && l.Taken() > before.Taken()
}
