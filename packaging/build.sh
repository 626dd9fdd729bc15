#!/bin/bash
# build.sh makes the Debian packages of vcd and vcctl in build/packages.
# The same commit gives the same bytes: times are those of the commit
# (SOURCE_DATE_EPOCH), owners are root, the programs hold no path of this machine.
# EVENKEEL_PACKAGES is another folder for them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go=${GO:-go}
tags=${EVENKEEL_TAGS:-libvirt_dlopen,hashicorpmetrics}
out=${EVENKEEL_PACKAGES:-build/packages}
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
described=$(git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || git describe --always --dirty)

# A version that dpkg puts into order: v1.2.3 is 1.2.3, three commits later it is 1.2.3+3.abcdef0;
# before the first tag the time of the commit has to do.
case $described in
v*) version=$(sed -E 's/^v//; s/-([0-9]+)-g([0-9a-f]+)/+\1.\2/; s/-dirty$/+dirty/; s/-/~/g' <<<"$described") ;;
*) version=0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).${described//-/+} ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# compile CGO MODE PACKAGE FILE
compile() {
	CGO_ENABLED=$1 "$go" build -buildmode="$2" -buildvcs=false -trimpath -tags "$tags" -ldflags "-s -w -buildid= -X main.version=$described" -o "$4" "$3"
}

# licences PACKAGE: of every module that the program is built from.
licences() {
	local path version dir file
	"$go" list -deps -tags "$tags" -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' "$1" |
		LC_ALL=C sort -u | while read -r path version dir; do
		for file in "$dir"/{LICENSE,LICENCE,COPYING,NOTICE,PATENTS}*; do
			[[ -f $file ]] || continue
			printf '==== %s %s: %s\n\n' "$path" "$version" "${file##*/}"
			cat "$file"
			echo
		done
	done
}

# page FILE DIR: a manual page, compressed as Debian wants it.
page() {
	mkdir -p "$2"
	gzip -9n <"$1" >"$2/${1##*/}.gz"
}

# documents NAME PACKAGE
documents() {
	local doc=$work/$1/usr/share/doc/$1
	mkdir -p "$doc"
	cp packaging/copyright "$doc/copyright"
	gzip -9n <CHANGELOG.md >"$doc/CHANGELOG.md.gz"
	gzip -9n >"$doc/changelog.gz" <<-END
		$1 ($version) unstable; urgency=medium

		  * What is new stands in CHANGELOG.md.gz.

		 -- $(sed -n 's/^Maintainer: //p' "packaging/deb/$1/control")  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
	END
	if [[ -e packaging/deb/$1/lintian-overrides ]]; then
		mkdir -p "$work/$1/usr/share/lintian/overrides"
		cp "packaging/deb/$1/lintian-overrides" "$work/$1/usr/share/lintian/overrides/$1"
	fi
	licences "$2" | gzip -9n >"$doc/modules-licences.gz"
}

# seal NAME: control files, times and the package itself.
seal() {
	local root=$work/$1 size
	mkdir -p "$root/DEBIAN"
	size=$(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
	sed -e "s/@VERSION@/$version/g; s/@ARCH@/$arch/; s/@SIZE@/$size/" "packaging/deb/$1/control" >"$root/DEBIAN/control"
	for f in conffiles postinst prerm postrm; do
		[[ ! -e packaging/deb/$1/$f ]] || cp "packaging/deb/$1/$f" "$root/DEBIAN/$f"
	done
	(cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum >DEBIAN/md5sums)
	find "$root" -type d -exec chmod 0755 {} +
	find "$root" -type f -exec chmod 0644 {} +
	for f in "$root"/DEBIAN/{postinst,prerm,postrm} "$root"/usr/{bin,sbin}/*; do
		[[ ! -f $f ]] || chmod 0755 "$f"
	done
	if [[ -d $root/etc/evenkeel ]]; then
		chmod 0640 "$root/etc/evenkeel/vcd.yaml"
		chmod 0700 "$root/etc/evenkeel/fence"
	fi
	find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$1_${version}_$arch.deb" >/dev/null
	echo "$out/$1_${version}_$arch.deb"
}

mkdir -p "$out"
rm -f "$out"/evenkeel-*.deb # of other commits: who installs *.deb wants one of each

mkdir -p "$work/evenkeel-vcd"/{usr/sbin,lib/systemd/system,etc/evenkeel/fence}
compile 1 pie ./cmd/vcd "$work/evenkeel-vcd/usr/sbin/vcd"
cp packaging/vcd.service "$work/evenkeel-vcd/lib/systemd/system/"
cp packaging/vcd.yaml "$work/evenkeel-vcd/etc/evenkeel/"
mkdir -p "$work/evenkeel-vcd/usr/share/doc/evenkeel-vcd/examples"
cp packaging/grafana/*.json "$work/evenkeel-vcd/usr/share/doc/evenkeel-vcd/examples/"
cp packaging/prometheus/evenkeel.rules.yaml "$work/evenkeel-vcd/usr/share/doc/evenkeel-vcd/examples/"
page packaging/man/vcd.8 "$work/evenkeel-vcd/usr/share/man/man8"
page packaging/man/vcd.yaml.5 "$work/evenkeel-vcd/usr/share/man/man5"
documents evenkeel-vcd ./cmd/vcd
seal evenkeel-vcd

c=$work/evenkeel-vcctl
mkdir -p "$c"/usr/{bin,share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}}
compile 0 exe ./cmd/vcctl "$c/usr/bin/vcctl"
"$c/usr/bin/vcctl" completion bash >"$c/usr/share/bash-completion/completions/vcctl"
"$c/usr/bin/vcctl" completion zsh >"$c/usr/share/zsh/vendor-completions/_vcctl"
"$c/usr/bin/vcctl" completion fish >"$c/usr/share/fish/vendor_completions.d/vcctl.fish"
page packaging/man/vcctl.1 "$c/usr/share/man/man1"
documents evenkeel-vcctl ./cmd/vcctl
seal evenkeel-vcctl
