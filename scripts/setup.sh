#!/bin/bash
# setup.sh [lint|machines|browser]... brings a Debian machine to where Evenkeel can be built, tested
# and shown: Debian packages, Go modules, the test guest. With "lint" it also
# sees to what only make lint needs, with "machines" to what only make test-machines
# needs, with "browser" to the browser of test/browser. It asks nothing, installs only what is missing, and is done in a moment when all is there.
#
# Packages are installed only by root on Debian; else it lists what to install
# and exits with status 1.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"

packages=(
	# libvirt and QEMU: what a host runs
	libvirt-daemon-system libvirt-daemon-driver-qemu libvirt-clients
	qemu-system-x86 qemu-utils
	dnsmasq-base genisoimage # libvirt networks; cloud-init seeds
	strace # test/chaos: slow disks
	iproute2 util-linux mount # the lab's separate hosts: network, namespaces, cgroups
	# building: Go's cgo (the libvirt binding) and the test guest
	gcc libc6-dev busybox-static xz-utils make
	syslinux syslinux-common mtools dosfstools # the test guest's bootable disk
	ca-certificates curl # modules over HTTPS; trying the API by hand
	jq # the summary of test runs
)
for use in "$@"; do
	case $use in
	lint) packages+=(shellcheck) ;;
	machines) packages+=(debootstrap e2fsprogs openssh-client) ;; # the disk of the test machine, and commands in it
	browser) packages+=(chromium) ;;
	esac
done

say() { echo "setup: $*"; }
die() {
	echo "setup: $*" >&2
	exit 1
}

is_debian() {
	[[ -r /etc/debian_version ]] && command -v apt-get >/dev/null && command -v dpkg-query >/dev/null
}

# missing_packages prints those of $packages that are not installed, one per line.
missing_packages() {
	local installed p
	# Status 1 only says that some of them are unknown to dpkg.
	installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
		sed -n 's/^installed //p' || true)
	for p in "${packages[@]}"; do
		grep -qxF "$p" <<<"$installed" || echo "$p"
	done
}

# A third party's archive that is down must not keep us from Debian's: what
# counts is whether the packages can be installed afterwards.
refresh_package_lists() {
	say "apt-get update"
	apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null ||
		say "apt-get update failed with status $?; trying with the package lists there are"
}

install_packages() {
	local missing=()
	mapfile -t missing < <(missing_packages)
	[[ ${#missing[@]} -gt 0 ]] || return 0
	if [[ $EUID -ne 0 ]]; then
		die "these Debian packages are missing and only root can install them; run
  sudo apt-get install --no-install-recommends ${missing[*]}"
	fi
	refresh_package_lists
	say "installing ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
		-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
		install --no-install-recommends "${missing[@]}" </dev/null ||
		die "apt-get install failed with status $? (packages: ${missing[*]})"
	mapfile -t missing < <(missing_packages)
	[[ ${#missing[@]} -eq 0 ]] || die "apt-get reported success, yet these packages are not installed: ${missing[*]}"
}

# not_debian checks for the programs themselves, for we do not know the names of other systems' packages.
not_debian() {
	local absent=() c
	for c in virsh libvirtd qemu-system-x86_64 qemu-img genisoimage ip unshare nsenter gcc make syslinux mcopy mkfs.fat; do
		PATH=$PATH:/usr/sbin:/sbin command -v "$c" >/dev/null || absent+=("$c")
	done
	[[ ${#absent[@]} -eq 0 ]] || die "this is not Debian, and these programs are missing: ${absent[*]}
Install what stands for these Debian packages: ${packages[*]}"
}

# The test guest is made of Debian packages, which apt must know of.
know_kernel_package() {
	[[ -s build/guest/vmlinuz ]] || compgen -G 'build/guest/cache/linux-image-*.deb' >/dev/null ||
		apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 || {
		[[ $EUID -eq 0 ]] || die "apt's package lists are empty; run sudo apt-get update"
		refresh_package_lists
	}
}

check_go() {
	local need have
	need=$(sed -n 's/^go //p' go.mod)
	command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
	have=$(go env GOVERSION 2>/dev/null) || have=
	have=${have#go}
	# go.mod's version may also be fetched by Go itself (GOTOOLCHAIN=auto), which the line above has then done.
	if [[ -z $have || $(printf '%s\n' "$need" "$have" | sort -V | head -n 1) != "$need" ]]; then
		die "Go $need or newer is needed, found ${have:-none}. To get it:
  curl -fsSL https://go.dev/dl/go$need.linux-amd64.tar.gz | tar -C /usr/local -xz
  export PATH=/usr/local/go/bin:\$PATH"
	fi
}

[[ $(uname -s)/$(uname -m) == Linux/x86_64 ]] || die "Evenkeel's hosts and tests need Linux on x86-64, this is $(uname -s) on $(uname -m)"
if is_debian; then
	install_packages
	know_kernel_package
else
	not_debian
fi
check_go
go mod download || die "the Go modules of go.mod could not be downloaded (status $?)"
go mod download -modfile=tools.mod || die "the Go modules of tools.mod could not be downloaded (status $?)"
test/guest/build.sh
say "all there"
