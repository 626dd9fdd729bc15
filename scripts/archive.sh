#!/bin/bash
# archive.sh RELEASE prints the address of the archive from which apt takes that Debian release, such as bookworm. Of a release that apt
# does not use, it is the archive of the release that it does.
#   status 1   apt knows none, or the archive has no such release
#   status 3   the archive cannot be reached, or has a failure of its own: nothing here can be mended
set -euo pipefail

release=$1
die() {
	echo "archive: $2" >&2
	exit "$1"
}
command -v apt-get >/dev/null || die 1 "this is not Debian"
# shellcheck disable=SC2016 # apt fills these in
archives=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages')
# shellcheck source=/dev/null
own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
archive=$(awk -v r="$release" -v own="$own" '$2 == "main" && !of[$1] { of[$1] = $3 } END { print of[r] ? of[r] : of[own] }' <<<"$archives")
[[ -n $archive ]] || die 1 "apt knows no archive of $release; run apt-get update"
archive=${archive%/}

# Of another kind, such as a directory, it is not tried.
if [[ $archive == http*://* ]]; then
	file=$archive/dists/$release/Release status=0
	code=$(curl -sS -o /dev/null -w '%{http_code}' --retry 2 --connect-timeout 20 --max-time 60 "$file") || status=$?
	case $status/$code in
	0/200 | 0/3??) ;;
	5/* | 6/* | 7/* | 28/* | 35/* | 52/* | 56/* | 0/5??) die 3 "$file cannot be reached (curl's status $status, HTTP $code)" ;;
	*) die 1 "$file: curl's status $status, HTTP $code" ;;
	esac
fi
echo "$archive"
