// Package cluster tests clusters of real processes: three hosts of the lab with real libvirt and
// QEMU, vcd in each as server and agent, set up with vcctl as their administrator would. It kills,
// stops and cuts off what can be killed, stopped and cut off, and watches from outside that no VM ever
// runs twice.
//
// The tests are run with EVENKEEL_REAL=1, one after another on one cluster; those that take long with
// EVENKEEL_LONG=1 besides. Their figures are in a table at the end. EVENKEEL_LOGS names a directory to keep what
// each vcd says. EVENKEEL_INSTALLED=1 takes the programs of the Debian packages, installed on the machine that the hosts
// share, instead of building them.
package cluster
