// Package workload describes what arrives at a cluster over time, what it asks for and what it really uses, and draws such
// workloads from distributions that stand beside the code.
//
// A Workload is applications, each of groups of equal components (in Evenkeel: virtual clusters, groups, VMs). What a component
// really uses is a share of its request that varies with the work its application has done: a Use points into a table of
// Patterns, which many components read from different places. So a workload of 150,000 applications with millions of
// components is some megabytes, and asking for the use of a component takes nanoseconds.
//
// Generators take all randomness as an argument: equal seeds give equal workloads. The package never simulates anything, reads no
// clock and does no I/O.
package workload
