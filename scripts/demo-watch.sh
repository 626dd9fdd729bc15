#!/bin/bash
# demo-watch.sh is sourced by the demos. A demo waits for as long as something goes on, and no longer.
#
# The script that sources it defines `progress`, which prints what changes while something goes on, and `stuck`, which says what to
# look at.

patience=${EVENKEEL_DEMO_PATIENCE:-120} # seconds without progress; a start that hangs is named after 60

# watched COMMAND... runs it in the background of the script, and gives it up once progress has stood still for so long.
watched() {
	local pid status=0 last='' now since=$SECONDS
	"$@" &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		((SECONDS - since >= 5)) || continue # short commands are not looked at
		now=$(progress 2>&1 || true)
		if [[ $now != "$last" ]]; then
			last=$now since=$((SECONDS - 5))
		elif ((SECONDS - since >= patience)); then
			printf '\ndemo: nothing has changed for %s s while this ran: %s\n' "$patience" "$*" >&2
			stuck >&2 || true
			kill "$pid" 2>/dev/null || true
			wait "$pid" 2>/dev/null || true
			return 1
		fi
		sleep 3
	done
	wait "$pid" || status=$?
	return "$status"
}

# libvirt_answers URI says whether libvirt lists its VMs, and how to look at it.
libvirt_answers() {
	if timeout 15 virsh -q -c "$1" list --all; then
		echo "demo: libvirt answers: virsh -c $1 list"
	else
		echo "demo: libvirt does not answer within 15 s: virsh -c $1 list; look at libvirtd's log, and restart it (VMs run on)"
	fi
}
