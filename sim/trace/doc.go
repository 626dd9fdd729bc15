// Package trace reads measured use of VMs from the files in which others published it, as series with a uniform step.
//
// Formats, distinguished by their content (units in parentheses):
//
//   - Bitbrains: Bitbrains GWA-T-12, one CSV file per VM: CPU (MHz) and active memory (KB), both with what was provisioned.
//     4% of the CPU values are above it. A row with 0 cores is a VM that was off: not measured. A file in which more than 1% of the rows repeat a time holds
//     the rows of several machines: it is left out, and a note says so.
//   - Google2011: CPU and memory (% of an unstated whole) of the jobs of Google's trace of 2011, one file vm_JOB_DAY per day
//     with 288 rows. The days of a job become one series; a day that is not there is not measured.
//   - PlanetLab: CoMon's CPU use (%, integers) of PlanetLab's VMs, one file per VM and day, one folder per day.
//   - NAB: the Numenta benchmark's CSV files of a time and a value: CPU (%).
//
// Sources are folders, archives (.tar.gz, .tar) and single files, gzipped or not. Times are put on a grid: a value a little
// early or late keeps its place, the places of a gap hold NaN, and of several values for one place the first counts.
// Notes say what was left out or corrected. Sizes are bounded, so that a bad file costs an error and not the machine.
//
// LoadSWF reads another kind of file: logs of parallel machines in the standard workload format (SWF 2.2; seconds, KB per
// processor), whose jobs were submitted, waited and ran.
//
// LoadAzure (arrivals of VMs with cores and GB, and their lifetimes), LoadOpenB (pods and nodes of Alibaba's trace of
// 2023) and LoadSURF (jobs of SURF Lisa with CPU used every 30 s, MHz) read what was asked for and when.
//
// The package never writes, and never keeps more of a file than its values.
package trace
