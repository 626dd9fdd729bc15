package machines

import (
	"context"
	"fmt"
	"net"
)

// lanMAC is the second network card's of every machine, until its identity is its own.
const lanMAC = "52:54:00:0e:4b:00"

// lan is a network that machines have to themselves: a multicast group on this computer's loopback. "" = the machine's second card is
// connected to nothing.
type lan string

// newLAN makes one that no other has. The port is as good as any that is free.
func newLAN() (lan, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return lan(fmt.Sprintf("230.0.0.1:%d", conn.LocalAddr().(*net.UDPAddr).Port)), nil
}

// netdev is what the second card is connected to, in QEMU's terms.
func (l lan) netdev() string {
	if l == "" {
		return "hubport,id=lan,hubid=0"
	}
	return "socket,id=lan,mcast=" + string(l) + ",localaddr=127.0.0.1"
}

// lanAddress is that of machine n of a network, from 1.
func lanAddress(n int) string { return fmt.Sprintf("10.9.0.%d", n) }

// identify makes a machine that was restored the n-th of its network: until then all are the same. Its name is h1, h2, ...
func (m *Machine) identify(ctx context.Context, n int) error {
	uuid := fmt.Sprintf("0e4b0000-0000-4000-8000-%012d", n)
	_, err := m.Run(ctx, fmt.Sprintf(`set -e
hostnamectl set-hostname h%[1]d
echo '127.0.0.1 localhost
10.9.0.1 h1
10.9.0.2 h2
10.9.0.3 h3' >/etc/hosts
rm /etc/machine-id && systemd-machine-id-setup
echo 'host_uuid = "%[2]s"' >>/etc/libvirt/libvirtd.conf
card=$(grep -l '%[3]s' /sys/class/net/*/address | cut -d/ -f5)
ip link set "$card" address 52:54:00:0e:4b:0%[1]d
ip address add %[4]s/24 dev "$card"
ip link set "$card" up
systemctl restart libvirtd`, n, uuid, lanMAC, lanAddress(n)))
	if err != nil {
		return fmt.Errorf("make the machine h%d: %w", n, err)
	}
	return nil
}

// Cable pulls the machine out of its network, or puts it back.
func (m *Machine) Cable(ctx context.Context, in bool) error {
	return m.monitor.call(ctx, "set_link", map[string]any{"name": "lan", "up": in}, nil)
}
