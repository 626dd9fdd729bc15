#!/bin/bash
# test.sh STAGE... runs the tests in stages, each on its own share of the packages:
#   lint   no tests, but what make lint checks
#   unit   packages that need no hypervisor
#   race   the same, with the race detector where it is of use (not on the libvirt binding's cgo, not on the
#          packages that decide: none of them starts a goroutine, a house rule, and not on whole clusters)
#   programs  vcctl, with the race detector, and what links libvirt, vcd above all: their tests run servers in real time
#   real   packages whose tests drive the real libvirt and QEMU, and test/attack, which needs no libvirt but promises times;
#          one package at a time
#   fuzz   every fuzz target for EVENKEEL_FUZZTIME executions (default 20000x)
# "real" waits more than it computes. With memory enough for both, lint, race and fuzz run beside it and "programs", in the order
# given, at a lower priority: what they print appears as each ends.
# EVENKEEL_PATIENCE, a number of at least 1, multiplies the limits of what tests wait for, on a machine too slow for them.
# A stage that fails does not keep the later ones from running; the status is 1 if any failed. At the end: each stage with its time and how
# many tests ran, failed and were skipped, and the ten slowest tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tags=${EVENKEEL_TAGS:-libvirt_dlopen,hashicorpmetrics}
export EVENKEEL_GUEST=${EVENKEEL_GUEST:-$PWD/build/guest}
unset EVENKEEL_REAL

export EVENKEEL_PATIENCE=${EVENKEEL_PATIENCE:-1}
timeout=$(awk -v f="$EVENKEEL_PATIENCE" 'BEGIN { if (f !~ /^[0-9]+(\.[0-9]+)?$/ || f + 0 < 1) exit 1; printf "%dm", 15 * f }') || {
	echo "test.sh: EVENKEEL_PATIENCE=\"$EVENKEEL_PATIENCE\": it must be a number of at least 1, such as 3" >&2
	exit 2
}

all=$(go list -tags "$tags" ./...)

# A package is "real" if its tests use the lab, through whatever packages, or look at EVENKEEL_REAL, or if it is the lab.
# test/attack checks how soon servers answer, so that it must not run at a lower priority.
real_paths=$({
	go list -test -tags "$tags" -f '{{.ImportPath}} {{join .Deps " "}} ' ./... |
		grep -E '^[^ ]+\.test .* evenkeel/test/lab |^evenkeel/test/attack\.test ' | cut -d ' ' -f 1 | sed 's/\.test$//'
	{ grep -rl --include='*_test.go' EVENKEEL_REAL . || true; } | xargs -r -n 1 dirname | xargs -r go list -tags "$tags"
} | sort -u)

# Packages that link the libvirt binding, themselves or in their tests.
cgo=$(go list -tags "$tags" -f '{{.ImportPath}} {{join .Deps " "}} {{join .TestImports " "}} {{join .XTestImports " "}} ' ./... |
	grep -E ' (libvirt\.org/go/libvirt|evenkeel/hypervisor/libvirt) ' | cut -d ' ' -f 1 || true)

# The schedulers that only decide: those without a runner.
deciding=(./test/scheduling)
for dir in cluster/scheduler/*/; do
	[ -e "$dir/run.go" ] || deciding+=("./$dir")
done

# Not sim/replay, whose tests share it among goroutines, and not sim/trace, which reads files.
pure=$(go list ./allocator/... ./migration/... ./forecast/... ./sim/... "${deciding[@]}" | grep -vxE 'evenkeel/sim/(replay|trace)')

# Whole clusters without libvirt. test/simulation would take many times as long with the race detector, and test/readme starts
# programs, which are built without it.
whole=$'evenkeel/test/simulation\nevenkeel/test/readme'

# without LIST: standard input less the lines of LIST.
without() { grep -vxF -f <(printf '%s\n' "$1" | grep . || echo -) || true; }

logs=$(mktemp -d)
trap 'rm -rf "$logs"; rmdir "${group:-none}" 2>/dev/null || true' EXIT

go build -modfile=tools.mod -o "$logs/gotestsum" gotest.tools/gotestsum
mkdir "$logs/events"

# stage NAME COMMAND... keeps what is printed, so that the end can say again what failed. With $beside it prints when all is done.
stage() {
	local name=$1 begun=$SECONDS result=ok
	shift
	[[ -n $beside ]] || echo "== $name"
	events=$logs/events/$name.json
	"$@" 2>&1 | if [[ -n $beside ]]; then cat >"$logs/$name"; else tee "$logs/$name"; fi || {
		result=FAILED
		echo "$name" >>"$logs/failed"
	}
	[[ -z $beside ]] || { echo "== $name" && cat "$logs/$name"; }
	printf '%-6s %5d s  %s%s\n' "$result" $((SECONDS - begun)) "$name" "$(tally "$events")" >>"$logs/summary"
}

# tally FILE: how many tests, subtests included, came to which end.
tally() {
	[[ ! -s $1 ]] || jq -rs '[.[] | select(.Test)] | ": \(map(select(.Action == "pass")) | length) passed, \(map(select(.Action == "fail")) | length) failed, \(map(select(.Action == "skip")) | length) skipped"' "$1"
}

# why LOG: the lines of a stage's log that say what failed; what failed is often thousands of lines before the end.
why() {
	grep -E '^ *--- FAIL|^FAIL|^panic:|^[[:space:]]+Test[^ ]* \(|DATA RACE|^(error|fatal error):|_test\.go:[0-9]+:|^# evenkeel|\.go:[0-9]+:[0-9]+:' "$1" |
		awk '/--- FAIL/ {fails = fails $0 "\n"; n++; next} {rest[++m] = $0} END {printf "%s", fails; for (i = (m > 40 ? m - 39 : 1); i <= m; i++) print rest[i]}' | cut -c 1-600
}

go_test() {
	local packages=() p
	while read -r p; do [[ -z $p ]] || packages+=("$p"); done
	if [[ ${#packages[@]} -eq 0 ]]; then
		echo "(no packages)"
		return 0
	fi
	"$logs/gotestsum" --format standard-quiet --hide-summary skipped --jsonfile-timing-events "$events" -- -tags "$tags" -timeout "$timeout" "$@" "${packages[@]}"
}

# Executions are counted, not seconds: Go's fuzzer may take the end of its own time for a failure of the target
# (go.dev/issue/75804).
fuzz() {
	local status=0 file name
	while IFS=: read -r file name; do
		echo "-- $name in $(dirname "$file")"
		go test -tags "$tags" -run '^$' -fuzz "^$name\$" -fuzzminimizetime 20x -fuzztime "${EVENKEEL_FUZZTIME:-20000x}" "$(dirname "$file")" || status=1
	done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/func //' | sort)
	return "$status"
}

run() {
	local s=$1
	case $s in
	lint)
		stage lint scripts/lint.sh
		;;
	unit)
		stage "unit tests" go_test < <(without "$real_paths" <<<"$all")
		;;
	race)
		stage "unit tests, race detector" go_test -race < <(without "$real_paths"$'\n'"$cgo"$'\n'"$pure"$'\n'"$whole"$'\nevenkeel/cmd/vcctl' <<<"$all")
		stage "unit tests of what decides" go_test < <(without "$real_paths" <<<"$pure")
		stage "whole clusters without libvirt" go_test <<<"$whole"
		;;
	programs)
		stage "unit tests of vcctl, race detector" go_test -race <<<evenkeel/cmd/vcctl
		stage "unit tests of what links libvirt" go_test < <(without "$real_paths" <<<"$cgo")
		;;
	real)
		export EVENKEEL_REAL=1
		stage "tests on real libvirt and QEMU" go_test -p 1 -count 1 <<<"$real_paths"
		# Live migration of emulated guests needs a newer QEMU than Debian 12 has.
		if scripts/fetch-qemu.sh; then
			export EVENKEEL_QEMU=$PWD/build/qemu
			stage "conformance and migration on the QEMU of backports" go_test -p 1 -count 1 -run 'Conformance|Migrate|Moves' \
				<<<$'evenkeel/hypervisor/libvirt\nevenkeel/test/migrate\nevenkeel/test/cluster'
			EVENKEEL_CHAOS_SEED=16 stage "chaos: five minutes of faults, and cuts and kills at hand-overs" go_test -p 1 -count 1 -timeout 40m -run 'TestMoves|TestChaos$' \
				<<<'evenkeel/test/chaos'
			unset EVENKEEL_QEMU
		else
			echo "== NOT RUN: migration on real QEMU (no newer QEMU to be had)"
		fi
		unset EVENKEEL_REAL
		;;
	fuzz)
		stage "fuzzing" fuzz
		;;
	*)
		echo "test.sh: no stage $s" >&2
		exit 2
		;;
	esac
}

# lower_priority has this shell, and all that it starts, run at a lower priority. Priorities count among processes of one control group. Each lab has
# a group of its own, so that others need one as well, with the weight that nice 10 has; root alone can make it.
group=/sys/fs/cgroup/cpu/evenkeel-beside-$$ weight=cpu.shares:110
[[ ! -e /sys/fs/cgroup/cgroup.controllers ]] || group=/sys/fs/cgroup/evenkeel-beside-$$ weight=cpu.weight:11
lower_priority() {
	renice -n 10 -p "$BASHPID" >/dev/null
	{
		mkdir "$group"
		echo "${weight#*:}" >"$group/${weight%:*}"
		echo "$BASHPID" >"$group/cgroup.procs"
	} 2>/dev/null || true
}

beside=
# A lab's hosts take up to 4 GiB, the race detector's packages as much.
aside=()
front=()
for s in "$@"; do if [[ $s == real || $s == programs || $s == unit ]]; then front+=("$s"); else aside+=("$s"); fi; done
if [[ ${#front[@]} -gt 0 && ${#aside[@]} -gt 0 && $(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo) -gt $((12 << 20)) ]]; then
	(
		lower_priority
		beside=yes
		for s in "${aside[@]}"; do run "$s"; done
	) &
	pid=$!
	for s in "${front[@]}"; do run "$s"; done
	wait "$pid" || echo "the stages beside it" | tee "$logs/the stages beside it" >>"$logs/failed"
else
	for s in "$@"; do run "$s"; done
fi
echo "== stages"
cat "$logs/summary"
echo "== the ten slowest tests"
cat "$logs"/events/*.json 2>/dev/null | jq -rs '[.[] | select(.Test and (.Test | contains("/") | not) and .Elapsed)] | sort_by(-.Elapsed) | .[:10][] | "\(.Elapsed * 10 | round / 10) s\t\(.Package | ltrimstr("evenkeel/")) \(.Test)"' || true
if [[ -e $logs/failed ]]; then
	while read -r s; do
		echo "FAILED: $s"
		why "$logs/$s"
	done <"$logs/failed"
	exit 1
fi
