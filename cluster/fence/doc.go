// Package fence cuts the power of hosts through fence agents: the programs
// fence_ipmilan, fence_virsh, fence_apc and many more of the Debian package
// fence-agents. They take options as key=value lines on standard input, the
// action among them (off, on, status, ...), and answer by their exit status.
//
// # What is proof
//
// Fence does two things to a host: off, and then status until the device says
// that the power is off. Only both together are proof that nothing runs on the
// host any more. An agent that reports success and then does not find the power
// off, that fails, hangs or dies, has proved nothing. Status 2 means off, and is
// also what shells and interpreters exit with when they cannot run a program at all;
// such a program cannot have answered off with success before, which is why
// a status alone is never taken for proof.
//
// Some programs of the family do not cut power: they ask a person, cut storage
// or a network port, or pretend. They are refused by name (notPower). So are agents
// that a user other than root could have written.
//
// # Several devices
//
// A host has levels, tried in order until one proves the power off: the
// machine's own controller first, the outlets next. A level has one or more devices,
// and all of them must be off at once: a machine with two power supplies on two
// outlets is dead only when both are. First every device of the level is switched
// off, then every one is asked until all say off; one that says on after another
// has said off starts the asking again.
//
// # Secrets
//
// Passwords are read from files that only their owner may read, each time
// they are needed, and go to the agent on its standard input: never into its
// arguments, its environment, a log or an error. What an agent prints is searched for
// them, as they are and as they look in quotes, in a URL or in base64, before it is shown or logged.
//
// This package never decides that a host is to be fenced, and keeps no state. Two calls
// for one host at a time are the caller's to prevent.
package fence
