// Package scheduling is what the tests of the schedulers share: a cluster whose state is changed by commands alone (Cluster), on
// which each plan is checked against the definitions of limits, yields, rules and the reserve, and one whose VMs use something
// minute by minute (Rightsized). Its own tests are those that need several schedulers: recorded scenarios, random lives,
// benchmarks.
package scheduling
