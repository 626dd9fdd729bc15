// Package migrate tests live migration on real hosts: three of the lab with real libvirt and QEMU, joined by TLS,
// and guests that compute and write to their memory while they are moved. It counts bytes, seconds, and the
// time that each guest stands still by its own heartbeat.
//
// It needs EVENKEEL_REAL=1, and a QEMU that is newer than Debian 12's in EVENKEEL_QEMU (scripts/fetch-qemu.sh);
// EVENKEEL_LONG=1 makes 100 moves instead of a few. Moves through a whole cluster are tested in test/cluster.
package migrate
