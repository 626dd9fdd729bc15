// Package watchdog arms, pets and disarms what resets this host when the agent does not pet
// it any more: the kernel's watchdog device (/dev/watchdog), or a watchdog
// outside the host that is reached over a unix socket.
//
// An armed watchdog is what turns the end of a lease into proof: a host that
// did not stop its restartable VMs in time is reset. So this package is
// careful about one thing: it must not call a watchdog armed that is not.
//
//   - the time-out that counts is the one that the driver reports, not
//     the one it was asked for;
//   - a device that stops when its file is closed is refused, for then a crash
//     of this process would disarm it;
//   - a time-out too short to outlast a restart of vcd is refused;
//   - an outside watchdog must answer that it is armed.
//
// Open arms. The end of the process, or Close, leaves the watchdog armed and
// counting: only Stop stops it. A process that comes back after a crash opens
// it again, which also pets it, within the time that is left; then it pets on, or
// disarms if there is nothing to guard.
//
// # An outside watchdog
//
// Where the configured path is a unix socket, the same bytes go over it that a
// device would get. The host connects and writes one line,
//
//	timeout SECONDS
//
// and the watchdog answers with one line: "armed SECONDS NAME", with the
// time-out that it took (a plain number) and a name for people, or "refused
// REASON". From then on every byte is a pet. The byte V directly before the end of
// the connection disarms; a connection that ends in any other way leaves the
// watchdog counting. A later connection takes over. This serves machines whose
// power is switched from outside, by a controller of their outlets for example.
// If that controller is down, or loses the connection, Pet fails, and the host
// must count as one without a watchdog.
//
// # What is proved
//
// The socket's side is tested against a watchdog that cuts the power of hosts of
// the lab. The calls to the kernel (device.go) follow the kernel's documentation of
// the watchdog API and driver core; they have not run against a device.
//
// This package never decides when to arm, pet or disarm, and starts no goroutine.
package watchdog
