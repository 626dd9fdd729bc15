// Package simulation runs whole clusters in one process and in simulated time
// (testing/synctest), and breaks everything around them: five servers and
// twenty hosts, with a network that loses, delays, repeats and parts
// messages, disks that are full, members that crash, hosts that lose their power, agents and
// leaders that stand still, hypervisors that fail or hang, clocks that run at different rates.
//
// What decides is the product's own: state, Raft (cluster/node), the leader's service
// (cluster/leader), agents, leases. What is played is the world around it: the network, power,
// watchdogs, fence devices, operators, clients, and the hosts' hypervisor (hypervisor/simulated).
// The agents' way to the leader is played, too, at the interface agent.Leader, with the rules of
// cluster/transport (sessions, numbered calls, a stream with a silence that ends it, one hop of relay):
// TLS would cost more than all else together, and a message here can be repeated or come a minute late by itself,
// which no single TCP connection does.
//
// A run is a script: lines of text with a time and a fault each. Those under testdata are
// written by hand, with what is to come of them; random ones are made from a seed. While a script runs, and when all is
// healed, the safety rules are checked. A run is not the same to the last message when it
// is done again (goroutines at one instant of simulated time run in any order), but the faults are.
//
// The package holds tests only. It changes nothing in the code that it tests: the variants that
// are broken on purpose, to see that the checks see it, are wrappers around that code.
package simulation
