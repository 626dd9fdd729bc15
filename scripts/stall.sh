#!/bin/bash
# stall.sh COMMAND... runs a command on a machine that stands still: all that the command starts is stopped for 3 to 6 s,
# again and again, after 5 to 14 s each time. Tests must pass under it:
#   go test -c -o member.test ./cluster/member && cd cluster/member && ../../scripts/stall.sh ../../member.test
set -euo pipefail

set -m # a process group of its own
"$@" &
group=$!
set +m
trap 'kill -CONT -- "-$group" && kill -- "-$group"' INT TERM

while
	sleep "$((5 + RANDOM % 10)).$((RANDOM % 10))"
	kill -STOP -- "-$group" 2>/dev/null
do
	sleep "$((3 + RANDOM % 3)).$((RANDOM % 10))"
	kill -CONT -- "-$group" 2>/dev/null || break
done >/dev/null 2>&1 &
stalls=$!
status=0
wait "$group" || status=$?
kill "$stalls" 2>/dev/null || true
exit "$status"
