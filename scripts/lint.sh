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

# Functions whose cyclomatic complexity is over the limit, but for those that complexity.txt
# names. A name that is not over the limit any more must leave the list: it only shrinks.
complexity() {
	# gocyclo prints: complexity, package, function, file:line:column.
	go tool -modfile=tools.mod gocyclo -ignore '_test\.go$|^build/' . | awk '
		FNR == NR { if ($0 !~ /^(#|$)/) listed[$0] = 1; next }
		$1 > 25 { at = $NF; sub("/[^/]*$", "", at); name = at " " $3; over[name] = 1
		  if (!(name in listed)) { print $NF ": " $3 " has a complexity of " $1 ", more than 25: part it where a step has a name"; bad = 1 } }
		END { for (name in listed) if (!(name in over)) { print "scripts/complexity.txt: " name " is not over the limit: take it off the list"; bad = 1 }
		      exit bad }
	' scripts/complexity.txt -
}

check gofmt formatted
check "go vet" go vet -tags "$tags" ./...
check staticcheck go tool -modfile=tools.mod staticcheck -tags "$tags" ./...
check complexity complexity
check shellcheck shell_scripts
check "test guest" gcc -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -O2 test/guest/*.c
check "house rules" go test -count 1 ./internal/lint
if [[ ${#failed[@]} -gt 0 ]]; then
	printf 'FAILED: %s\n' "${failed[@]}"
	exit 1
fi
