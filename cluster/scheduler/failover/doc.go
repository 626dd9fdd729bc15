// Package failover decides what becomes of the VMs of a host that fails.
package failover
