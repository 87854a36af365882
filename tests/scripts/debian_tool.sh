#!/bin/sh
# Prints the path of a program that a Debian package has: the installed one, or else one that is fetched with apt-get and unpacked
# into .tools/debian/, without root and without installing anything.
#
#   tests/scripts/debian_tool.sh PACKAGE PROGRAM      such as: etcd-server etcd
#
# Status 3: it cannot be had, because this is no Debian or nothing answers; said loudly, since what needs it is then not tested.
# Quick when done; safe when run twice at once.
set -eu

package=$1
program=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
home=$root/.tools/debian/$package

absent() {
    echo "!!! NOT TESTED: whatever needs $program: $1" >&2
    echo "!!! help: install the package $package, or put $program on the PATH" >&2
    exit 3
}

finish() {
    # It may want libraries that are not here.
    { "$home/usr/bin/$program" --version || "$home/usr/bin/$program" version; } >/dev/null 2>&1 ||
        absent "$home/usr/bin/$program does not run"
    echo "$home/usr/bin/$program"
    exit 0
}

if command -v "$program"; then exit 0; fi
if [ -e "$home/.complete" ]; then finish; fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then absent "neither it nor apt-get is here"; fi

mkdir -p "$root/.tools/debian"
exec 9>"$root/.tools/debian/lock"
flock 9
if [ -e "$home/.complete" ]; then finish; fi

rm -rf "$home"
mkdir -p "$home/fetched/lists/partial" "$home/fetched/archives/partial"
cd "$home/fetched"
echo "fetching $program out of Debian's $package into ${home#"$root"/} (once)" >&2
# The lists of packages may be missing or old, as they are in a fresh container: then ours are fetched, beside the system's.
if ! apt-get -qq download "$package" >/dev/null 2>log; then
    own="-o Dir::State::Lists=$home/fetched/lists -o Dir::Cache=$home/fetched"
    # shellcheck disable=SC2086
    if ! { apt-get -qq $own update && apt-get -qq $own download "$package"; } >>log 2>&1; then
        absent "apt-get cannot fetch it: $(tail -1 log)"
    fi
fi
dpkg-deb -x ./*.deb "$home"
rm -rf "$home/fetched"
touch "$home/.complete"
finish
