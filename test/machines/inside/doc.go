// Package inside has the tests that run in a test machine: the contract of hypervisor.Host on KVM, cgroup v2 and systemd, and how
// well CPU caps hold there. test/machines compiles them, copies them into the machine and runs them there. Everywhere
// else they skip: they use the libvirt of the machine they run on.
package inside
