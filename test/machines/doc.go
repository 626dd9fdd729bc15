// Package machines boots whole test machines under QEMU's emulation: Debian 12 with its own kernel, systemd, cgroup v2, a
// watchdog device, and a KVM that QEMU emulates (SVM with nested paging). What needs a real host, and has no place in a lab of
// namespaces (test/lab), is tested in such a machine, on a computer with no KVM of its own.
//
// image.sh makes the disk once. Prepare boots it once and saves the machine as it runs; Restore gives a test that machine again,
// in seconds, with a disk of its own on top. Commands run by ssh, over QEMU's user-mode network: nothing of a machine is seen on
// the network of the computer. Machines of one test may share a network of their own (lan), and have their cables pulled.
//
// Limits count the time in which the machine could run: the time that its vCPUs waited for a CPU of the computer is taken off.
// Boot machines one at a time: two that boot at once disturb each other's calibration of timers.
//
// It needs root only for image.sh. It never touches a libvirt of the computer itself.
package machines
