#!/bin/bash
# demo-lab.sh shows what moves VMs: three hosts of a lab on this machine, each with a libvirtd and a vcd of its own, and
# real guests that go on running while they move. A re-balance within a bound on bytes, a drain, a question.
#
# It touches neither the machine's libvirt nor its network, and leaves nothing behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Not below TMPDIR: the paths of sockets in it must stay short, and QEMU's user must reach it.
dir=$(mktemp -d /tmp/evenkeel-lab-XXXXXX)
chmod 711 "$dir"
lab=$dir/lab
daemons=()
clean() {
	local status=$? pid
	trap - EXIT
	if [[ $status -ne 0 ]]; then
		for h in h1 h2 h3; do
			[[ ! -s $dir/$h.log ]] || { echo "-- vcd on $h:" && tail -n 8 "$dir/$h.log"; } >&2
		done
		echo "demo: failed: the error stands above the logs" >&2
	fi
	for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
	[[ ! -e $lab ]] || bin/labhost -dir "$lab" down || status=1
	wait || true
	rm -rf "$dir"
	exit "$status"
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# on HOST COMMAND... runs vcctl in a host, as its operator would.
on() {
	local host=$1
	shift
	bin/labhost -dir "$lab" run "$host" env XDG_CONFIG_HOME=/etc/evenkeel/root "$PWD/bin/vcctl" "$@"
}
. scripts/demo-watch.sh
run() {
	printf '$ vcctl %s\n' "$*"
	watched on h1 "$@"
}
progress() {
	on h1 vm list -o json | grep -E '"(name|state|host)"'
	on h1 migration list -o json | grep -iE '"(id|state|bytes|sent)"'
}
stuck() {
	local h
	on h1 cluster status || true
	for h in h1 h2 h3; do
		echo "-- $h:"
		libvirt_answers "$(bin/labhost -dir "$lab" uri "$h")"
	done
}
# await SECONDS COMMAND... until it succeeds.
await() {
	local left=$(($1 * 5))
	shift
	until "$@" >/dev/null 2>&1; do
		((left-- > 0)) || {
			echo "demo: in vain: $*" >&2
			"$@"
		}
		sleep 0.2
	done
}

how=$(bin/accel)
up=(-hosts 3 -shared -tls)
emulation=false
if [[ $how != kvm ]]; then
	# The QEMU of Debian 12 crashes emulated guests that move while they run.
	scripts/fetch-qemu.sh
	up+=(-qemu "$PWD/build/qemu")
	emulation=true
fi
say "Three hosts, each with its own libvirt; VMs by ${how/qemu/software emulation}. They speak TLS with one another."
bin/labhost -dir "$lab" "${up[@]}" up >/dev/null
for h in h1 h2 h3; do
	cat >"$lab/$h/config/vcd.yaml" <<-END
		server: true
		agent: true
		advertise: $(bin/labhost -dir "$lab" address "$h"):7480
		migrateURI: $(bin/labhost -dir "$lab" migrate-uri "$h")
		emulation: $emulation
		sharedPools: [shared]
		allowance: {cpu: 1.2, memory: 3GiB}
	END
	bin/labhost -dir "$lab" run "$h" "$PWD/bin/vcd" run --config /etc/evenkeel/vcd.yaml >"$dir/$h.log" 2>&1 &
	daemons+=($!)
done
await 30 test -S "$lab/h1/run/evenkeel/vcd.sock"

say "1. A cluster of three, as docs/tutorials/three-hosts.md makes it."
run cluster init --min-yield 0.1
for h in h2 h3; do
	await 30 test -S "$lab/$h/run/evenkeel/vcd.sock"
	on h1 cluster join-token --ttl 5m >"$dir/token"
	printf '$ vcctl cluster join %s       (on %s)\n' "$(bin/labhost -dir "$lab" address h1):7480" "$h"
	on "$h" cluster join "$(bin/labhost -dir "$lab" address h1):7480" <"$dir/token"
done
on h1 image add guest-initrd --kind initrd --file "$PWD/build/guest/initrd.img" >/dev/null
on h1 image add guest --kind kernel --file "$PWD/build/guest/vmlinuz" --initrd guest-initrd --cmdline "console=ttyS0 quiet no_timer_check panic=-1 ek.burn=1" >/dev/null
empty() { on h1 host confirm-empty "$1" >/dev/null 2>&1; }
ready() { [[ $(on h1 host list -o json | grep -c '"state": *"ready"') -eq 3 ]]; }
await 30 ready
run cluster settings set moves.mode=off # so that nothing moves before it is shown
run host list

say "2. Two virtual clusters, both on h1: the other hosts were closed when they came. All guests are busy."
for h in h2 h3; do on h1 host cordon "$h" >/dev/null; done
for vc in "web 2 0.8" "batch 3 0.4"; do
	read -r name count cpu <<<"$vc"
	printf 'name: %s\ngroups:\n  - {name: vm, count: %s, cpu: %s, memory: 96MiB, image: guest}\n' "$name" "$count" "$cpu" >"$lab/h1/config/$name.yaml"
	run vc create -f "/etc/evenkeel/$name.yaml" --wait
done
for h in h2 h3; do on h1 host uncordon "$h" >/dev/null; done
run vm list

say "3. How much yield do how many bytes buy? Then the plan for 512 MiB, and its moves."
run rebalance --curve
run rebalance --max-bytes 512MiB --dry-run
run rebalance --max-bytes 512MiB --wait
run migration list --all
run vm list

say "4. h1 needs new memory: what would it take to empty it, and then it is emptied. No guest stops."
run host drain h1 --dry-run
run host drain h1 -m "new memory"
await 30 empty h1 # after a change of leader its agent reports within seconds
run host confirm-empty h1
run host undrain h1
run host list

say "5. Does everything still fit if any one host dies?"
run simulate --each-host

say "6. All is deleted."
for name in web batch; do run vc delete "$name" --wait; done
run vm list
say "Done in $SECONDS s. Nothing is left behind."
