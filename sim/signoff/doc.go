// Package signoff answers what would have been if a cluster's periodic jobs had been signed off (Jyothi et al. 2016, sec. 4 to 7): it finds
// them among past runs, learns what they need from the earlier runs, reserves slots on the operator's hosts, and plays the later runs in them.
//
// Periods, deadlines, skylines, slots and grants are those of forecast/periodic and cluster/scheduler/reservation. The package takes values and
// returns values: no I/O, no clock, no randomness. It never changes a run that it plays.
package signoff
