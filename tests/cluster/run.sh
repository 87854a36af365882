#!/usr/bin/env bash
# Runs a program that needs virtual machines, with all that they are made of, in namespaces of its own: whatever it starts ends with it, also
# when it is interrupted, and nothing of the host outside of them is changed.
#
#   tests/cluster/run.sh [--cached] PROGRAM ARGUMENTS...
#
# --cached: only if nothing must be built for it. Status 3: it cannot run here, which was said loudly.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cached=
if [ "${1-}" = --cached ]; then cached=--cached && shift; fi

absent() {
    echo "!!! NOT TESTED: a cluster on virtual machines: $1" >&2
    exit 3
}

[ "$(id -u)" = 0 ] || absent "it needs root, for a network of its own"
for program in qemu-system-x86_64 qemu-img unshare ip openssl curl; do
    command -v "$program" >/dev/null || absent "there is no $program (apt-get install qemu-system-x86 qemu-utils iproute2)"
done
[ -c /dev/net/tun ] || absent "there is no /dev/net/tun"
SLIPWAY_IMAGE=$("$here/image.sh" $cached)
SLIPWAY_DEPOT=${SLIPWAY_DEPOT-$("$here/software.sh" $cached)}
SLIPWAY_AUTHORITY=$("$here/authority.sh")
SLIPWAY_KUBERNETES=$(sed -n 's/^require k8s.io\/kubernetes v//p' "$here/../tools/kubernetes/go.mod")
export SLIPWAY_IMAGE SLIPWAY_DEPOT SLIPWAY_AUTHORITY SLIPWAY_KUBERNETES SLIPWAY_CLUSTER=1
# Disks, volumes and consoles. $SLIPWAY_OUTER: the process in whose network the machines are, as the host knows it.
TMPDIR=$(mktemp -d --suffix=.slipway-cluster)
export TMPDIR
child=
trap '[ -z "$child" ] || kill -KILL "$child" 2>/dev/null; wait; rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM HUP
SLIPWAY_OUTER=$TMPDIR/pid unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc "$@" &
child=$!
echo "$child" >"$TMPDIR/pid"
status=0
wait "$child" || status=$?
child=
exit "$status"
