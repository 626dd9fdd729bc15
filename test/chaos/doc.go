// Package chaos disturbs a whole cluster on three real hosts, by seed, while VMs move, clients write and guests count, and
// then looks whether every promise was kept: no VM twice, no acknowledged write lost, no needless restart, nothing stuck.
//
// The faults follow from the seed alone (Plan). When they strike is recorded, as is what they struck: a migration's source, or whoever
// leads, is known only then. docs/chaos.md says how to run it and how to read what it prints.
//
// What judges (watch.Watcher, Restarts, Heartbeats, History, Stuck) takes values, and has tests that feed it broken histories.
package chaos
