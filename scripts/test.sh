#!/bin/bash
# test.sh STAGE... runs the tests in stages, each on its own share of the packages:
#   lint   no tests, but what make lint checks
#   unit   packages that need no hypervisor
#   race   the same, with the race detector where it is of use (not on the libvirt binding's cgo, not on
#          packages that start no goroutine, a house rule for those that decide, and not on whole clusters)
#   programs  test/attack, which wants the CPU that labs take
#   clients  vcctl, with the race detector, the tour of the README, the dashboard in a browser, and what links libvirt, vcd above all:
#          after the labs, which would leave them too little of a small machine
#   real   packages whose tests drive the real libvirt and QEMU, that of this machine and that of Debian's backports: what measures no
#          CPU in two lanes that take about as long, then what measures it, alone
#   demo   no tests, but make demo; with "real" in a lane of its labs
#   image  no tests, but the disk that machines boots, the packages it installs, and what Debian has for both
#   machines  a host with KVM, cgroup v2, systemd and a watchdog, in a whole emulated Debian (test/machines); it waits for image, or
#          begins with it, and is NOT RUN where the archive of packages cannot be reached
#   vuln   no tests, but make vuln
#   fuzz   every fuzz target for EVENKEEL_FUZZTIME executions (default 20000x, fewer where one is slow: executions below)
# Tests of "real" wait more than they compute. With memory enough chaos runs beside its others, and lint, image, race and fuzz beside
# it, "programs", "clients" and "machines", and vuln, in the order given, at a lower priority. What runs beside others prints when it ends.
# EVENKEEL_PATIENCE, a number of at least 1, multiplies the limits of what tests wait for, on a machine too slow for them.
# A stage that fails does not keep the later ones from running; the status is 1 if any failed. At the end: each stage with its time and how
# many tests ran, failed and were skipped, and the ten slowest tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tags=${EVENKEEL_TAGS:-libvirt_dlopen,hashicorpmetrics}
export EVENKEEL_GUEST=${EVENKEEL_GUEST:-$PWD/build/guest}
unset EVENKEEL_REAL

export EVENKEEL_PATIENCE=${EVENKEEL_PATIENCE:-1}
timeout=$(awk -v f="$EVENKEEL_PATIENCE" 'BEGIN { if (f !~ /^[0-9]+(\.[0-9]+)?$/ || f + 0 < 1) exit 1; printf "%dm", 40 * f }') || {
	echo "test.sh: EVENKEEL_PATIENCE=\"$EVENKEEL_PATIENCE\": it must be a number of at least 1, such as 3" >&2
	exit 2
}

all=$(go list -tags "$tags" ./...)

# A package is "real" if its tests use the lab, through whatever packages, or look at EVENKEEL_REAL, or if it is the lab.
real_paths=$({
	go list -test -tags "$tags" -f '{{.ImportPath}} {{join .Deps " "}} ' ./... |
		grep -E '^[^ ]+\.test .* evenkeel/test/lab ' | cut -d ' ' -f 1 | sed 's/\.test$//'
	{ grep -rl --include='*_test.go' EVENKEEL_REAL . || true; } | xargs -r -n 1 dirname | xargs -r go list -tags "$tags"
} | sort -u)

# Their labs take the CPU before anything else (lab.Precede): not beside chaos, whose servers would lose their leases.
measure=$'evenkeel/hypervisor/libvirt\nevenkeel/test/rightsizing'

# It checks how soon servers answer, so that it must not run at a lower priority, nor beside labs.
attack=evenkeel/test/attack

# It waits for a browser, in real time.
browser=evenkeel/test/browser

# Packages that link the libvirt binding, themselves or in their tests.
cgo=$(go list -tags "$tags" -f '{{.ImportPath}} {{join .Deps " "}} {{join .TestImports " "}} {{join .XTestImports " "}} ' ./... |
	grep -E ' (libvirt\.org/go/libvirt|evenkeel/hypervisor/libvirt) ' | cut -d ' ' -f 1 || true)

# The schedulers that start no goroutine, neither themselves nor in their tests. Several goroutines call those with a runner: that is
# tested with the race detector where it is done, in cluster/leader.
concurrent='(^|[[:space:]])go [A-Za-z.]+\(|sync\.WaitGroup|synctest\.|errgroup|\.Go\(|AfterFunc\(|RunParallel|t\.Parallel\(\)'
deciding=(./test/scheduling)
for dir in cluster/scheduler/*/; do
	grep -qE "$concurrent" "$dir"*.go || deciding+=("./$dir")
done

# Tests of cluster/state that start goroutines, or have the state compacted, which starts one. The others do without the detector.
state=evenkeel/cluster/state
state_tests="^($(grep -lE "$concurrent|\.Compact\(\)" cluster/state/*_test.go | xargs grep -ohE '^func Test[A-Za-z0-9_]+' | sed 's/func //' | paste -sd '|'))\$"

# Not sim/replay, whose tests share it among goroutines, and not sim/trace, which reads files.
pure=$(go list ./allocator/... ./migration/... ./forecast/... ./sim/... "${deciding[@]}" | grep -vxE 'evenkeel/sim/(replay|trace)')

# It would take many times as long with the race detector.
simulation=evenkeel/test/simulation

# It starts programs, which are built without the race detector, and clients that give up, so that it must not run at a lower priority.
readme=evenkeel/test/readme

# internal/lint starts no goroutine, which it checks itself. These tests take long, and do without the detector. Those of api/server
# send one request after the other: what one client draws (TestApplyOfTenants sends the same under the detector), and every route as
# every caller (under the detector TestQuotasUnderLoad has 50 clients at once, and TestStreamsOfTenants the streams of tenants). Those of
# vcsim replay; TestRunGolden, TestMorpheusJSON (its seeds side by side), TestState (its replays too) and every policy on two kinds of
# workload run the same code under the detector.
plain=evenkeel/internal/lint
plain_names='PaperFlexGolden|MorpheusGolden|ReportOfEqualSeeds|AppliedUnchanged|NoTenantSeesAnother|SecretsOfTenants|PermissionsAreWhatHandlersAnswer'
plain_tests="^Test($plain_names|RunWorkloads)\$"
skip_race="^Test($plain_names)\$|^TestRunWorkloads\$/^(recurring|lublin|azure|openb|google|planetlab)\$"

# without LIST: standard input less the lines of LIST.
without() { grep -vxF -f <(printf '%s\n' "$1" | grep . || echo -) || true; }

logs=$(mktemp -d)
trap 'rm -rf "$logs"; rmdir "${groups:-none}"-* 2>/dev/null || true' EXIT

go build -modfile=tools.mod -o "$logs/gotestsum" gotest.tools/gotestsum
mkdir "$logs/events"

# stage NAME COMMAND... keeps what is printed, so that the end can say again what failed. With $beside it prints when all is done.
stage() {
	local name=$1 begun=$SECONDS result=ok
	shift
	[[ -n $beside ]] || echo "== $name"
	events=$logs/events/$name.json
	# A subshell waits for its own command alone. This shell also reaps the stages beside, in whatever stage they end.
	(
		"$@" 2>&1 | if [[ -n $beside ]]; then cat >"$logs/$name"; else tee "$logs/$name"; fi || echo "$name" >>"$logs/failed"
		count_cpu >"$logs/cpu of $name"
	)
	[[ -z $beside ]] || { echo "== $name" && cat "$logs/$name"; }
	if grep -qsxF -- "$name" "$logs/failed"; then result=FAILED; fi
	printf '%-6s %5d s, CPU %4d s  %s%s\n' "$result" $((SECONDS - begun)) "$(<"$logs/cpu of $name")" "$name" "$(tally "$events")" >>"$logs/summary"
}

# count_cpu prints the CPU time, in seconds, of what this shell started and has waited for; the hosts of a lab are not among it.
count_cpu() {
	local file=$logs/times.$BASHPID
	times >"$file" # in this shell: a subshell has waited for nothing
	awk 'NR == 2 { gsub("[ms]", " "); print int(60 * ($1 + $3) + $2 + $4) }' "$file"
}

# collect_less COMMAND... lets garbage grow to four times what is in use: a quarter less CPU for staticcheck, and about a tenth for the
# compiler and for tests under the race detector. With 3 GiB a process the collector runs as often as it must. Not for what starts vcd,
# which paces its collector itself.
collect_less() { GOGC=400 GOMEMLIMIT=3GiB "$@"; }

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
	"$logs/gotestsum" --format standard-quiet --hide-summary skipped --jsonfile-timing-events "$events" -- -tags "$tags" -timeout "$timeout" "${vet[@]}" "$@" "${packages[@]}"
}

# setup_machines installs what the machine's disk is made with, where that is missing. Status 3: it cannot be had.
setup_machines() {
	local tool
	for tool in debootstrap mkfs.ext4 ssh; do
		PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || {
			scripts/archive.sh bookworm >/dev/null && scripts/setup.sh machines
			return
		}
	done
}

# machine_image makes what machines needs. It fails unless all is made, or cannot be for want of an archive.
machine_image() {
	local status=0
	if [[ $EUID -ne 0 ]]; then
		echo "only root can make its disk" | tee "$logs/no-machine"
		return 0
	fi
	if ! unshare --mount mknod "$logs/null" c 1 3 2>/dev/null; then
		echo "its disk has devices, and none can be made here" | tee "$logs/no-machine"
		return 0
	fi
	if [[ $memory -lt 5 ]]; then
		echo "it needs 5 GiB of memory that is free, and there are $memory" | tee "$logs/no-machine"
		return 0
	fi
	{ setup_machines && scripts/fetch-qemu.sh && test/machines/image.sh; } 2> >(tee "$logs/image-errors" >&2) || status=$?
	if [[ $status -eq 3 ]]; then
		tail -n 1 "$logs/image-errors" >"$logs/no-machine"
		return 0
	fi
	# Git may not look into a checkout of another user, as that of CI is, unless it is named.
	[[ $status -eq 0 ]] && GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$PWD packaging/build.sh && touch "$logs/machine"
}

# Of test/machines what nothing else tests: the machine itself, the contract of hypervisor.Host for one guest, caps, and vcd under its
# unit until the watchdog resets its host. make test-machines SHORT=1 has more, make test-machines all.
on_machines='^Test(Machine|Conformance|Caps|Vcd)$/^(Machine.*|NoGuest|OneGuest|Watchdog)$'

# machines prints at its end what was checked, what was not, and why.
machines() {
	local status=0
	EVENKEEL_MACHINES=1 go_test -count 1 -short -run "$on_machines" <<<evenkeel/test/machines || status=$?
	jq -r 'select(.Output) | .Output' "$events" | grep '^machines:' | awk '!seen[$0]++'
	return "$status"
}

# executions NAME: how often a fuzz target is called. Executions are counted, not seconds: Go's fuzzer may take the end of its
# own time for a failure of the target (go.dev/issue/75804). Most targets do thousands a second. Fewer where two servers answer
# over TLS, and for an input that is large at once. They still do several times their corpus of seeds and of inputs kept from earlier runs.
executions() {
	case $1 in
	FuzzListener | FuzzReorder | FuzzAzureRole) echo "${EVENKEEL_FUZZTIME:-6000x}" ;;
	*) echo "${EVENKEEL_FUZZTIME:-20000x}" ;;
	esac
}

# fuzz has the coverage of this module's packages guide the fuzzer, one program for all targets of a package. "go test -fuzz" instruments
# the standard library and the dependencies as well: all of them are compiled once more, and each execution reads their counters.
fuzz() {
	local status=0 dir name corpus
	while read -r dir; do
		go test -c -tags "$tags" -vet=off -gcflags 'evenkeel/...=-d=libfuzzer' -o "$logs/fuzz.test" "$dir" || {
			status=1
			continue
		}
		corpus=$(go env GOCACHE)/fuzz/$(go list -tags "$tags" "$dir") # where "go test -fuzz" keeps it
		while read -r name; do
			echo "-- $name in $dir"
			(cd "$dir" && "$logs/fuzz.test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzzminimizetime 20x -test.fuzztime "$(executions "$name")" -test.fuzzcachedir "$corpus") || status=1
		done < <(grep -ohE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/func //')
	done < <(grep -rlE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | xargs -n 1 dirname | sort -u)
	return "$status"
}

run() {
	local s=$1
	case $s in
	lint)
		collect_less stage lint scripts/lint.sh
		;;
	unit)
		side 100 browser
		collect_less stage "unit tests" go_test < <(without "$real_paths"$'\n'"$attack"$'\n'"$browser" <<<"$all")
		stage "attacks on servers" go_test -count 1 <<<"$attack"
		;;
	browser)
		stage "the dashboard in a browser" go_test -count 1 <<<"$browser"
		;;
	race)
		collect_less stage "unit tests, race detector" go_test -race -skip "$skip_race" \
			< <(without "$real_paths"$'\n'"$cgo"$'\n'"$pure"$'\n'"$state"$'\n'"$simulation"$'\n'"$readme"$'\n'"$attack"$'\n'"$browser"$'\n'"$plain"$'\nevenkeel/cmd/vcctl' <<<"$all")
		collect_less stage "the cluster's state, race detector" go_test -race -run "$state_tests" <<<"$state"
		collect_less stage "unit tests of what starts no goroutine" go_test < <(without "$real_paths" <<<"$pure"$'\n'"$state"$'\n'"$plain")
		collect_less stage "long tests without the race detector" go_test -run "$plain_tests" <<<$'evenkeel/cmd/vcsim\nevenkeel/cmd/vcsim/dfrs\nevenkeel/api/server'
		# Three times what a laptop plays: each mix of faults three times.
		EVENKEEL_SEEDS=${EVENKEEL_SEEDS:-200} stage "whole clusters without libvirt" go_test <<<"$simulation"
		;;
	programs)
		stage "attacks on servers" go_test -count 1 <<<"$attack"
		;;
	clients)
		side 100 browser
		side 200 vcctl
		side 100 linked
		rejoin
		;;
	vcctl)
		# Without a number as many scripts run at a time as there are CPUs.
		stage "unit tests of vcctl, race detector" go_test -race -parallel 4 <<<evenkeel/cmd/vcctl
		stage "the tour of the README" go_test <<<"$readme"
		;;
	linked)
		stage "unit tests of what links libvirt" go_test < <(without "$real_paths" <<<"$cgo")
		;;
	real)
		# Two labs at a time: with three a move's hosts stand still for longer than its byte budget allows for.
		side 200 chaos moves
		run hosts
		run "cluster moves"
		for s in "${demo[@]}"; do run "$s"; done
		rejoin
		# Labs that precede other work (Lab.Precede) leave too little to a second lab, and to its test.
		run rightsizing
		run measured
		;;
	hosts)
		EVENKEEL_REAL=1 stage "tests on real libvirt and QEMU" go_test -p 1 -count 1 < <(without "$measure" <<<"$real_paths")
		;;
	chaos)
		if newer; then
			EVENKEEL_REAL=1 EVENKEEL_QEMU=$PWD/build/qemu EVENKEEL_CHAOS_SEED=16 stage "chaos: five minutes of faults" \
				go_test -p 1 -count 1 -run '^TestChaos$' <<<'evenkeel/test/chaos'
		else
			echo "== NOT RUN: chaos, and migration on real QEMU (no newer QEMU to be had)"
		fi
		;;
	moves)
		! newer || EVENKEEL_REAL=1 EVENKEEL_QEMU=$PWD/build/qemu stage "moves on the QEMU of backports, cuts and kills at hand-overs" \
			go_test -p 1 -count 1 -run '^TestM(igrate|oves)' <<<$'evenkeel/test/chaos\nevenkeel/test/migrate\nevenkeel/hypervisor/libvirt'
		;;
	"cluster moves")
		! newer || EVENKEEL_REAL=1 EVENKEEL_QEMU=$PWD/build/qemu stage "moves through a whole cluster on the QEMU of backports" \
			go_test -p 1 -count 1 -run '^TestMoves$' <<<evenkeel/test/cluster
		;;
	demo)
		stage "the demo" make --no-print-directory demo
		;;
	vuln)
		stage "known vulnerabilities" scripts/vuln.sh
		;;
	rightsizing)
		EVENKEEL_REAL=1 stage "rightsizing on real libvirt and QEMU" go_test -p 1 -count 1 < <(grep rightsizing <<<"$measure")
		;;
	measured)
		EVENKEEL_REAL=1 stage "the hypervisor on real libvirt and QEMU" go_test -p 1 -count 1 < <(grep -v rightsizing <<<"$measure")
		! newer || EVENKEEL_REAL=1 EVENKEEL_QEMU=$PWD/build/qemu stage "conformance on the QEMU of backports" \
			go_test -p 1 -count 1 -run '^TestConformance$' <<<evenkeel/hypervisor/libvirt
		;;
	image)
		stage "the disk of the test machine" machine_image
		touch "$logs/image-ended"
		;;
	machines)
		while [[ ! -e $logs/image-ended && " ${low[*]} " == *" image "* ]] && kill -0 "$low_pid" 2>/dev/null; do sleep 1; done
		[[ -e $logs/image-ended ]] || run image
		if [[ -e $logs/no-machine ]]; then
			echo "== NOT RUN: a host with KVM, cgroup v2 and systemd ($(<"$logs/no-machine"))" | tee -a "$logs/summary"
		elif [[ -e $logs/machine ]]; then
			stage "a host with KVM, cgroup v2 and systemd" machines
		fi
		;;
	fuzz)
		collect_less stage "fuzzing" fuzz
		;;
	*)
		echo "test.sh: no stage $s" >&2
		exit 2
		;;
	esac
}

# in_group NAME WEIGHT has this shell, and all that it starts, share the CPU as one: WEIGHT is that of a process of nice 0 in per cent. Each lab
# has a group of its own with 100 for each host. What runs in no group counts process by process: twenty of them left the servers of a
# lab too little to keep a leader.
groups=/sys/fs/cgroup/cpu/evenkeel-$$ weights=cpu.shares unit=1024
[[ ! -e /sys/fs/cgroup/cgroup.controllers ]] || { groups=/sys/fs/cgroup/evenkeel-$$ weights=cpu.weight unit=100; }
in_group() {
	{
		mkdir "$groups-$1"
		echo $((unit * $2 / 100)) >"$groups-$1/$weights"
		echo "$BASHPID" >"$groups-$1/cgroup.procs"
	} 2>/dev/null || true
}

# lower_priority is nice 10, in and among groups.
lower_priority() {
	renice -n 10 -p "$BASHPID" >/dev/null
	in_group low 11
}

# newer says whether there is a newer QEMU than Debian 12 has: live migration of emulated guests needs one.
newer() { scripts/fetch-qemu.sh >&2; }

# side WEIGHT STAGE... runs stages, one after the other, in a group beside what follows, where there is memory for it; and otherwise before
# that. rejoin waits for all of them.
side() {
	local s weight=$1
	shift
	if [[ $labs -eq 1 ]]; then
		for s in "$@"; do run "$s"; done
		return
	fi
	(
		in_group "$1" "$weight"
		beside=yes
		for s in "$@"; do run "$s"; done
	) &
	pids+=($!)
}
rejoin() {
	local pid
	for pid in "${pids[@]}"; do
		wait "$pid" || echo "a stage beside others" | tee "$logs/a stage beside others" >>"$logs/failed"
	done
	pids=()
}
pids=()

# lint vets all that is built, tests included.
vet=()
if [[ " $* " == *" lint "* ]]; then vet=(-vet=off); fi

low_pid= # of what runs at a lower priority
beside=
# The hosts of a lab take up to 4 GiB, the race detector's packages as much.
memory=$(awk '$1 == "MemAvailable:" {print int($2 / 1048576)}' /proc/meminfo) # GiB
labs=1
if [[ $memory -ge 16 ]]; then labs=2; fi
low=()
front=()
demo=() # beside the labs
for s in "$@"; do
	case $s in
	demo) if [[ " $* " == *" real "* ]]; then demo=(demo); else front+=(demo); fi ;;
	real | programs | clients | unit | machines) front+=("$s") ;;
	*) low+=("$s") ;;
	esac
done
if [[ ${#front[@]} -gt 0 && ${#low[@]} -gt 0 && $memory -ge 12 ]]; then
	(
		lower_priority
		beside=yes
		for s in "${low[@]}"; do run "$s"; done
	) &
	low_pid=$!
	for s in "${front[@]}"; do run "$s"; done
	rejoin
	wait "$low_pid" || echo "the stages beside it" | tee "$logs/the stages beside it" >>"$logs/failed"
else
	for s in "$@"; do [[ $s == demo && ${#demo[@]} -gt 0 ]] || run "$s"; done
	rejoin
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
