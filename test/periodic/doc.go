// Package periodic plays figure 12 of Morpheus (Jyothi et al. 2016, sec. 9.3) in small, with real guests: VMs of QEMU on a host of the lab
// are the runs of four jobs that come again every three minutes. Their work is CPU work, which the guests themselves count. Once the jobs
// are signed off, other guests want half as much again as the host has, and every second period one run is delayed by hand.
//
// It needs EVENKEEL_REAL=1 and EVENKEEL_LONG=1. Flags say how long it takes: see docs/reproduction/late-runs.md.
package periodic
