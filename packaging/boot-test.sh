#!/bin/bash
# boot-test.sh boots a small Debian in a container (systemd-nspawn) and lives through the packages'
# life under systemd: installation, upgrade, kill -9, stop, removal, purge. VMs are stood in for by a process in vcd's
# control group, which must outlive all of it; the watchdog by a file of that name. It needs root, systemd-nspawn,
# a root made by debootstrap with systemd in it (EVENKEEL_ROOT, default build/debian; packaging/test.sh
# makes it), and the packages in build/packages.
#
#   boot-test.sh          outside
#   boot-test.sh inside   what runs in the container
set -euo pipefail

ok() { echo "ok: $*"; }
# must TEXT COMMAND...: say what was seen, or that it was not.
must() {
	local text=$1
	shift
	if "$@" >/dev/null 2>&1; then ok "$text"; else echo "FAILED: $text"; fi
}
main_pid() { systemctl show --property MainPID --value vcd.service; }
not() { ! "$@"; }

# serve [COMMAND;]: the shipped unit, with a "VM" beside vcd, and what else is to be done before vcd starts.
serve() {
	mkdir -p /etc/systemd/system/vcd.service.d
	cat >/etc/systemd/system/vcd.service.d/test.conf <<-END
		[Service]
		ExecStart=
		ExecStart=/bin/sh -c '[ -e /run/evenkeel/vm ] || { sleep 1000 & echo \$! > /run/evenkeel/vm; }; ${1:-} exec /usr/sbin/vcd run --config /etc/evenkeel/vcd.yaml'
	END
	systemctl daemon-reload
}

inside() {
	local vm pid
	serve
	dpkg -i /srv/packages/*.deb
	must "enabled by the installation" systemctl is-enabled --quiet vcd
	must "not started before it knows its address" not systemctl is-active --quiet vcd
	dpkg -r evenkeel-vcd
	printf '%s\n' "advertise: 127.0.0.1:7480" "hypervisor: simulated" "name: h1" >>/etc/evenkeel/vcd.yaml
	dpkg --force-confold -i /srv/packages/evenkeel-vcd_*.deb
	must "started by the installation once it does" systemctl is-active --quiet vcd
	must "mode 0700 of /run/evenkeel" test "$(stat -c %a /run/evenkeel)" = 700
	must "mode 0711 of /var/lib/evenkeel, for QEMU's user" test "$(stat -c %a /var/lib/evenkeel)" = 711
	export HOME=/srv
	must "a cluster is made" vcctl cluster init
	must "vcctl is answered" vcctl host list
	vm=$(</run/evenkeel/vm)

	pid=$(main_pid)
	sleep 25
	must "systemd's watchdog is fed" test "$(main_pid)" = "$pid"
	must "/usr is closed to vcd" not nsenter -t "$pid" -m touch /usr/x
	must "/var/lib/evenkeel is open to vcd" nsenter -t "$pid" -m touch /var/lib/evenkeel/x
	dpkg --force-confold -i /srv/packages/evenkeel-vcd_*.deb
	must "another process after the upgrade" test "$(main_pid)" != "$pid"
	must "the VM outlives the upgrade" kill -0 "$vm"

	pid=$(main_pid)
	kill -9 "$pid"
	for _ in {1..100}; do
		if [[ $(main_pid) != "$pid" ]] && systemctl is-active --quiet vcd; then break; fi
		sleep 0.1
	done
	must "started again after kill -9" systemctl is-active --quiet vcd
	must "the VM outlives kill -9" kill -0 "$vm"

	systemctl stop vcd
	must "the VM outlives the stop" kill -0 "$vm"
	must "/run/evenkeel outlives the stop" test -e /run/evenkeel/vm
	systemctl start vcd

	touch /dev/watchdog0
	serve 'exec 9<> /dev/watchdog0;'
	systemctl restart vcd
	must "a vcd that holds the watchdog is not removed" not dpkg -r evenkeel-vcd
	must "and runs on" systemctl is-active --quiet vcd
	serve
	systemctl restart vcd
	dpkg -r evenkeel-vcd evenkeel-vcctl
	must "stopped by the removal" not systemctl is-active --quiet vcd
	must "the VM outlives the removal" kill -0 "$vm"
	dpkg -P evenkeel-vcd
	must "the state outlives the purge" test -e /var/lib/evenkeel/ca.key
	must "the configuration is gone after the purge" not test -e /etc/evenkeel/vcd.yaml
	echo "end of the test"
}

if [[ ${1:-} == inside ]]; then
	inside >/srv/boot-test.log 2>&1 || echo "FAILED: status $?" >>/srv/boot-test.log
	exit
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${EVENKEEL_ROOT:-build/debian}
packages=${EVENKEEL_PACKAGES:-build/packages}
if [[ $EUID -ne 0 ]] || ! command -v systemd-nspawn >/dev/null || [[ ! -x $root/lib/systemd/systemd ]]; then
	echo "boot-test: NOT TESTED: needs root, systemd-nspawn, and systemd in $root"
	exit 0
fi
rm -rf "$root/srv/packages" "$root/srv/boot-test.log" "$root/var/lib/evenkeel"
mkdir -p "$root/srv/packages"
cp "$packages"/evenkeel-*.deb "$root/srv/packages/"
cp packaging/boot-test.sh "$root/srv/boot-test.sh"
# Its end is the container's end.
cat >"$root/etc/systemd/system/boot-test.service" <<-END
	[Unit]
	After=basic.target
	SuccessAction=exit-force
	FailureAction=exit-force
	[Service]
	Type=oneshot
	ExecStart=/srv/boot-test.sh inside
	[Install]
	WantedBy=multi-user.target
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf ../boot-test.service "$root/etc/systemd/system/multi-user.target.wants/"
timeout --kill-after 10 300 systemd-nspawn --quiet --register=no --keep-unit --boot --directory "$root" \
	--private-network --machine "evenkeel-$$" </dev/null >"$root/srv/console.log" 2>&1 || true
log=$(cat "$root/srv/boot-test.log" 2>/dev/null || true)
rm -rf "$root"/srv/{packages,boot-test.sh,.config} "$root"/etc/systemd/system/{boot-test.service,multi-user.target.wants/boot-test.service,vcd.service.d} "$root/var/lib/evenkeel"
grep -E '^(ok|FAILED):' <<<"$log" || true
if grep -q '^FAILED:' <<<"$log" || ! grep -q '^end of the test' <<<"$log"; then
	echo "boot-test: FAILED; the end of the container's console and of the log:"
	tail -n 5 "$root/srv/console.log"
	tail -n 20 <<<"$log"
	exit 1
fi
echo "boot-test: all well"
