#!/bin/bash
# demo.sh [simulated] shows the main job: three virtual clusters on one host that
# has too little CPU for them, their caps, a change, a refusal, and the end of it all.
#
# It uses the libvirt of this machine if one answers, else a libvirtd of its own that
# it stops again; with "simulated", twelve simulated hosts and no libvirt. It leaves
# nothing behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kind=${1:-libvirt}
# Not below TMPDIR: the path of a socket in it must stay short, and QEMU's user must reach it.
dir=$(mktemp -d /tmp/evenkeel-demo-XXXXXX)
chmod 711 "$dir"
lab=$dir/lab
vcd=
clean() {
	local status=$?
	trap - EXIT
	if [[ -n $vcd ]]; then
		[[ $status -eq 0 ]] || tail -n 20 "$dir/vcd.log" >&2
		kill "$vcd" 2>/dev/null || true
		wait "$vcd" 2>/dev/null || true
	fi
	[[ ! -e $lab ]] || bin/labhost -dir "$lab" down || status=1
	rm -rf "$dir"
	exit "$status"
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
. scripts/demo-watch.sh
run() {
	printf '$ vcctl %s\n' "$*"
	watched bin/vcctl "$@"
}
progress() { timeout 20 bin/vcctl vm list -o json | grep -E '"(name|state)"'; }
stuck() {
	timeout 20 bin/vcctl cluster status || true
	timeout 20 bin/vcctl host list || true
	[[ $kind == simulated ]] || libvirt_answers "$uri"
	echo "demo: the last lines of vcd's log follow"
}

args=(--data-dir "$dir/data" --listen 127.0.0.1:0 --log-level warn)
if [[ $kind == simulated ]]; then
	say "Twelve simulated hosts; no VM is real."
	args+=(--hypervisor simulated)
	settle=6
	count=160 # VMs of each virtual cluster: together they need more than twelve hosts have
	more=240
else
	how=$(bin/accel)
	if timeout 10 virsh -q -c qemu:///system version >/dev/null 2>&1; then
		uri=qemu:///system
		say "The libvirt of this machine ($uri), VMs by ${how/qemu/software emulation}."
	else
		uri=$(bin/labhost -dir "$lab" up)
		say "No libvirt answers on this machine: a libvirtd of the demo's own, VMs by ${how/qemu/software emulation}."
	fi
	args+=(--hypervisor "$uri" --guest build/guest --allowance-cpu 1.5)
	[[ $how == kvm ]] || args+=(--emulation)
	settle=15 # the guests boot under their caps
	count=1
	more=2
fi

bin/vcd dev "${args[@]}" --min-yield 0.3 >"$dir/ready" 2>"$dir/vcd.log" &
vcd=$!
until [[ -s $dir/ready ]]; do # vcd ends by itself if libvirt does not answer
	kill -0 "$vcd" 2>/dev/null || {
		echo "demo: vcd did not come up:" >&2
		exit 1
	}
	sleep 0.1
done
read -r _ EVENKEEL_ADDRESS <"$dir/ready"
EVENKEEL_TOKEN=$(<"$dir/data/admin.token")
EVENKEEL_CACERT=$dir/data/ca.pem
export EVENKEEL_ADDRESS EVENKEEL_TOKEN EVENKEEL_CACERT
run host list

# file NAME COUNT CPU MEMORY MINYIELD ONFULL: a VC file
file() {
	printf 'name: %s\nminYield: %s\nonFull: %s\ngroups:\n  - {name: vm, count: %s, cpu: %s, memory: %s}\n' "$1" "$5" "$6" "$2" "$3" "$4" >"$dir/$1.yaml"
}

# vms prints the table of VMs, in a large cluster its head.
vms() {
	printf '$ vcctl vm list\n'
	bin/vcctl vm list >"$dir/vms"
	sed -n 1,10p "$dir/vms"
	[[ $(wc -l <"$dir/vms") -le 10 ]] || echo "... $(($(wc -l <"$dir/vms") - 1)) VMs in all"
}

say "1. Three virtual clusters that together need more CPU than there is. All guests are busy."
file web "$count" 1.0 128MiB 0.3 reject
file batch "$count" 1.0 128MiB 0.3 reject
file db "$count" 0.8 128MiB 0.3 reject
sed 's/^/    /' "$dir/web.yaml"
for name in web batch db; do run vc create -f "$dir/$name.yaml" --wait; done

say "2. All run, at equal yield: what each gets of what it needs. USED is measured, over 5 s: it is the cap."
sleep "$settle"
run vc list
vms

say "3. One grows; the caps of the others shrink."
run vc scale web --count "$more" --wait
sleep "$settle"
vms

say "4. One that is promised more than there is left is refused, with the reasons."
file greedy "$more" 1.0 128MiB 0.95 reject
status=0
run vc create -f "$dir/greedy.yaml" || status=$?
echo "exit status $status"
[[ $status -eq 3 ]]

say "5. Why does db get what it gets?"
run vc explain db

say "6. A dry run changes nothing; then all is deleted."
run vc delete web --dry-run | tail -n 1
for name in web batch db; do run vc delete "$name" --wait; done
run vm list
if [[ $kind != simulated ]]; then
	names=$(timeout 30 virsh -q -c "$uri" list --all --name) || {
		libvirt_answers "$uri" >&2
		exit 1
	}
	left=$(grep '^ek-' <<<"$names" || true)
	[[ -z $left ]] || {
		echo "demo: left on the host: $left" >&2
		exit 1
	}
fi
say "Done in $SECONDS s. Nothing is left behind."
