// Package e2e holds tests of the whole program on real libvirt and QEMU: the
// built vcd on a lab host, talked to through the API, killed and restarted.
//
// It has no code but tests. They run where EVENKEEL_REAL=1 is set (make test).
package e2e
