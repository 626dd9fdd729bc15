#!/bin/bash
# image.sh [RELEASE] makes the disk of the test machine: Debian as a host of Evenkeel has it (systemd, its own kernel,
# libvirt, QEMU, AppArmor), with sshd and the test guest in /srv/guest. RELEASE is bookworm (Debian 12), the reference, unless
# another is named, such as trixie (Debian 13). build/machines/image-RELEASE of this repository gets:
#   disk.qcow2, vmlinuz, initrd.img   the disk, and the kernel on it, which QEMU boots directly
#   key                               root's key for ssh
#   packages                          the versions of what is installed
#   inputs                            what it was made from; the same inputs make no new image
#
# Evenkeel's own packages are not in it: tests install them, as an operator does.
# It needs root, debootstrap, e2fsprogs, qemu-utils and openssh-client (scripts/setup.sh machines), and apt's archive of
# that release. Status 3: that cannot be reached.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
release=${1:-bookworm}
out=$repo/build/machines/image-$release
guest=${EVENKEEL_GUEST:-$repo/build/guest}
PATH=$PATH:/usr/sbin:/sbin

die() {
	echo "test/machines/image.sh: $*" >&2
	exit 1
}
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock" # two at once take turns
flock 9

[[ -s $guest/vmlinuz && -s $guest/initrd.img ]] || die "no test guest in $guest; run make setup"
inputs=$(echo "$release" | cat - "$here/image.sh" "$guest/vmlinuz" "$guest/initrd.img" | sha256sum | cut -d' ' -f1)
if [[ $(cat "$out/inputs" 2>/dev/null) == "$inputs" ]]; then
	echo "machine image is up to date: $out"
	exit 0
fi
[[ $EUID -eq 0 ]] || die "debootstrap needs root"
for tool in debootstrap mkfs.ext4 qemu-img ssh-keygen; do
	command -v "$tool" >/dev/null || die "$tool is missing; run scripts/setup.sh machines as root"
done
mirror=$("$repo/scripts/archive.sh" "$release")

packages=(
	# libpam-systemd: what polkitd depends on, and debootstrap does not find by itself
	systemd systemd-sysv libpam-systemd udev dbus kmod iproute2 procps netbase linux-image-amd64 openssh-server
	# what evenkeel-vcd depends on and recommends, less fence-agents
	init-system-helpers libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils genisoimage
	# what libvirt recommends
	apparmor dnsmasq-base
	# with which operators make the keys of live migration
	openssl
)

work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
(
	IFS=,
	# What it mounts is gone when it ends, however it ends: the clean-up must not remove files below another mount.
	unshare --mount --propagation private debootstrap --variant=minbase --include="${packages[*]}" "$release" "$root" "$mirror"
) >"$work/log" 2>&1 || die "debootstrap: $(tail -n 5 "$work/log")"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*

echo machine >"$root/etc/hostname"
echo '127.0.0.1 localhost machine' >"$root/etc/hosts"
echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
# QEMU's user-mode network, always with this address. A second card is set up by the tests that use it.
printf '[Match]\nMACAddress=52:54:00:12:34:56\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' >"$root/etc/systemd/network/machine.network"
systemctl --root="$root" --quiet enable systemd-networkd.service
# Their timers would begin work of their own when a saved machine is restored days later.
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
ssh-keygen -q -t ed25519 -N '' -C machine -f "$work/key"
install -D -m 600 "$work/key.pub" "$root/root/.ssh/authorized_keys"
echo 'UseDNS no' >"$root/etc/ssh/sshd_config.d/machine.conf"
mkdir -p "$root/srv/guest"
cp "$guest/vmlinuz" "$guest/initrd.img" "$root/srv/guest/"

cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
cp "$root"/boot/initrd.img-* "$work/initrd.img"
dpkg-query --admindir="$root/var/lib/dpkg" -W >"$work/packages"
truncate -s 6G "$work/disk.raw"
mkfs.ext4 -q -d "$root" "$work/disk.raw"
qemu-img convert -f raw -O qcow2 "$work/disk.raw" "$work/disk.qcow2"
rm -rf "$root" "$work/disk.raw" "$work/log"
echo "$inputs" >"$work/inputs"
chmod 755 "$work"
rm -rf "$out"
mv "$work" "$out"
trap - EXIT
echo "machine image built: $out ($(du -h "$out/disk.qcow2" | cut -f1), $(grep -c . "$out/packages") packages)"
