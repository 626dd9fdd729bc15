package main

import (
	"fmt"
	"strconv"
	"strings"

	"evenkeel/api/v1"
	"evenkeel/hypervisor/simulated"
)

// What `vcd dev --hosts` takes: hosts in all, and cores and bytes of each.
const (
	maxHosts      = 10_000
	maxHostCPU    = 4096
	maxHostMemory = 1 << 50
)

// machinesOf reads the simulated hosts of `vcd dev --hosts`: "12" hosts of 32 cores and 128 GiB, or a list with commas of
// NUMBERxCORESxMEMORY, such as "8x32x128GiB,4x64x512GiB". They are named h1, h2, ... in the order of the list.
func machinesOf(text string) ([]simulated.Machine, error) {
	var out []simulated.Machine
	for _, kind := range strings.Split(text, ",") {
		fail := func(cause string) ([]simulated.Machine, error) {
			return nil, fmt.Errorf("--hosts %q: %s; want a number of hosts from 1 to %d, or NUMBERxCORESxMEMORY for each kind, such as 8x32x128GiB,4x64x512GiB", text, cause, maxHosts)
		}
		part := strings.Split(strings.TrimSpace(kind), "x")
		if len(part) != 3 && (len(part) != 1 || kind != text) {
			return fail(fmt.Sprintf("%q is not NUMBERxCORESxMEMORY", kind))
		}
		n, err := strconv.Atoi(part[0])
		if err != nil || n < 1 || n > maxHosts-len(out) {
			return fail(fmt.Sprintf("%q is not a number of hosts, or makes too many", part[0]))
		}
		m := simulated.Machine{CPU: 32, Memory: 128 << 30}
		if len(part) == 3 {
			if m.CPU, err = strconv.ParseFloat(part[1], 64); err != nil || !(m.CPU >= 0.1 && m.CPU <= maxHostCPU) {
				return fail(fmt.Sprintf("%q is not a number of cores from 0.1 to %d", part[1], maxHostCPU))
			}
			size, err := v1.ParseSize(part[2])
			if err != nil || size < 1<<30 || size > maxHostMemory {
				return fail(fmt.Sprintf("%q is not a size of memory from 1GiB to 1PiB", part[2]))
			}
			m.Memory = int64(size)
		}
		for range n {
			m.Name = fmt.Sprintf("h%d", len(out)+1)
			out = append(out, m)
		}
	}
	return out, nil
}
