#!/bin/bash
# test.sh has promtool check the alerts and run their tests. Without promtool
# (Debian package prometheus) it says so and does nothing. PROMTOOL names another one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

promtool=${PROMTOOL:-promtool}
if ! command -v "$promtool" >/dev/null; then
	echo "alerts: NOT TESTED: no promtool (Debian package prometheus)"
	exit 0
fi
"$promtool" check rules evenkeel.rules.yaml
"$promtool" test rules evenkeel.rules.test.yaml
