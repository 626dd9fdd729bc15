#!/bin/bash
# lint.sh checks what can be checked without running anything: formatting, vet,
# staticcheck, how much a function branches, the shell scripts, and the rules of the
# house (internal/lint).
# All checks run, whatever the earlier ones found; the status is 1 if any found something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tags=${EVENKEEL_TAGS:-libvirt_dlopen,hashicorpmetrics}
failed=()
# check NAME COMMAND...
check() {
	local name=$1
	shift
	echo "== $name"
	"$@" || failed+=("$name")
}

formatted() {
	local files
	files=$(find . -name '*.go' -not -path './build/*' -not -path '*/testdata/*' -exec gofmt -l {} +)
	[[ -z $files ]] && return 0
	echo "not formatted (make fmt does it):"
	echo "$files"
	return 1
}

# Every file that begins as a shell script does, whatever its name.
shell_scripts() {
	local scripts
	scripts=$(grep -rlE --exclude-dir=.git --exclude-dir=build --exclude-dir=bin --exclude='*.go' --exclude='*.md' -m 1 '^#!/bin/(bash|sh|busybox sh)' .)
	xargs shellcheck <<<"$scripts"
}

# No function has a cyclomatic complexity over 25.
complexity() {
	local all
	all=$(go tool -modfile=tools.mod gocyclo -ignore '_test\.go$|^build/' .) || return 1
	awk '$1 > 25 { print $NF ": " $3 " has a complexity of " $1 ", more than 25: part it where a step has a name"; bad = 1 } END { exit bad }' <<<"$all"
}

check gofmt formatted
check "go vet" go vet -tags "$tags" ./...
check staticcheck go tool -modfile=tools.mod staticcheck -tags "$tags" ./...
check complexity complexity
check shellcheck shell_scripts
check "test guest" gcc -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -O2 test/guest/*.c
check "house rules" go test -count 1 ./internal/lint
check "counts, reported only" scripts/count.sh
if [[ ${#failed[@]} -gt 0 ]]; then
	printf 'FAILED: %s\n' "${failed[@]}"
	exit 1
fi
