// Package drain empties hosts: it plans the moves of all VMs that can leave, again where some fail, and reports what is left and
// why. Only the list of the host's hypervisor proves that a host is empty. All but Runner (run.go) takes values and returns values.
package drain
