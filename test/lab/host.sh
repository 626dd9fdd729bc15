#!/bin/bash
# host.sh is the inside of one lab host. The Go package lab writes it into the
# lab's directory and runs it; it is of no use alone.
#
#   host.sh boot  DIR NAME NETNS TREE   start the host: never returns
#   host.sh enter DIR PID COMMAND...    run a command in the host whose first process is PID
#
# DIR holds what the host sees in other places:
#   run, etc, lib, log, cache   /run, and libvirt's in /etc, /var/lib, /var/log, /var/cache
#   config, disk/state          /etc/evenkeel, /var/lib/evenkeel
#   board                       /run/board
#   shared                      /var/lib/libvirt/shared, where it is there
#   hosts, machine-id, boot-id  the files of those names
# and "cgroups": one directory of a cgroup hierarchy per line, where the host's
# processes are accounted.
set -euo pipefail

# join puts this process, and all it becomes, into the host's cgroups.
join() {
	local d
	while read -r d; do
		[[ ! -d $d/init ]] || d=$d/init # cgroup v2: a group with controllers for its children holds no process
		echo $$ > "$d/cgroup.procs"
	done < "$1/cgroups"
}

# control_groups mounts the cgroup hierarchies again: with a cgroup namespace of
# its own the host sees its own subtree as the root of each. Without that, the
# VMs of two hosts that have the same name would share one group, and one cap.
control_groups() {
	local d controllers=() c
	if [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; then
		umount -Rl /sys/fs/cgroup
		mount -t sysfs sysfs /sys
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		for c in $(< /sys/fs/cgroup/cgroup.controllers); do
			echo "+$c" > /sys/fs/cgroup/cgroup.subtree_control 2> /dev/null || true
		done
		return
	fi
	for d in /sys/fs/cgroup/*/; do
		d=${d%/}
		if [[ ! -L $d && $(stat -fc %T "$d") == cgroupfs ]]; then controllers+=("${d##*/}"); fi
	done
	umount -Rl /sys/fs/cgroup
	mount -t sysfs sysfs /sys # a fresh one shows this network namespace's devices
	mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
	for c in "${controllers[@]}"; do
		mkdir "/sys/fs/cgroup/$c"
		if [[ $c == systemd ]]; then d=none,name=systemd; else d=$c; fi
		mount -t cgroup -o "$d" cgroup "/sys/fs/cgroup/$c" 2> /dev/null || rmdir "/sys/fs/cgroup/$c"
	done
}

# own FILE PLACE: the host sees its own file there, if the machine has one there at all.
own() {
	[[ ! -e $2 ]] || mount --bind "$1" "$2"
}

# first is process 1 of the host.
first() {
	local dir=$1 name=$2 tree=$3 d
	mount --make-rprivate /
	hostname "$name"
	mount -t proc proc /proc
	control_groups
	if [[ -n $tree ]]; then
		mount -t overlay overlay -o "lowerdir=$tree/usr:/usr" /usr
		for d in lib/x86_64-linux-gnu/qemu lib/x86_64-linux-gnu/libvirt; do
			# Modules must be of the same build as the program: those below must not show through.
			if [[ -d $tree/usr/$d ]]; then mount --bind "$tree/usr/$d" "/usr/$d"; fi
		done
	fi
	mkdir -p /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt
	mount --bind "$dir/run" /run
	mount --bind "$dir/etc" /etc/libvirt
	mount --bind "$dir/lib" /var/lib/libvirt
	mount --bind "$dir/log" /var/log/libvirt
	mount --bind "$dir/cache" /var/cache/libvirt
	own "$dir/hosts" /etc/hosts
	own "$dir/machine-id" /etc/machine-id
	own "$dir/boot-id" /proc/sys/kernel/random/boot_id
	mkdir -p /run/lock /run/board /etc/evenkeel /var/lib/evenkeel
	mount --bind "$dir/board" /run/board
	mount --bind "$dir/config" /etc/evenkeel
	mount --bind "$dir/disk/state" /var/lib/evenkeel
	if [[ -d $dir/shared ]]; then # a link to the lab's
		mkdir -p /var/lib/libvirt/shared
		mount --bind "$dir/shared" /var/lib/libvirt/shared
	fi
	echo up > /run/ready
	# Process 1 ends when whoever holds the other end of its standard input does, and
	# all processes of the host end with it. Until then it reaps orphans.
	while IFS= read -r _; do :; done
}

# Where the kernel has time namespaces, CLOCK_BOOTTIME of a host begins at 0 when it is started.
unshare_time=() enter_time=()
if [[ -e /proc/self/ns/time ]]; then
	uptime=$(< /proc/uptime)
	unshare_time=(--time --boottime "-${uptime%%.*}")
	enter_time=(--time)
fi

case ${1:?} in
boot)
	dir=$2 name=$3 netns=$4 tree=$5
	join "$dir"
	exec nsenter --net="/run/netns/$netns" \
		unshare --mount --uts --ipc --pid --cgroup "${unshare_time[@]}" --fork --kill-child -- "$0" first "$dir" "$name" "$tree"
	;;
first)
	shift
	first "$@"
	;;
enter)
	dir=$2 pid=$3
	shift 3
	join "$dir"
	exec nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup "${enter_time[@]}" -- "$@"
	;;
*)
	echo "host.sh: unknown command $1" >&2
	exit 2
	;;
esac
