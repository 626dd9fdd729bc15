#!/bin/bash
# build.sh [OUTDIR] makes the test guest: OUTDIR/vmlinuz and OUTDIR/initrd.img,
# and OUTDIR/disk.qcow2, a disk that boots the two (OUTDIR: build/guest of this
# repository unless told otherwise).
#
# The kernel is Debian's, out of its linux-image-*-cloud-amd64 package; the
# initrd holds busybox, the virtio drivers of that kernel and the workload. The
# disk is an MBR and a FAT partition with syslinux.
# Packages are fetched with apt-get download and unpacked, never installed, and
# kept in OUTDIR/cache: once they are there, no network is needed. Nothing is
# done when the outcome is up to date. No root needed.
#
# EVENKEEL_KERNEL_DEB=FILE takes that kernel package and asks apt for none.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
mkdir -p "${1:-$repo/build/guest}"
out=$(cd "${1:-$repo/build/guest}" && pwd)
cache=$out/cache
mkdir -p "$cache"

# Drivers a VM of ours needs; what they depend on is added before them.
drivers=(virtio_pci virtio_balloon virtio_blk virtio_net virtio_rng isofs button evdev)

# The disk, in MiB. Its partition begins at 1 MiB: what lies before it is the
# guest's own to write to (BOOTS_AT in workload.c).
disk_mib=40

die() {
	echo "test/guest/build.sh: $*" >&2
	exit 1
}

# Two builds at once (make test in one terminal, make demo in another) take turns.
exec 9>"$out/lock"
flock 9

# Where administrators' programs are; a plain user's shell may not know of them.
PATH=$PATH:/usr/sbin:/sbin

inputs=$(cat "$here/build.sh" "$here/init" "$here"/*.[ch] <(echo "${EVENKEEL_KERNEL_DEB:-}") | sha256sum | cut -d' ' -f1)
if [[ -s $out/vmlinuz && -s $out/initrd.img && -s $out/disk.qcow2 && $(cat "$out/inputs" 2>/dev/null) == "$inputs" ]]; then
	echo "test guest is up to date: $out"
	exit 0
fi
command -v gcc >/dev/null || die "gcc is missing; make setup installs it (packages gcc, libc6-dev)"
command -v dpkg-deb >/dev/null || die "dpkg-deb is missing: the guest is made of Debian packages"
for tool in mkfs.fat mcopy syslinux qemu-img; do
	command -v "$tool" >/dev/null || die "$tool is missing; make setup installs it (packages dosfstools, mtools, syslinux, qemu-utils)"
done
# syslinux_file NAME: one of the files that come with it, wherever this system keeps them.
syslinux_file() {
	local dir
	for dir in /usr/lib/syslinux/mbr /usr/lib/syslinux/modules/bios /usr/lib/syslinux/bios /usr/share/syslinux; do
		if [[ -s $dir/$1 ]]; then
			echo "$dir/$1"
			return 0
		fi
	done
	die "$1 of syslinux is missing; make setup installs it (package syslinux-common)"
}
mbr=$(syslinux_file mbr.bin)
loader=$(syslinux_file ldlinux.c32)

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# cached PATTERN: the newest package file of that name in the cache, if any.
cached() {
	find "$cache" -maxdepth 1 -name "$1" | sort -V | tail -n 1
}

# download PACKAGE: into the cache, by way of a folder that a broken download cannot leave half a file in the cache from.
download() {
	command -v apt-get >/dev/null || die "package $1 is needed and there is no apt-get to fetch it with; set EVENKEEL_KERNEL_DEB or copy the .deb to $cache"
	mkdir -p "$tmp/download"
	# The sandbox user of apt cannot write here; as root it only warns about that.
	(cd "$tmp/download" && apt-get -qq -o APT::Sandbox::User=root download "$1") ||
		die "apt-get could not download $1 (no network, or old package lists: run apt-get update)"
	mv "$tmp/download"/*.deb "$cache/"
}

# latest_kernel: the package that linux-image-cloud-amd64 stands for.
latest_kernel() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*-cloud-amd64\)$/\1/p' | head -n 1
}

deb=${EVENKEEL_KERNEL_DEB:-$(cached 'linux-image-[0-9]*-cloud-amd64_*.deb')}
if [[ -z $deb ]]; then
	package=$(latest_kernel || true)
	[[ -n $package ]] || die "apt knows no package linux-image-cloud-amd64: run apt-get update (Debian on amd64 only), or set EVENKEEL_KERNEL_DEB"
	download "$package"
	deb=$(cached 'linux-image-[0-9]*-cloud-amd64_*.deb')
fi
[[ -s $deb ]] || die "kernel package $deb does not exist"
dpkg-deb -x "$deb" "$tmp/kernel" || die "$deb is not a Debian package; remove it and run again"

# A static busybox: the installed one, or the package's.
busybox=
for b in /bin/busybox /usr/bin/busybox; do
	if [[ -x $b ]] && ! ldd "$b" >/dev/null 2>&1; then busybox=$b; fi
done
if [[ -z $busybox ]]; then
	[[ -n $(cached 'busybox-static_*.deb') ]] || download busybox-static
	dpkg-deb -x "$(cached 'busybox-static_*.deb')" "$tmp/busybox"
	busybox=$(find "$tmp/busybox" -type f -name busybox | head -n 1)
fi

root=$tmp/root
mkdir -p "$root"/{bin,dev,modules,proc,seed,sys}
install -m 755 "$busybox" "$root/bin/busybox"
install -m 755 "$here/init" "$root/init"
gcc -std=gnu11 -O2 -static -pthread -s -o "$root/bin/workload" "$here/workload.c" "$here/play.c"

# In module names - and _ mean the same; newer kernels compress their files.
find "$tmp/kernel" -path '*/kernel/*' -name '*.ko*' >"$tmp/files"
declare -A taken
take() {
	local name=${1//-/_} file dependency
	[[ -z ${taken[$name]:-} ]] || return 0
	taken[$name]=yes
	file=$(grep -E "/${name//_/[-_]}\.ko(\.xz|\.zst)?$" "$tmp/files" | head -n 1 || true)
	[[ -n $file ]] || return 0 # built into the kernel, or not in this version
	case $file in
	*.xz) xz -dc "$file" ;;
	*.zst) zstd -dqc "$file" ;;
	*) cat "$file" ;;
	esac >"$root/modules/$name.ko"
	while read -r dependency; do take "$dependency"; done < <(
		tr '\0' '\n' <"$root/modules/$name.ko" | grep -a '^depends=' | cut -d= -f2 | tr ',' '\n' | grep . || true
	)
	echo "$name.ko" >>"$root/modules/order"
}
for driver in "${drivers[@]}"; do take "$driver"; done
for driver in virtio_balloon virtio_blk virtio_net isofs; do
	[[ -s $root/modules/$driver.ko ]] || die "$deb has no module $driver: not a kernel this guest can use"
done

# Same inputs, same bytes: no times, owners or order of the file system in the archive.
find "$root" -exec touch -h -d @0 {} +
(cd "$root" && find . | LC_ALL=C sort | "$busybox" cpio -o -H newc -R 0:0 --ignore-devno --renumber-inodes 2>/dev/null | gzip -9n) >"$out/initrd.img.new"
cp "$(find "$tmp/kernel/boot" -name 'vmlinuz-*' | head -n 1)" "$out/vmlinuz.new"

# little_endian N: four bytes of it, as printf writes them.
little_endian() { printf '\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)); }

# make_disk FILE: no device is attached and nothing mounted, so no root is needed.
make_disk() {
	local fat=$tmp/fat raw=$tmp/raw start=2048 sectors=$(((disk_mib - 1) * 2048)) file
	printf 'DEFAULT guest\nLABEL guest\n LINUX vmlinuz\n INITRD initrd.img\n APPEND console=ttyS0 quiet no_timer_check panic=-1\n' >"$tmp/syslinux.cfg"
	truncate -s $((sectors * 512)) "$fat"
	mkfs.fat -F 16 -h "$start" -n EVENKEEL --invariant "$fat" >/dev/null
	cp "$loader" "$tmp/ldlinux.c32"
	cp "$out/vmlinuz.new" "$tmp/vmlinuz"
	cp "$out/initrd.img.new" "$tmp/initrd.img"
	for file in ldlinux.c32 syslinux.cfg vmlinuz initrd.img; do
		touch -d @"$SOURCE_DATE_EPOCH" "$tmp/$file"
		mcopy -m -i "$fat" "$tmp/$file" "::$file"
	done
	syslinux --install "$fat"
	# The partition table: one entry, active, of type 0e (FAT16, LBA).
	{
		head -c 440 "$mbr"
		printf '\0\0\0\0\0\0\x80\xfe\xff\xff\x0e\xfe\xff\xff'
		# shellcheck disable=SC2059 # the bytes are the format
		printf "$(little_endian "$start")$(little_endian "$sectors")"
		head -c 48 /dev/zero
		printf '\x55\xaa'
	} >"$raw"
	truncate -s $((start * 512)) "$raw"
	cat "$fat" >>"$raw"
	qemu-img convert -f raw -O qcow2 "$raw" "$1"
}
# A date for the files on it that FAT can hold; mtools and syslinux keep to it.
export SOURCE_DATE_EPOCH=315532800 TZ=UTC
make_disk "$out/disk.qcow2.new" || die "could not make the disk"

mv "$out/vmlinuz.new" "$out/vmlinuz"
mv "$out/initrd.img.new" "$out/initrd.img"
mv "$out/disk.qcow2.new" "$out/disk.qcow2"
echo "$inputs" >"$out/inputs"
echo "test guest built: $out (kernel $(basename "$(find "$tmp/kernel/boot" -name 'vmlinuz-*' | head -n 1)" | cut -d- -f2-), $(stat -c %s "$out/initrd.img") bytes of initrd, disk of $disk_mib MiB)"
