// Package chaos disturbs a whole cluster on three real hosts, by seed, while VMs move, clients write and guests count, and
// then looks whether every promise was kept: no VM twice, no acknowledged write lost, no needless restart, nothing stuck.
//
// The faults follow from the seed alone (Plan). Only when a fault strikes is it known what it strikes, such as a migration's source or
// the leader. The time and the object are recorded. docs/reproduction/chaos.md says how to run it and how to read what it prints.
//
// The code that judges (watch.Watcher, Restarts, Heartbeats, History, Stuck) takes values, and has tests that feed it broken histories.
package chaos
