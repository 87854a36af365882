#!/bin/sh
# Prints the path of a program of an etcd release, built out of its Go modules into .tools/etcd-VERSION/, whose sums Go checks
# against its own database.
#
#   tests/scripts/etcd_release.sh [--cached] VERSION PROGRAM      such as: 3.6.16 etcd, 3.6.16 etcdutl
#
# --cached: only if it is there.
# Status 3: it cannot be had, because there is no Go or nothing answers; said loudly, since what needs it is then not tested.
# Quick when done; safe when run twice at once.
set -eu

cached=
if [ "$1" = --cached ]; then cached=$1 && shift; fi
version=$1
program=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
home=$root/.tools/etcd-$version

absent() {
    echo "!!! NOT TESTED: whatever needs $program $version: $1" >&2
    echo "!!! help: ${2:-install Go and let it reach its module proxy}" >&2
    exit 3
}

if [ -e "$home/.complete" ]; then echo "$home/$program" && exit 0; fi
if [ -n "$cached" ]; then absent "it was not built here" "make test-etcd, two minutes, once"; fi
command -v go >/dev/null || absent "there is no Go"

mkdir -p "$root/.tools"
exec 9>"$root/.tools/etcd-$version.lock"
flock 9
if [ -e "$home/.complete" ]; then echo "$home/$program" && exit 0; fi

echo "building etcd $version into ${home#"$root"/} (once, two minutes)" >&2
rm -rf "$home"
mkdir -p "$home/source"
cd "$home/source"
# The one toolchain that is here: none is fetched.
export GOTOOLCHAIN=local CGO_ENABLED=0
server=go.etcd.io/etcd/server/v3 util=go.etcd.io/etcd/etcdutl/v3
if ! {
    go mod init slipway.test/etcd && go get "$server@v$version" "$util@v$version" &&
        go build -trimpath -ldflags '-s -w' -o "$home/etcd" "$server" &&
        go build -trimpath -ldflags '-s -w' -o "$home/etcdutl" "$util"
} >log 2>&1; then
    absent "it cannot be built: $(tail -1 log)"
fi
rm -rf "$home/source"
touch "$home/.complete"
echo "$home/$program"
