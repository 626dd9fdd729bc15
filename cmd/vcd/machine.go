package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strings"
)

// machineID distinguishes this machine from others. It is a hash: the id itself must stay on the machine (machine-id(5)). A machine
// without one is known by its boot id alone.
func machineID() string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256([]byte("evenkeel machine " + strings.TrimSpace(string(b))))
	return hex.EncodeToString(sum[:16])
}

// driveAlone makes sure that no other vcd drives this host's hypervisor, whatever its data directory and its configuration, until
// the listener is closed or this process ends. It listens on an abstract unix socket: the kernel gives its name to one process,
// and no file of it can be lost.
func (c *config) driveAlone() (net.Listener, error) {
	what := c.Hypervisor
	if what == "simulated" {
		what += " " + c.DataDir // simulated hosts are those of a data directory
	}
	sum := sha256.Sum256([]byte(what))
	l, err := net.Listen("unix", "@evenkeel-agent-"+hex.EncodeToString(sum[:16]))
	if err != nil {
		return nil, fmt.Errorf("another vcd drives hypervisor %s of this host: %w", c.Hypervisor, err)
	}
	return l, nil
}
