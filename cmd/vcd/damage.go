package main

import (
	"errors"
	"fmt"
	"strings"

	"evenkeel/internal/statefile"
)

// kept in the data directory whatever else is removed: disks of VMs and images, what is to be read of the past, and the
// hypervisor that is simulated.
var kept = []string{"libvirt", "images", "audit.log*", "simulated.*"}

// requireEmpty is the command that removes what makes this host a member, and no disk of a VM.
func (c *config) requireEmpty() string {
	var b strings.Builder
	fmt.Fprintf(&b, "find %s -mindepth 1 -maxdepth 1", c.DataDir)
	for _, name := range kept {
		fmt.Fprintf(&b, " ! -name '%s'", name)
	}
	return b.String() + " -exec rm -r {} +"
}

// rejoin is how this host enters its cluster again without what its data directory holds.
func (c *config) rejoin() string {
	roles := ""
	if c.Server {
		roles += " --server"
	}
	if c.Agent {
		roles += " --agent"
	}
	return fmt.Sprintf("let this host enter its cluster again, its VMs run on: stop vcd; on another server: vcctl cluster join-token%s --for %s > FILE; here: %s ; "+
		"start vcd; vcctl cluster join --join-token-file FILE ADDRESS:7480 (ADDRESS is another server's; with no other server left: restore from a snapshot, see docs/how-to/restore-from-a-snapshot.md)", roles, c.Name, c.requireEmpty())
}

// ifRemoved is what to do on a host that the cluster has removed.
func (c *config) ifRemoved() string {
	again := c.rejoin()
	if c.ownPKI() {
		again = "with another certificate (pki in vcd.yaml), as this one counts no more, " + again
	}
	return "stop vcd for good, or " + again
}

// withWayOut adds to an error about a damaged file what to do about it, if the error does not say so.
func (c *config) withWayOut(err error) error {
	if d := new(statefile.Damaged); errors.As(err, &d) && d.Way == "" {
		return fmt.Errorf("%w; %s", err, c.rejoin())
	}
	return err
}
