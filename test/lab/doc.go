// Package lab starts several separate, real libvirt hosts on one Linux
// machine, for tests and demonstrations. Each host is a set of namespaces
// (network, mount, UTS, IPC, PID, cgroup, time) with a libvirtd of its own, and its
// own /run, /etc/libvirt, /var/lib/libvirt, /etc/evenkeel, /var/lib/evenkeel,
// host name, host UUID, machine id, boot id and cgroup subtree; QEMU and the guests are
// real. Programs run in a host beside its libvirtd: Host.Launch for those that stay, Host.Command
// for others.
//
// Hosts are joined by a switch, a bridge in a network namespace of the lab's. Each has one
// address there, the same in every lab: nothing of it is seen outside, so that any number of labs
// run beside one another. From outside a host's libvirt is reached by a unix socket, and
// everything else from the desk: an address on the switch from which a test makes its
// connections (Lab.Dial, Lab.Listen) and runs its programs (Lab.Command).
//
// A lab can do to a host what happens to hosts: cut its power, pull its cable,
// split the network, lose and delay packets, fill its disk, freeze it, limit its CPU; stop, kill, hang
// and start its libvirtd; kill and pause the programs it runs, and set their clocks off. Hosts may share storage, guarded
// by libvirt's lock manager.
//
// It never touches the machine's own libvirt, network or cgroup settings, and
// takes itself down with the process that started it (unless it is to stay).
// What a killed process leaves behind, the next Start of a lab removes. What stays for good are the
// empty directories /etc/evenkeel and /var/lib/evenkeel, as places to mount on.
//
// It needs root, libvirtd, QEMU, iproute2, iptables and util-linux. Its cgroup v2 branch was
// written from documentation and has not been run.
//
// # By hand
//
// Three hosts that stay until they are taken down, with vcd in each, a terminal for each:
//
//	make setup build && go build -o bin/ ./test/lab/cmd/labhost
//	bin/labhost -dir /tmp/lab -hosts 3 -shared up
//	bin/labhost -dir /tmp/lab run h1 $PWD/bin/vcd run --config /etc/evenkeel/vcd.yaml
//	bin/labhost -dir /tmp/lab run h2 $PWD/bin/vcd run --config /etc/evenkeel/vcd.yaml
//	bin/labhost -dir /tmp/lab run h3 $PWD/bin/vcd run --config /etc/evenkeel/vcd.yaml
//
// The file that host h1 sees as /etc/evenkeel/vcd.yaml is /tmp/lab/h1/config/vcd.yaml outside. In each
// host libvirt is qemu:///system, and the hosts' addresses are 10.97.0.1, 10.97.0.2, 10.97.0.3. Then, from
// another terminal:
//
//	bin/labhost -dir /tmp/lab run h1 $PWD/bin/vcctl host list       # in a host
//	bin/labhost -dir /tmp/lab desk bin/vcctl --help                 # beside the hosts, on their network
//	bin/labhost -dir /tmp/lab pull h2                               # its cable; plug
//	bin/labhost -dir /tmp/lab partition h1 h2,h3                    # heal
//	bin/labhost -dir /tmp/lab off h3                                # its power; on, state
//	bin/labhost -dir /tmp/lab serve                                 # now a host, too, may do that to another
//	bin/labhost -dir /tmp/lab down
package lab
