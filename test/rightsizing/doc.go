// Package rightsizing tests real guests whose memory is rightsized: VMs of QEMU on a host of the lab replay patterns of CPU and memory,
// their balloons shrink and grow, and each guest itself reports how it fared: work that was not done, memory that was not there,
// processes that the kernel killed, pages swapped.
//
// It needs EVENKEEL_REAL=1. EVENKEEL_LONG=1 runs for 20 minutes instead of a few, EVENKEEL_LONG=6m for six; EVENKEEL_BITBRAINS names a directory with traces
// of the GWA-T-12 Bitbrains set (CSV files of one VM each) that are replayed instead of made-up ones in their style.
package rightsizing
