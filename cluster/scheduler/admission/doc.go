// Package admission decides which virtual clusters run, and where their VMs start: requests to create, start, scale, stop and
// delete (place.go, admit.go), the queue of those that wait (queue.go), and the restart of VMs that were lost with their host or preempted
// (restart.go). It turns a snapshot into the allocator's problem, and the answer into a plan; the figures come from package
// allocator. The admission margin (margin.go) may refuse what fits only if estimates are right. With many hosts, CapacityIndex
// answers what needs no search.
//
// Admission never moves a running VM. It takes values and returns values.
package admission
