// Package libvirt drives the VMs of one real host through its libvirt daemon.
// It implements hypervisor.Host.
//
// # How a VM looks to libvirt
//
// Every VM is a transient domain: libvirt keeps no definition of it on disk,
// so that nothing can start by itself after a power failure. It is ours by a
// <metadata> element in our own XML namespace (urn:evenkeel:vm:1), which
// holds the cluster, the id and the generation of the VM; never by its name.
// Its libvirt UUID follows from its id, so that libvirt itself refuses to run
// the same VM twice on one host.
//
// CPU cap, weight and balloon are in the XML the VM is started with: it never
// runs a moment without them. See schedParams for how a cap becomes quotas.
// A guest that runs out of memory takes some back from its balloon before it
// kills anything (autodeflate): it may have more than the target that is set, and
// VM.Balloon shows what it has. Pages that it frees go back to the host as they
// become free (free page reporting). Both where libvirt and QEMU support it.
//
// # Connection
//
// One event loop serves all connections of the process (libvirt allows one),
// is started by the first Open and runs for as long as the process does. A
// Host keeps one connection, notices by keepalive or by the close callback
// that it is gone, reports that to the readers of its events (Disconnected),
// connects again by itself with back-off and then sends Resync. Calls of
// libvirt block for as long as the daemon hangs, so each runs in a goroutine
// of its own and is given up after a time-out. What it did by then is not
// known: the error is hypervisor.ErrUnavailable and names the call, and Host.Hanging lists
// the call until it ends after all. While one call hangs, no other is given more than CallTimeout.
//
// # Limits
//
// x86-64 guests only (machine type q35). A bridge cannot be checked before a VM
// is started on it where libvirt was built with no interface driver. The
// paths in a Spec are checked in this process's view of the file system
// when the URI names no other machine.
//
// The package never decides anything, never retries a change by itself, and
// never touches a domain that does not carry our mark.
//
// Build it with the tag libvirt_dlopen: no libvirt headers are needed then, and
// a missing libvirt library is an error of Open.
package libvirt
