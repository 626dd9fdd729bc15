#!/bin/bash
# vuln.sh [PACKAGE...] looks for known vulnerabilities in what we link and call, all packages by default, with govulncheck.
#   status 0   none was found; or NOT RUN: the database cannot be reached, which says nothing about the code
#   status 3   some were found; the output names each with the way by which we call it: update the module (go get MODULE@VERSION), or Go
#   others     the check itself failed
# It is part of .ci/run and not of make ci, whose result must not change without a change of the code.
# EVENKEEL_VULN_DB names another database than https://vuln.go.dev, such as a copy of it: file:///DIRECTORY.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tags=${EVENKEEL_TAGS:-libvirt_dlopen,hashicorpmetrics}
args=(-tags "$tags")
[[ -z ${EVENKEEL_VULN_DB:-} ]] || args+=(-db "$EVENKEEL_VULN_DB")
[[ $# -gt 0 ]] || set -- ./...

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Not by `go tool`, whose exit status is its own.
go build -modfile=tools.mod -o "$work/govulncheck" golang.org/x/vuln/cmd/govulncheck

status=0
"$work/govulncheck" "${args[@]}" "$@" 2>"$work/errors" || status=$?
cat "$work/errors" >&2

# Only what Go's HTTP client says when no answer came, or a server's own failure, is a database that cannot be reached.
unreachable='^govulncheck: fetching vulnerabilities: (Get "https?://|.*returned unexpected status: 5[0-9][0-9])'
if [[ $status -eq 1 ]] && grep -qE "$unreachable" "$work/errors"; then
	echo "NOT RUN: the vulnerability database cannot be reached"
	exit 0
fi
exit "$status"
