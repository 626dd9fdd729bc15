// Package history keeps what was measured of one VM: four rings of buckets, from ten seconds wide (the last hour) to an
// hour wide (the last thirty days).
//
// A History takes samples in the order of their times, and fills all rings at once. A bucket that nothing was
// measured in is missing; it is never zero. A ring that is full forgets its oldest bucket. Times come in as arguments:
// wall-clock times of the host that took the samples.
//
// One History takes at most MaxBytes of memory, which it has reached when every ring is full, after thirty days; after an
// hour it takes a quarter of that, after a day a half. Figures are kept as 32-bit floats: CPU to a millionth, memory to 8 KiB in 128 GiB.
//
// It moves between hosts and lies on disks in a binary form of its own (Encode, Decode), and two histories of one VM from two
// hosts make one (Merge).
//
// The package never reads a clock or a file, never asks a hypervisor, and never guesses what was not measured.
package history
