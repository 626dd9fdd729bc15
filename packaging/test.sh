#!/bin/bash
# test.sh checks the packages in build/packages: what is in them and with which
# modes, that the unit and the manual pages are well-formed, that dpkg installs,
# removes and purges them in a root of their own, and that building them again gives the same
# bytes. It needs root for the installation, and says what it could not check.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=${EVENKEEL_PACKAGES:-build/packages}
vcd=$(echo "$packages"/evenkeel-vcd_*.deb)
vcctl=$(echo "$packages"/evenkeel-vcctl_*.deb)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { echo "packages: $*"; }
fail() {
	say "FAILED: $*"
	failed=1
}
skip() { say "NOT CHECKED: $*"; }

# member DEB MODE PATH: the package has the file, with that mode, of root.
member() {
	dpkg-deb --contents "$1" | awk -v mode="$2" -v path="./$3" '$6 == path && $1 == mode && $2 == "root/root" {ok = 1} END {exit !ok}' ||
		fail "$(basename "$1"): no $3 with mode $2 of root"
}

member "$vcd" -rwxr-xr-x usr/sbin/vcd
member "$vcd" -rw-r----- etc/evenkeel/vcd.yaml
member "$vcd" drwx------ etc/evenkeel/fence/
member "$vcd" -rw-r--r-- lib/systemd/system/vcd.service
member "$vcd" -rw-r--r-- usr/share/man/man8/vcd.8.gz
member "$vcd" -rw-r--r-- usr/share/man/man5/vcd.yaml.5.gz
member "$vcd" -rw-r--r-- usr/share/doc/evenkeel-vcd/copyright
member "$vcd" -rw-r--r-- usr/share/doc/evenkeel-vcd/modules-licences.gz
member "$vcctl" -rwxr-xr-x usr/bin/vcctl
member "$vcctl" -rw-r--r-- usr/share/man/man1/vcctl.1.gz
member "$vcctl" -rw-r--r-- usr/share/bash-completion/completions/vcctl
member "$vcctl" -rw-r--r-- usr/share/zsh/vendor-completions/_vcctl
member "$vcctl" -rw-r--r-- usr/share/fish/vendor_completions.d/vcctl.fish
[[ $(dpkg-deb --ctrl-tarfile "$vcd" | tar -xO ./conffiles) == /etc/evenkeel/vcd.yaml ]] || fail "vcd.yaml is no conffile"

# Nothing of these packages may stop a VM.
for script in preinst postinst prerm postrm; do
	text=$(dpkg-deb --ctrl-tarfile "$vcd" | tar -xO "./$script" 2>/dev/null || true)
	if grep -qE 'virsh|libvirt|qemu|rm -r' <<<"${text//VMs/}"; then fail "$script touches what is not vcd's"; fi
done
for setting in KillMode=process Restart=always Type=notify RuntimeDirectoryPreserve=yes StartLimitIntervalSec=0 \
	Environment=GOMEMLIMIT=1536MiB MemoryMax=3G; do
	grep -qx "$setting" packaging/vcd.service || fail "vcd.service: no $setting"
done
for setting in PrivateDevices ProtectClock PrivateTmp DevicePolicy DeviceAllow; do
	! grep -q "^$setting=" packaging/vcd.service || fail "vcd.service: $setting closes what vcd needs"
done

for deb in "$vcd" "$vcctl"; do dpkg-deb --extract "$deb" "$work/tree"; done
"$work/tree/usr/bin/vcctl" --help >/dev/null || fail "vcctl does not run"
"$work/tree/usr/sbin/vcd" --version >/dev/null || fail "vcd does not run"
bash -n "$work/tree/usr/share/bash-completion/completions/vcctl" || fail "completion for bash"

if command -v systemd-analyze >/dev/null; then
	# A root of its own, so that the unit is looked at as it will be installed.
	mkdir -p "$work/tree/usr/lib/systemd"
	cp -a /lib/systemd/system "$work/tree/usr/lib/systemd/" 2>/dev/null || true
	found=$(systemd-analyze verify --man=no --root="$work/tree" vcd.service 2>&1 | grep -F vcd.service || true)
	[[ -z $found ]] || fail "systemd-analyze: $found"
else
	skip "the unit (no systemd-analyze)"
fi
if command -v mandoc >/dev/null; then
	mandoc -T lint -W warning packaging/man/* | grep -v 'referenced manual not found' >"$work/man" || true
	[[ ! -s $work/man ]] || fail "manual pages: $(cat "$work/man")"
else
	skip "the manual pages (no mandoc)"
fi
if command -v lintian >/dev/null; then
	lintian --fail-on error "$vcd" "$vcctl" || fail lintian
else
	skip "Debian's policy (no lintian)"
fi

# dpkg's whole life of the packages, in a small Debian of its own (debootstrap makes it once, in
# build/debian; EVENKEEL_ROOT names another). No systemd runs in there.
install() {
	local root=$1
	shift
	dpkg --root="$root" "$@" >"$work/dpkg.log" 2>&1 || {
		cat "$work/dpkg.log"
		fail "dpkg $*"
	}
}
life() {
	local root=$1 keep=$1/var/lib/evenkeel/raft.db
	install "$root" --install "$vcctl" "$vcd"
	[[ -L $root/etc/systemd/system/multi-user.target.wants/vcd.service ]] || fail "vcd.service is not enabled after the installation"
	for f in usr/sbin/vcd usr/bin/vcctl lib/systemd/system/vcd.service etc/evenkeel/vcd.yaml; do
		[[ -e $root/$f ]] || fail "$f is not there after the installation"
	done
	echo "# ours" >>"$root/etc/evenkeel/vcd.yaml"
	mkdir -p "${keep%/*}"
	echo state >"$keep"
	install "$root" --force-confold --install "$vcd" # an upgrade
	grep -q '^# ours' "$root/etc/evenkeel/vcd.yaml" || fail "an upgrade overwrote vcd.yaml"
	install "$root" --remove evenkeel-vcd evenkeel-vcctl
	[[ ! -e $root/usr/sbin/vcd && -e $root/etc/evenkeel/vcd.yaml ]] || fail "after the removal"
	install "$root" --purge evenkeel-vcd evenkeel-vcctl
	[[ ! -e $root/etc/evenkeel/vcd.yaml ]] || fail "vcd.yaml is there after the purge"
	[[ $(cat "$keep") == state ]] || fail "the purge took the cluster's state"
	rm -r "${keep%/*}"
}
root=${EVENKEEL_ROOT:-build/debian}
if [[ $EUID -eq 0 && ! -e $root/usr/bin/dpkg ]] && command -v debootstrap >/dev/null; then
	say "making a small Debian in $root"
	# shellcheck disable=SC1091 # what this machine is
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	debootstrap --variant=minbase --include=init-system-helpers,systemd,systemd-sysv "$codename" "$root" >"$work/debootstrap.log" || {
		rm -rf "$root"
		tail -n 3 "$work/debootstrap.log"
		fail debootstrap
	}
fi
if [[ $EUID -ne 0 ]]; then
	skip "installation (needs root)"
elif [[ -e $root/usr/bin/dpkg ]]; then
	life "$root"
else
	skip "installation (no debootstrap)"
fi

if [[ -z $(git status --porcelain -- cmd api cluster allocator migration forecast hypervisor packaging go.mod 2>/dev/null) ]]; then
	EVENKEEL_PACKAGES=$work/again packaging/build.sh >/dev/null
	for deb in "$vcd" "$vcctl"; do
		cmp "$deb" "$work/again/${deb##*/}" || fail "$(basename "$deb") is not the same when it is built again"
	done
else
	skip "that building again gives the same bytes (there are changes that are not committed)"
fi
if [[ $failed -eq 0 ]]; then say "all well"; fi
exit "$failed"
