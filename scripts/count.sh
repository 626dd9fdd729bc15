#!/bin/bash
# count.sh prints what Evenkeel is to keep small, and the limits: lines of Go code, without blanks and comments, of all
# packages that vcd and vcctl link; functions over a cyclomatic complexity of 25, functions with many parameters, structs
# with many fields. It reports and does not fail over a limit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tags=${EVENKEEL_TAGS:-libvirt_dlopen,hashicorpmetrics}
# shellcheck disable=SC2016 # a template of go list
go list -tags "$tags" -deps -f '{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .CgoFiles}}{{$dir}}/{{.}}
{{end}}{{end}}{{end}}' ./cmd/vcd ./cmd/vcctl | sed -n "s|^$PWD/||p" | go run -tags "$tags" ./cmd/internal/count
complex=$(go tool -modfile=tools.mod gocyclo -ignore '_test\.go$|^build/' . | awk '$1 > 25' | wc -l)
printf '%-46s %6d  limit %d\n' "functions over a cyclomatic complexity of 25" "$complex" 10
