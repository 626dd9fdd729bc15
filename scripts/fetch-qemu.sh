#!/bin/bash
# fetch-qemu.sh [DIR] unpacks the QEMU of Debian's backports into DIR (build/qemu);
# nothing is installed. Guests under emulation crash when the QEMU of Debian 12 moves them
# while they run, so tests of migration lay this one over /usr in their lab hosts
# (EVENKEEL_QEMU=DIR).
#
# Status 3: the archive of packages cannot be reached.
# It uses package lists of its own: the machine's stay as they are. It does nothing
# if DIR holds a QEMU already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=${1:-build/qemu}
mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock" # two at once take turns
flock 9
if [[ -x $dir/usr/bin/qemu-system-x86_64 ]]; then
	exit 0
fi
die() {
	echo "fetch-qemu: $*" >&2
	exit 1
}
command -v apt-get >/dev/null || die "this is not Debian: unpack QEMU 8 or newer below $dir/usr yourself"
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ -n $release ]] || die "no release name in /etc/os-release"

# The archive that apt uses for the release itself has its backports, too.
archive=$(scripts/archive.sh "$release")

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp" # apt's own user reads it
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs" "$tmp/root"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $release-backports main" >"$tmp/sources.list"
own=(-q -o "Dir::Etc::SourceList=$tmp/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o "Dir::State::Lists=$tmp/lists" -o "Dir::Cache=$tmp/cache" -o APT::Sandbox::User=root)
apt-get "${own[@]}" update >"$tmp/log" 2>&1 || die "apt-get update: $(tail -n 3 "$tmp/log")"
(
	cd "$tmp/debs"
	for p in qemu-system-x86 qemu-system-common qemu-system-data seabios; do
		apt-get "${own[@]}" download "$p/$release-backports" >>"$tmp/log" 2>&1 || die "download $p: $(tail -n 3 "$tmp/log")"
	done
)
for deb in "$tmp"/debs/*.deb; do
	dpkg-deb -x "$deb" "$tmp/root"
done
missing=$(ldd "$tmp/root/usr/bin/qemu-system-x86_64" | grep 'not found' || true)
[[ -z $missing ]] || die "libraries are missing for it: $missing"
mkdir -p "$(dirname "$dir")"
rm -rf "$dir"
mv "$tmp/root" "$dir"
chmod 755 "$dir"
"$dir/usr/bin/qemu-system-x86_64" --version | head -n 1
