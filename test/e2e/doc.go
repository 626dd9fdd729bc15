// Package e2e holds tests of the whole program on real libvirt and QEMU: the
// built vcd on a lab host, talked to through the API, killed and restarted.
//
// It has no code but tests. Each has a host of its own, and they run side by side: none measures a time.
// They run where EVENKEEL_REAL=1 is set (make test).
package e2e
