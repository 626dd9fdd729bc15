// Package replay plays a workload on a simulated cluster under a policy, and says what came of it.
//
// Run is a discrete-event simulation. Applications arrive, wait, run and end at any instant. Once a tick (a minute) use is measured, the policy
// sets allocations, and what components really use is compared with what they were given:
//
//   - CPU that is short makes an application slower: the yield of a component is the CPU it gets over the CPU it would use.
//   - Memory that is short ends a component, as the kernel does. With a core component its application ends: its work is lost, and it
//     waits again at its old place in the queue. With an elastic one the work that it contributed is lost.
//
// The policy never knows what a component will use, apart from one that says so in its name (an oracle). It knows what was measured,
// what was asked for, and what it allocated. Policies here run the code that runs in production: package allocator and its subpackages decide
// which components keep their memory, shrink or are evicted; package forecast says what will be used.
//
// State lies in arrays, by host, by application and by slot (a component that runs): see Cluster. Equal workloads, hosts, policies and
// options give equal results to the last bit. The package reads no clock, draws no random number, does no I/O and starts no goroutine.
package replay
